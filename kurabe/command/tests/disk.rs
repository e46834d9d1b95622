//! Modelled disks: under file systems what was written is read again, any program can use one, and
//! nothing of one is left, however it ends.

mod harness;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::{Site, root, signal, tool, wait_until};
use rustix::process::Signal;

/// What serves a disk. It ends with the test.
struct Served(Child);

impl Served {
    fn code(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves a disk, and gives its path.
fn attach(site: &Site, words: &[&str]) -> (Served, String) {
    let words = [&["disk", "attach"], words].concat();
    let mut child = site.kurabe(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut path = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut path).unwrap();
    (Served(child), path.trim().to_string())
}

fn carried(program: &str, words: &[&str]) {
    let ran = Command::new(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} {words:?}: {said}");
}

#[test]
fn what_is_no_disk_is_refused_and_nothing_is_touched() {
    let site = Site::new();
    for (words, said) in [
        ("st1000:1G", "there is no profile 'st1000'; there are st1000dm003"),
        ("st1000dm003", "'st1000dm003' has no size"),
        ("st1000dm003:2T", "give a smaller size"),
        ("st1000dm003,rpm=3:1G", "rpm=3 is not from 1000 to 30000"),
        ("nvme,position=5%:1G", "'position' is for hard disks"),
    ] {
        let ran = site.run(&["disk", "attach", words]).expect(2);
        assert!(ran.stderr.contains(said), "{words}: {}", ran.stderr);
    }
    let ran = site.run(&["disk", "replay", "/etc/hostname", "nvme"]).expect(2);
    assert!(ran.stderr.contains("not a trace of kurabe's"), "{}", ran.stderr);
    let listed = site.run(&["disk", "profiles"]).expect(0).stdout;
    assert!(["hdd:st1000dm003", "ssd:nvme", "cloud:gp3"].iter().all(|name| listed.contains(name)));
    let listed = site.run(&["disk", "profiles", "sata"]).expect(0).stdout;
    assert!(listed.contains("program_ms = 2.2"), "{listed}");
    let file = site.home().join("mine.toml");
    let text = include_str!("../../disks/profiles/7200rpm.toml");
    std::fs::write(&file, text.replace("rpm = { value = 7200", "rpm = { value = 6300")).unwrap();
    let file = file.to_str().unwrap();
    let listed = site.run(&["disk", "profiles", file]).expect(0).stdout;
    assert!(listed.contains("rpm = 6300"), "{listed}");
    std::fs::write(file, text.replace("rpm = { value = 7200", "rpm = { value = 1")).unwrap();
    let ran = site.run(&["disk", "profiles", file]).expect(2);
    assert!(ran.stderr.contains("mine.toml: 'rpm': rpm=1 is not from 1000"), "{}", ran.stderr);
    if root() {
        let ran = site.run(&["disk", "detach", "/dev/loop7"]).expect(2);
        assert!(ran.stderr.contains("no 'kurabe disk attach' serves it"), "{}", ran.stderr);
    }
}

/// Direct requests, sixteen at a time, verified by fio, under three file systems.
#[test]
fn what_was_written_is_read_again() {
    let (true, Some(fio)) = (root(), tool("fio")) else { return };
    let fio = fio.to_str().unwrap();
    for profile in ["nvme", "7200rpm,position=30%"] {
        let site = Site::new();
        let (mut child, device) = attach(&site, &[&format!("{profile}:400M")]);
        let name = device.rsplit('/').next().unwrap();
        let turns = std::fs::read_to_string(format!("/sys/block/{name}/queue/rotational")).unwrap();
        assert_eq!(turns.trim() == "1", profile != "nvme");
        let point = site.home().join("mounted");
        std::fs::create_dir(&point).unwrap();
        let mounted = point.to_str().unwrap();
        for make in [["mkfs.ext4", "-qF"], ["mkfs.xfs", "-qf"], ["mkfs.btrfs", "-qf"]] {
            // An unmount may end after umount has.
            wait_until("the disk is made", || {
                Command::new(make[0]).args([make[1], &device]).output().unwrap().status.success()
            });
            carried("mount", &[&device, mounted]);
            let place = format!("--directory={mounted}");
            carried(
                fio,
                &[
                    "--name=v",
                    &place,
                    "--size=32M",
                    "--io_size=8M",
                    "--bsrange=4k-64k",
                    "--rw=randrw",
                    "--direct=1",
                    "--ioengine=libaio",
                    "--iodepth=16",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--do_verify=1",
                    "--end_fsync=1",
                ],
            );
            carried("umount", &[mounted]);
        }
        std::fs::remove_dir(&point).unwrap();
        site.run(&["disk", "detach", &device]).expect(0);
        assert_eq!(child.code(), Some(0));
        site.expect_nothing_left();
    }
}

#[test]
fn a_trace_has_every_request_and_is_replayed_and_exported() {
    if !root() {
        return;
    }
    let site = Site::new();
    let at = |name: &str| site.home().join(name).to_str().unwrap().to_string();
    let (trace, csv, events) = (at("run.trace"), at("run.csv"), at("run.blktrace.0"));
    let (mut child, device) = attach(&site, &["nvme:64M", "--trace", &trace]);
    let out = format!("of={device}");
    carried("dd", &["if=/dev/zero", &out, "bs=64k", "count=100", "oflag=direct", "conv=fsync"]);
    // Another one built on it opens it without holding it.
    let above = Command::new("losetup").args(["--find", "--show", &device]).output().unwrap();
    let above = String::from_utf8(above.stdout).unwrap();
    let name = device.rsplit('/').next().unwrap();
    let fit = ["disk", "fit", &device, "--destroy", name, "--output", &at("mine.toml")];
    let refused = [site.run(&fit).expect(2), site.run(&["disk", "detach", &device]).expect(2)];
    carried("losetup", &["--detach", above.trim()]);
    assert!(refused.iter().all(|ran| ran.stderr.contains("is built on")), "{refused:?}");
    site.run(&["disk", "detach", &device]).expect(0);
    assert_eq!(child.code(), Some(0));
    let replay = || site.run(&["disk", "replay", &trace, "st1000dm003"]).expect(0).stdout;
    let once = replay();
    assert!(once.contains("write: 100 requests") && once.contains("flush: "), "{once}");
    assert_eq!(once, replay());
    site.run(&["disk", "export", &trace, "--csv", &csv, "--blktrace", &events]).expect(0);
    let table = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains(",write,")).count(), 100, "{table}");
    let lines = table.lines().count() - 1;
    assert_eq!(std::fs::metadata(&events).unwrap().len(), lines as u64 * 3 * 48);
    // What is there is not written over.
    let ran = site.run(&["disk", "export", &trace, "--csv", &csv]).expect(2);
    assert!(ran.stderr.contains("remove it, or name another"), "{}", ran.stderr);
}

#[test]
fn a_hard_disk_takes_no_discards() {
    if !root() {
        return;
    }
    for (disk, takes) in [("7200rpm:64M", false), ("nvme:64M", true)] {
        let site = Site::new();
        let (_child, device) = attach(&site, &[disk]);
        let name = device.trim_start_matches("/dev/");
        let path = format!("/sys/block/{name}/queue/discard_max_bytes");
        let most = std::fs::read_to_string(path).unwrap();
        assert_eq!(most.trim() != "0", takes, "{disk}: {most}");
        site.run(&["disk", "detach", &device]).expect(0);
    }
}

/// Whoever is killed, nothing is left; what `clean` finds it removes.
#[test]
fn whoever_is_killed_nothing_is_left() {
    if !root() {
        return;
    }
    for victim in ["attach", "serve", "Ctrl-C"] {
        let site = Site::new();
        let (mut child, device) = attach(&site, &["st1000dm003:64M"]);
        let words = |process: i32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        };
        let server = || site.processes().into_iter().find(|one| words(*one).contains(" serve "));
        let (number, by) = match victim {
            "serve" => (server().unwrap(), Signal::KILL),
            "attach" => (child.0.id() as i32, Signal::KILL),
            _ => (child.0.id() as i32, Signal::INT),
        };
        signal(number, by);
        let code = child.code();
        assert_eq!(
            code,
            [None, Some(1), Some(0)]
                [["attach", "serve", "Ctrl-C"].iter().position(|one| *one == victim).unwrap()]
        );
        wait_until("its processes are gone", || site.processes().is_empty());
        site.run(&["clean"]).expect(0);
        site.expect_nothing_left();
        assert!(!Path::new(&format!("/sys/block/{}", device.trim_start_matches("/dev/"))).exists());
    }
}

#[test]
fn a_record_has_the_disk_its_lateness_and_a_picture() {
    if !root() {
        return;
    }
    let site = Site::new();
    let contenders = ["here: ext4", "there: ext4 over hdd:7200rpm"];
    let command = ["sh", "-c", "dd if=/dev/zero of=a bs=64k count=64 conv=fsync"];
    let ran = site.compare(&contenders, &[], &command).expect(0);
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("there: its times are those of a modelled disk (hdd:7200rpm)"), "{said}");
    site.expect_nothing_left();
    assert!(site.record_of("here").get("disks").is_none());
    let disks = &site.record_of("there")["disks"];
    let disk = &disks[0];
    assert_eq!((disk["layer"].as_str(), disk["profile"].as_str()), (Some("hdd"), Some("7200rpm")));
    assert!(disk["lateness"]["replies"].as_u64().unwrap() > 10, "{disk:#}");
    assert!(disk["picture"]["written_bytes"].as_u64().unwrap() >= 4 << 20, "{disk:#}");
}

/// The trace of the kernel has what the device's counters have, and the file can be replayed on a modelled disk.
#[test]
fn what_reaches_a_device_is_traced() {
    if !root() {
        return;
    }
    let site = Site::new();
    let contenders = ["here: ext4", "there: ext4 over ssd:nvme"];
    let command = ["sh", "-c", "dd if=/dev/zero of=a bs=64k count=64 conv=fsync"];
    let more = ["--trace", "--one-at-a-time"];
    site.compare(&contenders, &more, &command).expect(0);
    site.expect_nothing_left();
    for label in ["here", "there"] {
        let record = site.record_of(label);
        let (trace, number) = (&record["trace"], record["trial"].as_u64().unwrap());
        if trace["lost_events"].as_u64() != Some(0) {
            eprintln!("nothing to compare: the kernel did not deliver every event");
            continue;
        }
        let of_phases = |what: &str| -> u64 {
            let phases = record["phases"].as_array().unwrap().iter();
            let own =
                phases.filter(|one| ["run", "sync"].contains(&one["phase"].as_str().unwrap()));
            own.map(|one| one["device"][what].as_u64().unwrap()).sum()
        };
        let picture = &trace["picture"];
        for (traced, counted) in [("written_bytes", "written_bytes"), ("flushes", "flushes")] {
            assert_eq!(
                picture[traced].as_u64().unwrap(),
                of_phases(counted),
                "{label}: {record:#}"
            );
        }
        // The sync commits to the journal; metadata itself may be written later.
        assert!(picture["journal_bytes"][1].as_u64().unwrap() > 0, "{label}: {picture:#}");
        let file = site.work().join(format!("result/traces/trial-{number}.trace"));
        let replayed = site.run(&["disk", "replay", file.to_str().unwrap(), "st1000dm003"]);
        let kept = format!("recorded: {} requests", trace["kept"]);
        assert!(trace["kept"].as_u64().unwrap() > 4 && replayed.stdout.contains(&kept));
    }
    let directory = format!("dir:{}", site.home().display());
    let ran = site.run(&["compare", &directory, "--trace", "--", "true"]).expect(2);
    assert!(ran.stderr.contains("no contender has a device"), "{}", ran.stderr);
}
