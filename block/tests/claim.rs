//! The claim against real devices: loop devices that these tests attach themselves. Needs root
//! and loop devices; says so and passes where there are none.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use block::claim::{ClaimError, Use, claim, examine};

mod common;
use common::{Loop, run};

/// Waits until nobody but the tests looks at the device, as udev may.
fn uses(device: &Loop) -> Vec<Use> {
    examine(&device.node).unwrap().uses
}

#[test]
fn a_blank_device_is_granted_and_held() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let granted = common::granted(&device.node, &device.name());
    assert_eq!(granted.findings().size_bytes, 32 << 20);
    granted.file().write_all_at(&[1; 4096], 0).unwrap();
    // Held: nobody else can claim or mount it.
    let refusal = device.refusal(&device.name());
    let expected = format!("another kurabe (pid {}) is using it", std::process::id());
    assert!(refusal.contains(&expected), "{refusal}");
    assert!(refusal.contains("exclusively") && !refusal.contains("--destroy"), "{refusal}");
    drop(granted);
    common::granted(&device.node, &device.text());
    let refusal = common::refusal_of_unused(&device.node, "sda");
    assert!(refusal.contains("not called 'sda'"), "{refusal}");
    assert!(refusal.contains(&format!("--destroy '{}'", device.name())), "{refusal}");
}

#[test]
fn a_mounted_device_is_refused_and_then_its_signature_is_named() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    run(&["mkfs.ext4", "-q", "-F", "-L", "keep me", &device.text()]);
    let point = tempfile::tempdir().unwrap();
    let point_text = point.path().display().to_string();
    run(&["mount", &device.text(), &point_text]);
    let refusal = device.refusal(&format!("{}:ext4", device.name()));
    run(&["umount", &point_text]);
    assert!(refusal.contains(&format!("is mounted on {point_text}")), "{refusal}");

    let refusal = common::refusal_of_unused(&device.node, &device.name());
    assert!(refusal.contains("ext4 (label 'keep me', UUID"), "{refusal}");
    let permission = format!("{}:ext4", device.name());
    assert!(refusal.contains(&format!("--destroy '{permission}'")), "{refusal}");
    common::granted(&device.node, &permission);
}

#[test]
fn a_device_mounted_in_another_namespace_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    run(&["mkfs.ext2", "-q", "-F", &device.text()]);
    let point = tempfile::tempdir().unwrap();
    let script =
        format!("mount {} {} && echo ready && sleep 60", device.text(), point.path().display());
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let refusal = device.refusal(&format!("{}:ext2", device.name()));
    child.kill().unwrap();
    child.wait().unwrap();
    // The shell's child may still sleep in the namespace, which keeps the mount.
    for pid in fs::read_dir("/proc").unwrap().flatten() {
        let text = fs::read_to_string(pid.path().join("mountinfo")).unwrap_or_default();
        if text.contains(&device.text())
            && let Ok(pid) = pid.file_name().to_string_lossy().parse()
        {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    assert!(refusal.contains("is mounted on"), "{refusal}");
}

#[test]
fn swap_is_refused_while_on_and_named_when_off() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    run(&["mkswap", &device.text()]);
    let on = Command::new("swapon").arg(&device.node).output().unwrap();
    if on.status.success() {
        let refusal = device.refusal(&format!("{}:swap", device.name()));
        run(&["swapoff", &device.text()]);
        assert!(refusal.contains("used as swap"), "{refusal}");
    } else {
        eprintln!("SKIPPED: swapon: {}", String::from_utf8_lossy(&on.stderr));
    }
    assert!(device.refusal(&device.name()).contains("it carries swap"));
    common::granted(&device.node, &format!("{}:swap", device.name()));
}

#[test]
fn a_divided_device_is_refused_and_its_partition_is_looked_through() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let part = device.divide(2048);
    let part_text = part.node.display().to_string();
    let permission = format!("{}:ext4", part.name());
    let point = tempfile::tempdir().unwrap();
    run(&["mkfs.ext4", "-q", "-F", &part_text]);
    run(&["mount", &part_text, &point.path().display().to_string()]);
    let refusal = device.refusal(&device.name());
    let own = claim(&part.node, &permission);
    run(&["umount", &point.path().display().to_string()]);
    assert!(refusal.contains("has the partition"), "{refusal}");
    assert!(refusal.contains("p1 is mounted on"), "{refusal}");
    assert!(own.unwrap_err().to_string().contains("is mounted on"));
    assert_eq!(common::granted(&part.node, &permission).findings().size_bytes, 8192 * 512);
}

#[test]
fn members_of_groups_are_refused_whatever_is_named() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    // A physical volume of LVM: the label header in the second sector.
    let mut label = [0; 512];
    label[..8].copy_from_slice(b"LABELONE");
    label[8] = 1;
    label[20] = 32;
    label[24..32].copy_from_slice(b"LVM2 001");
    let checksum = lvm_checksum(&label[20..]);
    label[16..20].copy_from_slice(&checksum.to_le_bytes());
    device.write(512, &label);
    let refusal = device.refusal(&format!("{}:LVM2_member", device.name()));
    assert!(refusal.contains("LVM2_member") && refusal.contains("wipefs"), "{refusal}");
    assert!(!refusal.contains("--destroy"), "{refusal}");
    device.write(512, &[0; 512]);

    // A member of an md array, metadata 0.90: the superblock in the last whole 64 KiB.
    let mut superblock = [0u8; 4096];
    superblock[..4].copy_from_slice(&0xa92b_4efcu32.to_le_bytes());
    superblock[4..12].copy_from_slice(&[0, 0, 0, 0, 90, 0, 0, 0]);
    device.write((32 << 20) - (64 << 10), &superblock);
    let refusal = device.refusal(&format!("{}:linux_raid_member", device.name()));
    assert!(refusal.contains("linux_raid_member"), "{refusal}");
    device.write((32 << 20) - (64 << 10), &[0; 4096]);

    // A partition table without a partition that the kernel knows.
    let mut table = [0; 512];
    table[510] = 0x55;
    table[511] = 0xaa;
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 3, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    device.write(0, &table);
    let refusal = device.refusal(&format!("{}:dos", device.name()));
    assert!(refusal.contains("carries dos"), "{refusal}");
    device.write(0, &[0; 512]);
    common::granted(&device.node, &device.name());
}

/// LVM's CRC-32: the usual polynomial, another start, no inversion.
fn lvm_checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xf597_a6cf, |mut checksum: u32, byte| {
        checksum ^= u32::from(*byte);
        for _ in 0..8 {
            checksum = (checksum >> 1) ^ (0xedb8_8320 & (checksum & 1).wrapping_neg());
        }
        checksum
    })
}

#[test]
fn a_mounted_btrfs_is_seen_though_its_device_number_is_made_up() {
    let Some(device) = Loop::of_megabytes(256) else { return };
    run(&["mkfs.btrfs", "-q", "-f", &device.text()]);
    let point = tempfile::tempdir().unwrap();
    run(&["mount", &device.text(), &point.path().display().to_string()]);
    let refusal = device.refusal(&format!("{}:btrfs", device.name()));
    run(&["umount", &point.path().display().to_string()]);
    assert!(refusal.contains("part of the mounted Btrfs"), "{refusal}");
    common::granted(&device.node, &format!("{}:btrfs", device.name()));
}

#[test]
fn a_device_that_something_is_built_on_or_that_is_open_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let upper = run(&["losetup", "--find", "--show", &device.text()]);
    let refusal = device.refusal(&device.name());
    run(&["losetup", "--detach", upper.trim()]);
    assert!(refusal.contains(&format!("is built on {}", device.name())), "{refusal}");

    let mut reader =
        Command::new("sh").args(["-c", "exec sleep 60 < \"$0\"", &device.text()]).spawn().unwrap();
    let refusal = (0..100)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let uses = uses(&device);
            uses.iter().any(|using| matches!(using, Use::OpenBy { .. })).then_some(uses)
        })
        .map(|_| device.refusal(&device.name()));
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(refusal.unwrap().contains("(sleep) has it open"));
    common::granted(&device.node, &device.name());
}

#[test]
fn what_is_no_device_or_cannot_be_written_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = claim(file.path(), "x").unwrap_err().to_string();
    assert!(error.contains("not a block device"), "{error}");
    let error = claim(Path::new("/dev/null"), "null").unwrap_err().to_string();
    assert!(error.contains("not a block device"), "{error}");
    let error = claim(Path::new("/dev/no-such-disk"), "x").unwrap_err();
    assert!(matches!(error, ClaimError::System { .. }), "{error}");
    let Some(device) = Loop::of_megabytes(32) else { return };
    run(&["blockdev", "--setro", &device.text()]);
    let refusal = device.refusal(&device.name());
    run(&["blockdev", "--setrw", &device.text()]);
    assert!(refusal.contains("read-only"), "{refusal}");
}
