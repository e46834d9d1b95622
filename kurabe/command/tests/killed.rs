//! SIGKILL at any instant: whatever was taken by then, `kurabe clean` (or the next start) gives it
//! back.
//!
//! In every round a study is killed: the runner alone, the runner and one more of its processes, or
//! all of them, in random order. In half of the rounds the instant is random; in the others it is
//! some random milliseconds after a phase was first seen, since the short ones would seldom be hit.
//! Then what is left is cleaned up and looked for. Beside it another kurabe has its own in the same
//! place and lives: nothing of it may be taken. `cargo test` runs a short version;
//!
//! ```sh
//! KURABE_KILLS=200 cargo test -p kurabe --test killed -- --nocapture
//! ```
//!
//! runs 200 rounds and prints what was going on at the kills. `KURABE_SEED` repeats a run's choices
//! (not its timing).

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use harness::{Random, Site, root, signal, wait_until};
use rustix::process::Signal;

const ROUNDS_DEFAULT: u64 = 8;

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victims {
    Runner,
    RunnerAndAnother,
    All,
}

/// What is done after the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cure {
    Clean,
    /// The cleaning is killed too, and done again.
    CleanTwice,
    NextStart,
}

/// File systems and the size of their device.
const KINDS: [(&str, &str); 5] = [
    ("ext4", "64M"),
    ("xfs", "300M"),
    ("btrfs", "128M"),
    ("dir", ""),
    ("ext4 over loop direct-io=on over ext4", "96M"),
];

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// A study of one trial; the commands of its phases are told apart by their names.
fn start(site: &Site, kind: usize) -> harness::Running {
    let (name, size) = KINDS[kind];
    let contender = match name {
        "dir" => format!("dir:{}", mine(site).display()),
        name => name.to_string(),
    };
    let device = match size {
        "" => "loop:64M".to_string(),
        size => site.image_device(size),
    };
    let flags = [
        "--device",
        &device,
        "--idle-wait",
        "50ms",
        "--setup",
        "head -c 12000000 /dev/urandom >a",
        "--cleanup",
        "tail -c 1000000 a >c",
    ];
    let command = ["dd if=/dev/zero of=b bs=64k count=300 2>/dev/null; setsid dd if=a of=d bs=4k"];
    site.start(site.compare_command(&[&contender], &flags, &command))
}

/// A kurabe that lives beside the ones that are killed: its image, loop device, mount, directories
/// and ledger lie where theirs do.
struct Neighbour {
    site: Site,
    running: harness::Running,
    held: BTreeSet<String>,
}

impl Neighbour {
    fn start() -> Neighbour {
        let site = Site::new();
        let ready = site.home().join("ready");
        let command = format!("touch {}; exec sleep 100000", ready.display());
        let device = site.image_device("64M");
        let flags = ["--device", &device, "--idle-wait", "50ms"];
        let running = site.start(site.compare_command(&["ext4"], &flags, &[&command]));
        wait_until("the neighbour's command runs", || ready.exists());
        let held = site.taken();
        for kind in ["loop device", "mount", "process sleep", "scratch", "ledger"] {
            assert!(held.iter().any(|line| line.starts_with(kind)), "no {kind} in {held:#?}");
        }
        Neighbour { site, running, held }
    }

    /// What of its things is gone, now or for good.
    fn missing(&self) -> Vec<String> {
        let taken = self.site.taken();
        self.held.difference(&taken).map(|line| format!("of the living one: {line}")).collect()
    }

    /// Ends it, and says what is left of it then.
    fn end(mut self) -> BTreeSet<String> {
        assert!(!self.running.has_ended(), "it lives until it is stopped");
        signal(self.running.number(), Signal::INT);
        self.running.finish().expect(130);
        self.site.taken()
    }
}

/// The directory of the user's under a `dir:` contender.
fn mine(site: &Site) -> std::path::PathBuf {
    site.home().join("mine")
}

/// The phases that are aimed at.
const AIMS: [&str; 7] = [
    "mkfs",
    "check",
    "mounted: settle, sync or unmount",
    "a trial, not mounted",
    // A directory has these too.
    "setup",
    "run",
    "cleanup",
];

/// What is going on, by what the processes of the site are and what they see.
fn phase_of(site: &Site) -> &'static str {
    let processes = site.processes();
    let names: Vec<String> = processes
        .iter()
        .map(|process| fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default())
        .collect();
    for (start, phase) in [
        ("mkfs", "mkfs"),
        ("mount", "mount"),
        ("head", "setup"),
        ("dd", "run"),
        ("tail", "cleanup"),
        ("e2fsck", "check"),
        ("fsck", "check"),
        ("xfs_repair", "check"),
        ("btrfs", "check"),
    ] {
        if names.iter().any(|name| name.starts_with(start)) {
            return phase;
        }
    }
    let is_mounted = processes.iter().any(|process| {
        let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        mounts.contains(&format!("{}/kurabe-", site.own().display()))
    });
    let has_any = |directory: std::path::PathBuf| {
        fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
    };
    match (processes.len(), is_mounted, site.image().is_some(), has_any(site.ledger())) {
        (0, ..) => "ended",
        (_, true, ..) => "mounted: settle, sync or unmount",
        (1, _, true, _) => "the runner alone, with an image",
        (1, _, false, true) => "the runner alone, without an image",
        (1, _, false, false) => "before the ledger",
        _ => "a trial, not mounted",
    }
}

fn kill(site: &Site, runner: i32, victims: Victims, random: &mut Random) {
    let mut processes = match victims {
        Victims::Runner => Vec::new(),
        _ => site.processes(),
    };
    processes.retain(|process| *process != runner);
    for index in (1..processes.len()).rev() {
        processes.swap(index, random.below(index as u64 + 1) as usize);
    }
    if victims == Victims::RunnerAndAnother {
        processes.truncate(1);
    }
    // The runner is not always the first to go.
    let place = random.below(processes.len() as u64 + 1) as usize;
    processes.insert(place, runner);
    for process in processes {
        signal(process, Signal::KILL);
    }
}

/// Gives back what was left; what could not be is what standard error says.
fn cure(site: &Site, cure: Cure, random: &mut Random) -> Vec<String> {
    match cure {
        Cure::Clean => {}
        Cure::CleanTwice => {
            let cleaning = site.start(site.kurabe(&["clean"]));
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            signal(cleaning.number(), Signal::KILL);
            cleaning.reap();
        }
        Cure::NextStart => {
            let next = ["compare", "dir:/dev/shm", "--runs", "1", "--out", "next", "--", "true"];
            let ran = site.run(&next).expect(0);
            let said = ran.stderr.lines().filter(|line| line.contains("still there"));
            return said.map(String::from).collect();
        }
    }
    let ran = site.run(&["clean"]);
    if ran.code == Some(0) { Vec::new() } else { vec![format!("{ran:?}")] }
}

#[test]
fn a_kill_at_any_instant_leaves_nothing_after_a_cleaning() {
    if !root() {
        return;
    }
    let rounds = number("KURABE_KILLS", ROUNDS_DEFAULT);
    let seed = number("KURABE_SEED", 20_261_121);
    println!("{rounds} rounds, seed {seed}");
    let mut random = Random(seed);
    let strays = stray_loop_devices();
    let mut whole = [Duration::ZERO; KINDS.len()];
    let neighbour = Neighbour::start();
    let mut phases: BTreeMap<String, u32> = BTreeMap::new();
    let mut failures = Vec::new();
    let (mut round, mut killed) = (0, 0);
    // A study that had ended by itself was not killed, and that round is repeated.
    while killed < rounds && round < 3 * rounds {
        round += 1;
        let kind = (round % KINDS.len() as u64) as usize;
        let site = Site::beside(&neighbour.site);
        fs::create_dir(mine(&site)).unwrap();
        if whole[kind] == Duration::ZERO {
            // How long a study takes is measured once, so that the kills spread over all of it.
            whole[kind] = start(&site, kind).finish().expect(0).elapsed;
            assert_eq!(taken_for_good(&site, &neighbour.held), BTreeSet::new());
            fs::remove_dir_all(site.work().join("result")).unwrap();
        }
        let victims =
            [Victims::Runner, Victims::RunnerAndAnother, Victims::All][random.below(3) as usize];
        let cured_by =
            [Cure::Clean, Cure::Clean, Cure::CleanTwice, Cure::NextStart][random.below(4) as usize];
        let aims = if KINDS[kind].0 == "dir" { &AIMS[4..] } else { &AIMS[..] };
        let aim = aims[random.below(aims.len() as u64) as usize];
        let aimed = round / KINDS.len() as u64 % 2 == 1;
        let delay_max = if aimed { Duration::from_millis(40) } else { whole[kind] };
        let delay = Duration::from_micros(random.below(delay_max.as_micros() as u64));

        let mut running = start(&site, kind);
        while aimed && phase_of(&site) != aim && !running.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(delay);
        let phase = phase_of(&site);
        killed += u64::from(!running.has_ended());
        kill(&site, running.number(), victims, &mut random);
        running.reap();
        let said = cure(&site, cured_by, &mut random);
        let name = KINDS[kind].0;
        *phases.entry(format!("{name:5} {phase}")).or_default() += 1;

        let mut left = taken_for_good(&site, &neighbour.held);
        left.extend(files_of(&mine(&site)));
        left.extend(said);
        left.extend(neighbour.missing());
        if !left.is_empty() {
            let failure = format!(
                "round {round}: {name}, {victims:?} killed after {delay:?} ({phase}), {cured_by:?}: {left:#?}"
            );
            println!("{failure}");
            failures.push(failure);
            // What this round left must not be blamed on the next.
            for process in site.processes() {
                signal(process, Signal::KILL);
            }
            site.run(&["clean"]);
        }
        // What had been recorded is still there to be read.
        if site.work().join("result/plan.json").exists() {
            site.run(&["report", "result"]).expect(0);
        }
    }
    for (phase, count) in &phases {
        println!("{count:4}  {phase}");
    }
    println!("{killed} studies were killed in {round} rounds");
    assert_eq!(killed, rounds);
    assert_eq!(neighbour.end(), BTreeSet::new());
    let strays: Vec<_> = stray_loop_devices().difference(&strays).cloned().collect();
    assert!(failures.is_empty(), "{} of {rounds} rounds: {failures:#?}", failures.len());
    assert_eq!(strays, [""; 0], "loop devices that nobody has attached");
}

/// A command under a directory has no namespace that would end it with its trial, and a user who
/// is not root has none anyway.
#[test]
fn a_command_that_outlives_a_killed_kurabe_is_ended_by_the_cleaning() {
    let site = Site::new();
    fs::create_dir(mine(&site)).unwrap();
    let contender = format!("dir:{}", mine(&site).display());
    let command = "echo > ready; (setsid sh -c 'while :; do date >> file; done' &); sleep 1000";
    let running = site.start(site.compare_command(&[&contender], &[], &[command]));
    let ready = || {
        files_of(&mine(&site)).iter().any(|path| fs::exists(format!("{path}/load/file")).unwrap())
    };
    wait_until("the command runs", ready);
    signal(running.number(), Signal::KILL);
    running.reap();
    let ran = site.run(&["clean"]).expect(0);
    assert!(ran.stdout.contains("killed sleep (process "), "{}", ran.stdout);
    assert_eq!(taken_for_good(&site, &BTreeSet::new()), BTreeSet::new());
    assert_eq!(files_of(&mine(&site)), [""; 0]);
    let again = site.run(&["clean"]).expect(0);
    assert_eq!(again.stdout, "nothing was left behind\n");
}

/// Without anybody's help: the trial ends with its runner and everything in it with the trial, a
/// process that left its group and ignores signals too. Only names are left to be cleaned up.
#[test]
fn a_trial_ends_with_its_killed_runner() {
    if !root() {
        return;
    }
    let site = Site::new();
    let device = site.image_device("64M");
    let command = "trap '' INT TERM HUP; setsid sleep 1000 & sleep 1000";
    let running = site.start(site.compare_command(&["ext4"], &["--device", &device], &[command]));
    wait_until("the command runs", || {
        site.taken().iter().filter(|taken| taken.starts_with("process sleep")).count() == 2
    });
    signal(running.number(), Signal::KILL);
    running.reap();
    wait_until("the trial has ended", || site.processes().is_empty());
    wait_until("nothing is mounted or attached", || {
        !site.taken().iter().any(|taken| taken.starts_with("mount") || taken.starts_with("loop"))
    });
    site.run(&["clean"]).expect(0);
    site.expect_nothing_left();
}

/// A dead process stays in the process table until its parent asks for it, and some parents never
/// do.
#[test]
fn a_dead_kurabe_that_nobody_waited_for_is_cleaned_up_after() {
    let site = Site::new();
    let running = site.start(site.compare_command(&["dir:/dev/shm"], &[], &["sleep 1000"]));
    wait_until("the command runs", || {
        site.taken().iter().any(|taken| taken.starts_with("process sleep"))
    });
    signal(running.number(), Signal::KILL);
    wait_until("the runner is dead", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", running.number())).unwrap();
        stat.contains(") Z ")
    });
    let ran = site.run(&["clean"]).expect(0);
    assert!(!ran.stdout.contains("left alone"), "{}", ran.stdout);
    assert_eq!(taken_for_good(&site, &BTreeSet::new()), BTreeSet::new());
    running.reap();
}

/// What is still taken now besides what others have, and processes that do not end within two seconds.
fn taken_for_good(site: &Site, others: &BTreeSet<String>) -> BTreeSet<String> {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        let taken: BTreeSet<String> = site.taken().difference(others).cloned().collect();
        let only_processes = taken.iter().all(|line| line.starts_with("process"));
        if taken.is_empty() || !only_processes || Instant::now() >= until {
            return taken;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn files_of(directory: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// Private loop devices that have no file attached for five seconds on end. Other people's kurabe
/// has such a one for an instant only.
fn stray_loop_devices() -> BTreeSet<String> {
    let unattached = || -> BTreeSet<String> {
        let entries = fs::read_dir("/sys/block").unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter(|name| {
                let number = name.strip_prefix("loop").and_then(|number| number.parse().ok());
                number.is_some_and(|number: u32| number >= 1000)
            })
            .filter(|name| !fs::exists(format!("/sys/block/{name}/loop/backing_file")).unwrap())
            .collect()
    };
    let mut found = unattached();
    for _ in 0..50 {
        if found.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        found = found.intersection(&unattached()).cloned().collect();
    }
    found
}
