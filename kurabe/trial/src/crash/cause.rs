//! Why something acknowledged is missing, as far as the recording and the failing disk say.
//!
//! The recording says which flushes completed before which acknowledgement, and when the lost writes
//! arrived. The files on the failing disk are compared with those at the end of the workload. What follows
//! from neither is not guessed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crash::{CrashState, Instant, Log, RecordedRequest, RequestKind};
use serde::{Deserialize, Serialize};

/// Files and bytes of a disk that are read; of a disk with more no cause is taken from its files.
const FILES_MAX: usize = 2000;
const BYTES_MAX: u64 = 64 << 20;
/// What the page cache writes at least.
const BLOCK_BYTES: usize = 4096;

/// Why a state fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FailureCause {
    /// A layer of the contender takes flushes and does nothing.
    FlushesIgnored,
    /// No flush completed after an acknowledgement, and others followed.
    NoFlush {
        /// Acknowledgements before the last completed flush; absent where there are none.
        after: Option<String>,
    },
    /// What was lost had been written before the acknowledgement, and no flush followed.
    WrittenUnflushed,
    /// What was lost was written after the acknowledgement.
    WrittenAfter,
    /// A flush completed before the acknowledgement, and what is missing was written later.
    WrittenLater,
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureCause::FlushesIgnored => f.write_str("the layer ignore-flush dropped the flushes"),
            FailureCause::NoFlush { after } => {
                let since = match after {
                    Some(after) => format!("between acknowledgement '{after}' and the last one"),
                    None => "before the last acknowledgement".into(),
                };
                write!(
                    f,
                    "no flush completed {since}: the workload did not sync, or the file system does not flush"
                )
            }
            FailureCause::WrittenUnflushed => f.write_str(
                "the lost writes reached the disk before the acknowledgement, and no flush followed them",
            ),
            FailureCause::WrittenAfter => f.write_str(
                "the lost writes came after the acknowledgement, and what it says depends on them: it was not written yet, or it was being replaced",
            ),
            FailureCause::WrittenLater => f.write_str(
                "a flush completed before the acknowledgement, but what is missing was not on the disk yet; the workload may have synced a file and not its directory, or another file",
            ),
        }
    }
}

/// What a file of the failing disk shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FileTrace {
    /// Its size is there and its bytes are not.
    SizeBeforeBytes {
        /// Its path below the mounted directory.
        file: PathBuf,
        /// The size on the failing disk in bytes.
        size: u64,
        /// The first byte that reads as zero and was written as something else.
        first: u64,
    },
    /// Its name is there and no bytes are.
    NameBeforeBytes {
        /// Its path below the mounted directory.
        file: PathBuf,
    },
}

impl fmt::Display for FileTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileTrace::SizeBeforeBytes { file, size, first } => write!(
                f,
                "the size of {} ({size} bytes) became durable before its data: from byte {first} on it reads as zeros that nobody wrote",
                file.display()
            ),
            FileTrace::NameBeforeBytes { file } => write!(
                f,
                "the name {} became durable before its data: the file is empty",
                file.display()
            ),
        }
    }
}

impl FailureCause {
    /// What a recording says of a failing state; the workload began at `from`.
    pub fn of(
        log: &Log,
        from: Instant,
        state: &CrashState,
        ignores_flushes: bool,
    ) -> Option<FailureCause> {
        if ignores_flushes {
            return Some(FailureCause::FlushesIgnored);
        }
        let acknowledged = &log.acknowledgements[..state.acknowledged];
        let last = acknowledged.last()?;
        let is_flush =
            |one: &&RecordedRequest| one.operation == RequestKind::Flush && one.arrived > from;
        let flushed = log.requests.iter().filter(is_flush);
        let flushed = flushed.filter_map(|one| one.replied).filter(|at| *at <= last.instant).max();
        let covered = acknowledged.partition_point(|one| Some(one.instant) < flushed);
        // The one that follows a flush is the one for which it was made.
        let covered = covered + usize::from(flushed.is_some());
        if covered < acknowledged.len() {
            let after = covered.checked_sub(1).map(|one| acknowledged[one].text.to_string());
            return Some(FailureCause::NoFlush { after });
        }
        let mut arrived = state.lost.iter().map(|lost| log.requests[lost.request].arrived);
        Some(if state.lost.is_empty() {
            FailureCause::WrittenLater
        } else if arrived.all(|at| at > last.instant) {
            FailureCause::WrittenAfter
        } else {
            FailureCause::WrittenUnflushed
        })
    }
}

/// Opens a file that was one a moment ago; nothing that has its name by now is followed or waited for.
pub(super) fn open_file(path: &Path) -> Option<File> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|facts| !facts.file_type().is_fifo()).then_some(file)
}

/// The files of a disk, by their paths.
pub struct Files(BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    /// Reads all files below a directory; nothing where there are too many, or one cannot be read.
    pub fn read(directory: &Path) -> Option<Files> {
        let (mut files, mut open, mut left) =
            (BTreeMap::new(), vec![directory.to_path_buf()], BYTES_MAX);
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(&next).ok()? {
                let entry = entry.ok()?;
                let kind = entry.file_type().ok()?;
                if kind.is_dir() {
                    open.push(entry.path());
                }
                if !kind.is_file() {
                    continue;
                }
                left = left.checked_sub(entry.metadata().ok()?.len())?;
                let mut bytes = Vec::new();
                open_file(&entry.path())?.take(left).read_to_end(&mut bytes).ok()?;
                let below = entry.path().strip_prefix(directory).ok()?.to_path_buf();
                files.insert(below, bytes);
                if files.len() > FILES_MAX {
                    return None;
                }
            }
        }
        Some(Files(files))
    }

    /// What the files of a failing disk show beside those from which the workload began and those that it
    /// left. `wrote_zeros` says whether a block of a file was ever written as zeros, which then are not the
    /// file system's.
    pub fn trace(
        &self,
        begun: &Files,
        left: &Files,
        wrote_zeros: impl Fn(&Path, u64, &[u8]) -> bool,
    ) -> Option<FileTrace> {
        self.0.iter().find_map(|(path, bytes)| {
            let (before, written) = (begun.0.get(path), left.0.get(path)?);
            let file = path.clone();
            if bytes.is_empty() && !written.is_empty() && before.is_none() {
                return Some(FileTrace::NameBeforeBytes { file });
            }
            let old = before.map_or(0, Vec::len);
            let pairs = bytes.iter().zip(written).skip(old);
            let first = old + pairs.clone().position(|(found, written)| found != written)?;
            // The rest of an earlier block may have been written with its end.
            let block = first.next_multiple_of(BLOCK_BYTES);
            let found = bytes.get(block..bytes.len().min(block + BLOCK_BYTES))?;
            let meant = written.get(block..written.len().min(block + BLOCK_BYTES))?;
            let is_zero = !found.is_empty() && found.iter().all(|byte| *byte == 0);
            let is_missing = is_zero && meant.iter().any(|byte| *byte != 0);
            let size = bytes.len() as u64;
            (is_missing && !wrote_zeros(path, block as u64, meant))
                .then_some(FileTrace::SizeBeforeBytes { file, size, first: block as u64 })
        })
    }
}

#[cfg(test)]
mod tests {
    use crash::{Acknowledgement, Line, Lost};

    use super::*;

    /// `w` a write, `f` a flush, `a` an acknowledgement; each has its reply at once.
    fn log(events: &str) -> Log {
        let (mut requests, mut acknowledgements, mut instant) = (Vec::new(), Vec::new(), 0);
        for event in events.chars() {
            instant += 2;
            if event == 'a' {
                let text = Line(format!("{}", acknowledgements.len()).into_bytes());
                acknowledgements.push(Acknowledgement { instant, received_ns: instant, text });
                continue;
            }
            let is_flush = event == 'f';
            requests.push(RecordedRequest {
                operation: if is_flush { RequestKind::Flush } else { RequestKind::Write },
                sector: 0,
                sectors: u64::from(!is_flush),
                data_sector: 0,
                arrived: instant - 1,
                replied: Some(instant),
                arrived_ns: instant,
                replied_ns: None,
                destaged: None,
            });
        }
        Log {
            further: Vec::new(),
            sectors: 1,
            requests,
            acknowledgements,
            end: instant,
            data_sectors: 0,
            is_cut_short: false,
        }
    }

    fn cause_from(from: Instant, events: &str, lost: &[usize]) -> Option<FailureCause> {
        let log = log(events);
        let lost = lost.iter().map(|request| Lost { request: *request, first: 0, sectors: 1 });
        let acknowledged = log.acknowledgements.len();
        let state = CrashState { instant: log.end, lost: lost.collect(), acknowledged };
        FailureCause::of(&log, from, &state, false)
    }

    fn cause(events: &str, lost: &[usize]) -> Option<FailureCause> {
        cause_from(0, events, lost)
    }

    #[test]
    fn the_flushes_before_an_acknowledgement_decide() {
        let no_flush =
            |after: Option<&str>| Some(FailureCause::NoFlush { after: after.map(String::from) });
        assert_eq!(cause("waa", &[0]), no_flush(None));
        assert_eq!(cause("wfawa", &[2]), no_flush(Some("0")));
        assert_eq!(cause("wfawaa", &[]), no_flush(Some("0")));
        assert_eq!(cause("fa", &[]), Some(FailureCause::WrittenLater));
        assert_eq!(cause("fwa", &[1]), Some(FailureCause::WrittenUnflushed));
        assert_eq!(cause("wfaw", &[2]), Some(FailureCause::WrittenAfter));
        // The setup's flush is not the workload's.
        assert_eq!(cause_from(2, "fwa", &[1]), no_flush(None));
        assert_eq!(cause("w", &[0]), None);
    }

    #[test]
    fn files_show_a_size_or_a_name_without_bytes() {
        let files = |bytes: &[u8]| Files(BTreeMap::from([("log".into(), bytes.to_vec())]));
        let (none, left) = (Files(BTreeMap::new()), files(&[7; 20_000]));
        let file = || PathBuf::from("log");
        let trace = |bytes: &[u8]| files(bytes).trace(&none, &left, |_, _, _| false);
        assert_eq!(trace(&[7; 1000]), None);
        assert_eq!(trace(&[]), Some(FileTrace::NameBeforeBytes { file: file() }));
        let bytes = [[7; 6000], [0; 6000]].concat();
        let found = FileTrace::SizeBeforeBytes { file: file(), size: 12_000, first: 8192 };
        assert_eq!(trace(&bytes), Some(found));
        // Other bytes say nothing, nor do zeros that were written, or were there before.
        assert_eq!(trace(&[1; 10_000]), None);
        assert_eq!(files(&bytes).trace(&none, &left, |_, _, _| true), None);
        assert_eq!(files(&bytes).trace(&files(&[0; 12_000]), &left, |_, _, _| false), None);
        assert_eq!(files(&[]).trace(&files(&[]), &left, |_, _, _| false), None);
    }
}
