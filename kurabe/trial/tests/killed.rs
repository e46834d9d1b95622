//! A process that holds a device is killed at random instants, and cleaning gives everything back.
//! Needs root and loop devices; says so and passes where there are none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lab::contender::Contender;
use trial::device::{self, AttachSite, DeviceRequest};
use trial::filesystem::{self, InstanceContext};
use trial::host_proc::HostProc;
use trial::ledger::{self, Ledger};
use trial::scratch::{Occupied, Scratch};
use trial::stop::StopFlag;
use trial::tool::Toolbox;
use trust::Directory;

/// Tells the copy of this program that it is to be the process that is killed.
const VICTIM: &str = "KURABE_TEST_VICTIM";

/// How many times a process is killed.
const ROUNDS: u64 = 24;

/// How long a whole life takes, roughly: prepared, attached, made, mounted, used.
const LIFE: Duration = Duration::from_millis(1500);

/// Not a test by itself: the life that [`killed_at_random_instants`] cuts short.
#[test]
fn victim() {
    let Some(home) = std::env::var_os(VICTIM).map(PathBuf::from) else { return };
    #[allow(deprecated)]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
    let private =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let own = Arc::new(Directory::private(&home).unwrap());
    let ledger = Arc::new(Ledger::start(&own).unwrap());
    let request = DeviceRequest::parse("loop:64M", None).unwrap();
    let stop = StopFlag::default();
    let prepared = request.prepare(&own, &stop, &mut |_| {}).unwrap();
    let host = HostProc::open().unwrap();
    loop {
        let made = Scratch::make(&own, &ledger).unwrap();
        let scratch = Arc::new(Occupied::enter(&made.path()).unwrap());
        let site = AttachSite { scratch: &scratch, host: &host, stop: &stop };
        let attached = device::attach(prepared.device(), false, &site).unwrap();
        let contender = Contender::parse("ext4", &filesystem::known()).unwrap();
        let stage =
            InstanceContext::new(&contender, Some(attached.node()), 64 << 20, false, &scratch);
        let mut instance = filesystem::by_name("ext4").unwrap().begin(stage);
        let mut tools = Toolbox::new(None, stop.clone());
        instance.make(&mut tools).unwrap();
        instance.mount(&mut tools).unwrap();
        fs::write(instance.directory().join("file"), vec![1; 1 << 20]).unwrap();
        instance.end(&mut tools).unwrap();
        attached.detach().unwrap();
        drop((instance, scratch));
        assert_eq!(made.give_back().left, Vec::<String>::new());
    }
}

/// Numbers of the loop devices whose file lies in `home`, also when it was removed.
fn loop_devices_in(home: &Path) -> Vec<String> {
    let home = home.display().to_string();
    fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .filter(|entry| {
            fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|text| text.starts_with(&home))
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Numbers of the private loop devices that the ledgers in `home` name.
fn nodes_in_ledgers(home: &Path) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut directories = vec![home.to_path_buf()];
    while let Some(directory) = directories.pop() {
        // One that is being used may be gone by now.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                directories.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "jsonl") {
                for line in fs::read_to_string(entry.path()).unwrap_or_default().lines() {
                    let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
                    numbers.extend(value["take"]["what"]["index"].as_u64());
                }
            }
        }
    }
    numbers
}

#[test]
fn killed_at_random_instants() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("SKIPPED: needs root and /dev/loop-control");
        return;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64;
    println!("seed {seed}");
    let temporary = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = temporary.path().join("own");
    let own = Directory::private(&home).unwrap();
    let mut nodes_seen = 0;
    for round in 0..ROUNDS {
        let mut bytes = [0; 8];
        device::fill::random_bytes(seed, round * 8, &mut bytes);
        let nanoseconds = u64::from_le_bytes(bytes) % LIFE.as_nanos() as u64;
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim"])
            .env(VICTIM, &home)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // In every other round some moments after a loop device was first named, however long the
        // filling takes on this machine.
        let until = Instant::now() + Duration::from_secs(60);
        while round % 2 == 1 && nodes_in_ledgers(&home).is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_nanos(nanoseconds) / if round % 2 == 1 { 8 } else { 1 });
        assert_eq!(victim.try_wait().unwrap(), None, "it lives until it is killed");
        let living = ledger::clean(&own).unwrap();
        assert!(living.is_empty(), "the living are left alone: {living:?}");
        victim.kill().unwrap();
        victim.wait().unwrap();
        let nodes = nodes_in_ledgers(&home);
        nodes_seen += nodes.len();
        // A tool that was just being started has a copy of the lock until it has become the tool,
        // and one that was running ends when it is done, which no trial's does: here is no
        // namespace that would end it.
        let until = Instant::now() + Duration::from_secs(60);
        let report = loop {
            let report = ledger::clean(&own).unwrap();
            let given_back = report.living == 0 && report.left.is_empty();
            if given_back || Instant::now() > until {
                break report;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(report.left, Vec::<String>::new(), "round {round}");
        assert_eq!(report.living, 0);
        let left: Vec<_> = fs::read_dir(&home).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| entry.file_name() == "ledger"), "{left:?}");
        let ledgers = fs::read_dir(home.join("ledger")).into_iter().flatten().count();
        assert_eq!(ledgers, 0, "round {round}: {report:?}");
        assert_eq!(loop_devices_in(&home), Vec::<String>::new(), "round {round}");
        for node in nodes {
            assert!(!Path::new(&format!("/sys/block/loop{node}")).exists(), "round {round}");
        }
        assert!(ledger::clean(&own).unwrap().is_empty());
    }
    assert!(nodes_seen > 0, "some kills must come while a loop device is held");
}
