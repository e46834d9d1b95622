//! The FUSE mount and the tools, as a user meets them. Needs root and /dev/fuse; elsewhere each
//! test says that it was skipped.
//!
//! `fsx` is run when it is in PATH (or where `MINFS_FSX` says), fio when it is installed. What
//! each system call answers stands in `errnos.rs`.

#[path = "common/mount.rs"]
mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{MINFS, Mount, assert_errno, minfs, pattern, run, succeed};
use rustix::fs::FallocateFlags;

#[test]
fn ordinary_programs_work_and_everything_is_there_after_a_remount() {
    let Some(mount) = Mount::new("64M", "rw") else { return };
    let data = pattern(3_000_001, 1);
    fs::write(mount.path("a"), &data).unwrap();
    succeed(run("cp", &[mount.path("a").to_str().unwrap(), mount.path("b").to_str().unwrap()]));
    let direct = format!("of={}", mount.path("c").display());
    let input = format!("if={}", mount.path("a").display());
    succeed(run("dd", &[&input, &direct, "bs=64k", "oflag=direct", "count=40", "status=none"]));
    let mut log = OpenOptions::new().append(true).create(true).open(mount.path("log")).unwrap();
    for _ in 0..100 {
        log.write_all(b"a line of the log\n").unwrap();
    }
    log.sync_all().unwrap();
    fs::rename(mount.path("b"), mount.path("d")).unwrap();
    fs::remove_file(mount.path("c")).unwrap();
    fs::set_permissions(mount.path("d"), fs::Permissions::from_mode(0o600)).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    File::open(mount.path("d")).unwrap().set_modified(time).unwrap();
    std::os::unix::fs::chown(mount.path("d"), Some(12), Some(34)).unwrap();
    drop(log);
    for _ in 0..2 {
        assert!(fs::read(mount.path("a")).unwrap() == data);
        assert!(fs::read(mount.path("d")).unwrap() == data);
        assert_eq!(fs::read(mount.path("log")).unwrap().len(), 1800);
        let facts = fs::metadata(mount.path("d")).unwrap();
        assert_eq!((facts.mode() & 0o7777, facts.uid(), facts.gid()), (0o600, 12, 34));
        assert_eq!(facts.modified().unwrap(), time);
        let mut names: Vec<_> = fs::read_dir(mount.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["a", "d", "log"]);
        mount.umount();
        assert_eq!(mount.fsck(), 0);
        mount.mount();
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(&mount.root_text())).unwrap();
    assert!(line.contains(" fuse.minfs "), "{line}");
    // What ps, top and pgrep show of it.
    let daemon = mount.daemon();
    let name = fs::read_to_string(format!("/proc/{daemon}/comm")).unwrap();
    assert_eq!(name, "minfs\n");
    mount.umount();
    // The tools see the same without a mount.
    let image = mount.image();
    assert_eq!(succeed(minfs(&["ls", &image])), "a\nd\nlog\n");
    assert!(minfs(&["get", &image, "a"]).stdout == data);
    succeed(minfs(&["mv", &image, "d", "e"]));
    succeed(minfs(&["rm", &image, "log"]));
    succeed(minfs(&["put", &image, MINFS, "program"]));
    assert!(!minfs(&["put", &image, MINFS, "program"]).status.success());
    assert!(minfs(&["get", &image, "program"]).stdout == fs::read(MINFS).unwrap());
    assert_eq!(succeed(minfs(&["ls", &image])), "a\ne\nprogram\n");
    assert!(succeed(minfs(&["stat", &image])).contains("TYPE=minfs"));
    assert!(succeed(minfs(&["stat", &image, "a"])).contains("size_bytes: 3000001"));
    assert!(succeed(minfs(&["df", &image])).contains("files: 3"));
    assert!(succeed(minfs(&["map", &image])).lines().count() >= 4);
    assert_eq!(mount.fsck(), 0);
}

#[test]
fn space_is_reserved_zeroed_and_shown() {
    let Some(mount) = Mount::new("64M", "rw") else { return };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(mount.path("f")).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
    let facts = file.metadata().unwrap();
    assert_eq!((facts.len(), facts.blocks() * 512), (0, 8 << 20));
    file.write_all_at(&pattern(10_000, 3), 0).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 9 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 9 << 20);
    let seek = |from| rustix::fs::seek(&file, from).map_err(std::io::Error::from);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)).unwrap(), 10_000);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(5)).unwrap(), 5);
    assert_errno(seek(rustix::fs::SeekFrom::Data(20_000)), libc::ENXIO);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 4096, 10 << 20).unwrap();
    let mut content = Vec::new();
    File::open(mount.path("f")).unwrap().read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), 4096 + (10 << 20));
    assert!(content[..4096] == pattern(4096, 3) && content[4096..].iter().all(|byte| *byte == 0));
    file.set_len(100).unwrap();
    file.set_len(50_000).unwrap();
    let mut back = vec![1; 50_000];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back[..100] == pattern(100, 3) && back[100..].iter().all(|byte| *byte == 0));
    drop(file);
    mount.umount();
}

/// What is in the kernel's cache only is data too.
#[test]
fn data_that_the_kernel_still_holds_is_found_by_a_seek() {
    for options in ["rw", "writeback_cache", "direct_io"] {
        let Some(mount) = Mount::new("64M", options) else { return };
        let file = File::create(mount.path("f")).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&pattern(5000, 1), 300_000).unwrap();
        let seek = |from| rustix::fs::seek(&file, from).map_err(std::io::Error::from);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(300_000)).unwrap(), 300_000, "{options}");
        assert!(seek(rustix::fs::SeekFrom::Hole(300_000)).unwrap() >= 305_000, "{options}");
        file.sync_all().unwrap();
        assert_eq!(seek(rustix::fs::SeekFrom::Data(304_999)).unwrap(), 304_999, "{options}");
        assert_errno(seek(rustix::fs::SeekFrom::Data(1 << 20)), libc::ENXIO);
        drop(file);
        mount.umount();
        assert_eq!(mount.fsck(), 0);
    }
}

/// The image as it is after fsync(2) is what a power cut leaves at most.
#[test]
fn times_that_were_set_are_durable_after_fsync() {
    for options in ["rw", "writeback_cache", "direct_io"] {
        let Some(mount) = Mount::new("16M", options) else { return };
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = File::create(mount.path("f")).unwrap();
        file.set_modified(time).unwrap();
        file.sync_all().unwrap();
        let image = fs::read(mount.image()).unwrap();
        drop(file);
        mount.umount();
        let cut = mount.directory.path().join("cut");
        fs::write(&cut, image).unwrap();
        let facts = succeed(minfs(&["stat", cut.to_str().unwrap(), "f"]));
        assert!(facts.contains("modified_ns: 1000000000000000000\n"), "{options}: {facts}");
    }
}

#[test]
fn a_terminated_daemon_unmounts_cleanly_and_a_killed_one_leaves_what_was_synced() {
    let Some(mount) = Mount::new("64M", "rw") else { return };
    fs::write(mount.path("a"), pattern(100_000, 1)).unwrap();
    mount.signal(rustix::process::Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(10);
    while mount.is_mounted() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!mount.is_mounted());
    // Whoever comes next need not wait for the daemon: the tools do.
    assert_eq!(mount.fsck(), 0);
    mount.mount();
    assert!(fs::read(mount.path("a")).unwrap() == pattern(100_000, 1));
    let file = File::create(mount.path("b")).unwrap();
    file.write_all_at(&pattern(70_000, 2), 0).unwrap();
    file.sync_data().unwrap();
    mount.signal(rustix::process::Signal::KILL);
    drop(file);
    rustix::mount::unmount(mount.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(mount.fsck(), 0);
    mount.mount();
    assert!(fs::read(mount.path("b")).unwrap() == pattern(70_000, 2));
    // Plain umount(8) returns before the daemon has ended; what follows waits for it.
    succeed(run("umount", &[&mount.root_text()]));
    assert_eq!(mount.fsck(), 0);
}

/// The kernel does not ask for the sync of writes past its page cache.
#[test]
fn synchronous_writes_survive_a_killed_daemon() {
    const KINDS: [(&str, i32); 4] = [
        ("direct-dsync", libc::O_DIRECT | libc::O_DSYNC),
        ("direct-sync", libc::O_DIRECT | libc::O_SYNC),
        ("dsync", libc::O_DSYNC),
        ("sync", libc::O_SYNC),
    ];
    for options in ["rw", "direct_io", "writeback_cache"] {
        let Some(mount) = Mount::new("64M", options) else { return };
        let mut data = block::AlignedBuffer::zeroed(65_536);
        data.copy_from_slice(&pattern(65_536, 3));
        for (name, flags) in KINDS {
            let mut open = OpenOptions::new();
            let file = open.write(true).create(true).custom_flags(flags).open(mount.path(name));
            file.unwrap().write_all_at(&data, 0).unwrap();
        }
        mount.signal(rustix::process::Signal::KILL);
        rustix::mount::unmount(mount.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
        assert_eq!(mount.fsck(), 0);
        mount.mount();
        for (name, _) in KINDS {
            assert!(fs::read(mount.path(name)).unwrap() == data[..], "{name} with {options}");
        }
    }
}

#[test]
fn exit_codes_and_refusals_suit_unattended_callers() {
    let Some(mount) = Mount::new("16M", "rw") else { return };
    let (image, root) = (mount.image(), mount.root_text());
    let code = |arguments: &[&str]| minfs(arguments).status.code().unwrap();
    assert_eq!(code(&["mount", &image, &root]), 32, "a second mount");
    assert_eq!(code(&["fsck", "-n", &image]), 8, "a check while mounted");
    assert_eq!(code(&["mkfs", "--force", &image]), 2, "mkfs while mounted");
    assert_eq!(code(&["rm", &image, "x"]), 2, "a tool while mounted");
    mount.umount();
    assert_eq!(code(&["umount", &root]), 2, "nothing to unmount");
    assert_eq!(code(&["mount", "-o", "no_such_option", &image, &root]), 1);
    assert_eq!(code(&["mount", &image, "/no/such/directory"]), 32);
    assert_eq!(code(&["mount"]), 1);
    assert_eq!(code(&["fsck"]), 16);
    assert_eq!(code(&["fsck", "/no/such/device"]), 8);
    assert_eq!(code(&["mkfs", &image]), 2, "an old volume needs --force");
    assert_eq!(code(&["mkfs", "--force", "-L", "new", &image]), 0);
    assert_eq!(code(&["mount", "-o", "ro", &image, &root]), 0);
    assert_errno(fs::write(mount.path("x"), b"x"), libc::EROFS);
    mount.umount();
    // A damaged slot: 4 without repair, 1 with, 0 after.
    let small = mount.directory.path().join("small");
    fs::write(&small, pattern(10_000, 1)).unwrap();
    succeed(minfs(&["put", &image, small.to_str().unwrap(), "a"]));
    let device = OpenOptions::new().read(true).write(true).open(&image).unwrap();
    device.write_all_at(&[0xff; 600], 4096 + 1024).unwrap();
    drop(device);
    assert_eq!(code(&["fsck", "-n", &image]), 4);
    assert_eq!(code(&["fsck", "--repair", &image]), 1);
    assert_eq!(code(&["fsck", &image]), 0);
    // Something else on the device.
    let device = OpenOptions::new().write(true).open(&image).unwrap();
    device.write_all_at(b"XFSB", 0).unwrap();
    drop(device);
    assert_eq!(code(&["mkfs", &image]), 2);
    // The names under which other programs call it.
    for (name, arguments, expected) in [
        ("mkfs.minfs", vec!["-f", "-q", &image], 0),
        ("fsck.minfs", vec!["-n", &image], 0),
        ("mount.minfs", vec![&image, &root, "-o", "rw,noatime"], 0),
    ] {
        let link = mount.directory.path().join(name);
        std::os::unix::fs::symlink(MINFS, &link).unwrap();
        let output = run(link.to_str().unwrap(), &arguments);
        assert_eq!(output.status.code(), Some(expected), "{name}");
    }
    assert!(mount.is_mounted());
    succeed(run("fusermount3", &["-u", &root]));
    // As mount.fuse(8) calls it for `mount -t fuse.minfs`.
    succeed(minfs(&[&image, &root, "-o", "rw"]));
    mount.umount();
}

/// Whoever owns a link, or the directory that it leads through, would choose where root mounts.
#[test]
fn root_mounts_and_unmounts_nowhere_that_a_stranger_chose() {
    let Some(mount) = Mount::new("16M", "rw") else { return };
    let (image, root) = (mount.image(), mount.root_text());
    let at = |name: &str| mount.directory.path().join(name).to_str().unwrap().to_string();
    let theirs = Some(54_321);
    let (open, to_root, to_image) = (at("open"), at("open/root"), at("open/image"));
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    let link = |target: &str, at: &str, owner| {
        let _ = fs::remove_file(at);
        std::os::unix::fs::symlink(target, at).unwrap();
        std::os::unix::fs::lchown(at, owner, owner).unwrap();
    };
    fs::create_dir(at("open/directory")).unwrap();
    std::os::unix::fs::chown(at("open/directory"), theirs, theirs).unwrap();
    let refused = |arguments: &[&str]| {
        let output = minfs(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains("belongs to user 54321"), "{arguments:?}: {said}");
    };
    mount.umount();
    link(&root, &to_root, theirs);
    link(&image, &to_image, theirs);
    refused(&["mount", &image, &to_root]);
    refused(&["mount", &to_image, &root]);
    refused(&["mount", "-o", "ro", &to_image, &root]);
    refused(&["mount", &image, &at("open/directory")]);
    assert!(!mount.is_mounted());
    // By own links it works.
    link(&image, &to_image, Some(0));
    succeed(minfs(&["mount", &to_image, &root]));
    refused(&["umount", &to_root]);
    refused(&["mount", "-o", "remount,ro", &image, &to_root]);
    fs::write(mount.path("x"), b"x").unwrap();
    link(&root, &to_root, Some(0));
    succeed(minfs(&["mount", "-o", "remount,ro", &image, &to_root]));
    assert_errno(fs::write(mount.path("x"), b"x"), libc::EROFS);
    succeed(minfs(&["umount", &to_root]));
    assert!(!mount.is_mounted());
}

#[test]
fn wrong_use_is_refused_with_code_2_and_touches_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, small) = (path("image"), path("small"));
    fs::write(&small, pattern(10_000, 1)).unwrap();
    succeed(minfs(&["mkfs", "--size", "16M", "-q", &image]));
    succeed(minfs(&["put", &image, &small, "a"]));
    let before = fs::read(&image).unwrap();
    let (long, root, output) = ("x".repeat(256), "/".to_string(), path("output"));
    let label = "y".repeat(65);
    for arguments in [
        vec!["put", &image, &small, "a"],
        vec!["put", &image, &small, "b/c"],
        vec!["put", &image, &small, &long],
        vec!["put", &image, "-"],
        vec!["put", &image, &root, "b"],
        vec!["put", &image, "/no/such/file"],
        vec!["rm", &image, "a", "none"],
        vec!["rm", &image],
        vec!["mv", &image, "none", "b"],
        vec!["mv", &image, "a", ".."],
        vec!["stat", &image, "none"],
        vec!["map", &image, "none"],
        vec!["ls", "/no/such/device"],
        vec!["ls", &small],
        vec!["df", "/dev/null"],
        vec!["mkfs", &image],
        vec!["mkfs", "--force", "--label", &label, &image],
        vec!["mkfs", "--force", "--unit", "5000", &image],
        vec!["mkfs", "--force", "--unit", "1T", &image],
        vec!["mkfs", "--force", "--uuid", "none", &image],
        vec!["mkfs", "--force", "--files", "0", &image],
        vec!["mkfs", "--force", "--size", "1k", &image],
        vec!["mkfs", "--size", "16Q", &output],
        vec!["mkfs", "--size", "1k", &output],
        vec!["mkfs", &output],
        vec!["mkfs", "/dev/null"],
        vec!["umount", &root],
        vec!["frobnicate"],
        vec!["ls", "--no-such-flag", &image],
    ] {
        let refused = minfs(&arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        // A name that is not on the volume is an answer, not wrong use.
        let code = if said.trim_end().ends_with("none: no such file") { 1 } else { 2 };
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.is_empty() && refused.stdout.is_empty(), "{arguments:?}");
        assert!(fs::read(&image).unwrap() == before, "{arguments:?} changed the image");
        assert!(!Path::new(&output).exists(), "{arguments:?}");
    }
    // An image and the loop device that it is attached to are one thing.
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: in part: loop devices need root");
        return;
    }
    let attached = run("losetup", &["--find", "--show", &image]);
    if !attached.status.success() {
        eprintln!("SKIPPED: in part: no loop device can be had");
        return;
    }
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_string();
    let by_image = minfs(&["mkfs", "--force", &image]);
    let by_device = minfs(&["ls", &device]);
    let with_size = minfs(&["mkfs", "--force", "--size", "8M", &device]);
    // Another name of the image is no other image, and a second loop device no other device.
    let link = directory.path().join("link").to_str().unwrap().to_string();
    fs::hard_link(&image, &link).unwrap();
    let by_link = minfs(&["mkfs", "--force", &link]);
    let second = run("losetup", &["--find", "--show", &link]);
    let second = String::from_utf8(second.stdout).unwrap().trim().to_string();
    let by_second = minfs(&["mkfs", "--force", &second]);
    run("losetup", &["--detach", &second]);
    // The name under which it was attached may be gone.
    let kept = fs::read(&image).unwrap();
    fs::remove_file(&image).unwrap();
    let nameless = minfs(&["mkfs", "--force", &link]);
    assert_eq!(nameless.status.code(), Some(2), "{nameless:?}");
    assert!(fs::read(&link).unwrap() == kept);
    fs::rename(&link, &image).unwrap();
    let above = run("losetup", &["--find", "--show", &device]);
    let above = String::from_utf8(above.stdout).unwrap().trim().to_string();
    let from_below = minfs(&["rm", &device, "a"]);
    run("losetup", &["--detach", &above]);
    run("losetup", &["--detach", &device]);
    assert_eq!(from_below.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&from_below.stderr).contains(&above));
    assert_eq!((by_link.status.code(), by_second.status.code()), (Some(2), Some(2)));
    assert!(String::from_utf8_lossy(&by_second.stderr).contains("losetup --detach"));
    assert_eq!(by_image.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&by_image.stderr).contains(&device));
    assert_eq!(succeed(by_device), "a\n");
    assert_eq!(with_size.status.code(), Some(2));
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn mkfs_asks_the_claim_before_it_overwrites_a_device() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: loop devices need root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let attached = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
    if !attached.status.success() {
        eprintln!("SKIPPED: no loop device can be had");
        return;
    }
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_string();
    let check = || {
        succeed(run("mkfs.ext4", &["-q", "-F", &device]));
        let refused = minfs(&["mkfs", &device]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("ext4"));
        let point = directory.path().join("point");
        fs::create_dir(&point).unwrap();
        succeed(run("mount", &[&device, point.to_str().unwrap()]));
        let refused = minfs(&["mkfs", "--force", &device]);
        succeed(run("umount", &[point.to_str().unwrap()]));
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("mounted"));
        succeed(minfs(&["mkfs", "--force", "--label", "keep me", &device]));
        // The claim sees a volume, as the laboratory does before it destroys anything, also when
        // only the copy of the geometry is left.
        let name = Path::new(&device).file_name().unwrap().to_str().unwrap();
        let uuid = succeed(minfs(&["stat", &device]));
        let uuid = uuid.lines().find_map(|line| line.strip_prefix("UUID=")).unwrap();
        let refused = minfs(&["mkfs", &device]);
        assert_eq!(refused.status.code(), Some(2));
        let expected = format!("minfs (label 'keep me', UUID {uuid}, at byte 0x0)");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(&expected), "{refused:?}");
        let claimed = block::claim::claim(Path::new(&device), name).map(drop);
        assert!(claimed.unwrap_err().to_string().contains(&expected));
        let permission = format!("{name}:minfs");
        let claimed = block::claim::claim(Path::new(&device), &permission).unwrap();
        claimed.file().write_all_at(&[0; 4096], 0).unwrap();
        drop(claimed);
        let refused = block::claim::claim(Path::new(&device), name).map(drop).unwrap_err();
        assert!(refused.to_string().contains("at byte 0x3fff000)"), "{refused}");
        assert_eq!(minfs(&["fsck", "--repair", &device]).status.code(), Some(1));
        succeed(minfs(&["mount", &device, point.to_str().unwrap()]));
        fs::write(point.join("a"), b"x").unwrap();
        // Taken: neither a second mount nor a check nor another file system gets it.
        let second = directory.path().join("second");
        fs::create_dir(&second).unwrap();
        let taken = minfs(&["mount", &device, second.to_str().unwrap()]);
        assert_eq!(taken.status.code(), Some(32));
        assert!(String::from_utf8_lossy(&taken.stderr).contains("mounted at"));
        assert_eq!(minfs(&["fsck", &device]).status.code(), Some(8));
        assert!(!run("mkfs.ext4", &["-q", "-F", &device]).status.success());
        succeed(minfs(&["umount", point.to_str().unwrap()]));
        succeed(minfs(&["fsck", "-n", &device]));
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    run("losetup", &["--detach", &device]);
    assert!(outcome.is_ok());
}

#[test]
fn open_unlinked_files_and_direct_io_work() {
    let Some(mount) = Mount::new("64M", "rw") else { return };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let file = options.open(mount.path("gone")).unwrap();
    file.write_all_at(&pattern(50_000, 5), 0).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    fs::write(mount.path("gone"), b"another").unwrap();
    let mut back = vec![0; 50_000];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == pattern(50_000, 5));
    drop(file);
    let direct = options.custom_flags(libc::O_DIRECT).open(mount.path("direct")).unwrap();
    let mut data = block::AlignedBuffer::zeroed(1 << 20);
    data.copy_from_slice(&pattern(1 << 20, 6));
    direct.write_all_at(&data, 0).unwrap();
    direct.write_all_at(&data[..4096], 8192).unwrap();
    // A reader through the page cache sees it.
    let content = fs::read(mount.path("direct")).unwrap();
    assert!(content[8192..12_288] == data[..4096] && content[12_288..] == data[12_288..]);
    drop(direct);
    mount.umount();
    assert_eq!(mount.fsck(), 0);
}

/// A database in both of its modes: a journal that comes and goes, and a log beside a shared map.
#[test]
fn a_database_survives_a_killed_daemon() {
    const SCRIPT: &str = "\
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute('pragma journal_mode=' + sys.argv[2])
base.execute('pragma synchronous=full')
if sys.argv[3] == 'write':
    base.execute('create table t (k integer primary key, v blob)')
    for k in range(60):
        base.execute('insert into t values (?, randomblob(3000))', (k,))
    # Neither closed nor told.
    import os
    os._exit(0)
print(base.execute('pragma integrity_check').fetchone()[0], base.execute('select count(*) from t').fetchone()[0])
";
    let python = |arguments: &[&str]| run("python3", &[&["-c", SCRIPT], arguments].concat());
    let has = Command::new("python3").args(["-c", "import sqlite3"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: this needs python3 with sqlite3");
        return;
    }
    for mode in ["delete", "wal"] {
        let Some(mount) = Mount::new("64M", "rw") else { return };
        let path = mount.path("base");
        let path = path.to_str().unwrap();
        succeed(python(&[path, mode, "write"]));
        mount.signal(rustix::process::Signal::KILL);
        rustix::mount::unmount(mount.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
        assert_eq!(mount.fsck(), 0);
        mount.mount();
        assert_eq!(succeed(python(&[path, mode, "read"])), "ok 60\n", "{mode}");
        mount.umount();
        assert_eq!(mount.fsck(), 0);
    }
}

#[test]
fn fsx_finds_nothing() {
    let program = std::env::var("MINFS_FSX").unwrap_or_else(|_| "fsx".into());
    if Command::new(&program).arg("--version").output().is_err() {
        eprintln!("SKIPPED: fsx is not installed; `cargo install fsx` does it");
        return;
    }
    let operations = std::env::var("MINFS_FSX_OPERATIONS").unwrap_or_else(|_| "3000".into());
    // An operation of no bytes is one that posix_fallocate(3) refuses, rightly.
    let config = "opsize.min = 1\n[weights]\npunch_hole = 0\nfsync = 1\nposix_fallocate = 1\n";
    for (options, alignment) in [("rw", 1), ("direct_io", 4096), ("writeback_cache", 1)] {
        let Some(mount) = Mount::new("64M", options) else { return };
        let path = mount.directory.path().join("fsx.toml");
        // With blocks only, fsx asks for empty reservations at the end of the file.
        let config = if alignment > 1 {
            format!(
                "opsize.align = {alignment}\n{config}mapread = 0\nmapwrite = 0\ninvalidate = 0\n"
            )
            .replace("opsize.min = 1\n", "")
            .replace("posix_fallocate = 1", "posix_fallocate = 0")
        } else {
            config.to_string()
        };
        fs::write(&path, config).unwrap();
        let (config, file) = (path.to_str().unwrap(), mount.path("f"));
        let artifacts = mount.directory.path().to_str().unwrap();
        let file = file.to_str().unwrap();
        let seed = alignment.to_string();
        succeed(run(
            &program,
            &["-q", "-N", &operations, "-S", &seed, "-f", config, "-P", artifacts, file],
        ));
        mount.umount();
        assert_eq!(mount.fsck(), 0);
    }
}

#[test]
fn fio_verifies_eight_jobs() {
    if Command::new("fio").arg("--version").output().is_err() {
        eprintln!("SKIPPED: fio is not installed");
        return;
    }
    let Some(mount) = Mount::new("256M", "rw") else { return };
    let directory = format!("--directory={}", mount.root_text());
    for direct in ["--direct=1", "--direct=0"] {
        succeed(run(
            "fio",
            &[
                "--name=verify",
                &directory,
                direct,
                "--numjobs=8",
                "--size=8M",
                "--rw=randwrite",
                "--bsrange=4k-128k",
                "--blockalign=4k",
                "--ioengine=psync",
                "--verify=crc32c",
                "--do_verify=1",
                "--verify_fatal=1",
                "--fsync=32",
                "--group_reporting",
                "--fallocate=keep",
            ],
        ));
    }
    mount.umount();
    assert_eq!(mount.fsck(), 0);
}

#[test]
fn a_mount_that_lives_on_in_another_namespace_is_told_with_who_holds_it() {
    let Some(mount) = Mount::new("16M", "rw") else { return };
    let mut holder = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 60"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let output = minfs(&["umount", &mount.root_text()]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("another mount namespace, that of process"), "{said}");
    assert_eq!(mount.fsck(), 0);
}

#[test]
fn what_is_mounted_over_a_volume_is_not_unmounted_for_it() {
    let Some(mount) = Mount::new("16M", "rw") else { return };
    let tmpfs = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        assert!(command.args(arguments).arg(mount.root_text()).status().unwrap().success());
    };
    tmpfs("mount", &["-t", "tmpfs", "none"]);
    let file_system = || fs::metadata(mount.root_text()).unwrap().dev();
    let above = file_system();
    let output = minfs(&["umount", &mount.root_text()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    mount.signal(rustix::process::Signal::TERM);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(file_system(), above);
    tmpfs("umount", &[]);
    mount.umount();
    assert_eq!(mount.fsck(), 0);
}

#[test]
fn a_volume_whose_image_was_removed_meanwhile_is_unmounted() {
    let Some(mount) = Mount::new("16M", "rw") else { return };
    fs::write(mount.path("a"), pattern(100_000, 1)).unwrap();
    fs::remove_file(mount.image()).unwrap();
    mount.umount();
    assert!(!mount.is_mounted());
}
