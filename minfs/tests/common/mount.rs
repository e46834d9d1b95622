//! A mounted volume for the tests, and how they run programs.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const MINFS: &str = env!("CARGO_BIN_EXE_minfs");

/// A volume in a directory of its own, mounted until dropped.
pub struct Mount {
    pub directory: tempfile::TempDir,
    pub options: String,
}

pub fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

pub fn minfs(arguments: &[&str]) -> Output {
    run(MINFS, arguments)
}

/// Runs minfs again for up to three minutes while its errors ask for it. Whoever makes a mount
/// namespace on this machine holds a copy of the tests' mounts until it ends.
pub fn patiently(arguments: &[&str], again: impl Fn(&str) -> bool) -> Output {
    let begun = std::time::Instant::now();
    loop {
        let output = minfs(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_held = errors.contains("in another mount namespace") && arguments[0] != "umount";
        if output.status.success()
            || !(is_held || again(&errors))
            || begun.elapsed().as_secs() > 180
        {
            return output;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[track_caller]
pub fn succeed(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

impl Mount {
    /// `None`, with a word why, where mounting is not possible.
    pub fn new(size: &str, options: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: mounting needs root and /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("mnt")).unwrap();
        let mount = Self { directory, options: options.to_string() };
        succeed(minfs(&["mkfs", "--size", size, &mount.image()]));
        mount.mount();
        Some(mount)
    }

    pub fn image(&self) -> String {
        self.directory.path().join("image").to_str().unwrap().to_string()
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    pub fn root_text(&self) -> String {
        self.root().to_str().unwrap().to_string()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn mount(&self) {
        let arguments = ["mount", "-o", &self.options, &self.image(), &self.root_text()];
        succeed(patiently(&arguments, |_| false));
    }

    /// Unmounts. A program that another test starts holds copies of all open files for a moment,
    /// so a busy mount is tried again.
    pub fn umount(&self) {
        let unmounted =
            patiently(&["umount", &self.root_text()], |errors| errors.contains("it is in use"));
        let errors = String::from_utf8_lossy(&unmounted.stderr).into_owned();
        if errors.contains("another mount namespace") {
            succeed(patiently(&["df", &self.image()], |_| false));
        } else {
            succeed(unmounted);
        }
    }

    pub fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&self.root_text())
    }

    pub fn fsck(&self) -> i32 {
        patiently(&["fsck", "-n", &self.image()], |_| false).status.code().unwrap()
    }

    /// The daemon that serves this mount: the process whose command line names the image.
    pub fn daemon(&self) -> i32 {
        let image = self.image();
        let is_daemon = |line: Vec<u8>| {
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains(&image) && line.contains("--foreground")
        };
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok())
            .find(|process| fs::read(format!("/proc/{process}/cmdline")).is_ok_and(is_daemon))
            .expect("the daemon runs")
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_raw(self.daemon()).unwrap();
        rustix::process::kill_process(process, signal).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted() {
            let lazy = rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(self.root(), lazy);
        }
    }
}

#[track_caller]
pub fn assert_errno<T>(outcome: std::io::Result<T>, errno: i32) {
    let found = outcome.map(drop).map_err(|error| error.raw_os_error());
    assert_eq!(found, Err(Some(errno)));
}

pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| ((index / 7).wrapping_mul(31) + index + seed) as u8).collect()
}
