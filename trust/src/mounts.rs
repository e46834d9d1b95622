//! Reads the kernel's table of mounts, `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount, as a process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the mounted device. Btrfs gives a made-up one.
    pub device: (u32, u32),
    /// What of the file system is mounted there: `/`, or a directory in it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Name of the kind of file system, such as `ext4`.
    pub file_system: String,
    /// What was named as the source, such as `/dev/sda1`.
    pub source: PathBuf,
    /// Options of the mount and of the file system, joined by a comma.
    pub options: String,
}

/// The mounts that this thread sees (a thread can have a namespace of its own), in the order in
/// which they were made.
pub fn mounts() -> io::Result<Vec<Mount>> {
    mounts_of(Path::new("/proc/thread-self/mountinfo"), |_| true)
}

/// The mounts of the devices that are `wanted`, in one `mountinfo` file. It is read line by line:
/// there may be tens of thousands of others.
pub fn mounts_of(path: &Path, wanted: impl Fn((u32, u32)) -> bool) -> io::Result<Vec<Mount>> {
    let mut table = BufReader::new(File::open(path)?);
    let mut mounts = Vec::new();
    let mut line = Vec::new();
    while table.read_until(b'\n', &mut line)? > 0 {
        mounts.extend(parse_line(line.trim_ascii_end(), &wanted));
        line.clear();
    }
    Ok(mounts)
}

/// The mount on which `path` lies: the last one made whose point is the longest prefix of it.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

fn parse_line(line: &[u8], wanted: impl Fn((u32, u32)) -> bool) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    let numbers = std::str::from_utf8(words.next()?).ok()?;
    let (major, minor) = numbers.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    if !wanted(device) {
        return None;
    }
    let path = |word: &[u8]| PathBuf::from(OsString::from_vec(unescape(word)));
    let (root, point) = (path(words.next()?), path(words.next()?));
    let options = String::from_utf8_lossy(words.next()?).into_owned();
    // Any number of optional fields, closed by a hyphen.
    words.by_ref().find(|word| *word == b"-")?;
    let file_system = String::from_utf8_lossy(words.next()?).into_owned();
    let source = path(words.next()?);
    let super_options = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
    Some(Mount {
        device,
        root,
        point,
        file_system,
        source,
        options: format!("{options},{super_options}"),
    })
}

/// The kernel writes a space, a tab, a newline and a backslash as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match (first, octal) {
            (b'\\', Some(digits)) => {
                let value = digits.iter().fold(0u32, |value, d| value * 8 + u32::from(d - b'0'));
                bytes.push(value as u8);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
40 35 7:12 / /a\\040b\\134c rw - xfs /dev/loop12 rw\n\
torn 1 2:\n\
41 35 0:50 / /mnt2/deep rw - tmpfs none rw";

    fn parse(bytes: &[u8]) -> Vec<Mount> {
        let lines = bytes.split(|byte| *byte == b'\n');
        lines.filter_map(|line| parse_line(line, |_| true)).collect()
    }

    #[test]
    fn only_what_is_wanted_is_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TEXT).unwrap();
        assert_eq!(mounts_of(file.path(), |_| true).unwrap(), parse(TEXT));
        let mounts = mounts_of(file.path(), |number| number == (7, 12)).unwrap();
        assert_eq!(mounts, [parse(TEXT).remove(1)]);
    }

    #[test]
    fn lines_are_read_and_torn_ones_left_out() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].device, (98, 0));
        assert_eq!((&*mounts[0].root, &*mounts[0].point), (Path::new("/mnt1"), Path::new("/mnt2")));
        assert_eq!(mounts[0].file_system, "ext3");
        assert_eq!(mounts[0].source, Path::new("/dev/root"));
        assert_eq!(mounts[0].options, "rw,noatime,rw,errors=continue");
        assert_eq!(mounts[1].point, Path::new("/a b\\c"));
    }

    #[test]
    fn the_innermost_mount_is_found() {
        let mounts = parse(TEXT);
        assert_eq!(mount_of(&mounts, Path::new("/mnt2/deep/x")).unwrap().file_system, "tmpfs");
        assert_eq!(mount_of(&mounts, Path::new("/mnt2/deeper")).unwrap().file_system, "ext3");
        assert_eq!(mount_of(&mounts, Path::new("/elsewhere")), None);
    }

    #[test]
    fn this_process_has_a_root_mount() {
        assert!(mounts().unwrap().iter().any(|mount| mount.point == Path::new("/")));
    }
}
