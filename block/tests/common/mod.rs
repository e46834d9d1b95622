//! A loop device over a temporary image, for the tests of the claim.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use block::claim::{Claim, ClaimError, claim};

/// How often something is tried that others on this machine hinder for a while: a copy of our
/// descriptors in a child that is just being started, a copy of our mounts in a namespace that was
/// made beside us.
const ATTEMPTS_MAX: usize = 600;
const INTERVAL: Duration = Duration::from_millis(50);

/// A loop device of the test's own, given back with its image when dropped.
pub struct Loop {
    pub node: PathBuf,
    image: tempfile::NamedTempFile,
}

impl Loop {
    /// Absent, with a word why, where the test cannot run.
    pub fn of_megabytes(megabytes: u64) -> Option<Loop> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("SKIPPED: needs root and /dev/loop-control");
            return None;
        }
        let image = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        image.as_file().set_len(megabytes << 20).unwrap();
        let node = run(&["losetup", "--find", "--show", &image.path().display().to_string()]);
        Some(Loop { node: node.trim().into(), image })
    }

    pub fn name(&self) -> String {
        name_of(&self.node)
    }

    pub fn text(&self) -> String {
        self.node.display().to_string()
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.node).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        file.sync_all().unwrap();
    }

    pub fn image(&self) -> &Path {
        self.image.path()
    }

    pub fn refusal(&self, destroy: &str) -> String {
        refusal(&self.node, destroy)
    }
}

impl Loop {
    /// Tells the kernel of a partition of 4 MiB, whatever tables it was built to read.
    pub fn divide(&self, start_sector: u64) -> Partition {
        let device = self.text();
        run(&["addpart", &device, "1", &start_sector.to_string(), "8192"]);
        Partition { node: format!("{device}p1").into(), device }
    }
}

/// The first partition of a device, taken away when dropped.
pub struct Partition {
    pub node: PathBuf,
    device: String,
}

impl Partition {
    pub fn name(&self) -> String {
        name_of(&self.node)
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS_MAX {
            let deleted = Command::new("delpart").args([&self.device, "1"]).output();
            if deleted.is_ok_and(|output| output.status.success()) {
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.node).output();
    }
}

pub fn name_of(node: &Path) -> String {
    node.file_name().unwrap().to_string_lossy().into_owned()
}

/// What the refusal says; panics when the claim is granted.
pub fn refusal(node: &Path, destroy: &str) -> String {
    match claim(node, destroy) {
        Err(error @ ClaimError::Refused { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The claim, once nobody else hinders it.
pub fn granted(node: &Path, destroy: &str) -> Claim {
    for _ in 1..ATTEMPTS_MAX {
        match claim(node, destroy) {
            Ok(granted) => return granted,
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
    claim(node, destroy).unwrap()
}

/// The refusal of a device that nobody uses: it says what to give to `--destroy` instead.
pub fn refusal_of_unused(node: &Path, destroy: &str) -> String {
    for _ in 1..ATTEMPTS_MAX {
        let text = refusal(node, destroy);
        if text.contains("--destroy") {
            return text;
        }
        std::thread::sleep(INTERVAL);
    }
    refusal(node, destroy)
}

pub fn run(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
