//! kurabe as its attackers see it: an unprivileged process, a forged directory, a swapped device, a
//! FIFO, a link. Each test looks at outcomes alone: a file that only root could have made is not
//! there, what belongs to somebody else has its bytes, kurabe ended within its bound.
//!
//! Must not know how kurabe protects itself: a test names a class of fault, not one mending of it.
//! Everything lies in the directory of the test's own [`Site`] and is given back with it, except
//! for loop devices, which a [`Disk`] gives back.

mod device;
#[path = "../harness/mod.rs"]
mod harness;
mod hidden;
mod jobs;
mod ledger;
mod loads;
mod names;
mod programs;
mod resume;
mod stalls;
mod study;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::{NOBODY, Ran, Running, Site, root, signal, wait_until};
use rustix::process::{Pid, Signal, kill_process_group};

/// A site with what the attacks need: a directory that root alone can look into, and one of the
/// stranger's. Absent, with a word why, where the test cannot run.
fn ground() -> Option<Site> {
    if !root() {
        return None;
    }
    let site = Site::new();
    for (directory, mode) in [(secret(&site), 0o700), (theirs(&site), 0o755)] {
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
    }
    give_to_stranger(&theirs(&site));
    Some(site)
}

/// The same where loop devices can be had as well.
fn ground_of_disks() -> Option<Site> {
    if !Path::new("/dev/loop-control").exists() {
        eprintln!("SKIPPED: /dev/loop-control is not there, and the attack needs loop devices");
        return None;
    }
    ground()
}

/// kurabe's own directory.
fn own(site: &Site) -> PathBuf {
    site.own()
}

/// Where every program may put its temporary files.
fn temporary(site: &Site) -> PathBuf {
    site.temporary()
}

/// What root alone can look into.
fn secret(site: &Site) -> PathBuf {
    site.home().join("secret")
}

/// The stranger's directory.
fn theirs(site: &Site) -> PathBuf {
    site.home().join("theirs")
}

/// A file that is there once root obeyed the stranger, who cannot make it.
fn proof(site: &Site) -> PathBuf {
    site.home().join("proof")
}

/// A file that only root can read and write, whose last line is not whole.
fn precious(site: &Site) -> PathBuf {
    let path = secret(site).join("precious");
    fs::write(&path, PRECIOUS).unwrap();
    path
}

const PRECIOUS: &str = "a line\nand what comes after it";

/// Checks that the stranger got nothing done by root.
#[track_caller]
fn expect_unharmed(site: &Site, ran: &Ran) {
    assert!(!proof(site).exists(), "root obeyed a stranger: {ran:#?}");
    if let Ok(text) = fs::read_to_string(secret(site).join("precious")) {
        assert_eq!(text, PRECIOUS, "{ran:#?}");
    }
}

/// A shell script as the stranger, who has no rights at all.
fn stranger(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::null());
    command
}

/// A process of the stranger's, with everything that it started; ended when dropped.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

fn give_to_stranger(path: &Path) {
    done(Command::new("chown").args(["-hR", &format!("{NOBODY}:{NOBODY}")]).arg(path));
}

/// Runs a program that must succeed.
#[track_caller]
fn done(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A disk of somebody's: an image behind a loop device, given back when dropped.
struct Disk {
    image: PathBuf,
    node: PathBuf,
}

impl Disk {
    const BYTES: u64 = 32 << 20;

    fn new(site: &Site, name: &str) -> Disk {
        let image = secret(site).join(name);
        fs::File::create(&image).unwrap().set_len(Disk::BYTES).unwrap();
        Disk::on(image)
    }

    /// A disk with an ext4 of its own.
    fn formatted(site: &Site, name: &str) -> Disk {
        let disk = Disk::new(site, name);
        disk.format().expect("a new disk can be formatted");
        disk
    }

    fn on(image: PathBuf) -> Disk {
        let attached = done(Command::new("losetup").args(["--find", "--show"]).arg(&image));
        Disk { image, node: attached.trim().into() }
    }

    fn text(&self) -> String {
        self.node.display().to_string()
    }

    /// The kernel's name.
    fn name(&self) -> String {
        self.node.file_name().unwrap().display().to_string()
    }

    /// What is attached to the node now.
    fn backing(&self) -> Option<PathBuf> {
        let file = format!("/sys/block/{}/loop/backing_file", self.name());
        fs::read_to_string(file).ok().map(|text| text.trim_end().into())
    }

    /// Makes an ext4 as a careful administrator does, and tells its UUID unless that is refused.
    fn format(&self) -> Option<String> {
        let mut make = Command::new("mkfs.ext4");
        let made = make.arg("-q").arg(&self.node).stdin(Stdio::null()).output().unwrap();
        made.status.success().then(|| self.uuid())
    }

    fn uuid(&self) -> String {
        let mut ask = Command::new("blkid");
        let output = ask.args(["-p", "-s", "UUID", "-o", "value"]).arg(&self.node).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// Every byte, as far as it was written down.
    fn bytes(&self) -> Vec<u8> {
        done(Command::new("blockdev").arg("--flushbufs").arg(&self.node));
        fs::read(&self.image).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Only what is ours: the node may have been given to somebody else meanwhile.
        if self.backing().is_some_and(|file| file.starts_with(self.image.parent().unwrap())) {
            let _ = Command::new("losetup").arg("--detach").arg(&self.node).output();
        }
    }
}

/// A command that waits in its first trial until [`between_trials`] has come.
fn first_waits(site: &Site) -> String {
    let (begun, go_on) = (site.home().join("begun"), site.home().join("go-on"));
    format!(
        "[ -e {0} ] || {{ touch {0}; until [ -e {1} ]; do sleep 0.01; done; }}",
        begun.display(),
        go_on.display()
    )
}

/// Starts a study and halts its runner when the first trial has ended and no other has begun; does
/// `act` then, and lets the study go on to its end. One that is refused at once is left at that.
fn between_trials(site: &Site, command: Command, act: impl FnOnce()) -> Ran {
    let mut running = site.start(command);
    let begun = site.home().join("begun");
    wait_until("the first trial runs", || begun.exists() || running.has_ended());
    if running.has_ended() {
        return running.finish();
    }
    let runner = running.number();
    signal(runner, Signal::STOP);
    fs::write(site.home().join("go-on"), "").unwrap();
    wait_until("the first trial has ended", || site.processes() == [runner]);
    let halted = Halted(runner);
    act();
    drop(halted);
    running.finish()
}

/// A process that goes on when this is dropped; killed when the test has failed.
struct Halted(i32);

impl Drop for Halted {
    fn drop(&mut self) {
        let kind = if std::thread::panicking() { Signal::KILL } else { Signal::CONT };
        signal(self.0, kind);
    }
}

/// Waits for kurabe's end, and ends it when it takes half a minute or reads more than a study, a
/// plan or a job can have: then nothing is told.
fn bounded(mut running: Running) -> Option<Ran> {
    const READ_BYTES_MAX: u64 = 128 << 20;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !running.has_ended() {
        let io = fs::read_to_string(format!("/proc/{}/io", running.number())).unwrap_or_default();
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok());
        if std::time::Instant::now() > until || read.is_some_and(|bytes| bytes > READ_BYTES_MAX) {
            signal(running.number(), Signal::KILL);
            running.reap();
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Some(running.finish())
}
