//! Guests: built, listed, removed, refused; trials in them, and the ways in which they end.
//!
//! The kernel's package is fetched once for all tests of this file. Where QEMU or the package source
//! is missing, they skip and say so. An emulated guest takes some seconds to boot, so each test does
//! in one study what it can.

mod harness;
#[path = "guests/nodes.rs"]
mod nodes;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use harness::{Site, root, signal, wait_until};
use rustix::process::Signal;
use serde_json::Value;

fn has(program: &str) -> bool {
    let directories = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    directories.iter().any(|directory| Path::new(directory).join(program).exists())
}

/// What several tests share, made by the first and removed with the last that has it. A static would
/// never be removed.
struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    const fn new() -> Shared<T> {
        Shared(Mutex::new(Weak::new()))
    }

    fn get_or_make(&self, make: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        let mut shared = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let made = match shared.upgrade() {
            Some(made) => made,
            None => Arc::new(make()?),
        };
        *shared = Arc::downgrade(&made);
        Some(made)
    }
}

/// The packages of kernels that the tests use.
fn packages() -> Option<Arc<tempfile::TempDir>> {
    static PACKAGES: Shared<tempfile::TempDir> = Shared::new();
    PACKAGES.get_or_make(|| {
        if !root() {
            return None;
        }
        for program in ["qemu-system-x86_64", "depmod", "dpkg-deb", "apt-get"] {
            if !has(program) {
                eprintln!("SKIPPED: {program} is not installed, and guests need it");
                return None;
            }
        }
        let show = Command::new("apt-cache").args(["show", "linux-image-amd64"]).output().unwrap();
        let text = String::from_utf8_lossy(&show.stdout).into_owned();
        let depends = text.lines().find_map(|line| line.strip_prefix("Depends: "));
        let name = depends.and_then(|line| line.split([' ', ',']).next()).unwrap_or("none");
        let directory = tempfile::Builder::new()
            .prefix("test-of-kurabe-")
            .tempdir_in("/var/tmp")
            .expect("/var/tmp can be written");
        let fetched = Command::new("apt-get")
            .args(["-q", "-o", "APT::Sandbox::User=root", "download", name])
            .current_dir(directory.path())
            .output()
            .unwrap();
        if !fetched.status.success() {
            eprintln!("SKIPPED: the package {name} cannot be had from the package source");
            return None;
        }
        Some(directory)
    })
}

fn lock_of(site: &Site) -> (PathBuf, Value) {
    let images = fs::read_dir(site.own().join("guests/images")).unwrap();
    let images: Vec<PathBuf> = images.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(images.len(), 1, "{images:?}");
    let text = fs::read_to_string(images[0].join("lock.json")).unwrap();
    (images[0].clone(), serde_json::from_str(&text).unwrap())
}

#[test]
fn an_image_is_built_named_after_its_content_and_removed() {
    let Some(packages) = packages() else { return };
    let site = Site::new();
    let packages = packages.path().display().to_string();
    let build = ["guest", "build", "debian", "--packages", packages.as_str()];
    let built = site.run(&build).expect(0);
    assert!(built.stdout.starts_with("debian  kernel "), "{}", built.stdout);
    assert!(built.stdout.contains(", TCG") || built.stdout.contains(", KVM"), "{}", built.stdout);
    let (first, lock) = lock_of(&site);
    let package = &lock["kernel"]["package"];
    assert!(package["name"].as_str().unwrap().starts_with("linux-image-"), "{package}");
    assert_eq!(package["sha256"].as_str().unwrap().len(), 64);
    let modules: Vec<&str> =
        lock["kernel"]["modules"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(modules.contains(&"nilfs2") && modules.contains(&"ext4"), "{modules:?}");
    let files: Vec<&str> =
        lock["files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert!(files.contains(&"kurabe") && files.iter().any(|file| file.ends_with("/mke2fs")));

    // Without the kernel's part and the image, the same comes out again.
    site.run(&["guest", "remove", "debian"]).expect(0);
    site.run(&["guest", "build", "debian", "--with", "ext4"])
        .expect(2)
        .says(&["bcachefs, zfs, ocfs2, gfs2, ufs, minfs"]);
    for kind in ["images", "kernels"] {
        assert_eq!(fs::read_dir(site.own().join("guests").join(kind)).unwrap().count(), 0);
    }
    site.run(&build).expect(0);
    assert_eq!(lock_of(&site).0, first);

    let listed = site.run(&["guest", "list"]).expect(0);
    assert!(listed.stdout.contains(first.file_name().unwrap().to_str().unwrap()));
    site.run(&["guest", "remove", "linux-6.1"]).expect(2).says(&["there are debian"]);
    site.run(&["clean", "--guests"]).expect(0);
    assert!(!site.own().join("guests").exists());
}

#[test]
fn what_is_missing_is_said_before_anything_is_touched() {
    let site = Site::new();
    site.run(&["guest", "build", "ubuntu"]).expect(2).says(&["names no guest", "linux-6.1"]);
    if !has("qemu-system-x86_64") {
        let said = ["'qemu-system-x86_64' is not installed", "apt install qemu-system-x86"];
        site.run(&["guest", "build", "debian"]).expect(2).says(&said);
        return;
    }
    let empty = site.work().join("empty");
    fs::create_dir(&empty).unwrap();
    let from = |notation| site.run(&["guest", "build", notation, "--packages", "empty"]).expect(2);
    from("linux-6.1").says(&["linux-6.1", "no kernel"]);
    fs::write(empty.join("linux-image-6.9.1-3-amd64_6.9_amd64.deb"), "no package").unwrap();
    from("linux-6.1").says(&["linux-6.1: there is no such kernel; there are linux-6.9.1-3"]);
    from("linux-6.9").says(&["dpkg-deb"]);
    site.run(&["guest", "build", "/bin/sh"]).expect(2).says(&["/bin/sh is no kernel"]);
    assert_eq!(fs::read_dir(site.own().join("guests/images")).unwrap().count(), 0);
}

/// A test's turn: no other one runs a guest.
struct GuestTestLock {
    _built: Arc<Site>,
    _one: MutexGuard<'static, ()>,
}

/// A site with a guest, which was built once for all. One test at a time has one: two emulated
/// processors beside each other only make both wait.
fn site_with_guest() -> Option<(Site, GuestTestLock)> {
    static ONE: Mutex<()> = Mutex::new(());
    static BUILT: Shared<Site> = Shared::new();
    let directory = packages()?;
    let packages = directory.path().display().to_string();
    let built = BUILT.get_or_make(|| {
        let site = Site::new();
        // What decides it has a test of its own.
        let guests = site.own().join("guests");
        fs::create_dir(&guests).unwrap();
        fs::set_permissions(&guests, PermissionsExt::from_mode(0o700)).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let probed = serde_json::json!({ "boot": boot, "acceleration": "tcg" });
        fs::write(guests.join("acceleration.json"), probed.to_string()).unwrap();
        site.run(&["guest", "build", "debian", "--packages", &packages]).expect(0);
        Some(site)
    })?;
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let site = Site::new();
    let mut copy = Command::new("cp");
    assert!(
        copy.arg("-a").arg(built.own().join("guests")).arg(site.own()).status().unwrap().success()
    );
    Some((site, GuestTestLock { _built: built, _one: one }))
}

fn ends(site: &Site) -> BTreeMap<String, (String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let of = |record: &Value| {
        let label = text(&record["contender"]["label"]);
        (label, (text(&record["guest"]["end"]), text(&record["outcome"]["kind"])))
    };
    site.records().iter().map(of).collect()
}

/// Whether the guest's kernel has a module.
fn has_module(site: &Site, name: &str) -> bool {
    let mut find = Command::new("find");
    find.arg(site.own().join("guests/kernels")).args(["-name", &format!("{name}.ko*")]);
    !find.output().unwrap().stdout.is_empty()
}

#[test]
fn a_trial_in_a_guest_yields_the_same_record_and_leaves_nothing() {
    let Some((site, _one)) = site_with_guest() else { return };
    // A file of this machine, which the guest reads where it lies.
    let here = site.work().join("here");
    fs::write(&here, "x".repeat(100_000)).unwrap();
    // An emulated guest that waits for its timer's ticks does not always boot.
    let command = format!(
        "grep -qw no_timer_check /proc/cmdline || exit 1; \
         cat {0} {0} >copy; echo mine >{0}; grep -q mine {0}",
        here.display()
    );
    let ran = site.compare(
        &["ext4", "raw on debian"],
        &["--on", "debian", "--style", "basic"],
        &[&command],
    );
    ran.expect(2).says(&["needs a mounted file system"]);
    let flags = ["--on", "debian", "--style", "basic", "--device", "mem:160M"];
    let flags = [&flags[..], &["--layers", "slow: delay:write=20ms+hdd:7200rpm"]].concat();
    // The kernels of guests have file systems that this machine's may lack.
    let others = [
        ("f2fs", "mkfs.f2fs"),
        ("jfs", "mkfs.jfs"),
        ("nilfs2", "mkfs.nilfs2"),
        ("ntfs3", "mkfs.ntfs"),
        ("reiserfs", "mkreiserfs"),
        ("udf", "mkudffs"),
    ];
    let others = others.iter().filter(|(name, tool)| has(tool) && has_module(&site, name));
    let others = others.map(|(name, _)| *name);
    let contenders: Vec<&str> = ["ext2", "slow: ext2"].into_iter().chain(others).collect();
    let ran = site.compare(&contenders, &flags, &[&command]).expect(0);
    assert_eq!(ran.stdout.matches("an emulated one (TCG)").count(), 1, "{}", ran.stdout);
    let at = |word| ran.stdout.find(word).unwrap_or_else(|| panic!("no {word} in {}", ran.stdout));
    assert!(at("written") < at("flushes") && at("flushes") < at("Times show no"), "{}", ran.stdout);
    assert_eq!(fs::metadata(&here).unwrap().len(), 100_000, "a guest changes no file of the host");
    let (_, lock) = lock_of(&site);
    assert!(site.records().len() >= contenders.len());
    for record in site.records() {
        assert_eq!(record["outcome"]["kind"], "completed", "{}", record["outcome"]);
        let guest = &record["guest"];
        assert_eq!(guest["kernel"], lock["kernel"]["release"]);
        assert_eq!((&guest["end"], &guest["acceleration"]), (&"completed".into(), &"TCG".into()));
        assert!(guest["boot_ns"].as_u64().unwrap() > 100_000_000, "{guest}");
        assert!(guest["console"].is_null(), "{guest}");
        let run =
            record["phases"].as_array().unwrap().iter().find(|p| p["phase"] == "run").unwrap();
        let written = run["device"]["written_bytes"].as_u64();
        let phases = record["phases"].to_string();
        assert!(written.is_some() && phases.contains("check"), "{phases}");
    }
    let notes = |label: &str| site.record_of(label)["notes"].to_string();
    let below = "below its layers the device had";
    assert!(notes("slow").contains(below) && !notes("ext2").contains(below), "{}", notes("slow"));
    let disk = &site.record_of("slow")["disks"][0];
    assert_eq!(disk["profile"], "7200rpm");
    assert!(disk["lateness"]["replies"].as_u64().unwrap() > 0, "{disk:#}");
    assert_eq!(site.json("facts.json")["guests"]["images"][0]["id"], lock["id"]);
    assert_eq!(site.processes(), [0; 0]);
}

/// Several layers in one boot, each on the next one.
#[test]
fn block_layers_are_set_up_in_a_guest_and_taken_down() {
    let Some((site, _one)) = site_with_guest() else { return };
    for tool in ["cryptsetup", "mdadm", "dmsetup", "lvm"] {
        if !has(tool) {
            eprintln!("SKIPPED: {tool} is not installed, and block layers need it");
            return;
        }
    }
    // The parts of the disk are disks of the guest, those of the array are not.
    let stack = "stack: overlayfs over ext4 over luks --sector-size=4096 over lvm-stripe:2 \
                 over raid1:2 bitmap=none";
    let flags = ["--on", "debian", "--style", "basic", "--device", "mem:256M"];
    site.compare(&[stack], &flags, &["echo mine >file; sync file"]).expect(0);
    let record = site.record_of("stack");
    let phases = record["phases"].as_array().unwrap();
    let of = |name: &str| phases.iter().find(|phase| phase["phase"] == name);
    // The mirror is whole, and both of its members are written; some or all of that comes before the phase begins.
    let written =
        |name: &str| of(name).map_or(0, |phase| phase["device"]["written_bytes"].as_u64().unwrap());
    assert!(written("layers") + written("resync") > 32 << 20, "{record:#}");
    let geometry = record["geometry"].as_str().unwrap();
    for said in ["sector size:  4096", "raid1", "[UU]", "Block size:"] {
        let mdadm = "State : clean";
        assert!(
            geometry.contains(said) || said == "[UU]" && geometry.contains(mdadm),
            "{geometry}"
        );
    }
    assert!(record["notes"].to_string().contains("divided into 2 members"), "{record:#}");
    let commands: Vec<&str> =
        record["commands"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let taken_down = ["cryptsetup close", "lvm vgchange", "dmsetup remove", "mdadm --stop"];
    let mut later = commands.iter();
    for word in taken_down {
        assert!(later.any(|command| command.starts_with(word)), "no {word} in {commands:?}");
    }
    let made = commands.iter().find(|command| command.starts_with("mdadm --create"));
    assert!(made.is_some_and(|made| made.ends_with(" /dev/vda /dev/vdb")), "{commands:?}");
    assert_eq!(site.processes(), [0; 0]);
}

/// An array of two disks loses one with the power, and is opened without it for every state, in one boot.
#[test]
fn a_mirror_that_loses_a_member_with_the_power_is_opened_without_it() {
    let Some((site, _one)) = site_with_guest() else { return };
    for tool in ["mdadm", "dmsetup"] {
        if !has(tool) {
            eprintln!("SKIPPED: {tool} is not installed, and arrays need it");
            return;
        }
    }
    let check = "--check=test $(wc -l <$1/log) -ge $(wc -l <$2)";
    let load = "for i in 1 2 3; do echo $i >>log; sync log; echo $i; done";
    let flags = ["--device", "mem:24M,mem:24M", "--states", "3", "--lose-member"];
    let flags = [&["crash", "--on", "debian"], &flags[..]].concat();
    let ran = site.run(&[&flags[..], &[check, "ext4 over raid0:2", "--", load]].concat());
    ran.expect(2).says(&["has no layer that can be opened without one of its members"]);
    let with = ["--setup", ">log; sync log", "--out", "power", check, "ext4 over raid1:2"];
    let ran =
        site.run(&[&flags[..], &with[..4], &[check, "ext4 over raid1:3", "--", load]].concat());
    ran.expect(2).says(&["'raid1:3' needs 3 devices, or one to divide; --device names 2"]);
    let ran = site.run(&[&flags[..], &with, &["--", load]].concat());
    assert!([Some(0), Some(4)].contains(&ran.code), "{} {}", ran.stdout, ran.stderr);
    let text = fs::read_to_string(site.work().join("power/crash.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["lose_member"], true);
    let report = &result["contenders"][0]["outcome"]["Ok"];
    let (states, control) = (&report["states"], &report["control"]);
    assert_eq!((&states["tried"], &states["unmountable"]), (&3.into(), &0.into()), "{states}");
    assert_eq!((&control["tried"], &control["unmountable"]), (&1.into(), &0.into()), "{control}");
    // Both members were written, and the recording came out of the guest.
    let log = &report["log"];
    let bytes = fs::metadata(site.work().join("power/recording-1.data")).unwrap().len();
    assert_eq!(Some(bytes / 512), log["data_sectors"].as_u64());
    let half = log["sectors"].as_u64().unwrap() / 2;
    assert_eq!(log["further"], Value::from(vec![half]));
    let requests = log["requests"].as_array().unwrap();
    for kind in ["write", "flush"] {
        let of_second = requests.iter().filter(|one| one["sector"].as_u64() >= Some(half));
        assert!(of_second.filter(|one| one["operation"] == kind).count() > 3, "{kind}");
    }
    assert_eq!(site.processes(), [0; 0]);
}

/// A disk of somebody's, detached when dropped.
struct LoopDisk(String);

impl LoopDisk {
    fn new(image: &Path) -> LoopDisk {
        fs::File::create(image).unwrap().set_len(96 << 20).unwrap();
        let mut attach = Command::new("losetup");
        let output = attach.args(["--find", "--show"]).arg(image).output().unwrap();
        LoopDisk(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

/// The emulator takes a disk from nobody, so kurabe keeps it from others. It is reached by descriptor:
/// the link that was named leads elsewhere meanwhile. What a killed guest leaves is wiped.
#[test]
fn the_disk_of_a_guest_is_kept_from_others() {
    let Some((site, _one)) = site_with_guest() else { return };
    if !Path::new("/dev/loop-control").exists() {
        eprintln!("SKIPPED: /dev/loop-control is not there");
        return;
    }
    let disk = LoopDisk::new(&site.home().join("disk"));
    let foreign = LoopDisk::new(&site.home().join("foreign"));
    let link = site.home().join("by-id");
    std::os::unix::fs::symlink(&disk.0, &link).unwrap();
    let name = disk.0.strip_prefix("/dev/").unwrap();
    let link_text = link.display().to_string();
    let flags = ["--on", "debian", "--device", &link_text, "--destroy", name, "--runs", "2"];
    let running = site.start(site.compare_command(&["ext4"], &flags, &["sleep 3"]));
    wait_until("a guest runs", || !emulators(&site).is_empty());
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&foreign.0, &link).unwrap();
    // Opened each time: a process that has the image open is in the way of the next claim.
    let has_ext4 = || {
        let mut image = fs::File::open(site.home().join("disk")).unwrap();
        let mut magic = [0; 2];
        image.seek(SeekFrom::Start(0x438)).and_then(|_| image.read_exact(&mut magic)).unwrap();
        magic == [0x53, 0xef]
    };
    wait_until("the guest has made its file system", has_ext4);
    for _ in 0..3 {
        let made = Command::new("mkfs.ext4").args(["-q", "-F", &disk.0]).output().unwrap();
        assert!(!made.status.success(), "somebody could format the disk of a guest");
    }
    emulators(&site).into_iter().for_each(|emulator| signal(emulator, Signal::KILL));
    let ran = running.finish();
    let outcomes: Vec<Value> =
        site.records().iter().map(|record| record["outcome"]["kind"].clone()).collect();
    assert_eq!(outcomes, ["failed", "completed"], "{ran:#?}");
    let image = fs::read(site.home().join("foreign")).unwrap();
    assert!(image.iter().all(|byte| *byte == 0), "the foreign disk was written to");
}

#[test]
fn every_end_of_a_guest_is_told_from_the_others() {
    let Some((site, _one)) = site_with_guest() else { return };
    let line = "case $KURABE_CONTENDER in \
        full) cat /dev/zero >zeros;; \
        panics) echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger; sleep 30;; \
        eats) exec tail /dev/zero;; \
        vanishes) for d in /sys/bus/virtio/drivers/virtio_blk/virtio*; do \
            echo ${d##*/} >/sys/bus/virtio/drivers/virtio_blk/unbind; done; echo x >x; sync; exit 1;; \
    esac";
    let contenders = ["full: ext4", "panics: ext4", "eats: ext4", "vanishes: ext4"];
    let ran =
        site.compare(&contenders, &["--on", "debian", "--timeout", "100s"], &[line]).expect(1);
    assert!(ran.stderr.contains("kernel panic"), "{}", ran.stderr);
    let expected = [
        ("eats", "out of memory", "failed"),
        ("full", "command failed", "failed"),
        ("panics", "kernel panic", "failed"),
        ("vanishes", "disk vanished", "failed"),
    ];
    let expected = expected
        .map(|(label, end, outcome)| (label.to_string(), (end.to_string(), outcome.to_string())));
    assert_eq!(ends(&site), BTreeMap::from(expected));
    let panicked = site.record_of("panics");
    let console = panicked["guest"]["console"].as_str().unwrap();
    assert!(console.contains("Kernel panic"), "{console}");
    assert_eq!(site.processes(), [0; 0]);
}

/// An emulator in whose guest a hostile kernel runs: it answers the spec on its standard input with
/// whatever it likes.
fn hostile_guest(site: &Site, answer: &str) -> PathBuf {
    let directory = site.work().join("emulator");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("qemu-system-x86_64");
    let script = format!(
        "#!/bin/sh\ncase $* in *--version*) echo QEMU emulator version 7; exit;; esac\n\
         echo 'kurabe: ready' >&2; read -r spec\n{answer}\ncat >/dev/null\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn a_hostile_guest_speaks_for_its_own_trial_only_and_within_bounds() {
    let Some((site, _one)) = site_with_guest() else { return };
    let compare = |answer: &str| {
        let emulator = hostile_guest(&site, answer);
        let flags = ["--on", "debian", "--runs", "1", "--device", "mem:80M", "--one-at-a-time"];
        let mut command = site.compare_command(&["ext4", "ext2"], &flags, &["true"]);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", emulator.display()));
        let mut running = site.start(command);
        let mut peak_kib = 0;
        while !running.has_ended() {
            let facts = fs::read_to_string(format!("/proc/{}/status", running.number()));
            let facts = facts.unwrap_or_default();
            let peak = facts.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
            peak_kib = peak.unwrap_or(peak_kib);
            std::thread::sleep(Duration::from_millis(5));
        }
        let ran = running.finish().expect(1);
        let records = site.records();
        fs::remove_dir_all(site.work().join("result")).unwrap();
        (ran, records, peak_kib)
    };
    // The first trial's record comes a second time for the second one.
    let record = "{\"event\":\"record\",\"record\":{\"schema\":1,\"trial\":%s,\"block\":0,\"workload\":%s,\"contender\":%s,\"started_unix_ns\":1,\"elapsed_ns\":1,\"outcome\":{\"kind\":\"completed\"},\"phases\":[]}}\n";
    let first = site.work().join("first").display().to_string();
    let answer = format!(
        "of() {{ echo \"$spec\" | sed \"s/.*\\\"$1\\\":\\($2\\).*/\\1/\"; }}\n\
         [ -e {first} ] || printf '{record}' \"$(of trial '[0-9]*')\" \\\n\
         \"$(of workload '{{\"name\":\\(\"[^\"]*\"\\)' | sed 's/{{\"name\"://')\" \\\n\
         \"$(of contender '{{[^{{}}]*{{[^{{}}]*}}[^{{}}]*{{[^{{}}]*}}[^{{}}]*}}')\" >{first}\ncat {first}"
    );
    let (_, records, _) = compare(&answer);
    let outcome = |record: &Value| record["outcome"]["kind"].as_str().unwrap().to_string();
    let outcomes: Vec<String> = records.iter().map(outcome).collect();
    assert!(outcomes.contains(&"completed".into()), "the first one is its own: {records:?}");
    let failed =
        records.iter().find(|record| outcome(record) == "failed").expect("one was refused");
    let message = failed["outcome"]["message"].as_str().unwrap();
    assert!(message.contains("it sent a record of another run: number"), "{message}");
    let mut trials: Vec<u64> = records.iter().map(|one| one["trial"].as_u64().unwrap()).collect();
    trials.dedup();
    assert_eq!(trials.len(), records.len(), "each record has a trial of its own");

    let (_, records, peak_kib) = compare("head -c 700000000 /dev/zero | tr '\\0' x; echo");
    println!("{peak_kib} KiB at most");
    assert!((1..400 << 10).contains(&peak_kib), "{peak_kib} KiB");
    for record in records {
        let message = record["outcome"]["message"].as_str().unwrap();
        assert!(message.contains("it sent a line of more than 64 MiB"), "{message}");
    }
    assert_eq!(site.processes(), [0; 0]);
}

/// What is killed, with how long it takes at most.
const KILLED: [(&str, Duration); 4] = [
    ("guest build", Duration::from_secs(15)),
    ("a guest's trial", Duration::from_secs(15)),
    ("resume in a guest", Duration::from_secs(15)),
    ("resume", Duration::from_secs(3)),
];

/// SIGKILL at a random instant of a build, of a trial in a guest and of a resumed study: a cleaning leaves
/// nothing but the guests that were whole, and what was recorded can be read.
///
/// `KURABE_GUEST_KILLS=100` kills so often, and `KURABE_SEED` repeats a run's choices, not its timing.
#[test]
fn a_kill_during_a_build_a_guests_trial_or_a_resume_leaves_nothing() {
    let Some((site, _one)) = site_with_guest() else { return };
    let set = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
    };
    let (kills, seed) = (set("KURABE_GUEST_KILLS", 4), set("KURABE_SEED", 20_261_126));
    println!("{kills} kills, seed {seed}");
    let mut random = harness::Random(seed);
    let directory = packages().expect("the guest was built of it");
    let packages = directory.path().display().to_string();
    let (mut killed, mut round) = (0, 0);
    while killed < kills && round < 4 * kills {
        let (what, length) = KILLED[(round % 4) as usize];
        round += 1;
        let result = site.work().join("result");
        let _ = fs::remove_dir_all(&result);
        let records = result.join("records.jsonl");
        let compare = |flags: &[&str], command: &str| {
            let flags = [&["--device", "mem:80M", "--idle-wait", "50ms"], flags].concat();
            site.start(site.compare_command(&["ext4"], &flags, &[command]))
        };
        let mut running = match what {
            "guest build" => {
                site.start(site.kurabe(&["guest", "build", "debian", "--packages", &packages]))
            }
            "resume" | "resume in a guest" => {
                let place: &[&str] = if what == "resume" { &[] } else { &["--on", "debian"] };
                let flags = [&["--runs", "200", "--one-at-a-time"], place].concat();
                let before = compare(&flags, "echo x >x");
                let is_recorded = || fs::metadata(&records).is_ok_and(|facts| facts.len() > 0);
                // A busy machine's guest takes longer; then there is nothing but the plan to resume.
                let until = Instant::now() + Duration::from_secs(60);
                while !is_recorded() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(20));
                }
                signal(before.number(), Signal::KILL);
                before.reap();
                wait_until("the emulator ends with kurabe", || emulators(&site).is_empty());
                site.start(site.kurabe(&["resume", "result"]))
            }
            _ => compare(&["--on", "debian", "--runs", "1"], "head -c 9000000 /dev/urandom >x"),
        };
        let delay = Duration::from_millis(random.below(length.as_millis() as u64));
        std::thread::sleep(delay);
        let was_running = !running.has_ended();
        killed += u64::from(was_running);
        println!("{what} after {delay:?}: killed {was_running}");
        signal(running.number(), Signal::KILL);
        running.reap();
        wait_until("the emulator ends with kurabe", || emulators(&site).is_empty());
        site.run(&["clean"]).expect(0);
        // What was killed takes a moment to end on a busy machine.
        wait_until("what kurabe started has ended", || site.processes().is_empty());
        let mut left = site.taken();
        left.remove("scratch guests");
        assert!(left.is_empty(), "round {round}, {what} killed after {delay:?}: {left:?}");
        let names = fs::read_dir(site.own().join("guests")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let unfinished: Vec<String> = names.filter(|name| name.starts_with('.')).collect();
        assert_eq!(unfinished, [""; 0], "round {round}, {what} killed after {delay:?}");
        if result.join("plan.json").exists() {
            site.run(&["report", "result"]).expect(0);
        }
    }
    assert_eq!(killed, kills, "of {round} rounds");
    // Whatever the kills hit, a guest is there or can be built.
    let _ = fs::remove_dir_all(site.work().join("result"));
    site.run(&["guest", "build", "debian", "--packages", &packages]).expect(0);
    let flags = ["--on", "debian", "--runs", "1", "--device", "mem:80M"];
    site.compare(&["ext4"], &flags, &["true"]).expect(0);
}

/// What a kernel's package has not, and takes minutes to build: on request only.
#[test]
fn zfs_and_ufs_are_built_once_and_live_in_a_guest() {
    if std::env::var_os("KURABE_TEST_BUILT").is_none() {
        eprintln!("SKIPPED: building ZFS and UFS takes minutes; KURABE_TEST_BUILT=1 does it");
        return;
    }
    let Some((site, _one)) = site_with_guest() else { return };
    let line = "mkdir d; for i in 1 2 3 4; do head -c 300000 /dev/urandom >d/$i; done; \
        cat d/* | cksum >sum; sync; echo 3 >/proc/sys/vm/drop_caches; rm -f e; \
        cat d/* | cksum | cmp - sum && rm d/2 && test $(ls d | wc -l) = 3";
    let flags = ["--on", "debian", "--style", "basic", "--device", "mem:160M"];
    let ran = site.compare(&["ext4", "zfs", "ufs"], &flags, &[line]).expect(0);
    ran.says(&["building zfs", "building ufs"]);
    for record in site.records() {
        assert_eq!(record["outcome"]["kind"], "completed", "{record}");
        assert!(record["phases"].to_string().contains("check"), "{record}");
    }
    let built = lock_of(&site).1["built"].as_array().unwrap().clone();
    let modules: Vec<&str> = built.iter().filter_map(|one| one["module"].as_str()).collect();
    assert_eq!(modules, ["ufs", "zfs"]);
    assert!(built[1]["packages"].to_string().contains("zfs-dkms"), "{built:?}");
    fs::remove_dir_all(site.work().join("result")).unwrap();
    let again = site.compare(&["zfs"], &flags, &["true"]).expect(0);
    assert!(!again.stderr.contains("building"), "{}", again.stderr);
    site.run(&["guest", "remove", "debian"]).expect(0);
    assert_eq!(fs::read_dir(site.own().join("guests/built")).unwrap().count(), 0);
    assert_eq!(site.processes(), [0; 0]);
}

/// The emulators of a site.
fn emulators(site: &Site) -> Vec<i32> {
    // And none that is only asked for its version.
    let is_emulator = |process: &i32| {
        fs::read_to_string(format!("/proc/{process}/cmdline"))
            .is_ok_and(|words| words.starts_with("/usr/bin/qemu") && words.contains("-kernel"))
    };
    site.processes().into_iter().filter(is_emulator).collect()
}

#[test]
fn a_guest_ends_with_kurabe_and_kurabe_outlives_a_guest() {
    let Some((site, _one)) = site_with_guest() else { return };
    // As long as the guest has it open, its emulator has.
    let here = site.work().join("here");
    fs::write(&here, "x").unwrap();
    let command = format!("sleep 300 <{}", here.display());
    let start = || {
        let _ = fs::remove_dir_all(site.work().join("result"));
        site.start(site.compare_command(&["ext4"], &["--on", "debian"], &[&command]))
    };
    let emulator = || {
        wait_until("an emulator", || !emulators(&site).is_empty());
        emulators(&site)[0]
    };
    let runs = |emulator: i32| {
        let open = fs::read_dir(format!("/proc/{emulator}/fd")).into_iter().flatten().flatten();
        open.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|file| file == here))
    };
    // Somebody kills the emulator.
    let running = start();
    signal(emulator(), Signal::KILL);
    running.finish().expect(1);
    assert_eq!(ends(&site)["ext4"], ("the emulator died".into(), "failed".into()));
    // Ctrl-C.
    let running = start();
    emulator();
    signal(running.number(), Signal::INT);
    running.finish().expect(130);
    assert_eq!(site.processes(), [0; 0]);
    // A kill, after which nobody can give anything back.
    let running = start();
    emulator();
    signal(running.number(), Signal::KILL);
    running.reap();
    wait_until("the end of all", || site.processes().is_empty());
    // A guest that stands still.
    let running = start();
    let stopped = emulator();
    let since = Instant::now();
    while !runs(stopped) && since.elapsed() < Duration::from_secs(200) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(runs(stopped), "the guest's command has {} open", here.display());
    let since = Instant::now();
    signal(stopped, Signal::STOP);
    running.finish().expect(1);
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert_eq!(ends(&site)["ext4"].0, "hang");
    assert_eq!(site.processes(), [0; 0]);
}

#[test]
fn what_a_kernel_lacks_is_said_and_a_damaged_image_does_not_boot() {
    let Some((site, _one)) = site_with_guest() else { return };
    let (image, mut lock) = lock_of(&site);
    // What a contender lacks is left out where the study says so, and the rest runs.
    lock["kernel"]["missing_modules"].as_array_mut().unwrap().push("xfs".into());
    fs::write(image.join("lock.json"), lock.to_string()).unwrap();
    let study = "name = 'rest'\ncontenders = ['ext4 -E lazy_itable_init=0', 'xfs']\n\
        on = 'debian'\nleave-out-missing = true\ndevice = 'mem:320M'\nmin-runs = 1\n\
        max-runs = 1\n[[workload]]\nname = 'one'\ncommand = 'true'\n";
    fs::write(site.work().join("rest.toml"), study).unwrap();
    let ran = site.run(&["run", "rest.toml", "--out", "result", "--style", "basic"]).expect(0);
    assert!(ran.stdout.contains("has no xfs"), "{}", ran.stdout);
    assert_eq!(ends(&site).len(), 1);
    fs::remove_dir_all(site.work().join("result")).unwrap();
    let archive = image.join("initramfs.cpio");
    let bytes = fs::metadata(&archive).unwrap().len();
    fs::File::options().write(true).open(&archive).unwrap().set_len(bytes / 100).unwrap();
    site.compare(&["ext4"], &["--on", "debian"], &["true"]).expect(1);
    let (end, _) = ends(&site)["ext4"].clone();
    assert_eq!(end, "boot failure");
    let missing = lock["kernel"]["missing_modules"].as_array_mut().unwrap();
    missing.push("ext4".into());
    fs::write(image.join("lock.json"), lock.to_string()).unwrap();
    fs::remove_dir_all(site.work().join("result")).unwrap();
    let ran = site.compare(&["ext4"], &["--on", "debian"], &["true"]).expect(2);
    ran.says(&["the kernel of debian, ", "has no ext4"]);
    assert!(!site.work().join("result").exists());
    let ran = site.compare(&["ext4 on debian", "ext2"], &[], &["true"]).expect(2);
    ran.says(&["'ext4 on debian' lives in a guest and 'ext2' on this machine"]);
    site.compare(&["ext4 on ubuntu"], &[], &["true"]).expect(2).says(&["names no guest"]);
}
