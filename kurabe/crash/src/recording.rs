//! The recorder, a layer of a block device, and what it recorded.
//!
//! Each arrival, each reply and each acknowledgement takes the next number of one counter, so that
//! all of them stand in one order ([`Instant`]). The bytes of writes are appended to a file in the order of
//! arrival: a file in memory, or one on a disk for what memory does not hold.
//!
//! Invariant: an acknowledgement is numbered after whoever gave it had its reply, so a late stamp can
//! hide a loss and never invent one.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time;

use block::BlockDevice;
use serde::{Deserialize, Serialize};

use crate::SECTOR_BYTES;
use crate::line::Line;

/// Devices that a recording has at most.
const DEVICES_MAX: usize = 16;

/// A place in the order of everything that was recorded, from 1.
pub type Instant = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// Bytes were written.
    Write,
    /// Space was zeroed; it reads as zeros once that is durable.
    Zero,
    /// Space was discarded; it reads as bytes that nobody wrote once that is durable.
    Discard,
    /// The device was flushed.
    Flush,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedRequest {
    pub operation: RequestKind,
    /// First sector; for a flush that of the device that was flushed.
    pub sector: u64,
    /// Sectors; 0 for a flush.
    pub sectors: u64,
    /// First sector of its bytes in the recording's file. Grows with the arrival.
    pub data_sector: u64,
    pub arrived: Instant,
    /// When it was replied to; absent when it failed or was still in flight at the end.
    pub replied: Option<Instant>,
    /// When it arrived, in ns since the recording began.
    pub arrived_ns: u64,
    /// When it was replied to, in ns since the recording began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replied_ns: Option<u64>,
    /// When the disk had made it durable without being asked, where the disk tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destaged: Option<Instant>,
}

/// Something that the workload said to be durable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Acknowledgement {
    pub instant: Instant,
    /// The same in ns since the recording began.
    pub received_ns: u64,
    /// The line, as it was received.
    pub text: Line,
}

#[derive(Debug)]
pub struct Recording {
    pub log: Log,
    /// The bytes of all writes; what was zeroed is a hole.
    pub data: Arc<File>,
}

impl Recording {
    /// A recording that was kept: what happened, and the file with the bytes.
    ///
    /// Errors: what in it cannot be: a request outside of the device or of the file, instants out of order.
    pub fn open(log: Log, data: File) -> Result<Recording, String> {
        let firsts: Vec<u64> = [&[0][..], &log.further[..], &[log.sectors][..]].concat();
        let is_apart = firsts.is_sorted_by(|one, next| one < next);
        if !log.further.is_empty() && !is_apart || log.further.len() >= DEVICES_MAX {
            return Err(format!("the devices of the recording cannot be: {:?}", log.further));
        }
        let mut before = 0;
        let mut data_sectors = 0_u64;
        for (number, request) in log.requests.iter().enumerate() {
            let inside = request.sector.checked_add(request.sectors);
            let replied = request.replied.unwrap_or(Instant::MAX);
            let follows = request.arrived > before && replied > request.arrived;
            let has_data = request.data_sector == data_sectors;
            if inside.is_none_or(|end| end > log.sectors) || !follows || !has_data {
                return Err(format!("request {number} of the recording cannot be: {request:?}"));
            }
            before = request.arrived;
            // Below the device's size each, and there are fewer than 2^32 of them in memory.
            data_sectors = data_sectors.saturating_add(request.sectors);
        }
        let acknowledged = log.acknowledgements.is_sorted_by_key(|one| one.instant);
        if data_sectors != log.data_sectors || data_sectors >= u64::from(u32::MAX) || !acknowledged
        {
            return Err("the recording's parts do not belong together".into());
        }
        Ok(Recording { log, data: Arc::new(data) })
    }
}

/// What happened on a device, without the bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Log {
    /// Size of the device in sectors, of several together.
    pub sectors: u64,
    /// First sector of each device but the first, where there are several: one lies behind the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<u64>,
    /// In the order of arrival.
    pub requests: Vec<RecordedRequest>,
    /// In the order of their receipt.
    pub acknowledgements: Vec<Acknowledgement>,
    /// The last instant.
    pub end: Instant,
    /// Sectors of the file with the bytes.
    pub data_sectors: u64,
    /// Whether it ends before a request for whose bytes there was no room, rather than with the workload.
    #[serde(default)]
    pub is_cut_short: bool,
}

impl Log {
    /// The number of the device, from 0, on which a sector lies.
    pub fn device_of(&self, sector: u64) -> usize {
        self.further.partition_point(|first| *first <= sector)
    }

    /// The bytes of each device.
    pub fn devices(&self) -> Vec<Range<u64>> {
        let firsts = [&[0][..], &self.further[..], &[self.sectors][..]].concat();
        let range = |ends: &[u64]| ends[0] * SECTOR_BYTES..ends[1] * SECTOR_BYTES;
        firsts.windows(2).map(range).collect()
    }

    /// Ends it right before a request, as if nothing had been asked or said since.
    fn cut_before(&mut self, number: usize) {
        let first = &self.requests[number];
        self.end = first.arrived - 1;
        self.data_sectors = first.data_sector;
        self.is_cut_short = true;
        self.requests.truncate(number);
        for request in &mut self.requests {
            request.replied = request.replied.filter(|replied| *replied <= self.end);
            request.replied_ns = request.replied_ns.filter(|_| request.replied.is_some());
        }
        self.acknowledgements.retain(|one| one.instant <= self.end);
    }
}

/// What discarded space reads as: not zero, so that whoever relies on zeros is caught.
const FILLER: u8 = 0xd5;
/// Bytes of it that are written at a time.
const FILLER_BYTES_MAX: u64 = 1 << 20;

/// A layer that records what passes through it.
pub struct RequestRecorder<D> {
    inner: D,
    data: Arc<File>,
    /// Bytes that went to it, and those from which on none do.
    bytes: AtomicU64,
    bytes_max: u64,
    /// The first request whose bytes could not be kept; none yet is the greatest number.
    unkept: AtomicUsize,
    log: Mutex<Log>,
    began: time::Instant,
}

impl<D: BlockDevice> RequestRecorder<D> {
    /// Records what reaches `inner`; the bytes go to `data`, an empty file, in memory
    /// (memfd_create(2)) or on a disk.
    pub fn new(inner: D, data: File) -> RequestRecorder<D> {
        let log = Log {
            sectors: inner.len() / SECTOR_BYTES,
            further: Vec::new(),
            requests: Vec::new(),
            acknowledgements: Vec::new(),
            end: 0,
            data_sectors: 0,
            is_cut_short: false,
        };
        RequestRecorder {
            inner,
            data: Arc::new(data),
            bytes: AtomicU64::new(0),
            bytes_max: u64::MAX,
            unkept: AtomicUsize::new(usize::MAX),
            log: Mutex::new(log),
            began: time::Instant::now(),
        }
    }

    /// Fails writes once so many bytes were recorded. As on a full disk the recording ends there.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: u64) -> RequestRecorder<D> {
        RequestRecorder { bytes_max, ..self }
    }

    /// What is recorded are several devices of so many bytes, one behind the other.
    #[must_use]
    pub fn of_devices(mut self, sizes_bytes: &[u64]) -> RequestRecorder<D> {
        let mut end = 0;
        let ends = sizes_bytes.iter().map(|bytes| {
            end += bytes / SECTOR_BYTES;
            end
        });
        let log = self.log.get_mut().expect("nobody else has it");
        log.further = ends.collect();
        log.further.pop();
        self
    }

    /// Flushes one of several devices, which makes nothing durable on the others.
    ///
    /// # Errors
    ///
    /// Those of the device below.
    pub fn flush_device(&self, number: usize) -> io::Result<()> {
        let sector = number.checked_sub(1).map_or(0, |place| self.log().further[place]);
        let (request, _) = self.arrive(RequestKind::Flush, sector * SECTOR_BYTES, 0);
        self.reply(request, self.inner.flush())
    }

    /// Records in memory.
    ///
    /// Errors: there is no memory for it.
    pub fn in_memory(inner: D) -> io::Result<RequestRecorder<D>> {
        let data = rustix::fs::memfd_create("recording", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(RequestRecorder::new(inner, data.into()))
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Notes that the workload has said that something is durable; call it after the line was read.
    pub fn acknowledge(&self, text: impl Into<Line>) {
        let received_ns = self.elapsed_ns();
        let mut log = self.log();
        log.end += 1;
        let instant = log.end;
        log.acknowledgements.push(Acknowledgement { instant, received_ns, text: text.into() });
    }

    pub fn now(&self) -> Instant {
        self.log().end
    }

    /// What was recorded so far. Requests in flight count as not replied to.
    pub fn recording(&self) -> Recording {
        let mut log = self.log().clone();
        match self.unkept.load(Ordering::Acquire) {
            usize::MAX => {}
            number => log.cut_before(number),
        }
        Recording { log, data: self.data.clone() }
    }

    /// Notes in a recording which writes the disk below had made durable without a flush. `durable` says when, of writes
    /// of which it is told when each was replied to, and its bytes.
    pub fn let_destage(
        &self,
        recording: &mut Recording,
        durable: impl FnOnce(&[(time::Instant, Range<u64>)]) -> Vec<Option<time::Instant>>,
    ) {
        let log = &mut recording.log;
        let at = |ns: u64| self.began + time::Duration::from_nanos(ns);
        let of_write = |request: &RecordedRequest| {
            let range = request.sector..request.sector + request.sectors;
            let bytes = range.start * SECTOR_BYTES..range.end * SECTOR_BYTES;
            request
                .replied_ns
                .filter(|_| request.operation == RequestKind::Write)
                .map(|ns| (at(ns), bytes))
        };
        let writes: Vec<_> = log.requests.iter().filter_map(of_write).collect();
        let durable = durable(&writes);
        assert_eq!(durable.len(), writes.len());
        // The first instant that is known to be no earlier: a cut comes right after an instant.
        let mut instants: Vec<(u64, Instant)> =
            log.requests.iter().map(|one| (one.arrived_ns, one.arrived)).collect();
        instants.extend(log.acknowledgements.iter().map(|one| (one.received_ns, one.instant)));
        instants.sort_unstable();
        let instant_of = |durable: time::Instant| {
            let ns = durable.saturating_duration_since(self.began).as_nanos() as u64;
            let next = instants.partition_point(|(at_ns, _)| *at_ns < ns);
            instants.get(next).map(|(_, instant)| *instant)
        };
        let mut durable = durable.into_iter();
        for request in &mut log.requests {
            if of_write(request).is_some() {
                request.destaged = durable.next().flatten().and_then(instant_of);
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no thread panics while it holds the log")
    }

    fn elapsed_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Notes the arrival; returns the request's number.
    fn arrive(&self, operation: RequestKind, offset: u64, length: u64) -> (usize, u64) {
        let arrived_ns = self.elapsed_ns();
        let mut log = self.log();
        log.end += 1;
        let sectors = length / SECTOR_BYTES;
        let data_sector = log.data_sectors;
        log.data_sectors += sectors;
        let arrived = log.end;
        log.requests.push(RecordedRequest {
            operation,
            sector: offset / SECTOR_BYTES,
            sectors,
            data_sector,
            arrived,
            replied: None,
            arrived_ns,
            replied_ns: None,
            destaged: None,
        });
        (log.requests.len() - 1, data_sector)
    }

    /// Appends the bytes of a request. After one that could not be kept, none is.
    fn keep(&self, request: usize, bytes: &[u8], offset: u64) -> io::Result<()> {
        let before = self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let is_full = before >= self.bytes_max || self.unkept.load(Ordering::Acquire) < usize::MAX;
        let kept = if is_full {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            self.data.write_all_at(bytes, offset)
        };
        if kept.is_err() {
            self.unkept.fetch_min(request, Ordering::AcqRel);
        }
        kept
    }

    fn reply(&self, request: usize, result: io::Result<()>) -> io::Result<()> {
        if result.is_ok() {
            let replied_ns = Some(self.elapsed_ns());
            let mut log = self.log();
            log.end += 1;
            log.requests[request].replied = Some(log.end);
            log.requests[request].replied_ns = replied_ns;
        }
        result
    }
}

impl<D: BlockDevice> BlockDevice for RequestRecorder<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn writes_at_once(&self) -> bool {
        self.inner.writes_at_once()
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let (request, data_sector) = self.arrive(RequestKind::Write, offset, buffer.len() as u64);
        let result = self
            .keep(request, buffer, data_sector * SECTOR_BYTES)
            .and_then(|()| self.inner.write_at(buffer, offset));
        self.reply(request, result)
    }

    fn flush(&self) -> io::Result<()> {
        self.flush_device(0)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let (request, data_sector) = self.arrive(RequestKind::Discard, offset, length);
        let filler = vec![FILLER; length.min(FILLER_BYTES_MAX) as usize];
        let result = (0..length).step_by(FILLER_BYTES_MAX as usize).try_for_each(|at| {
            let bytes = &filler[..(length - at).min(FILLER_BYTES_MAX) as usize];
            self.keep(request, bytes, data_sector * SECTOR_BYTES + at)?;
            self.inner.write_at(bytes, offset + at)
        });
        self.reply(request, result)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        let (request, _) = self.arrive(RequestKind::Zero, offset, length);
        self.reply(request, self.inner.zero_range(offset, length))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}
