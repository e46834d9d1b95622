//! One log of histograms: HdrHistogram's interval log (V2, compressed, base64), latencies in
//! nanoseconds, the kind of operation as the tag, one line a kind (older ones have one for each
//! interval as well). The library reads them, after the lengths in the bytes were held against the
//! bytes: it takes them at their word. Knows nothing of trials.
//!
//! Invariants: whatever the bytes are, reading them does not panic, takes no more memory than
//! [`KINDS_MAX`] histograms have, and time in proportion to their number, however well they were
//! packed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Decompress, FlushDecompress, Status};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use lab::result::read_histograms;
use lab::workload::{OVERALL_OPERATION, operation_of_tag};
use trust::{Directory, Refused};

/// Significant digits of the histograms: those that the workloads record with.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Latencies are recorded up to 2^52 ns; more is no latency of ours.
const VALUE_MAX_NS: u64 = 1 << 53;

/// First bytes of a histogram that is compressed, and of one that is not, both with their counts
/// in variable length (HdrHistogram's V2 encoding).
const COMPRESSED_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
const PLAIN_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x13];
/// Bytes before the counts: cookie, their length, the normalizing offset, the digits (4 each), the
/// bounds and the ratio (8 each).
const HEAD_BYTES: usize = 40;
/// Room that nearly every histogram fits in once it is unpacked.
const PLAIN_BYTES_COMMON: usize = 16 << 10;
/// Bytes of a histogram of such values with 5 digits, each count in 9 bytes, are below this.
const PLAIN_BYTES_MAX: u64 = 64 << 20;

/// Kinds of operations in a log.
pub(super) const KINDS_MAX: usize = 256;
/// Bytes that a log may unpack to: so many at least, and so many for each byte of the log. What the
/// loads write is packed three to one or so, noughts a thousand to one.
const UNPACKED_BYTES_LEAST: u64 = 16 << 20;
const UNPACKED_BYTES_PER_BYTE: u64 = 32;
/// Buckets that the library clears in the time in which one byte is unpacked.
const BUCKETS_PER_BYTE: u64 = 16;
const TOO_MUCH: &str = "it unpacks to far more than it holds";

/// A kind of operation with its latencies.
#[derive(Debug)]
pub(super) struct OperationHistogram {
    pub(super) name: String,
    pub(super) histogram: Histogram<u64>,
}

/// A histogram without a sample, of as many digits as the workloads keep.
pub(super) fn empty_histogram() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("three significant digits are within 0 to 5")
}

pub(super) fn add(sum: &mut Histogram<u64>, addend: &Histogram<u64>) {
    sum.add(addend).expect("a histogram that grows by itself takes every other");
}

/// Reads one log after the other. The room that it needs is kept from log to log.
pub(super) struct LogReader {
    kinds: Vec<OperationHistogram>,
    inflater: Decompress,
    /// Bytes that may still be unpacked.
    unpackable: u64,
    packed: Vec<u8>,
    plain: Vec<u8>,
}

impl Default for LogReader {
    fn default() -> LogReader {
        LogReader {
            kinds: Vec::new(),
            inflater: Decompress::new(true),
            unpackable: 0,
            packed: Vec::new(),
            plain: Vec::new(),
        }
    }
}

impl LogReader {
    /// The kinds of the log that was read last, in the order of their first line.
    pub(super) fn kinds(&self) -> &[OperationHistogram] {
        &self.kinds
    }

    /// Reads the file of a trial in a result directory.
    pub(super) fn read_file(&mut self, directory: &Directory, trial: u32) -> Result<(), String> {
        match read_histograms(directory, trial) {
            Ok(bytes) => self.read(&bytes),
            // The caller names the file.
            Err(Refused::System { error, .. }) => Err(error.to_string()),
            Err(refused) => Err(refused.to_string()),
        }
    }

    /// Reads the bytes of a log.
    pub(super) fn read(&mut self, log: &[u8]) -> Result<(), String> {
        self.kinds.clear();
        self.unpackable = UNPACKED_BYTES_LEAST + UNPACKED_BYTES_PER_BYTE * log.len() as u64;
        for (number, entry) in IntervalLogIterator::new(log).enumerate() {
            let interval = match entry {
                Ok(LogEntry::Interval(interval)) => interval,
                Ok(_) => continue,
                Err(_) => return Err(format!("entry {} is no line of such a log", number + 1)),
            };
            let name = &operation_of_tag(interval.tag().map_or("", |tag| tag.as_str()));
            if name == OVERALL_OPERATION {
                return Err(format!("'{name}' means all kinds and cannot be the name of one"));
            }
            let known = self.kinds.iter().position(|kind| kind.name == *name);
            if known.is_none() && self.kinds.len() == KINDS_MAX {
                return Err(format!("it has more than {KINDS_MAX} kinds of operations"));
            }
            let place = known.unwrap_or_else(|| self.begin(name));
            self.decode(interval.encoded_histogram(), place)
                .map_err(|problem| format!("the histogram of entry {}: {problem}", number + 1))?;
        }
        Ok(())
    }

    fn begin(&mut self, name: &str) -> usize {
        self.kinds
            .push(OperationHistogram { name: name.to_string(), histogram: empty_histogram() });
        self.kinds.len() - 1
    }

    /// Decodes one histogram and adds it to the kind at `place`.
    fn decode(&mut self, text: &str, place: usize) -> Result<(), String> {
        self.packed.clear();
        STANDARD
            .decode_vec(text, &mut self.packed)
            .map_err(|error| format!("no base64: {error}"))?;
        let plain = match self.packed.split_at_checked(8) {
            Some((head, deflated)) if head[..4] == COMPRESSED_COOKIE => {
                let room = self.unpackable.min(PLAIN_BYTES_MAX) as usize;
                inflate(&mut self.inflater, deflated, &mut self.plain, room)
                    .map_err(|problem| format!("cannot be unpacked: {problem}"))?
            }
            _ => &self.packed,
        };
        let left = self.unpackable.checked_sub(plain.len() as u64);
        self.unpackable = left.ok_or(TOO_MUCH)?;
        let Some((head, payload)) = plain.split_at_checked(HEAD_BYTES) else {
            return Err(format!("{} bytes are no histogram", plain.len()));
        };
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let bound = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        if head[..4] != PLAIN_COOKIE || number(4) as usize != payload.len() {
            return Err("its head does not go with its bytes".into());
        }
        let high_ns = bound(24);
        if bound(16) != 1 || high_ns > VALUE_MAX_NS {
            return Err(format!("latencies of {} to {high_ns} ns are none", bound(16)));
        }
        check_counts(payload)?;
        let left = self.unpackable.checked_sub(library_buckets(number(12), high_ns)?);
        self.unpackable = left.ok_or(TOO_MUCH)?;
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut &plain[..]).map_err(|error| error.to_string())?;
        add(&mut self.kinds[place].histogram, &histogram);
        Ok(())
    }
}

/// Unpacks a zlib stream into `plain`, which grows as far as needed, and gives what it fills of it.
/// In one go, since the inflater then needs no window of its own.
fn inflate<'a>(
    inflater: &mut Decompress,
    deflated: &[u8],
    plain: &'a mut Vec<u8>,
    room: usize,
) -> Result<&'a [u8], String> {
    plain.resize(plain.len().max(PLAIN_BYTES_COMMON), 0);
    loop {
        inflater.reset(true);
        let status = inflater.decompress(deflated, plain, FlushDecompress::Finish);
        let filled = inflater.total_out() as usize;
        match status {
            Ok(Status::StreamEnd) => return Ok(&plain[..filled]),
            Ok(_) if filled < plain.len() => return Err("it breaks off".into()),
            Ok(_) if plain.len() >= room => return Err(TOO_MUCH.into()),
            Ok(_) => plain.resize(plain.len() * 2, 0),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Counts of 2^55 and more take 9 bytes: nobody counts so far, and the library negates them.
const LONGEST_NUMBER_BYTES: u32 = 8;
const BEYOND_MEASURE: &str = "a count is beyond all measure";

/// What the buckets of a histogram of so many digits, from 1 to `high_ns`, cost the library, in
/// bytes that could be unpacked instead.
fn library_buckets(digits: u32, high_ns: u64) -> Result<u64, &'static str> {
    if digits > 5 {
        return Err("it has more than 5 significant digits");
    }
    let fine = (2 * 10_u64.pow(digits)).next_power_of_two();
    let doublings = u64::from((high_ns / fine).checked_ilog2().map_or(0, |log| log + 1));
    Ok((doublings + 2) * (fine / 2) / BUCKETS_PER_BYTE)
}

/// Refuses numbers that are too long.
fn check_counts(payload: &[u8]) -> Result<(), &'static str> {
    let mut length = 0;
    for byte in payload {
        length += 1;
        if length > LONGEST_NUMBER_BYTES {
            return Err(BEYOND_MEASURE);
        }
        if byte & 0x80 == 0 {
            length = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
