//! How many bytes the files of a job file need, told before fio runs.
//!
//! Knows fio's size options and its number format (HOWTO, "Parameter types"); touches nothing.
//! An estimate: what cannot be told from the text (percentages, zones, existing files) is left
//! out, so that the sum may be too small but hardly too large. When it is too small, fio meets
//! the end of the space itself while the files are laid out, before anything is measured.

use std::collections::BTreeMap;

use super::jobfile::JobFile;

/// What the jobs of a file need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Jobs whose size cannot be told from the text.
    pub unknown_jobs: u32,
    /// Jobs that say nothing about their size at all.
    pub jobs_without_size: u32,
}

/// Adds up the files of all jobs. A file that several jobs name counts once, as large as the
/// largest of them needs it.
pub fn need(job: &JobFile) -> Need {
    let mut need = Need::default();
    let mut named: BTreeMap<String, u64> = BTreeMap::new();
    for (index, _) in job.jobs() {
        let view = View { job, index };
        if view.says_nothing() {
            need.jobs_without_size += 1;
            continue;
        }
        match view.files() {
            Some(Files::Named(files)) => {
                for (name, bytes) in files {
                    let known = named.entry(name).or_default();
                    *known = (*known).max(bytes);
                }
            }
            Some(Files::Own(bytes)) => need.bytes = need.bytes.saturating_add(bytes),
            None => need.unknown_jobs += 1,
        }
    }
    need.bytes = named.values().fold(need.bytes, |sum, bytes| sum.saturating_add(*bytes));
    need
}

enum Files {
    /// Files with names of their own, that other jobs may share.
    Named(Vec<(String, u64)>),
    /// Files named after the job, for it alone.
    Own(u64),
}

struct View<'a> {
    job: &'a JobFile,
    index: usize,
}

impl View<'_> {
    fn value(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.job.effective(self.index, name))
    }

    fn parsed(&self, text: &str) -> Option<u64> {
        parse_bytes(text, self.value(&["kb_base"]) == Some("1000"))
    }

    fn bytes(&self, names: &[&str]) -> Option<u64> {
        self.parsed(self.value(names)?)
    }

    fn says_nothing(&self) -> bool {
        let sized = ["size", "filesize", "fill_device", "fill_fs", "opendir"];
        self.value(&sized).is_none()
    }

    fn files(&self) -> Option<Files> {
        let count = |names: &[&str]| self.bytes(names).unwrap_or(1).max(1);
        let jobs = count(&["numjobs"]);
        let offset = self.bytes(&["offset", "fileoffset"]).unwrap_or(0);
        let names: Option<Vec<&str>> = self
            .value(&["filename"])
            .map(|list| list.split(':').filter(|name| !name.is_empty()).collect());
        let files = match &names {
            Some(names) => names.len().max(1) as u64,
            None => count(&["nrfiles", "nr_files"]),
        };
        let each = match self.value(&["filesize"]) {
            Some(range) => {
                let ends = range.split(['-', ':']).map(|end| self.parsed(end));
                ends.collect::<Option<Vec<u64>>>()?.into_iter().max()?
            }
            None => self.bytes(&["size"])? / files,
        };
        let each = each.saturating_add(offset);
        Some(match names {
            Some(names) => {
                let directory = self.value(&["directory"]).unwrap_or_default();
                let path = |name: &&str| (format!("{directory}/{name}"), each);
                Files::Named(names.iter().map(path).collect())
            }
            None => Files::Own(each.saturating_mul(files).saturating_mul(jobs)),
        })
    }
}

/// Reads a number of bytes: `4k`, `16MiB`, `0x1000`. None for percentages, zones and what is
/// no number.
pub fn parse_bytes(text: &str, decimal: bool) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hexadecimal) => (hexadecimal, 16),
        None => (text.as_str(), 10),
    };
    // In a hexadecimal number `b` is a digit.
    let is_digit = |c: char| c.is_digit(radix) || c == '.' && radix == 10;
    let end = digits.find(|c| !is_digit(c)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    let suffix = suffix.strip_suffix('b').unwrap_or(suffix);
    let (letter, has_i) = match suffix.strip_suffix('i') {
        Some(letter) => (letter, true),
        None => (suffix, false),
    };
    let power = match letter {
        "" if !has_i => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let unit = if decimal == has_i { 1024_u64 } else { 1000_u64 }.checked_pow(power)?;
    if digits.contains('.') {
        let number: f64 = digits.parse().ok()?;
        let bytes = number * unit as f64;
        return (bytes < 1e18).then_some(bytes as u64);
    }
    u64::from_str_radix(digits, radix).ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn needed(text: &str) -> Need {
        need(&JobFile::parse(text.as_bytes(), Path::new("j")).unwrap())
    }

    #[test]
    fn numbers_are_read_as_fio_reads_them() {
        for (text, decimal, bytes) in [
            ("4096", false, Some(4096)),
            ("4k", false, Some(4096)),
            ("4KB", false, Some(4096)),
            ("4ki", false, Some(4000)),
            ("4k", true, Some(4000)),
            ("4KiB", true, Some(4096)),
            ("1m", false, Some(1 << 20)),
            ("2T", false, Some(2 << 40)),
            ("0x1000", false, Some(4096)),
            ("1.5g", false, Some(3 << 29)),
            ("20%", false, None),
            ("3z", false, None),
            ("", false, None),
            ("k", false, None),
            ("99999999p", false, None),
        ] {
            assert_eq!(parse_bytes(text, decimal), bytes, "{text} {decimal}");
        }
    }

    #[test]
    fn files_of_all_jobs_are_added() {
        let text =
            "[global]\nsize=1m\n[a]\nnumjobs=3\n[b]\nnrfiles=4\n[c]\nfilesize=1k-2k\nnrfiles=10\n";
        assert_eq!(needed(text).bytes, (3 << 20) + (1 << 20) + 20 * 1024);
    }

    #[test]
    fn a_shared_file_counts_once() {
        let text = "[a]\nfilename=x:y\nsize=2m\nnumjobs=8\n[b]\nfilename=x\nsize=3m\noffset=1m\n";
        assert_eq!(needed(text).bytes, (4 << 20) + (1 << 20));
    }

    #[test]
    fn what_cannot_be_told_is_counted_apart() {
        let text = "[a]\nsize=20%\n[b]\nrw=read\n[c]\nfill_device=1\n[d]\nsize=1k\n";
        assert_eq!(needed(text), Need { bytes: 1024, unknown_jobs: 2, jobs_without_size: 1 });
    }
}
