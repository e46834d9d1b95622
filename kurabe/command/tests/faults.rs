//! Faults of the machine in the middle of a study: a disk that gives errors, fills up or goes away,
//! a host without space, a mount that somebody holds. In each case the record names the phase and
//! has the tool's or the kernel's own words, what was recorded stays, the others go on or the study
//! ends with one clear line, and nothing is left behind.

#[path = "faults/disk.rs"]
mod disk;
mod harness;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use disk::{FaultyDisk, MIDDLE};
use harness::{Ran, Site, failure, kinds, root, wait_until};

/// Whether the test can have a disk of its own; says why it is skipped when not.
fn can_fail() -> bool {
    let fuse = Path::new("/dev/fuse").exists();
    if !fuse {
        eprintln!("SKIPPED: /dev/fuse is not there, and the faulty disk is a FUSE file system");
    }
    fuse && root()
}

/// What holds after every fault: the result can be read again, and nothing is taken any more.
#[track_caller]
fn expect_sound(site: &Site, disk: Option<&FaultyDisk>, ran: &Ran) {
    site.expect_nothing_left();
    if let Some(disk) = disk {
        assert_eq!(disk.taken(), [""; 0]);
    }
    assert_eq!(site.run(&["report", "result"]).expect(0).stdout, ran.stdout);
}

#[test]
fn a_disk_that_fails_under_a_command_fails_that_trial_and_the_others_go_on() {
    if !can_fail() {
        return;
    }
    let (site, disk) = (Site::new(), FaultyDisk::new(u64::MAX));
    // The disk is well again before the next trial.
    let marker = disk.marker();
    let command = format!(
        "head -c 3000000 /dev/urandom >a; [ $KURABE_TRIAL = 2 ] || exit 0; \
         touch {0}; sync a; code=$?; rm {0}; exit $code",
        marker.display()
    );
    let device = disk.device("64M");
    let flags = ["--device", &device, "--runs", "3"];
    let contenders = ["ext4: ext4 -b 1024", "ext2: ext2 -b 1024"];
    let ran = site.compare(&contenders, &flags, &[&command]).expect(1);
    expect_sound(&site, Some(&disk), &ran);
    let records = site.records();
    let (done, failed) = ("completed", "failed");
    assert_eq!(kinds(&records), [done, done, failed, done, done, done], "{records:#?}");
    let (phase, message, output) = failure(&records[2]);
    assert_eq!(phase, "run");
    assert!(message.contains("exited with code 1"), "{message}");
    assert_eq!(output, "sync: error syncing 'a': Input/output error");
    assert!(ran.stderr.contains("failed in run") && ran.stderr.contains(&output), "{}", ran.stderr);
    // Two pairs are left of three blocks.
    assert_eq!(site.json("comparisons.json")[0]["blocks"], 2);
}

#[test]
fn a_disk_that_fails_under_the_laboratory_is_told_by_the_phase() {
    if !can_fail() {
        return;
    }
    // What was written cannot be made durable; then the device cannot even be wiped.
    let (site, disk) = (Site::new(), FaultyDisk::new(u64::MAX));
    let command = format!("head -c 3000000 /dev/urandom >a; touch {}", disk.marker().display());
    let device = disk.device("64M");
    let flags = ["--device", &device, "--runs", "5"];
    let ran = site.compare(&["ext4"], &flags, &[&command]).expect(1);
    expect_sound(&site, Some(&disk), &ran);
    let records = site.records();
    assert_eq!(records.len(), 2, "a contender that failed twice is given up");
    let (phase, message, _) = failure(&records[0]);
    assert_eq!(phase, "sync");
    assert!(message.contains("Input/output error") && message.contains("dmesg"), "{message}");
    let (_, message, _) = failure(&records[1]);
    assert!(message.contains("wiping signatures of the image"), "{message}");
    assert!(message.contains("the disk below reports an error: see 'dmesg'"), "{message}");

    // The check after the unmount reads what the disk no longer gives; then mkfs cannot write it.
    let (site, disk) = (Site::new(), FaultyDisk::new(u64::MAX));
    let cleanup = format!("echo {MIDDLE} >{}", disk.marker().display());
    let device = disk.device("64M");
    let flags = ["--device", &device, "--runs", "5", "--cleanup", &cleanup];
    let ran = site.compare(&["ext4"], &flags, &["head -c 3000000 /dev/urandom >a"]).expect(1);
    expect_sound(&site, Some(&disk), &ran);
    let records = site.records();
    let told: Vec<(String, String, String)> = records.iter().map(failure).collect();
    assert_eq!(told[0].0, "check", "{told:#?}");
    assert!(told[0].1.contains("e2fsck"), "{told:#?}");
    assert_eq!(told[1].0, "mkfs", "{told:#?}");
    assert!(told[1].1.contains("mkfs failed: 'mkfs.ext4"), "{told:#?}");
    let said = ["Input/output error", "short write"];
    assert!(said.iter().any(|said| told[1].2.contains(said)), "{told:#?}");
    // The table of nothing says so.
    assert!(ran.stdout.contains("No contender completed a run"), "{}", ran.stdout);
}

#[test]
fn a_disk_that_vanishes_ends_the_study_with_what_was_recorded() {
    if !can_fail() {
        return;
    }
    let (site, disk) = (Site::new(), FaultyDisk::new(u64::MAX));
    let (asked, gone) = (disk.beside("asked"), disk.beside("gone"));
    let command = format!(
        "head -c 3000000 /dev/urandom >a; [ $KURABE_TRIAL = 2 ] || exit 0; \
         touch {}; until [ -e {} ]; do sleep 0.01; done; sync a",
        asked.display(),
        gone.display()
    );
    let device = disk.device("64M");
    let flags = ["--device", &device, "--runs", "9", "--one-at-a-time"];
    let running = site.start(site.compare_command(&["ext4", "ext2"], &flags, &[&command]));
    wait_until("the command of the second block runs", || asked.exists());
    disk.vanish();
    fs::write(gone, "").unwrap();
    let ran = running.finish().expect(1);
    let records = site.records();
    assert_eq!(kinds(&records)[..2], ["completed", "completed"], "{records:#?}");
    let (phase, _, output) = failure(&records[2]);
    assert_eq!(
        (phase.as_str(), output.as_str()),
        ("run", "sync: error syncing 'a': Input/output error")
    );
    // Every later trial says what is wrong, and after two blocks of them nobody needs another.
    assert_eq!(records.len(), 6, "{records:#?}");
    for record in &records[3..] {
        let (_, message, _) = failure(record);
        assert!(message.contains("opening the image"), "{message}");
        assert!(message.contains("Transport endpoint is not connected"), "{message}");
        assert!(message.contains("what the image lies on is gone"), "{message}");
    }
    let ran = ran.says(&["every run failed, round after round", "kurabe resume result"]);
    assert_eq!(site.run(&["report", "result"]).expect(0).stdout, ran.stdout);
    // The image has no name that could be left behind.
    drop(disk);
    site.expect_nothing_left();
}

/// The image shrinks under a mounted file system, as a disk that dies does.
#[test]
fn an_image_that_shrinks_is_an_error_and_loses_no_record() {
    if !root() {
        return;
    }
    let site = Site::new();
    let device = site.image_device("64M");
    // In the second block; what the first one found stays.
    let (asked, gone) = (site.home().join("asked"), site.home().join("gone"));
    let command = format!(
        "head -c 3000000 /dev/urandom >a; [ $KURABE_TRIAL = 2 ] || exit 0; \
         touch {}; until [ -e {} ]; do sleep 0.01; done",
        asked.display(),
        gone.display()
    );
    let flags = ["--device", device.as_str(), "--runs", "3", "--one-at-a-time"];
    let running = site.start(site.compare_command(&["ext4", "ext2"], &flags, &[&command]));
    wait_until("the command of the second block runs", || asked.exists());
    let image = fs::File::options().write(true).open(site.image().unwrap()).unwrap();
    image.set_len(0).unwrap();
    drop(image);
    fs::write(gone, "").unwrap();
    let ran = running.finish().expect(1);
    expect_sound(&site, None, &ran);
    let records = site.records();
    let failed = ["failed"; 4];
    assert_eq!(kinds(&records)[..2], ["completed", "completed"], "{records:#?}");
    assert_eq!(kinds(&records)[2..], failed, "the others are tried: {records:#?}");
    // What was cached goes back into the file, so that the sync of some file systems finds nothing
    // wrong; their check does.
    let (phase, message, output) = failure(&records[2]);
    assert!(["sync", "check"].contains(&phase.as_str()), "{phase}: {message}");
    assert!(message.contains("Input/output error") || !output.is_empty(), "{message}");
    let (_, message, _) = failure(&records[3]);
    assert!(message.contains("bytes where 67108864 were prepared"), "{message}");
    assert!(message.contains("start the study again"), "{message}");
    assert!(ran.stdout.contains("2 of 3 runs failed"), "{}", ran.stdout);
}

/// Somebody detaches the loop device by hand. The kernel waits for its last user, and so the trial
/// is none the worse for it.
#[test]
fn a_loop_device_that_is_detached_by_hand_stays_until_the_trial_ends() {
    if !root() {
        return;
    }
    let site = Site::new();
    let device = site.image_device("64M");
    let command = "losetup -d $(findmnt -n -o SOURCE -T .) && head -c 3000000 /dev/urandom >a";
    let ran = site.compare(&["ext4", "ext2"], &["--device", &device], &[command]).expect(0);
    expect_sound(&site, None, &ran);
    assert_eq!(kinds(&site.records()), ["completed", "completed"]);
}

#[test]
fn a_disk_that_fills_up_under_the_image_is_said_with_the_place() {
    if !can_fail() {
        return;
    }
    // A thin disk: it promised more than it has.
    let (site, disk) = (Site::new(), FaultyDisk::new(20 << 20));
    let device = disk.device("64M");
    let ran = site.compare(&["ext4"], &["--device", &device], &["true"]).expect(1);
    let ran = ran.says(&["filling the image", "writing at byte ", "No space left on device"]);
    let ran = ran.says(&["free some space or give --device a smaller size"]);
    // Several pieces are written at once, and any that lies behind the end may be the first.
    let (_, after) = ran.stderr.split_once("writing at byte ").unwrap();
    let place: u64 = after.split(':').next().unwrap().parse().unwrap();
    assert!((20 << 20..64 << 20).contains(&place), "{place}");
    site.expect_nothing_left();
    assert_eq!(disk.taken(), [""; 0]);
}

/// kurabe with a full file system of 64 KiB mounted at `full` in its working directory.
fn on_a_full_host(site: &Site, room_bytes: u32, arguments: &str) -> Ran {
    fs::create_dir(site.work().join("full")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k none full && head -c {} /dev/zero >full/ballast; \
         {arguments}; code=$?; cp -r full kept; exit $code",
        (64 << 10) - room_bytes
    );
    let mut command = site.program("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("KURABE", harness::KURABE);
    site.finish(command)
}

#[test]
fn a_host_that_is_full_is_an_error_and_everything_is_given_back() {
    if !root() {
        return;
    }
    // There is room for the plan and two records or so.
    let site = Site::new();
    let device = site.image_device("64M");
    let compare =
        format!("$KURABE compare ext4 ext2 --no-dry-run --device {device} --idle-wait 200ms");
    let ran =
        on_a_full_host(&site, 32 << 10, &format!("{compare} --runs 20 --out full/result -- true"));
    let ran = ran.expect(1).says(&["full/result/", "No space left on device"]);
    assert_eq!(ran.stderr.matches("No space left on device").count(), 1, "{}", ran.stderr);
    site.expect_nothing_left();
    // What was recorded before is there, and readable.
    let report = site.run(&["report", "kept/result"]).expect(0);
    assert!(report.stdout.contains("ext4"), "{}", report.stdout);

    // The ledger comes before anything is taken.
    let site = Site::new();
    let compare = "KURABE_HOME=full/own $KURABE compare dir:. --runs 1";
    let ran = on_a_full_host(&site, 0, &format!("{compare} --out result -- true")).expect(2);
    ran.says(&["the ledger in ", "full/own cannot be written", "No space left on device"]);
    assert!(!site.work().join("result").exists(), "what is refused leaves no result");
    site.expect_nothing_left();

    // Space for the runner's ledger and none for those of the trials: each says so.
    let site = Site::new();
    let device = site.image_device("64M");
    let compare = format!(
        "KURABE_HOME=full/own $KURABE compare ext4 ext2 --no-dry-run --device {device} --runs 1"
    );
    let ran = on_a_full_host(&site, 4 << 10, &format!("{compare} --out result -- true")).expect(1);
    site.expect_nothing_left();
    for record in site.records() {
        let (_, message, _) = failure(&record);
        assert!(message.contains("starting the run's ledger"), "{message}");
        assert!(message.contains("No space left on device"), "{message}");
    }
    assert_eq!(site.run(&["report", "result"]).expect(0).stdout, ran.stdout);
}

/// Somebody removes the result while it is being written.
#[test]
fn a_result_that_is_removed_ends_the_study_with_one_line() {
    let site = Site::new();
    let result = site.work().join("result");
    let command = format!("[ $KURABE_TRIAL != 1 ] || rm -r {}", result.display());
    let ran = site.compare(&["dir:/dev/shm"], &["--runs", "3"], &[&command]).expect(1);
    let errors: Vec<&str> =
        ran.stderr.lines().filter(|line| line.starts_with("kurabe: ")).collect();
    assert_eq!(errors, ["kurabe: result/comparisons.json: No such file or directory (os error 2)"]);
    site.expect_nothing_left();
}

/// A process outside of the trial's namespaces reaches into them and holds a file open.
#[test]
fn a_mount_that_somebody_else_holds_is_said_with_its_name() {
    if !root() {
        return;
    }
    let site = Site::new();
    let (ready, held) = (site.home().join("ready"), site.home().join("held"));
    let command = format!(
        "echo >mine; [ $KURABE_TRIAL = 0 ] || exit 0; \
         pwd >{ready}.new; mv {ready}.new {ready}; until [ -e {held} ]; do sleep 0.01; done",
        ready = ready.display(),
        held = held.display()
    );
    let flags = ["--one-at-a-time"];
    let running = site.start(site.compare_command(&["ext4", "ext2"], &flags, &[&command]));
    wait_until("the command runs", || ready.exists());
    let directory = fs::read_to_string(&ready).unwrap();
    let file = site
        .processes()
        .into_iter()
        .map(|process| format!("/proc/{process}/root{}/mine", directory.trim_end()))
        .find_map(|path| fs::File::open(path).ok())
        .expect("one of the processes sees the mount");
    fs::write(held, "").unwrap();
    // Longer than the unmount is willing to wait, and shorter than what comes after it.
    let released = Instant::now() + Duration::from_millis(11_500);
    std::thread::sleep(released.saturating_duration_since(Instant::now()));
    drop(file);
    let ran = running.finish().expect(1);
    expect_sound(&site, None, &ran);
    let records = site.records();
    assert_eq!(kinds(&records), ["failed", "completed"], "{records:#?}");
    let (phase, message, _) = failure(&records[0]);
    assert_eq!(phase, "unmount");
    assert!(message.contains("still busy after 10 s"), "{message}");
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let user = format!("{} (process {})", name.trim_end(), std::process::id());
    assert!(message.contains(&user), "no '{user}' in {message}");
}
