//! A device that is pinned for a study: it is the same one to the end, and nobody else's.

use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use std::{fs, io};

use block::claim::{ClaimError, DeviceIdentity, Pinned};

mod common;
use common::{Loop, run};

fn pinned(path: &Path, destroy: &str) -> Pinned {
    common::granted(path, destroy).into_pinned()
}

fn error(outcome: io::Result<impl std::fmt::Debug>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn the_path_that_was_given_is_not_resolved_again() {
    let Some(first) = Loop::of_megabytes(64) else { return };
    let Some(second) = Loop::of_megabytes(32) else { return };
    run(&["mkfs.ext4", "-q", "-F", "-L", "foreign", &second.text()]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    symlink(&first.node, &path).unwrap();
    let pinned = pinned(&path, &first.name());
    pinned.check().unwrap();

    let number = fs::metadata(&first.node).unwrap().rdev();
    let is_first = |device: fs::File| assert_eq!(device.metadata().unwrap().rdev(), number);
    // To another disk, to what is no disk, to nothing.
    let instead: [&dyn Fn(); 3] = [
        &|| symlink(&second.node, &path).unwrap(),
        &|| drop(run(&["mkfifo", &path.display().to_string()])),
        &|| (),
    ];
    for change in instead {
        let _ = fs::remove_file(&path);
        change();
        pinned.check().unwrap();
        is_first(pinned.open(true).unwrap());
        is_first(pinned.claim_again(&[]).unwrap());
        let elsewhere = fs::File::options().write(true).open(pinned.descriptor_path()).unwrap();
        pinned.identity().verify(&elsewhere, &path).unwrap();
        is_first(elsewhere);
    }
    assert!(run(&["blkid", "--probe", &second.text()]).contains("foreign"));
    let other = fs::File::open(&second.node).unwrap();
    let text = error(pinned.identity().verify(&other, &path));
    let expected = "is another one than the one that was granted: ";
    assert!(text.contains(expected) && text.contains("size 32 MiB, was 64 MiB"), "{text}");
}

#[test]
fn another_image_of_the_same_size_on_the_same_node_is_another_device() {
    for _ in 0..10 {
        let Some(device) = Loop::of_megabytes(32) else { return };
        let identity = pinned(&device.node, &device.name()).identity().clone();
        let image = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        image.as_file().set_len(32 << 20).unwrap();
        run(&["losetup", "--detach", &device.text()]);
        let attach = ["losetup", &device.text(), &image.path().display().to_string()];
        let attached = std::process::Command::new(attach[0]).args(&attach[1..]).output().unwrap();
        if !attached.status.success() {
            // Somebody else on this machine was faster.
            continue;
        }
        let other = fs::File::open(&device.node).unwrap();
        let text = error(identity.verify(&other, &device.node));
        assert!(text.contains("diskseq ") && !text.contains("size "), "{text}");
        return;
    }
    panic!("no loop device could be attached a second time");
}

#[test]
fn a_disk_that_is_detached_and_one_that_shrinks_are_seen() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let pinned = pinned(&device.node, &device.name());
    let file = fs::File::options().write(true).open(device.image()).unwrap();
    file.set_len(16 << 20).unwrap();
    run(&["losetup", "--set-capacity", &device.text()]);
    let text = error(pinned.check());
    assert!(text.contains(": size 16 MiB, was 32 MiB; nothing"), "{text}");
    file.set_len(32 << 20).unwrap();
    run(&["losetup", "--set-capacity", &device.text()]);
    pinned.check().unwrap();
    // What is held cannot be exchanged: the kernel keeps the image to the last user.
    run(&["losetup", "--detach", &device.text()]);
    pinned.check().unwrap();
    assert!(!run(&["losetup", "--noheadings", "--list", &device.text()]).is_empty());
}

#[test]
fn nobody_else_gets_a_pinned_device_between_two_trials() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let first = pinned(&device.node, &device.name());
    let refusal = device.refusal(&device.name());
    let expected = format!("another kurabe (pid {}) is using it", std::process::id());
    assert!(refusal.contains(&expected) && !refusal.contains("--destroy"), "{refusal}");
    // By another node too: the number is what is locked.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let node = directory.path().join("node");
    run(&["cp", "--archive", &device.text(), &node.display().to_string()]);
    assert!(common::refusal(&node, &device.name()).contains(&expected));
    drop(first);
    common::granted(&device.node, &device.name());
}

#[test]
fn a_pinned_device_is_claimed_again_when_only_our_own_trials_were_on_it() {
    let Some(device) = Loop::of_megabytes(64) else { return };
    let pinned = pinned(&device.node, &device.name());
    let point = tempfile::tempdir().unwrap();
    let point = point.path().display().to_string();
    // mkfs and mount take it exclusively though it is pinned.
    run(&["mkfs.ext4", "-q", "-F", &device.text()]);
    let left = pinned.signatures().unwrap();
    run(&["mount", &device.text(), &point]);
    let mounted = pinned.claim_again(&left).map(drop);
    let busy = pinned.open(true).map(drop);
    run(&["umount", &point]);
    let refusal = mounted.unwrap_err().to_string();
    assert!(refusal.contains("is mounted on") && !refusal.contains("--destroy"), "{refusal}");
    assert_eq!(busy.unwrap_err().raw_os_error(), Some(16));

    // A namespace that was made beside us may have a copy of the mount.
    let held = std::iter::repeat_with(|| pinned.claim_again(&left))
        .take(600)
        .find_map(|held| held.inspect_err(|_| sleep(Duration::from_millis(50))).ok())
        .unwrap();
    held.write_all_at(&[0; 4096], 0).unwrap();
    assert!(pinned.open(true).is_err());
    drop(held);
    run(&["mkfs.ext4", "-q", "-F", &device.text()]);
    // The same kind of file system, but not the one that a trial left.
    let refused = pinned.claim_again(&left).unwrap_err();
    assert!(matches!(refused, ClaimError::Refused { sufficient: None, .. }), "{refused}");
    assert!(refused.to_string().contains("carries ext4"), "{refused}");
}

#[test]
fn a_partition_is_known_by_its_start() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let first = device.divide(2048);
    let identity = pinned(&first.node, &first.name()).identity().clone();
    drop(first);
    let second = device.divide(4096);
    let whole = DeviceIdentity::of(&fs::File::open(&device.node).unwrap()).unwrap();
    assert_eq!(identity.partition_start_bytes, Some(1 << 20));
    assert_eq!((whole.diskseq, whole.partition_start_bytes), (identity.diskseq, None));
    let text = error(identity.verify(&fs::File::open(&second.node).unwrap(), &second.node));
    assert!(text.contains("start of the partition 2 MiB, was 1 MiB;"), "{text}");
    // A record of it reads as what was written.
    let text = serde_json::to_string(&identity).unwrap();
    assert_eq!(serde_json::from_str::<DeviceIdentity>(&text).unwrap(), identity);
}
