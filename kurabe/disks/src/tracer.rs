//! The requests of one device, from the kernel's tracepoints `block_rq_issue` and `block_rq_complete`: when each was
//! handed to the device, and when it was answered.
//!
//! Only events of this device come (the kernel filters), into rings of memory that go with this process. A
//! thread reads them and puts the two events of a request together. What found no room is counted.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::time::{ClockId, clock_gettime};

use serde_json::Value;

use crate::sys::Ring;
use crate::trace::{SECTOR_BYTES, TraceEntry, TraceRecorder};
use crate::{DiskOperation, ModelRequest};

/// Memory of all rings together, and of one.
const RINGS_BYTES: usize = 64 << 20;
const RING_BYTES_MAX: usize = 8 << 20;
const RING_BYTES_MIN: usize = 256 << 10;

/// How often the rings are read, unless they fill faster.
const READ_INTERVAL: Duration = Duration::from_millis(10);

/// An event is in its ring at the latest so long after its time.
const WRITTEN_NS: u64 = 1_000_000;

/// What came of following a device.
pub struct Traced {
    /// How many requests there were.
    pub requests: u64,
    /// Events that the kernel counted and did not deliver.
    pub lost_events: u64,
    /// Requests in the file.
    pub kept: u64,
    /// How all of them look.
    pub picture: Value,
}

/// Follows a device until [`Tracer::end`].
pub struct Tracer {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(Requests, io::Result<u64>)>,
}

impl Tracer {
    /// Begins to follow a device of so many bytes, on which a journal lies in the ranges `journal`. With `keeps` every
    /// request is kept, otherwise only what the picture of all shows. `go_first` is for the thread that reads: a busy
    /// machine would let the rings fill, and it reads for less than a millisecond at a time.
    ///
    /// Errors: what the kernel has not, or does not allow.
    pub fn begin(
        node: &Path,
        size_bytes: u64,
        journal: Vec<Range<u64>>,
        keeps: bool,
        go_first: fn(),
    ) -> Result<Tracer, String> {
        let device = Traceable::of(node, size_bytes)?;
        let failed = |what: &'static str| move |error| format!("{what}: {error}");
        let tracefs = tracefs().map_err(failed("tracefs"))?;
        let kinds =
            [RequestEventKind::Issued, RequestEventKind::Requeued, RequestEventKind::Completed];
        let formats = kinds.map(|kind| Format::read(&tracefs, kind));
        let formats = formats.into_iter().collect::<Result<Vec<Format>, String>>()?;
        let filter = format!("dev == {}", device.number);
        let processors = processors().map_err(failed("the processors of this machine"))?;
        let ring_bytes = RINGS_BYTES / processors.len().max(1);
        let ring_bytes = ring_bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX);
        let pages = (ring_bytes / rustix::param::page_size()).next_power_of_two();
        let numbers: Vec<u64> = formats.iter().map(|format| format.number).collect();
        let rings = processors.iter().map(|one| Ring::new(*one, &numbers, &filter, pages));
        let rings = rings.collect::<io::Result<Vec<Ring>>>();
        let rings = rings.map_err(failed("following the kernel's tracepoints"))?;
        let mut requests = Requests::new(device);
        requests.recorder.set_journal(journal);
        if keeps {
            requests.recorder.keep();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        for ring in &rings {
            ring.begin().map_err(failed("following the kernel's tracepoints"))?;
        }
        let thread = std::thread::Builder::new().name("tracer".into()).spawn({
            let is_over = is_over.clone();
            move || {
                go_first();
                let lost = follow(rings, ring_bytes, &formats, &mut requests, &is_over);
                (requests, lost)
            }
        });
        Ok(Tracer { is_over, thread: thread.map_err(failed("a thread"))? })
    }

    /// Ends it: what it saw, with the requests written to `file`, where there is one.
    pub fn end(self, file: Option<File>) -> Result<Traced, String> {
        self.is_over.store(true, Ordering::Release);
        let (requests, lost) = self.thread.join().expect("following events does not panic");
        let lost_events = lost.map_err(|error| format!("counting what was traced: {error}"))?;
        let (seen, without_room) = requests.recorder.requests();
        let mut kept = 0;
        if let Some(file) = file {
            let mut file = BufWriter::new(file);
            let written = requests.recorder.write_to(&mut file).and_then(|()| file.flush());
            written.map_err(|error| format!("writing the trace: {error}"))?;
            kept = seen - without_room;
        }
        let picture = requests.recorder.picture();
        Ok(Traced { requests: seen, lost_events, kept, picture })
    }
}

/// A device as the kernel's events name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Traceable {
    number: u64,
    /// Where it begins: the events of a partition are those of its disk.
    first_sector: u64,
    size_bytes: u64,
}

impl Traceable {
    fn of(node: &Path, size_bytes: u64) -> Result<Traceable, String> {
        let failed = |error: io::Error| format!("looking at {}: {error}", node.display());
        let number = fs::metadata(node).map_err(failed)?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let place = format!("/sys/dev/block/{major}:{minor}");
        let read = |name: &str| fs::read_to_string(format!("{place}/{name}"));
        let is_part = fs::exists(format!("{place}/partition")).map_err(failed)?;
        let disk = if is_part { format!("{place}/..") } else { place.clone() };
        if !fs::exists(format!("{disk}/mq")).map_err(failed)? {
            return Err(format!(
                "the kernel shows no requests of {}, which passes what it is asked on to other devices; \
                 trace one of those, or leave --trace out",
                node.display()
            ));
        }
        let (mut major, mut minor, mut first_sector) = (major, minor, 0);
        if is_part {
            let text = read("../dev").map_err(failed)?;
            let numbers = text
                .trim()
                .split_once(':')
                .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
            let start = read("start").map_err(failed)?;
            let start = start.trim().parse().ok();
            let (Some(numbers), Some(start)) = (numbers, start) else {
                return Err(format!("{place}: not understood"));
            };
            ((major, minor), first_sector) = (numbers, start);
        }
        // As the kernel keeps it: 20 bits of minor.
        Ok(Traceable {
            number: u64::from(major) << 20 | u64::from(minor),
            first_sector,
            size_bytes,
        })
    }
}

/// tracefs, mounted nowhere.
fn tracefs() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(rustix::mount::fsmount(context.as_fd(), flags, MountAttrFlags::empty())?)
}

fn processors() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(range).collect();
    ranges.map(|ranges| ranges.into_iter().flatten().collect()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("'{}' are no processors", text.trim()))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestEventKind {
    Issued,
    /// The device did not take it; it comes again.
    Requeued,
    Completed,
}

/// Where the fields of an event lie.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Format {
    number: u64,
    kind: RequestEventKind,
    sector: Field,
    sectors: Field,
    words: Field,
}

/// Offset and size in bytes.
type Field = (usize, usize);

impl Format {
    fn read(tracefs: &OwnedFd, kind: RequestEventKind) -> Result<Format, String> {
        let name = match kind {
            RequestEventKind::Issued => "block_rq_issue",
            RequestEventKind::Requeued => "block_rq_requeue",
            RequestEventKind::Completed => "block_rq_complete",
        };
        let mut text = String::new();
        let path = format!("events/block/{name}/format");
        let opened =
            rustix::fs::openat(tracefs, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let read = opened
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).read_to_string(&mut text));
        read.map_err(|error| format!("this kernel's tracepoint {name}: {error}"))?;
        Format::parse(&text, kind).ok_or_else(|| {
            format!(
                "this kernel's tracepoint {name} has other fields than dev, sector, nr_sector, rwbs"
            )
        })
    }

    fn parse(text: &str, kind: RequestEventKind) -> Option<Format> {
        let value = |line: &str, key: &str| {
            let value = line.split_once(key)?.1;
            value.split(';').next()?.trim().parse().ok()
        };
        let field = |name: &str| -> Option<Field> {
            let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("field:"));
            let line = lines.find(|line| {
                let declared = line.split(';').next().unwrap_or_default();
                let last = declared.rsplit(' ').next().unwrap_or_default();
                last.split('[').next() == Some(name)
            })?;
            Some((value(line, "offset:")?, value(line, "size:")?))
        };
        let number = text.lines().find_map(|line| value(line, "ID:"))?;
        field("dev")?;
        let (sector, sectors, words) = (field("sector")?, field("nr_sector")?, field("rwbs")?);
        Some(Format { number: number as u64, kind, sector, sectors, words })
    }

    /// Whether an event of this number is of this format.
    fn is_of(&self, fields: &[u8]) -> bool {
        number(fields, (0, 2)) == self.number
    }

    fn event(&self, time_ns: u64, fields: &[u8]) -> Option<Seen> {
        let (at, size) = self.words;
        let words = fields.get(at..at + size)?;
        let (operation, marks) = operation(words)?;
        let (sector, sectors) = (number(fields, self.sector), number(fields, self.sectors));
        Some(Seen { time_ns, kind: self.kind, operation, sector, sectors, marks })
    }
}

fn number(fields: &[u8], (at, size): Field) -> u64 {
    let mut bytes = [0; 8];
    if let (Some(found), true) = (fields.get(at..at + size), size <= 8) {
        bytes[..size].copy_from_slice(found);
    }
    u64::from_le_bytes(bytes)
}

/// What else is known of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Marks {
    metadata: bool,
    /// Answered only when it is durable (`REQ_FUA`).
    durable: bool,
}

/// What the letters of `blk_fill_rwbs` (kernel/trace/blktrace.c) say.
fn operation(words: &[u8]) -> Option<(DiskOperation, Marks)> {
    let words = words.split(|byte| *byte == 0).next().unwrap_or_default();
    // A flush that comes before something is a request of its own.
    let words = match words {
        [b'F', rest @ ..] if !rest.is_empty() => rest,
        words => words,
    };
    let operation = match words {
        [b'R', ..] => DiskOperation::Read,
        [b'W', b'Z', ..] | [b'D', ..] => DiskOperation::Discard,
        [b'W', ..] => DiskOperation::Write,
        [b'F', ..] => DiskOperation::Flush,
        _ => return None,
    };
    let has = |letter| words[1..].contains(&letter);
    Some((operation, Marks { metadata: has(b'M'), durable: has(b'F') }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    time_ns: u64,
    kind: RequestEventKind,
    operation: DiskOperation,
    sector: u64,
    sectors: u64,
    marks: Marks,
}

/// Reads the rings until it is over.
fn follow(
    mut rings: Vec<Ring>,
    ring_bytes: usize,
    formats: &[Format],
    requests: &mut Requests,
    is_over: &AtomicBool,
) -> io::Result<u64> {
    let mut seen: Vec<Seen> = Vec::new();
    loop {
        let is_last = is_over.load(Ordering::Acquire);
        let written_ns = now_ns().saturating_sub(WRITTEN_NS);
        let mut most_bytes = 0;
        for ring in &mut rings {
            let bytes = ring.take(|time_ns, fields| {
                let format = formats.iter().find(|format| format.is_of(fields));
                seen.extend(format.and_then(|format| format.event(time_ns, fields)));
            });
            most_bytes = most_bytes.max(bytes);
        }
        // Each ring is in order; a request may be in two.
        seen.sort_by_key(|one| one.time_ns);
        let ripe = seen.partition_point(|one| is_last || one.time_ns < written_ns);
        seen.drain(..ripe).for_each(|one| requests.take(&one));
        if is_last {
            return rings.iter().map(Ring::lost).sum();
        }
        if most_bytes < ring_bytes / 4 {
            std::thread::sleep(READ_INTERVAL);
        }
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Puts the events of each request together.
struct Requests {
    device: Traceable,
    began_ns: u64,
    /// Those that were not answered yet, the oldest first: several can have one place.
    open: HashMap<(DiskOperation, u64), Vec<Seen>>,
    recorder: TraceRecorder,
}

impl Requests {
    fn new(device: Traceable) -> Requests {
        let recorder = TraceRecorder::new(device.size_bytes);
        Requests { device, began_ns: now_ns(), open: HashMap::new(), recorder }
    }

    fn take(&mut self, event: &Seen) {
        let is_flush = event.operation == DiskOperation::Flush;
        // A bio that is only a flush ends as a write of nothing.
        if event.sectors == 0 && !is_flush {
            return;
        }
        let place = (event.operation, if is_flush { 0 } else { event.sector });
        let at_place = self.open.entry(place).or_default();
        match event.kind {
            RequestEventKind::Issued => at_place.push(*event),
            RequestEventKind::Requeued => drop(at_place.pop()),
            RequestEventKind::Completed => {
                // The youngest: that of an older one may have been lost.
                let issued = at_place.pop();
                if at_place.is_empty() {
                    self.open.remove(&place);
                }
                // One that was under way when this began has no beginning.
                if let Some(issued) = issued {
                    self.record(&issued, event.time_ns);
                }
            }
        }
    }

    fn record(&mut self, issued: &Seen, replied_ns: u64) {
        let since = |time_ns: u64| time_ns.saturating_sub(self.began_ns);
        let (arrived_ns, replied_ns) = (since(issued.time_ns), since(replied_ns));
        let operation = issued.operation;
        let mut request = ModelRequest { operation, offset: 0, length: 0 };
        if operation != DiskOperation::Flush {
            // Of other parts of the disk nothing is said.
            let end = self.device.first_sector + self.device.size_bytes / SECTOR_BYTES;
            if issued.sector < self.device.first_sector || issued.sector + issued.sectors > end {
                return;
            }
            request.offset = (issued.sector - self.device.first_sector) * SECTOR_BYTES;
            request.length = issued.sectors * SECTOR_BYTES;
        }
        let metadata = issued.marks.metadata;
        self.recorder.record(TraceEntry { arrived_ns, replied_ns, request, metadata });
        if issued.marks.durable && operation == DiskOperation::Write {
            // A disk without such writes gets a flush after it.
            let (arrived_ns, request) = (replied_ns, ModelRequest::flush());
            self.recorder.record(TraceEntry { arrived_ns, replied_ns, request, metadata: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: block_rq_issue
ID: 2104
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
";

    #[test]
    fn fields_are_found_by_their_names() {
        let format = Format::parse(FORMAT, RequestEventKind::Issued).unwrap();
        assert_eq!((format.number, format.sector, format.words), (2104, (16, 8), (34, 10)));
        assert_eq!(format.sectors, (24, 4));
        assert_eq!(
            Format::parse(&FORMAT.replace("nr_sector", "count"), RequestEventKind::Issued),
            None
        );
        let mut fields = vec![0; 44];
        fields[..2].copy_from_slice(&2104_u16.to_le_bytes());
        fields[16..24].copy_from_slice(&77_u64.to_le_bytes());
        fields[24..28].copy_from_slice(&8_u32.to_le_bytes());
        fields[34..37].copy_from_slice(b"WFM");
        let seen = format.event(5, &fields).unwrap();
        assert_eq!((seen.sector, seen.sectors, seen.operation), (77, 8, DiskOperation::Write));
        assert_eq!(seen.marks, Marks { metadata: true, durable: true });
        assert!(format.is_of(&fields));
    }

    #[test]
    fn letters_say_what_a_request_is() {
        let said = |words: &str| operation(words.as_bytes()).map(|(operation, _)| operation);
        assert_eq!(said("RAM\0\0"), Some(DiskOperation::Read));
        assert_eq!(said("FWS"), Some(DiskOperation::Write));
        assert_eq!(
            (said("FF"), said("F")),
            (Some(DiskOperation::Flush), Some(DiskOperation::Flush))
        );
        assert_eq!(
            (said("DS"), said("WZS")),
            (Some(DiskOperation::Discard), Some(DiskOperation::Discard))
        );
        assert_eq!((said("N"), said(""), said("ZR")), (None, None, None));
    }

    fn seen(time_ns: u64, kind: RequestEventKind, operation: DiskOperation, sector: u64) -> Seen {
        let sectors = if operation == DiskOperation::Flush { 0 } else { 8 };
        Seen { time_ns, kind, operation, sector, sectors, marks: Marks::default() }
    }

    #[test]
    fn events_of_one_request_are_put_together() {
        let device = Traceable { number: 1, first_sector: 100, size_bytes: 1 << 20 };
        let mut requests = Requests { began_ns: 0, ..Requests::new(device) };
        requests.recorder.keep();
        let (read, write, flush) =
            (DiskOperation::Read, DiskOperation::Write, DiskOperation::Flush);
        use RequestEventKind::{Completed, Issued, Requeued};
        let durable = Marks { durable: true, ..Marks::default() };
        for event in [
            // Under way when it began.
            seen(10, Completed, read, 108),
            seen(20, Issued, read, 108),
            seen(21, Issued, read, 108),
            seen(22, Issued, write, 100),
            seen(23, Requeued, write, 100),
            seen(24, Issued, write, 100),
            // A bio that is a flush ends in the end of a write without bytes.
            Seen { sectors: 0, ..seen(25, Completed, write, 100) },
            seen(30, Completed, read, 108),
            seen(31, Completed, write, 100),
            seen(32, Issued, flush, 0),
            seen(40, Completed, flush, 0),
            seen(41, Completed, read, 108),
            // On another part of the disk.
            seen(50, Issued, write, 92),
            seen(51, Completed, write, 92),
            Seen { marks: durable, ..seen(60, Issued, write, 116) },
            seen(70, Completed, write, 116),
        ] {
            requests.take(&event);
        }
        assert!(requests.open.is_empty());
        let mut file = Vec::new();
        requests.recorder.write_to(&mut file).unwrap();
        let trace = crate::trace::Trace::read(&mut &file[..]).unwrap();
        let found: Vec<_> = trace
            .entries
            .iter()
            .map(|one| (one.arrived_ns, one.replied_ns, one.request.operation, one.request.offset))
            .collect();
        let expected = [
            (20, 41, read, 4096),
            (21, 30, read, 4096),
            (24, 31, write, 0),
            (32, 40, flush, 0),
            (60, 70, write, 8192),
            (70, 70, flush, 0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_passes_requests_on_to_others_is_refused() {
        // Neither this one nor memory with its number has a queue.
        let refused = Traceable::of(Path::new("/dev/null"), 1 << 20).unwrap_err();
        assert!(refused.contains("the kernel shows no requests of /dev/null"), "{refused}");
    }
}
