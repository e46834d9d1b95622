//! What was asked of a device and when it answered: kept in few bytes, and looked at as a whole.
//!
//! A trace's file is a header of 16 bytes (`KURATRC2`, the device's size in bytes) and a record for
//! each request in the order of replies. A record is five numbers of 7 bits a byte, the low bits first:
//! arrival as the difference from the one before in ns, sign in the lowest bit; time to the reply in ns,
//! times 8, plus 4 where the file system said that it is metadata, plus the operation (0 read, 1 write,
//! 2 flush, 3 discard); for all but flushes, the offset as the difference from the end of the request
//! before, in sectors of 512 bytes, sign in the lowest bit; and the length in sectors.

use std::io::{self, Read, Write};
use std::ops::Range;

use serde_json::Value;

use crate::picture::TracePicture;
use crate::{DiskOperation, ModelRequest};

const MAGIC: &[u8; 8] = b"KURATRC2";
/// Offsets and lengths are multiples of it.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of a trace that is kept in memory at most: about 20 million requests.
pub const KEPT_BYTES_MAX: usize = 256 << 20;
/// Bytes and requests of a file that is read. One that was replayed has larger times, and so more bytes.
const FILE_BYTES_MAX: u64 = 4 * KEPT_BYTES_MAX as u64;
const REQUESTS_MAX: usize = KEPT_BYTES_MAX / 4;
/// No clock of a machine goes on so long, 36 years: sums of times stay below what a number holds.
const TIME_NS_MAX: u64 = 1 << 60;

/// One request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEntry {
    pub arrived_ns: u64,
    pub replied_ns: u64,
    pub request: ModelRequest,
    /// Whether the file system said that it is metadata. A modelled disk is not told.
    pub metadata: bool,
}

/// The state that each record is a difference from.
#[derive(Debug, Default, Clone, Copy)]
struct Before {
    arrived_ns: u64,
    end_sector: u64,
}

/// A trace as it comes in.
pub struct TraceRecorder {
    device_bytes: u64,
    before: Before,
    bytes: Vec<u8>,
    keeps: bool,
    requests: u64,
    dropped: u64,
    picture: TracePicture,
    /// When the picture begins.
    origin_ns: u64,
}

impl TraceRecorder {
    /// Of a device of so many bytes. Only the picture is kept.
    pub fn new(device_bytes: u64) -> TraceRecorder {
        TraceRecorder {
            device_bytes,
            before: Before::default(),
            bytes: Vec::new(),
            keeps: false,
            requests: 0,
            dropped: 0,
            picture: TracePicture::new(device_bytes, Vec::new()),
            origin_ns: 0,
        }
    }

    /// Keeps every request from now on.
    pub fn keep(&mut self) {
        self.keeps = true;
    }

    /// Notes a request and its reply.
    pub fn record(&mut self, entry: TraceEntry) {
        self.requests += 1;
        if let Some(arrived_ns) = entry.arrived_ns.checked_sub(self.origin_ns) {
            let replied_ns = entry.replied_ns - self.origin_ns;
            self.picture.add(&TraceEntry { arrived_ns, replied_ns, ..entry });
        }
        if !self.keeps {
            return;
        }
        if self.bytes.len() >= KEPT_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        encode(&mut self.bytes, &mut self.before, &entry);
    }

    /// Requests that came in, and those that found no room.
    pub fn requests(&self) -> (u64, u64) {
        (self.requests, self.dropped)
    }

    pub fn begin_picture(&mut self, at_ns: u64) {
        let journal = self.picture.journal().to_vec();
        (self.picture, self.origin_ns) = (TracePicture::new(self.device_bytes, journal), at_ns);
    }

    /// Shows apart what happens in these ranges of bytes, in which a journal lies.
    pub fn set_journal(&mut self, ranges: Vec<Range<u64>>) {
        self.picture = TracePicture::new(self.device_bytes, ranges);
    }

    /// How it looks as a whole.
    pub fn picture(&self) -> Value {
        self.picture.to_json()
    }

    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&self.device_bytes.to_le_bytes())?;
        out.write_all(&self.bytes)
    }
}

fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn encode(bytes: &mut Vec<u8>, before: &mut Before, entry: &TraceEntry) {
    let (code, has_place) = match entry.request.operation {
        DiskOperation::Read => (0, true),
        DiskOperation::Write => (1, true),
        DiskOperation::Flush => (2, false),
        DiskOperation::Discard => (3, true),
    };
    put(bytes, zigzag(entry.arrived_ns.wrapping_sub(before.arrived_ns) as i64));
    before.arrived_ns = entry.arrived_ns;
    let metadata = u64::from(entry.metadata) << 2;
    put(bytes, (entry.replied_ns.saturating_sub(entry.arrived_ns) << 3) | metadata | code);
    if has_place {
        let (sector, sectors) =
            (entry.request.offset / SECTOR_BYTES, entry.request.length / SECTOR_BYTES);
        put(bytes, zigzag(sector.wrapping_sub(before.end_sector) as i64));
        put(bytes, sectors);
        before.end_sector = sector + sectors;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub device_bytes: u64,
    /// In the order of arrival.
    pub entries: Vec<TraceEntry>,
}

/// Why a file is no trace.
fn broken(at: usize, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("byte {at}: {what}"))
}

impl Trace {
    /// Reads a file.
    ///
    /// Errors: it is no trace, or is cut off, and where; it is larger than one that is kept.
    pub fn read(input: &mut dyn Read) -> io::Result<Trace> {
        Trace::read_below(input, FILE_BYTES_MAX, REQUESTS_MAX)
    }

    fn read_below(input: &mut dyn Read, bytes_max: u64, requests_max: usize) -> io::Result<Trace> {
        const TOO_LONG: &str = "no trace of kurabe's is so long";
        let mut bytes = Vec::new();
        input.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(broken(bytes_max as usize, TOO_LONG));
        }
        if bytes.len() < 16 || &bytes[..8] != MAGIC {
            return Err(broken(0, "not a trace of kurabe's: it does not begin with KURATRC2"));
        }
        let device_bytes = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let (mut at, mut before, mut entries) = (16, Before::default(), Vec::new());
        while at < bytes.len() {
            let begin = at;
            if entries.len() == requests_max {
                return Err(broken(begin, TOO_LONG));
            }
            let mut take = || take(&bytes, &mut at);
            let arrived_ns = before.arrived_ns.wrapping_add(unzigzag(take()?) as u64);
            let word = take()?;
            let operation = [
                DiskOperation::Read,
                DiskOperation::Write,
                DiskOperation::Flush,
                DiskOperation::Discard,
            ][(word & 3) as usize];
            let mut request = ModelRequest { operation, offset: 0, length: 0 };
            if operation != DiskOperation::Flush {
                let sector = before.end_sector.wrapping_add(unzigzag(take()?) as u64);
                let sectors = take()?;
                let end = sector.checked_add(sectors).filter(|end| {
                    end.checked_mul(SECTOR_BYTES).is_some_and(|end| end <= device_bytes)
                });
                let Some(end) = end else {
                    return Err(broken(begin, "a request beyond the end of the device"));
                };
                before.end_sector = end;
                (request.offset, request.length) = (sector * SECTOR_BYTES, sectors * SECTOR_BYTES);
            }
            before.arrived_ns = arrived_ns;
            let replied_ns =
                arrived_ns.checked_add(word >> 3).filter(|at_ns| *at_ns <= TIME_NS_MAX);
            let Some(replied_ns) = replied_ns else {
                return Err(broken(begin, "a reply after the end of time"));
            };
            let metadata = word & 4 != 0;
            entries.push(TraceEntry { arrived_ns, replied_ns, request, metadata });
        }
        entries.sort_by_key(|entry| (entry.arrived_ns, entry.replied_ns));
        Ok(Trace { device_bytes, entries })
    }

    /// Writes the file, in the order of arrival.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let (mut bytes, mut before) = (Vec::new(), Before::default());
        for entry in &self.entries {
            encode(&mut bytes, &mut before, entry);
        }
        out.write_all(MAGIC)?;
        out.write_all(&self.device_bytes.to_le_bytes())?;
        out.write_all(&bytes)
    }

    /// Writes a table with a heading.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "arrived_ns,replied_ns,operation,offset_bytes,length_bytes,metadata")?;
        for TraceEntry { arrived_ns, replied_ns, request, metadata } in &self.entries {
            let word = match request.operation {
                DiskOperation::Read => "read",
                DiskOperation::Write => "write",
                DiskOperation::Flush => "flush",
                DiskOperation::Discard => "discard",
            };
            let (offset, length) = (request.offset, request.length);
            let metadata = u8::from(*metadata);
            writeln!(out, "{arrived_ns},{replied_ns},{word},{offset},{length},{metadata}")?;
        }
        Ok(())
    }

    /// Writes what `blkparse` and `btt` read: for each request a queue, an issue and a completion event
    /// of `struct blk_io_trace` (`linux/blktrace_api.h`), in the order of time.
    pub fn write_blktrace(&self, out: &mut dyn Write) -> io::Result<()> {
        const MAGIC_AND_VERSION: u32 = 0x6561_7400 | 7;
        const QUEUE: u32 = 1;
        const ISSUE: u32 = 7;
        const COMPLETE: u32 = 8;
        // Shifts of the categories in the upper half of the action.
        let category = |entry: &TraceEntry| {
            let metadata = u32::from(entry.metadata) << 28;
            metadata
                | match entry.request.operation {
                    DiskOperation::Read => 1 << 16,
                    DiskOperation::Write => 1 << 17,
                    DiskOperation::Flush => 1 << 18,
                    DiskOperation::Discard => 1 << 29,
                }
        };
        let (queued, issued, completed) = (1 << 20, 1 << 22, 1 << 23);
        let mut events: Vec<(u64, u32, ModelRequest)> = Vec::with_capacity(self.entries.len() * 3);
        for entry in &self.entries {
            let TraceEntry { arrived_ns, replied_ns, request, .. } = entry;
            let category = category(entry);
            events.push((*arrived_ns, QUEUE | queued | category, *request));
            events.push((*arrived_ns, ISSUE | issued | category, *request));
            events.push((*replied_ns, COMPLETE | completed | category, *request));
        }
        events.sort_by_key(|event| event.0);
        for (sequence, (time, action, request)) in events.into_iter().enumerate() {
            out.write_all(&MAGIC_AND_VERSION.to_ne_bytes())?;
            out.write_all(&(sequence as u32 + 1).to_ne_bytes())?;
            out.write_all(&time.to_ne_bytes())?;
            out.write_all(&(request.offset / SECTOR_BYTES).to_ne_bytes())?;
            out.write_all(&(request.length as u32).to_ne_bytes())?;
            out.write_all(&action.to_ne_bytes())?;
            // Process, device (8:0), processor, error and length of what follows.
            out.write_all(&0_u32.to_ne_bytes())?;
            out.write_all(&(8_u32 << 20).to_ne_bytes())?;
            out.write_all(&0_u32.to_ne_bytes())?;
            out.write_all(&[0; 4])?;
        }
        Ok(())
    }
}

fn take(bytes: &[u8], at: &mut usize) -> io::Result<u64> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let Some(&byte) = bytes.get(*at) else {
            return Err(broken(*at, "it ends within a record"));
        };
        *at += 1;
        if shift >= 63 && byte > 1 {
            return Err(broken(*at - 1, "a number of more than 64 bits"));
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn some(seed: u64) -> Trace {
        let (mut random, mut arrived_ns) = (Random::new(seed), 0);
        let entries = (0..5000).map(|_| {
            arrived_ns += random.bits() % 1_000_000;
            let offset = random.bits() % (1 << 20) * 4096;
            let request = match random.bits() % 8 {
                0 => ModelRequest::flush(),
                1 => ModelRequest::discard(offset, 8192),
                2..5 => ModelRequest::read(offset, 512),
                _ => ModelRequest::write(offset, 4096),
            };
            let replied_ns = arrived_ns + random.bits() % 100_000_000;
            TraceEntry { arrived_ns, replied_ns, request, metadata: random.bits() % 4 == 0 }
        });
        let entries = entries.collect();
        let mut trace = Trace { device_bytes: 8 << 30, entries };
        trace.entries.sort_by_key(|entry| (entry.arrived_ns, entry.replied_ns));
        trace
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let trace = some(1);
        let mut file = Vec::new();
        trace.write_to(&mut file).unwrap();
        assert_eq!(Trace::read(&mut &file[..]).unwrap(), trace);
        assert!(file.len() / trace.entries.len() < 16, "{} bytes", file.len());
        // In the order of replies too.
        let mut recorder = TraceRecorder::new(trace.device_bytes);
        recorder.keep();
        let mut replies = trace.entries.clone();
        replies.sort_by_key(|entry| entry.replied_ns);
        for entry in replies {
            recorder.record(entry);
        }
        let mut file = Vec::new();
        recorder.write_to(&mut file).unwrap();
        assert_eq!(Trace::read(&mut &file[..]).unwrap(), trace);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_the_place() {
        let mut file = Vec::new();
        some(2).write_to(&mut file).unwrap();
        let said = |bytes: &[u8]| Trace::read(&mut &bytes[..]).map(|_| ()).unwrap_err().to_string();
        assert!(said(b"nothing").contains("byte 0: not a trace"));
        assert!(said(&file[..file.len() - 1]).contains("ends within a record"));
        let mut small = file.clone();
        small[8..16].copy_from_slice(&4096_u64.to_le_bytes());
        assert!(said(&small).contains("beyond the end of the device"));
        assert!(Trace::read_below(&mut &file[..], 100, 9).is_err(), "too many bytes");
        let many = Trace::read_below(&mut &file[..], u64::MAX - 1, 4999).unwrap_err().to_string();
        assert!(many.contains("no trace of kurabe's is so long"), "{many}");
        assert!(Trace::read_below(&mut &file[..], u64::MAX - 1, 5000).is_ok());
        let mut late = file[..16].to_vec();
        put(&mut late, zigzag(TIME_NS_MAX as i64));
        put(&mut late, 1 << 3 | 2);
        assert!(said(&late).contains("after the end of time"));
        // Whatever the bytes are, reading them ends.
        let mut random = Random::new(3);
        for _ in 0..300 {
            let mut other = file.clone();
            for _ in 0..4 {
                let at = 16 + random.bits() as usize % (other.len() - 16);
                other[at] = random.bits() as u8;
            }
            let _ = Trace::read(&mut &other[..]);
        }
    }

    #[test]
    fn exports_have_a_line_and_three_events_for_each_request() {
        let trace = some(4);
        let (mut csv, mut events) = (Vec::new(), Vec::new());
        trace.write_csv(&mut csv).unwrap();
        trace.write_blktrace(&mut events).unwrap();
        assert_eq!(csv.iter().filter(|byte| **byte == b'\n').count(), trace.entries.len() + 1);
        assert_eq!(events.len(), trace.entries.len() * 3 * 48);
        let times =
            events.chunks(48).map(|event| u64::from_ne_bytes(event[8..16].try_into().unwrap()));
        assert!(times.is_sorted());
    }
}
