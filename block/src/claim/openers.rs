//! Who uses devices: the mounts of every mount namespace, and the open files and mappings of every
//! process.
//!
//! Must not know how the devices are related. Invariants: tables are read line by line, and what
//! has nothing to do with the devices is let go at once, so that a machine with ten thousand
//! mounts costs time and memory in proportion to one table; files are asked for their numbers
//! through `/proc`, without asking a server of files, which may never answer.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags};
use rustix::path::Arg;
use trust::mounts;

use super::Use;
use super::relatives::Relatives;
use super::system::{entries, read};
use crate::sys;

/// Mounts of any of the devices in any mount namespace that a process lives in.
pub fn mounted(relatives: &Relatives) -> Vec<Use> {
    let nodes = &relatives.nodes;
    let mut seen = HashSet::new();
    let mut found = BTreeSet::new();
    let is_ours = |number| nodes.iter().any(|node| node.number == number);
    let own = std::iter::once(PathBuf::from("/proc/thread-self"));
    // A thread can have a namespace of its own.
    for thread in own.chain(processes().flat_map(|process| threads(&process))) {
        let Ok(namespace) = fs::read_link(thread.join("ns/mnt")) else { continue };
        if seen.contains(&namespace) {
            continue;
        }
        // A thread that ended meanwhile leaves its namespace to the others that live there.
        let Ok(mounts) = mounts::mounts_of(&thread.join("mountinfo"), is_ours) else { continue };
        seen.insert(namespace);
        for mount in mounts {
            let node = nodes.iter().find(|node| node.number == mount.device);
            found.insert((node.map(|node| node.name.clone()).unwrap_or_default(), mount.point));
        }
    }
    found.into_iter().map(|(device, point)| Use::Mounted { device, point }).collect()
}

/// Processes other than this one that have any of the devices open or mapped. A virtual machine
/// opens its disks without taking them exclusively.
pub fn openers(relatives: &Relatives) -> Vec<Use> {
    // In a PID namespace below the one that `/proc` shows, the numbers there are not our own.
    let own = fs::read_link("/proc/self").unwrap_or_default();
    let is_comparable = own.as_os_str() == &*std::process::id().to_string();
    let others = processes().filter(|process| process.file_name() != own.file_name());
    let uses = others.filter_map(|process| {
        let device = opened(&process, relatives, is_comparable)?;
        let name = read(&process.join("comm")).unwrap_or_default();
        Some(Use::OpenBy { pid: number_of(&process)?, name, device })
    });
    uses.collect()
}

fn processes() -> impl Iterator<Item = PathBuf> {
    entries(Path::new("/proc"))
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .map(|entry| entry.path())
}

/// The threads of a process, as directories of `/proc`: the first one may have ended before the
/// others, and then has no files and no memory.
fn threads(process: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(&process.join("task")).map(|entry| Path::new("/proc").join(entry.file_name()))
}

fn number_of(process: &Path) -> Option<u32> {
    process.file_name()?.to_str()?.parse().ok()
}

fn opened(process: &Path, relatives: &Relatives, is_comparable: bool) -> Option<String> {
    // Threads have one table of open files, but for those that asked for their own.
    let mut tables: Vec<u32> = Vec::new();
    for thread in threads(process) {
        let number = number_of(&thread)?;
        if is_comparable && tables.iter().any(|other| sys::shares_files(*other, number)) {
            continue;
        }
        tables.push(number);
        if let Some(name) = in_descriptors(&thread, relatives) {
            return Some(name);
        }
    }
    // They always have one memory; the first that is alive shows it.
    threads(process).find_map(|thread| in_mappings(&thread, relatives))?
}

fn in_descriptors(thread: &Path, relatives: &Relatives) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let table = rustix::fs::open(thread.join("fd"), flags, Mode::empty()).ok()?;
    let descriptors = Dir::read_from(&table).ok()?.flatten();
    descriptors
        .filter(|entry| {
            entry.file_name().to_bytes() != b"." && entry.file_name().to_bytes() != b".."
        })
        .find_map(|entry| name_of(&table, entry.file_name(), relatives))
}

/// A mapping keeps a device open when its descriptor is closed. The table shows the inode of the
/// node, which tells nothing; the link to the mapping leads to the device. Absent when there is no
/// table, `Some(None)` when there is nothing in it.
fn in_mappings(thread: &Path, relatives: &Relatives) -> Option<Option<String>> {
    let mut table = BufReader::new(File::open(thread.join("maps")).ok()?);
    let mut line = Vec::new();
    let mut seen = HashSet::new();
    let mut is_empty = true;
    loop {
        line.clear();
        match table.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return (!is_empty).then_some(None),
            Ok(_) => is_empty = false,
        }
        let Some((range, file)) = mapping(&line) else { continue };
        // Each file once, however often it is mapped.
        if seen.contains(file) {
            continue;
        }
        seen.insert(file.to_vec());
        if let Some(name) = name_of(CWD, thread.join("map_files").join(range), relatives) {
            return Some(Some(name));
        }
    }
}

/// The name of a mapping in `map_files`, and the device, inode and path of its file; absent when
/// it is of no file.
fn mapping(line: &[u8]) -> Option<(String, &[u8])> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let (start, end) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
    let file = words.nth(2)?.trim_ascii_end();
    let path = file.split(|byte| *byte == b' ').nth(1)?;
    if path == b"0" {
        return None;
    }
    // The table pads with zeros; the links have none.
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    Some((format!("{:x}-{:x}", hexadecimal(start)?, hexadecimal(end)?), file))
}

fn name_of(directory: impl AsFd, path: impl Arg, relatives: &Relatives) -> Option<String> {
    // What is known of the file is enough, and a server that is gone cannot keep us waiting.
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(directory, path, flags, StatxFlags::TYPE | StatxFlags::INO);
    relatives.name_of(&stat.ok()?).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::{Child, Command, Stdio};

    use crate::common;

    const DEVICE: &str = "KURABE_TEST_DEVICE";

    /// What the tests below run as a process of its own: it ends with its standard input.
    fn hold(how: impl FnOnce(File) + Send + 'static) {
        let Ok(device) = std::env::var(DEVICE) else { return };
        std::thread::spawn(move || {
            sys::unshare_files().unwrap();
            how(File::open(device).unwrap());
            println!("\nready");
            let _ = std::io::stdin().read_line(&mut String::new());
        });
        // The first thread has nothing open.
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    #[test]
    #[ignore = "run by a_mapping_without_a_descriptor_is_seen"]
    fn hold_a_mapping() {
        hold(|device| sys::map_for_good(device.as_fd()).unwrap());
    }

    #[test]
    #[ignore = "run by what_a_thread_alone_has_open_is_seen"]
    fn hold_in_a_thread() {
        hold(std::mem::forget);
    }

    /// Runs one of the above on a device; it says `ready`.
    fn run(test: &str, device: &common::Loop) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "--exact"])
            .arg(format!("claim::openers::tests::{test}"))
            .env(DEVICE, &device.node)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "ready"));
        child
    }

    fn refusal_beside(test: &str) -> Option<(String, String)> {
        let device = common::Loop::of_megabytes(32)?;
        let mut child = run(test, &device);
        let claimed = crate::claim::claim(&device.node, &device.name());
        drop(child.stdin.take());
        child.wait().unwrap();
        let expected = format!("process {} (", child.id());
        let refusal = claimed.map(drop).unwrap_err().to_string();
        common::granted(&device.node, &device.name());
        Some((refusal, expected))
    }

    #[test]
    fn a_mapping_without_a_descriptor_is_seen() {
        let Some((refusal, expected)) = refusal_beside("hold_a_mapping") else { return };
        assert!(refusal.contains(&expected) && refusal.contains("has it open"), "{refusal}");
    }

    #[test]
    fn what_a_thread_alone_has_open_is_seen() {
        let Some((refusal, expected)) = refusal_beside("hold_in_a_thread") else { return };
        assert!(refusal.contains(&expected) && refusal.contains("has it open"), "{refusal}");
    }

    #[test]
    fn a_line_of_the_table_of_mappings_is_read() {
        let line = b"00400000-00452000 r-xp 00000000 08:02 173521    /usr/bin/dbus daemon\n";
        let (range, file) = mapping(line).unwrap();
        assert_eq!(
            (&*range, file),
            ("400000-452000", &b"08:02 173521    /usr/bin/dbus daemon"[..])
        );
        let unnamed = b"7f00-7f10 rw-s 00001000 00:06 9 \n";
        assert_eq!(mapping(unnamed).unwrap(), ("7f00-7f10".into(), &b"00:06 9"[..]));
        assert_eq!(mapping(b"7ffc0000-7ffc1000 rw-p 00000000 00:00 0    [stack]\n"), None);
        for torn in [&b""[..], b"\n", b"7f00", b"7f00-7f10 rw-p 0 08:02", b"x-y r 0 1:2 3 /a"] {
            assert_eq!(mapping(torn), None);
        }
    }
}
