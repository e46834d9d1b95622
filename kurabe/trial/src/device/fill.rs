//! Fills a device with bytes that no layer below can compress, join or leave out.
//!
//! A fresh disk lies: reads of blocks that were never written come from nowhere, and first writes
//! allocate. So every byte is written once before the first trial. The bytes at an offset depend
//! on the seed and the offset alone, so a hole can be filled again with what was there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use block::{ALIGNMENT, AlignedBuffer, fill_words};
use rustix::fs::SeekFrom;

use crate::stop::StopFlag;

/// In which order the chunks of a device are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillOrder {
    /// One after the other, so that an image lies on its disk in one piece.
    Ascending,
    /// All over the device. The memory that a process gets first is slower to copy, by a tenth and
    /// more, than what it gets later; so each part of the device gets some of all.
    Scattered,
}

impl FillOrder {
    /// Bytes of one transfer.
    fn chunk_bytes(self) -> u64 {
        match self {
            FillOrder::Ascending => 4 << 20,
            FillOrder::Scattered => 64 << 10,
        }
    }

    /// How far apart chunks lie that are written one after the other, of so many: multiples of the
    /// golden section spread evenly, and without a common divisor every chunk has its turn.
    fn stride(self, chunks: u64) -> u64 {
        match self {
            FillOrder::Ascending => 1,
            FillOrder::Scattered => {
                let golden = (chunks as f64 * 0.618_033_988_75) as u64;
                (golden.max(1)..).find(|stride| gcd(*stride, chunks) == 1).expect("1 divides all")
            }
        }
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Transfers in flight. One thread generates while another one waits for the disk.
const WRITERS: usize = 2;
/// How often progress is reported and a stop is looked for.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// How far a filling has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillProgress {
    /// Bytes written so far.
    pub done_bytes: u64,
    /// Bytes to write in all.
    pub total_bytes: u64,
}

/// A write that failed, with its place.
#[derive(Debug, thiserror::Error)]
#[error("writing at byte {offset}: {error}")]
struct WriteError {
    offset: u64,
    #[source]
    error: io::Error,
}

/// Fills `buffer` with the bytes that belong at `offset`, a multiple of 8.
///
/// They are word `offset / 8` and those after it of a sequence that begins at the seed.
pub fn random_bytes(seed: u64, offset: u64, buffer: &mut [u8]) {
    debug_assert!(offset.is_multiple_of(8) && buffer.len().is_multiple_of(8));
    fill_words(seed, offset / 8, buffer);
}

/// Writes the bytes of `seed` over the first `size_bytes` of `file` and makes them durable.
/// `size_bytes` is a multiple of the file's block size.
/// Errors: those of the writes, with the offset; `Interrupted` when `stop` was raised.
pub fn fill(
    file: &File,
    size_bytes: u64,
    seed: u64,
    order: FillOrder,
    stop: &StopFlag,
    report: &mut dyn FnMut(FillProgress),
) -> io::Result<()> {
    fill_range(file, 0..size_bytes, seed, order, stop, report)?;
    file.sync_all()
}

/// Writes the bytes of `seed` wherever `file` has no data of its own in `range`, and says how many
/// bytes that were. A file that was filled and never discarded has no such place.
pub fn refill_holes(
    file: &File,
    range: &Range<u64>,
    seed: u64,
    stop: &StopFlag,
) -> io::Result<u64> {
    let mut refilled_bytes = 0;
    let mut position = range.start;
    while position < range.end {
        let hole = rustix::fs::seek(file, SeekFrom::Hole(position))?.min(range.end);
        if hole == range.end {
            break;
        }
        position = match rustix::fs::seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(range.end),
            // There is no data after the hole.
            Err(rustix::io::Errno::NXIO) => range.end,
            Err(error) => return Err(error.into()),
        };
        fill_range(file, hole..position, seed, FillOrder::Ascending, stop, &mut |_| {})?;
        refilled_bytes += position - hole;
    }
    if refilled_bytes > 0 {
        file.sync_all()?;
    }
    Ok(refilled_bytes)
}

fn fill_range(
    file: &File,
    range: Range<u64>,
    seed: u64,
    order: FillOrder,
    stop: &StopFlag,
    report: &mut dyn FnMut(FillProgress),
) -> io::Result<()> {
    let chunk_bytes = order.chunk_bytes();
    let chunks = (range.end - range.start).div_ceil(chunk_bytes);
    let stride = order.stride(chunks);
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let give_up = AtomicBool::new(false);
    let total_bytes = range.end - range.start;
    let writer = || -> io::Result<()> {
        let mut buffer = AlignedBuffer::zeroed(chunk_bytes.min(total_bytes) as usize);
        while !give_up.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= chunks {
                break;
            }
            let offset = range.start + number * stride % chunks * chunk_bytes;
            let chunk = &mut buffer[..chunk_bytes.min(range.end - offset) as usize];
            random_bytes(seed, offset, chunk);
            file.write_all_at(chunk, offset).map_err(|error| {
                give_up.store(true, Ordering::Relaxed);
                io::Error::new(error.kind(), WriteError { offset, error })
            })?;
            done.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            std::thread::park_timeout(REPORT_INTERVAL);
            report(FillProgress { done_bytes: done.load(Ordering::Relaxed), total_bytes });
            if stop.raised() {
                give_up.store(true, Ordering::Relaxed);
            }
        }
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer never panics"))
    })?;
    if stop.raised() && done.load(Ordering::Relaxed) < total_bytes {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "the filling was stopped"));
    }
    report(FillProgress { done_bytes: total_bytes, total_bytes });
    Ok(())
}

/// Bytes at either end of the device, and around every place in between, that are overwritten so
/// that nothing is recognised any more.
const WIPED_BYTES: u64 = 1 << 20;

/// Where Btrfs keeps copies of its superblock, in bytes: btrfs_sb_offset in the kernel's
/// fs/btrfs/disk-io.h. The copies alone would be recognised by a repair.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// Overwrites the places of `range` where file systems are recognised, so that mkfs and mount find no
/// trace of the trial before.
pub fn wipe_signatures(file: &File, range: &Range<u64>) -> io::Result<()> {
    let size_bytes = range.end - range.start;
    let mut buffer = AlignedBuffer::zeroed(WIPED_BYTES as usize);
    let seed = crate::ledger::random_bits();
    let last = size_bytes.saturating_sub(WIPED_BYTES).next_multiple_of(ALIGNMENT as u64);
    for start in [0, last].into_iter().chain(BTRFS_COPIES) {
        let length = WIPED_BYTES.min(size_bytes.saturating_sub(start));
        let bytes = &mut buffer[..length as usize];
        random_bytes(seed, start, bytes);
        file.write_all_at(bytes, range.start + start)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn bytes_depend_on_seed_and_offset_alone() {
        let mut whole = vec![0; 8192];
        random_bytes(42, 4096, &mut whole);
        let mut part = vec![0; 1024];
        random_bytes(42, 4096 + 3072, &mut part);
        assert_eq!(part, whole[3072..4096]);
        random_bytes(43, 4096 + 3072, &mut part);
        assert_ne!(part, whole[3072..4096]);
        // The first output of SplitMix64 from the state 0, as its authors' code gives it.
        let mut first = [0; 8];
        random_bytes(0, 0, &mut first);
        assert_eq!(u64::from_le_bytes(first), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn every_byte_value_is_as_frequent_as_the_others_and_no_block_repeats() {
        let mut bytes = vec![0; 1 << 20];
        random_bytes(1, 0, &mut bytes);
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        // 4096 expected, with a standard deviation of 64.
        assert!(counts.iter().all(|count| (3700..4500).contains(count)), "{counts:?}");
        let blocks: BTreeSet<&[u8]> = bytes.chunks(512).collect();
        assert_eq!(blocks.len(), 2048);
    }

    #[test]
    fn a_file_is_filled_to_the_byte_and_its_holes_again() {
        for order in [FillOrder::Ascending, FillOrder::Scattered] {
            is_filled_and_its_holes_again(order);
        }
    }

    fn is_filled_and_its_holes_again(order: FillOrder) {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let size_bytes = (9 << 20) + 4096;
        let mut reports = Vec::new();
        let mut report = |progress| reports.push(progress);
        fill(&file, size_bytes, 5, order, &StopFlag::default(), &mut report).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size_bytes);
        let done = FillProgress { done_bytes: size_bytes, total_bytes: size_bytes };
        assert_eq!(reports.last(), Some(&done));
        let mut expected = vec![0; size_bytes as usize];
        random_bytes(5, 0, &mut expected);
        let content = |file: &File| {
            let mut bytes = vec![0; size_bytes as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(content(&file) == expected);
        assert_eq!(refill_holes(&file, &(0..size_bytes), 5, &StopFlag::default()).unwrap(), 0);
        // Holes in the middle and at the end come back as they were.
        use rustix::fs::{FallocateFlags, fallocate};
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 1 << 20, 64 << 10).unwrap();
        fallocate(&file, punch, 9 << 20, 4096).unwrap();
        assert!(content(&file) != expected);
        let refilled = refill_holes(&file, &(0..size_bytes), 5, &StopFlag::default()).unwrap();
        assert_eq!(refilled, (64 << 10) + 4096);
        assert!(content(&file) == expected);
    }

    #[test]
    fn scattered_parts_of_a_device_are_written_at_like_times() {
        for chunks in [1, 2, 144, 145, 8192] {
            let stride = FillOrder::Scattered.stride(chunks);
            let mut turn = vec![0; chunks as usize];
            (0..chunks).for_each(|number| turn[(number * stride % chunks) as usize] = number);
            let of_all: BTreeSet<u64> = turn.iter().copied().collect();
            assert_eq!(of_all.len() as u64, chunks, "each once");
            for part in turn.chunks_exact(64) {
                let mean = part.iter().sum::<u64>() as f64 / part.len() as f64;
                let expected = (chunks - 1) as f64 / 2.0;
                assert!((mean / expected - 1.0).abs() < 0.05, "{mean} of {expected}");
            }
        }
    }

    #[test]
    fn a_stop_ends_the_filling_and_an_error_names_the_place() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let stop = StopFlag::default();
        stop.raise();
        let error = fill(&file, 1 << 30, 5, FillOrder::Ascending, &stop, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(file.metadata().unwrap().len() < 1 << 30);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error =
            fill(&full, 8 << 20, 5, FillOrder::Ascending, &StopFlag::default(), &mut |_| {})
                .unwrap_err();
        assert!(error.to_string().starts_with("writing at byte "), "{error}");
    }
}
