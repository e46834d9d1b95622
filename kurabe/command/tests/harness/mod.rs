//! A site of its own for every test: kurabe's own, an image and a working directory, so that
//! tests (and other people's kurabe) run side by side, and so that whatever kurabe leaves behind
//! can be told from everybody else's.
//!
//! What was left is looked for where it would lie, not where kurabe says: loop devices by their
//! backing file, mounts in every namespace, processes by the environment that they inherited.
#![allow(dead_code, reason = "every test program uses another part of it")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub const KURABE: &str = env!("CARGO_BIN_EXE_kurabe");

/// The user `nobody`, as whom the tests try what needs no root.
pub const NOBODY: u32 = 65534;

/// Whether the test may make file systems; says why it is skipped when not.
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: making and mounting file systems needs root");
    }
    root
}

/// Whether PostgreSQL is installed, in the place of Debian's packages or in the search path; says why a test is
/// skipped when it is not.
pub fn postgresql() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let is_packaged = versions.map(|one| one.path().join("bin/initdb")).any(|path| path.exists());
    is_packaged || tool("initdb").is_some()
}

/// Where a tool is installed; says why a test is skipped when it is not.
pub fn tool(name: &str) -> Option<PathBuf> {
    let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/bin"];
    let found = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

/// Copies a program that is to be run. Another process writes it: a descriptor of ours could be in a
/// child that another test is just starting, and then the kernel refuses to run the copy.
pub fn copy_program(from: impl AsRef<OsStr>, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// Whether nobody, the user, can execute kurabe where it was built.
pub fn nobody_runs(program: &Path) -> bool {
    let asked = Command::new(program).arg("--version").uid(NOBODY).gid(NOBODY).output();
    asked.is_ok_and(|output| output.status.success())
}

/// A directory in memory, where a `dir:` contender's sync waits for nobody else's writes.
pub fn memory_directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("test-of-kurabe-").tempdir_in("/dev/shm").unwrap()
}

/// Two `dir:` contenders, `a` and `b`, in directories that are made here.
pub fn two_contenders(place: &Path) -> [String; 2] {
    ["a", "b"].map(|name| {
        let directory = place.join(name);
        fs::create_dir(&directory).unwrap();
        format!("{name}: dir:{}", directory.display())
    })
}

/// What a kurabe that ended yielded.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub elapsed: Duration,
}

impl Ran {
    fn of(output: Output, elapsed: Duration) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("kurabe writes text"),
            stderr: String::from_utf8(output.stderr).expect("kurabe writes text"),
            elapsed,
        }
    }

    /// Checks the exit code and shows everything when it is another.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Checks that standard error says all of these.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Ran {
        for text in texts {
            assert!(self.stderr.contains(text), "no '{text}' in:\n{}", self.stderr);
        }
        self
    }
}

/// A place where kurabe runs.
pub struct Site {
    home: TempDir,
    own: PathBuf,
}

/// The variable by which every process that kurabe starts in a site is known.
const MARK: &str = "KURABE_TEST_SITE";

impl Site {
    pub fn new() -> Site {
        let site = Site::with_own(None);
        fs::create_dir(site.own()).unwrap();
        fs::set_permissions(site.own(), fs::Permissions::from_mode(0o700)).unwrap();
        site
    }

    /// A site whose kurabe has the own directory of another site's.
    pub fn beside(other: &Site) -> Site {
        Site::with_own(Some(other.own()))
    }

    fn with_own(own: Option<PathBuf>) -> Site {
        // On a disk, because an image in memory is refused.
        let home = tempfile::Builder::new()
            .prefix("test-of-kurabe-")
            .tempdir_in("/var/tmp")
            .expect("/var/tmp can be written");
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = own.unwrap_or_else(|| home.path().join("own"));
        let site = Site { home, own };
        for directory in [site.images(), site.temporary(), site.work()] {
            fs::create_dir(directory).unwrap();
        }
        site
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// kurabe's own directory.
    pub fn own(&self) -> PathBuf {
        self.own.clone()
    }

    /// The place that every program may use, and kurabe does not.
    pub fn temporary(&self) -> PathBuf {
        self.home().join("tmp")
    }

    /// Where images lie that are asked for by [`Site::image_device`].
    pub fn images(&self) -> PathBuf {
        self.home().join("images")
    }

    pub fn ledger(&self) -> PathBuf {
        self.own().join("ledger")
    }

    /// The image of this site that a process holds: a path that leads to it, which has no name.
    pub fn image(&self) -> Option<PathBuf> {
        let images = self.images();
        self.processes().into_iter().find_map(|process| {
            let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
            let mut descriptors = descriptors.flatten().map(|descriptor| descriptor.path());
            descriptors.find(|descriptor| {
                fs::read_link(descriptor).is_ok_and(|file| {
                    file.starts_with(&images) && file.to_string_lossy().ends_with("(deleted)")
                })
            })
        })
    }

    /// Where kurabe is started.
    pub fn work(&self) -> PathBuf {
        self.home().join("work")
    }

    /// An image file of this size.
    pub fn image_device(&self, size: &str) -> String {
        format!("loop:{size}@{}", self.images().display())
    }

    fn mark(&self) -> String {
        format!("{MARK}={}", self.home().display())
    }

    /// `program`, started in this site.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.work())
            .env(MARK, self.home())
            .env("KURABE_HOME", self.own())
            .env("TMPDIR", self.temporary())
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The path of a kurabe that every user can execute. A clone can lie in a home that nobody else may
    /// pass, as root's; then it is a copy.
    pub fn public_kurabe(&self) -> PathBuf {
        let built = Path::new(KURABE);
        if nobody_runs(built) {
            return built.into();
        }
        let copy = self.home().join("kurabe");
        copy_program(built, &copy);
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(nobody_runs(&copy), "nobody cannot run {}", copy.display());
        copy
    }

    pub fn kurabe(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(KURABE);
        command.args(arguments);
        command
    }

    pub fn finish(&self, mut command: Command) -> Ran {
        let started = Instant::now();
        let output = command.output().expect("kurabe starts");
        Ran::of(output, started.elapsed())
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.finish(self.kurabe(arguments))
    }

    /// `kurabe compare` with what keeps tests short, unless `flags` say otherwise: memory of
    /// 64 MiB, one block, a short wait for an idle machine, the result in `result`.
    pub fn compare_command(
        &self,
        contenders: &[&str],
        flags: &[&str],
        command: &[&str],
    ) -> Command {
        // A command of a test may count how often it runs.
        let mut arguments = vec!["compare", "--no-dry-run"];
        arguments.extend(contenders);
        for (flag, value) in [
            ("--device", "mem:64M"),
            ("--runs", "1"),
            ("--idle-wait", "200ms"),
            ("--out", "result"),
            ("--seed", "1"),
        ] {
            let is_said =
                flags.contains(&flag) || (flag == "--runs" && flags.contains(&"--rounds"));
            if !is_said {
                arguments.extend([flag, value]);
            }
        }
        arguments.extend(flags);
        arguments.push("--");
        arguments.extend(command);
        self.kurabe(&arguments)
    }

    pub fn compare(&self, contenders: &[&str], flags: &[&str], command: &[&str]) -> Ran {
        self.finish(self.compare_command(contenders, flags, command))
    }

    /// Starts kurabe and lets it run.
    pub fn start(&self, mut command: Command) -> Running {
        Running { child: command.spawn().expect("kurabe starts"), started: Instant::now() }
    }

    /// A file of the result, as JSON.
    pub fn json(&self, name: &str) -> Value {
        let path = self.work().join("result").join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The comparisons that the study was made for, without the exploratory ones.
    pub fn primary_comparisons(&self) -> Vec<Value> {
        let mut all = self.json("comparisons.json").as_array().unwrap().clone();
        all.retain(|comparison| comparison["primary"] == true);
        all
    }

    /// The records of the result.
    pub fn records(&self) -> Vec<Value> {
        let path = self.work().join("result/records.jsonl");
        let text = fs::read_to_string(path).expect("there are records");
        text.lines().map(|line| serde_json::from_str(line).expect("a whole record")).collect()
    }

    /// Copies the result, for a comparison of two.
    pub fn copy_result(&self, name: &str) {
        let mut copy = Command::new("cp");
        copy.arg("-r").args([self.work().join("result"), self.work().join(name)]);
        assert!(copy.status().unwrap().success());
    }

    /// The only record of a contender.
    #[track_caller]
    pub fn record_of(&self, label: &str) -> Value {
        let mut records = self.records();
        records.retain(|record| record["contender"]["label"] == label);
        assert_eq!(records.len(), 1, "{records:#?}");
        records.remove(0)
    }

    /// Everything of this site that is taken: a line each.
    pub fn taken(&self) -> BTreeSet<String> {
        let home = self.home().display().to_string();
        let own = self.own().display().to_string();
        let mut taken = BTreeSet::new();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
            if backing.is_ok_and(|backing| backing.contains(&home)) {
                taken.insert(format!("loop device {}", entry.file_name().display()));
            }
        }
        for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
            let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
            let is_here = |line: &&str| line.contains(&home) || line.contains(&own);
            for mount in mounts.lines().filter(is_here) {
                let fields: Vec<&str> = mount.split(' ').collect();
                taken.insert(format!("mount {} on {}", fields[3], fields[4]));
            }
        }
        for process in self.processes() {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            taken.insert(format!("process {} ({process})", name.trim_end()));
        }
        for (kind, directory) in [
            ("image", self.images()),
            ("temporary", self.temporary()),
            ("scratch", self.own()),
            ("ledger", self.ledger()),
        ] {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.path() != self.ledger() {
                    taken.insert(format!("{kind} {}", entry.file_name().display()));
                }
            }
        }
        taken
    }

    /// The processes that kurabe started here, itself included.
    pub fn processes(&self) -> Vec<i32> {
        let mark = self.mark();
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let number = entry.file_name().to_str()?.parse().ok()?;
                let environment = fs::read(entry.path().join("environ")).ok()?;
                let marked = |word: &[u8]| word == mark.as_bytes();
                environment.split(|byte| *byte == 0).any(marked).then_some(number)
            })
            .collect()
    }

    /// Checks that nothing is taken any more.
    #[track_caller]
    pub fn expect_nothing_left(&self) {
        let taken = self.taken();
        assert!(taken.is_empty(), "left behind: {taken:#?}");
    }

    /// Checks that nothing was ever written either, but for what the test itself put there.
    #[track_caller]
    pub fn expect_untouched(&self, known: &[&str]) {
        self.expect_nothing_left();
        let names: BTreeSet<String> = fs::read_dir(self.work())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().display().to_string())
            .collect();
        let known: BTreeSet<String> = known.iter().map(ToString::to_string).collect();
        assert_eq!(names, known, "in the working directory");
    }
}

impl Drop for Site {
    /// A test that failed may leave what it was about; the machine is none the worse for it.
    fn drop(&mut self) {
        for process in self.processes() {
            signal(process, rustix::process::Signal::KILL);
        }
        if std::thread::panicking() {
            let _ = self.kurabe(&["clean"]).output();
        }
    }
}

/// How each record ended.
pub fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["outcome"]["kind"].as_str().unwrap()).collect()
}

/// Phase, message and output of a failed record.
#[track_caller]
pub fn failure(record: &Value) -> (String, String, String) {
    let outcome = &record["outcome"];
    assert_eq!(outcome["kind"], "failed", "{outcome}");
    let text = |name: &str| outcome[name].as_str().unwrap_or_default().to_string();
    (text("phase"), text("message"), text("output"))
}

/// The phases of a record, in order.
pub fn phase_names(record: &Value) -> Vec<&str> {
    let phases = record["phases"].as_array().unwrap();
    phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect()
}

/// A phase of a record, which must have it.
#[track_caller]
pub fn phase<'a>(record: &'a Value, name: &str) -> &'a Value {
    let phases = record["phases"].as_array().unwrap();
    let found = phases.iter().find(|phase| phase["phase"] == name);
    found.unwrap_or_else(|| panic!("no phase '{name}' in {phases:#?}"))
}

/// What the device was given to write in a phase.
pub fn written_bytes(record: &Value, name: &str) -> u64 {
    phase(record, name)["device"]["written_bytes"].as_u64().unwrap()
}

/// A kurabe that was started and not yet waited for.
pub struct Running {
    pub child: Child,
    started: Instant,
}

impl Running {
    pub fn number(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end alone. What it leaves behind may hold its output open.
    pub fn reap(mut self) {
        self.child.wait().unwrap();
    }

    pub fn finish(self) -> Ran {
        let started = self.started;
        let output = self.child.wait_with_output().unwrap();
        Ran::of(output, started.elapsed())
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "waited for a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal to a process.
pub fn signal(number: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(number).expect("a process has a positive number");
    // It may have ended meanwhile.
    let _ = rustix::process::kill_process(pid, signal);
}

/// Random numbers from a seed: SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
