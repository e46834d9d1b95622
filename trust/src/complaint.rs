//! Why a tool failed, from what it printed.
//!
//! The reason is mostly in the first lines, before a usage text of dozens, or in the last ones, after
//! pages of progress. So a bounded number of first and last bytes and lines is kept, and the usage
//! text is left out. Knows no particular tool.

/// The beginnings of a line, in small letters, from which on a usage text goes.
const USAGE: [&str; 3] = ["usage:", "usage ", "emergency help:"];

/// Words, in small letters, of a line that says why something failed.
const REASONS: [&str; 20] = [
    "error",
    "fail",
    "invalid",
    "illegal",
    "cannot",
    "can't",
    "unable",
    "denied",
    "refuse",
    "bad ",
    "unknown",
    "unrecognized",
    "unsupported",
    "must ",
    "too ",
    "no such",
    "not ",
    "missing",
    "no space",
    "already",
];

/// The first and the last lines of what a failed tool printed, without empty lines and without the
/// usage text; so many at most, and one that says how many were left out.
pub fn explanation(text: &str, lines_max: usize) -> String {
    let lines: Vec<&str> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let kept = without_usage(&lines);
    if kept.len() <= lines_max {
        return kept.join("\n");
    }
    let (first, last) = (lines_max.div_ceil(2), lines_max / 2);
    let left_out = format!("[{} lines are left out]", kept.len() - first - last);
    let last = &kept[kept.len() - last..];
    [&kept[..first], &[left_out.as_str()], last].concat().join("\n")
}

/// The line that most likely says why: the first one that reads like a reason, or else the last one.
/// Nothing of an empty text.
pub fn reason(text: &str) -> Option<&str> {
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| line.contains(char::is_alphanumeric)).collect();
    let is_reason = |line: &&&str| {
        let line = line.to_ascii_lowercase();
        REASONS.iter().any(|word| line.contains(word))
    };
    lines.iter().find(is_reason).or(lines.last()).copied()
}

/// The lines before the usage text, and of those after its beginning what reads like the end of a
/// program's own complaint: `PROGRAM: reason`. A text that is nothing but usage stays.
fn without_usage<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let is_usage = |line: &&str| {
        let line = line.trim_start().to_ascii_lowercase();
        USAGE.iter().any(|begin| line.starts_with(begin))
    };
    let Some(begin) = lines.iter().position(is_usage) else { return lines.to_vec() };
    let words = lines[begin].split_whitespace();
    let program = words.skip(1).find(|word| !word.starts_with('[')).unwrap_or("usage");
    let complaint = format!("{program}: ");
    let after = lines[begin + 1..].iter().filter(|line| line.starts_with(&complaint));
    let kept: Vec<&str> = lines[..begin].iter().chain(after).copied().collect();
    if kept.is_empty() { lines.to_vec() } else { kept }
}

/// Bytes of a stream, of which the first and the last ones are kept.
#[derive(Debug)]
pub struct Excerpt {
    head: Vec<u8>,
    tail: Vec<u8>,
    bytes_max: usize,
    left_out: u64,
}

/// Room in an excerpt for the line that says how much was left out, in bytes.
const GAP_BYTES_MAX: usize = 64;

impl Excerpt {
    /// An excerpt of so many bytes at most, at least 128: a quarter of them from the beginning.
    pub fn new(bytes_max: usize) -> Excerpt {
        assert!(bytes_max >= 2 * GAP_BYTES_MAX, "an excerpt of {bytes_max} bytes has no room");
        Excerpt { head: Vec::new(), tail: Vec::new(), bytes_max, left_out: 0 }
    }

    /// Adds what came next.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = (self.bytes_max / 4).saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail.extend_from_slice(&bytes[room..]);
        let tail_max = self.bytes_max - self.bytes_max / 4;
        // A stream that fits is kept whole; one that does not has a gap that is told.
        let tail_max = if self.left_out > 0 { tail_max - GAP_BYTES_MAX } else { tail_max };
        if self.tail.len() > tail_max {
            let excess = self.tail.len() - (self.bytes_max - self.bytes_max / 4 - GAP_BYTES_MAX);
            self.tail.drain(..excess);
            self.left_out += excess as u64;
        }
    }

    /// The text of it; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        let of = String::from_utf8_lossy;
        match self.left_out {
            0 => of(&[&self.head[..], &self.tail].concat()).into_owned(),
            count => {
                let (head, tail) = (of(&self.head), of(&self.tail));
                format!("{head}\n[{count} bytes are left out]\n{tail}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the tools of Debian 12 print it.
    const XFS: &str = "Log size must be at least 64MB.\nUsage: mkfs.xfs\n/* blocksize */\t\t[-b size=num]\n\
        /* config file */\t[-c options=xxx]\n<devicename> is required unless -d name=xxx is given.\n";
    const EXT4: &str = "mke2fs 1.47.0 (5-Feb-2023)\n\nBad option(s) specified: foo\n\nExtended options \
        are separated by commas\n";
    const F2FS: &str = "mkfs.f2fs: invalid option -- 'Z'\n\tError: Unknown option ?\n\nUsage: mkfs.f2fs \
        [options] device [sectors]\n[options]:\n  -a heap-based allocation [default:0]\n";
    const BTRFS: &str = "mkfs.btrfs: unrecognized option '--foo'\nusage: mkfs.btrfs [options] <dev>\n\n    \
        Create a BTRFS filesystem\n";

    #[test]
    fn the_reason_stays_and_the_usage_goes() {
        assert_eq!(explanation(XFS, 20), "Log size must be at least 64MB.");
        assert_eq!(
            explanation(F2FS, 20),
            "mkfs.f2fs: invalid option -- 'Z'\n\tError: Unknown option ?"
        );
        assert_eq!(explanation(BTRFS, 20), "mkfs.btrfs: unrecognized option '--foo'");
        assert!(explanation(EXT4, 20).contains("Bad option(s) specified: foo\nExtended"));
        // What comes after it, and what is nothing else.
        let late = "usage: tool [-x]\n  -x  extra\ntool: no such device\n";
        assert_eq!(explanation(late, 20), "tool: no such device");
        assert_eq!(explanation("Usage: tool [-x]\n  -x  extra\n", 20).lines().count(), 2);
        assert_eq!(explanation("", 20), "");
    }

    #[test]
    fn the_first_and_the_last_lines_are_kept() {
        let text: String = (1..=100).map(|number| format!("line {number}\n")).collect();
        let shown = explanation(&text, 5);
        assert_eq!(shown, "line 1\nline 2\nline 3\n[95 lines are left out]\nline 99\nline 100");
    }

    #[test]
    fn one_line_says_why() {
        assert_eq!(reason(XFS), Some("Log size must be at least 64MB."));
        assert_eq!(reason(EXT4), Some("Bad option(s) specified: foo"));
        assert_eq!(reason("{\n \"a\": 1\n}\nfio: cannot open x\n}\n"), Some("fio: cannot open x"));
        assert_eq!(reason("working\nstill working\n}\n"), Some("still working"));
        assert_eq!(reason("\n}\n"), None);
    }

    #[test]
    fn a_stream_is_kept_whole_or_at_both_ends() {
        for piece in [1, 7, 64, 1000] {
            let whole: Vec<u8> =
                (0..1000_u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
            for (length, is_whole) in [(0, true), (256, true), (257, false), (whole.len(), false)] {
                let mut excerpt = Excerpt::new(256);
                whole[..length].chunks(piece).for_each(|bytes| excerpt.push(bytes));
                let text = excerpt.text();
                assert!(text.len() <= 256, "{length} {piece}: {}", text.len());
                if is_whole {
                    assert_eq!(text.as_bytes(), &whole[..length]);
                    continue;
                }
                let (head, rest) = text.split_once("\n[").unwrap();
                let (count, tail) = rest.split_once(" bytes are left out]\n").unwrap();
                assert!(whole.starts_with(head.as_bytes()), "{text}");
                assert!(whole[..length].ends_with(tail.as_bytes()), "{text}");
                assert_eq!(head.len() + tail.len() + count.parse::<usize>().unwrap(), length);
            }
        }
    }
}
