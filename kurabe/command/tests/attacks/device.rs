//! Disks that nobody named: put under a node or a path that was, or in use in ways that no path in
//! `/dev` shows.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::harness::{NOBODY, Ran, Site, signal, wait_until};
use crate::{
    Disk, Halted, between_trials, done, first_waits, give_to_stranger, ground, ground_of_disks,
    own, secret, stranger, theirs,
};

/// A study of three blocks on a real device, which waits in its first trial.
fn on_disk(site: &Site, disk: &Disk) -> Command {
    let flags = ["--device", &disk.text(), "--destroy", &disk.name(), "--runs", "3"];
    site.compare_command(&["ext4"], &flags, &[&first_waits(site)])
}

/// Finding 3: the node was granted, and another disk stands behind it.
#[test]
fn another_disk_under_the_same_node_keeps_its_bytes() {
    let Some(site) = ground_of_disks() else { return };
    let foreign = Disk::formatted(&site, "foreign");
    let (bytes, image) = (foreign.bytes(), foreign.image.clone());
    drop(foreign);
    let disk = Disk::new(&site, "disk");
    let mut swapped = false;
    let ran = between_trials(&site, on_disk(&site, &disk), || {
        let _ = Command::new("losetup").arg("--detach").arg(&disk.node).output().unwrap();
        let mut attach = Command::new("losetup");
        let attached = attach.arg(&disk.node).arg(&image).output().unwrap();
        swapped = attached.status.success();
        // A file of somebody else's must not be what the study goes on with.
        let backing = disk.backing().expect("something is attached");
        assert!(backing == image || backing == disk.image, "{}", backing.display());
    });
    drop(disk);
    assert!(fs::read(image).unwrap() == bytes, "the foreign disk was written to: {ran:#?}");
    assert!(!swapped || ran.code != Some(0), "nobody was told: {ran:#?}");
}

/// The path that the user typed is a link, as in `/dev/disk/by-id`; `link` makes it lead to a disk.
fn link(site: &Site, disk: &Disk) -> PathBuf {
    let path = secret(site).join("by-id");
    let next = secret(site).join("next");
    symlink(&disk.node, &next).unwrap();
    fs::rename(next, &path).unwrap();
    path
}

/// The command lines of a trial show what the user typed, and no node of kurabe's own.
fn expect_shown(site: &Site, path: &Path) {
    let path = path.display().to_string();
    for record in site.records() {
        let commands = record["commands"].as_array().unwrap();
        let commands: Vec<&str> = commands.iter().filter_map(|line| line.as_str()).collect();
        let made = commands.iter().find(|line| line.starts_with("mkfs.ext4")).unwrap();
        assert!(made.ends_with(&path), "{commands:#?}");
        let own = own(site).display().to_string();
        let own = |line: &&&str| line.contains(&own) && line.contains("/devices/");
        assert_eq!(commands.iter().find(own), None, "{commands:#?}");
        assert!(record["mounted_as"].as_str().unwrap().starts_with(&path), "{record:#?}");
    }
}

/// The link was granted, and leads to another disk by the time that mkfs and mount use it.
#[test]
fn a_link_that_leads_elsewhere_between_two_trials_leads_nowhere() {
    let Some(site) = ground_of_disks() else { return };
    let foreign = Disk::formatted(&site, "foreign");
    let bytes = foreign.bytes();
    let disk = Disk::new(&site, "disk");
    let path = link(&site, &disk);
    let flags = ["--device", &path.display().to_string(), "--destroy", &disk.name(), "--runs", "3"];
    let command = site.compare_command(&["ext4"], &flags, &[&first_waits(&site)]);
    let ran = between_trials(&site, command, || drop(link(&site, &foreign)));
    assert!(foreign.bytes() == bytes, "the foreign disk was written to: {ran:#?}");
    ran.expect(0);
    assert_eq!(crate::harness::kinds(&site.records()), ["completed"; 3]);
    expect_shown(&site, &path);
}

/// Whoever owns a link can make it lead to another disk by the next time.
#[test]
fn a_strangers_link_to_a_disk_is_refused() {
    let Some(site) = ground_of_disks() else { return };
    let disk = Disk::formatted(&site, "disk");
    let bytes = disk.bytes();
    let path = link(&site, &disk);
    std::os::unix::fs::lchown(&path, Some(65534), None).unwrap();
    let typed = path.display().to_string();
    let flags = ["--device", &typed, "--destroy", &format!("{}:ext4", disk.name()), "--runs", "1"];
    let ran = site.compare(&["ext4"], &flags, &["true"]).expect(2);
    assert!(ran.stderr.contains("belongs to user nobody"), "{}", ran.stderr);
    assert!(disk.bytes() == bytes, "{ran:#?}");
}

/// The same in the middle of a trial: after `--setup` the file system is mounted once more.
#[test]
fn a_link_that_leads_elsewhere_during_the_setup_leads_nowhere() {
    let Some(site) = ground_of_disks() else { return };
    let foreign = Disk::formatted(&site, "foreign");
    let bytes = foreign.bytes();
    let disk = Disk::new(&site, "disk");
    let path = link(&site, &disk);
    let (node, secret) = (foreign.node.display(), secret(&site).display().to_string());
    let setup =
        format!("touch here; ln -s {node} {secret}/new; mv -T {secret}/new {}", path.display());
    let typed = path.display().to_string();
    let flags = ["--device", &typed, "--destroy", &disk.name(), "--runs", "1", "--setup", &setup];
    let ran = site.compare(&["ext4"], &flags, &["test -e here && rm -rf lost+found"]);
    assert!(foreign.bytes() == bytes, "the foreign disk was written to: {ran:#?}");
    ran.expect(0);
    expect_shown(&site, &path);
}

/// Finding 3: a signature that a trial could have left is somebody else's by now.
#[test]
fn what_is_made_on_the_disk_between_two_trials_is_kept() {
    let Some(site) = ground_of_disks() else { return };
    let disk = Disk::new(&site, "disk");
    let mut made = None;
    let ran = between_trials(&site, on_disk(&site, &disk), || made = disk.format());
    if let Some(uuid) = made {
        assert_eq!(disk.uuid(), uuid, "{ran:#?}");
    }
}

/// Kills the first trial of a study while its file system is mounted; does `act` before the runner can
/// look at what is left.
fn after_a_killed_trial(site: &Site, disk: &Disk, act: impl FnOnce()) -> Ran {
    let mut running = site.start(on_disk(site, disk));
    let begun = site.home().join("begun");
    wait_until("the first trial runs", || begun.exists() || running.has_ended());
    let runner = running.number();
    signal(runner, Signal::STOP);
    let halted = Halted(runner);
    wait_until("its processes are gone", || {
        let trial: Vec<i32> =
            site.processes().into_iter().filter(|number| *number != runner).collect();
        trial.iter().for_each(|number| signal(*number, Signal::KILL));
        trial.is_empty()
    });
    fs::write(site.home().join("go-on"), "").unwrap();
    act();
    drop(halted);
    running.finish()
}

#[test]
fn what_a_killed_trial_left_is_wiped_and_the_study_goes_on() {
    let Some(site) = ground_of_disks() else { return };
    let disk = Disk::new(&site, "disk");
    let ran = after_a_killed_trial(&site, &disk, || {});
    assert_eq!(
        crate::harness::kinds(&site.records()),
        ["failed", "completed", "completed"],
        "{ran:#?}"
    );
}

#[test]
fn what_is_made_on_the_disk_after_a_trial_was_killed_is_kept() {
    let Some(site) = ground_of_disks() else { return };
    let disk = Disk::new(&site, "disk");
    let mut made = None;
    let ran = after_a_killed_trial(&site, &disk, || {
        // The kernel unmounts what the trial had mounted.
        wait_until("somebody can make a file system", || {
            made = disk.format();
            made.is_some()
        });
    });
    assert_eq!(Some(disk.uuid()), made, "it was taken for the trial's: {ran:#?}");
    let records = site.records();
    assert_eq!(crate::harness::kinds(&records)[..2], ["failed"; 2], "{ran:#?}");
    let (_, message, _) = crate::harness::failure(&records[1]);
    assert!(message.contains("which the last run did not make"), "{message}");
}

/// What marks a disk as a member of a group: made by its own tool where that is installed and works
/// without the kernel's part, otherwise the bytes that libblkid looks for.
fn mark(disk: &Disk, other: &Disk, kind: &str) {
    let write = |offset: u64, bytes: &[u8]| {
        let file = fs::File::options().write(true).open(&disk.node).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        file.sync_all().unwrap();
    };
    match kind {
        "LVM2_member" => {
            let mut make = Command::new("pvcreate");
            let made = make.args(["-qq", "-ff", "-y"]).arg(&disk.node).output();
            if !made.is_ok_and(|output| output.status.success()) {
                // The label's header in the second sector, with its checksum.
                let mut label = [0; 512];
                label[..9].copy_from_slice(b"LABELONE\x01");
                label[20] = 32;
                label[16..20].copy_from_slice(&[0x73, 0xac, 0xa8, 0x28]);
                label[24..32].copy_from_slice(b"LVM2 001");
                write(512, &label);
            }
        }
        "linux_raid_member" => {
            // Metadata 1.2, at 4 KiB: magic number, version, and where it is, in sectors.
            let mut superblock = [0; 4096];
            superblock[..5].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1]);
            superblock[16..32].fill(7);
            superblock[144] = 8;
            write(4096, &superblock);
        }
        "btrfs" => {
            let mut make = Command::new("mkfs.btrfs");
            done(make.args(["-q", "-f", "-d", "single"]).args([&disk.node, &other.node]));
        }
        "swap" => drop(done(Command::new("mkswap").arg(&disk.node))),
        other => panic!("{other}"),
    }
    done(Command::new("blockdev").arg("--flushbufs").arg(&disk.node));
}

/// Members of LVM, md and a Btrfs of several devices are refused whatever is named, and swap unless it is
/// named. Nothing is written.
#[test]
fn a_named_disk_that_belongs_to_others_keeps_its_bytes() {
    for kind in ["LVM2_member", "linux_raid_member", "btrfs", "swap"] {
        let Some(site) = ground_of_disks() else { return };
        let size = if kind == "btrfs" { 256 << 20 } else { Disk::BYTES };
        let disk = |name: &str| {
            let image = secret(&site).join(name);
            fs::File::create(&image).unwrap().set_len(size).unwrap();
            Disk::on(image)
        };
        let (disk, other) = (disk("disk"), disk("other"));
        mark(&disk, &other, kind);
        let bytes = disk.bytes();
        let named = format!("{}:{kind}", disk.name());
        for destroy in [&disk.name(), &named] {
            let flags = ["--device", &disk.text(), "--destroy", destroy];
            if kind == "swap" && destroy == &named {
                // Swap that is off is nobody's.
                continue;
            }
            let ran =
                site.compare(&["ext4"], &flags, &["true"]).expect(2).says(&["it carries", kind]);
            let offers = ran.stderr.contains(&format!("--destroy '{named}'"));
            assert_eq!(offers, kind == "swap", "{}", ran.stderr);
            assert!(disk.bytes() == bytes, "{kind}: the disk was written to: {ran:#?}");
        }
    }
}

/// Finding 8: the first has the device until it ends.
#[test]
fn a_second_kurabe_is_refused_between_two_trials() {
    let (Some(site), Some(other)) = (ground_of_disks(), ground()) else { return };
    let disk = Disk::new(&site, "disk");
    let ran = between_trials(&site, on_disk(&site, &disk), || {
        let flags = ["--device", &disk.text(), "--destroy", &format!("{}:ext4", disk.name())];
        other.compare(&["ext4"], &flags, &["true"]).expect(2);
    });
    ran.expect(0);
    assert_eq!(crate::harness::kinds(&site.records()), ["completed"; 3]);
}

/// Finding 4: each of these ran to its end.
#[test]
fn a_disk_in_use_in_ways_that_no_path_shows_is_refused() {
    let cases: [(&str, MakeUse); 3] = [
        ("the same image on a second loop device, mounted", |site, disk| {
            let second = Disk::on(disk.image.clone());
            Used::mounted(site, second)
        }),
        ("a loop device over a node that was removed, mounted", |site, disk| {
            let node = node_outside(site, disk);
            let upper = Disk::on(node.clone());
            fs::remove_file(node).unwrap();
            Used::mounted(site, upper)
        }),
        ("opened by a process through a node outside of /dev", |site, disk| {
            let node = node_outside(site, disk);
            let file = fs::File::open(&node).unwrap();
            fs::remove_file(node).unwrap();
            let child = Command::new("sleep").arg("60").stdin(Stdio::from(file)).spawn().unwrap();
            Used { mount: None, _upper: None, child: Some(child) }
        }),
    ];
    let mut granted = Vec::new();
    for (case, used_by) in cases {
        let Some(site) = ground_of_disks() else { return };
        let disk = Disk::formatted(&site, "disk");
        let uuid = disk.uuid();
        let _used = used_by(&site, &disk);
        let flags = ["--device", &disk.text(), "--destroy", &format!("{}:ext4", disk.name())];
        let ran = site.compare(&["ext4"], &flags, &["true"]);
        if ran.code != Some(2) || disk.uuid() != uuid {
            granted.push((case, ran));
        }
    }
    assert!(granted.is_empty(), "{granted:#?}");
}

fn node_outside(site: &Site, disk: &Disk) -> std::path::PathBuf {
    let number = fs::read_to_string(format!("/sys/block/{}/dev", disk.name())).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let node = secret(site).join("node");
    done(Command::new("mknod").arg(&node).args(["b", major, minor]));
    node
}

/// Begins a use of a disk.
type MakeUse = fn(&Site, &Disk) -> Used;

/// What uses a disk; given back when dropped.
struct Used {
    mount: Option<std::path::PathBuf>,
    _upper: Option<Disk>,
    child: Option<Child>,
}

impl Used {
    fn mounted(site: &Site, upper: Disk) -> Used {
        let point = secret(site).join("point");
        fs::create_dir(&point).unwrap();
        done(Command::new("mount").arg(&upper.node).arg(&point));
        Used { mount: Some(point), _upper: Some(upper), child: None }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some(point) = &self.mount {
            let _ = Command::new("umount").arg(point).output();
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Finding 7: the image is another file in the next trial. The directory is that of the user who
/// called kurabe by sudo, so that it is accepted.
#[test]
fn an_image_that_became_a_link_leaves_the_target_its_bytes() {
    let Some(site) = ground_of_disks() else { return };
    let disk = secret(&site).join("disk.img");
    fs::write(&disk, vec![7; Disk::BYTES as usize]).unwrap();
    give_to_stranger(&theirs(&site));
    let device = format!("loop:32M@{}", theirs(&site).display());
    let flags = ["--device", &device, "--runs", "3"];
    let mut command = site.compare_command(&["ext4"], &flags, &[&first_waits(&site)]);
    command.env("SUDO_UID", NOBODY.to_string()).env("SUDO_GID", NOBODY.to_string());
    let script = format!(
        "cd {}; for name in * .k*; do if [ -f \"$name\" ]; then rm -f \"$name\"; ln -s {} \"$name\"; fi; done",
        theirs(&site).display(),
        disk.display()
    );
    let ran = between_trials(&site, command, || drop(done(&mut stranger(&script))));
    let bytes = fs::read(&disk).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7), "root's disk was written to: {ran:#?}");
}
