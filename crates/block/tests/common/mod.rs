//! A loop device over a temporary image, for the tests of the claim.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kurabe_block::claim::{ClaimError, claim};

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

pub fn run(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
