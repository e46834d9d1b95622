//! What the claim must refuse because the kernel has it in use, though no path in `/dev` says so.
//! Needs root and loop devices; says so and passes where there are none.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

mod common;
use common::{Loop, run};

/// Something to be undone when the test ends, however it ends.
struct Undo(Vec<String>);

impl Undo {
    fn with(words: &[&str]) -> Undo {
        Undo(words.iter().map(ToString::to_string).collect())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = Command::new(&self.0[0]).args(&self.0[1..]).output();
    }
}

/// A process that has said that it is ready, and that is killed when dropped.
struct Holder(Child);

impl Holder {
    /// Runs `script` in a shell, with `arguments` as `$1` and so on; it says `ready` and sleeps.
    fn start(wrapper: &[&str], script: &str, arguments: &[&str]) -> Holder {
        let words: Vec<&str> = [wrapper, &["sh", "-ec", script, "sh"], arguments].concat();
        let mut child =
            Command::new(words[0]).args(&words[1..]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let holder_output = child.stdout.take().unwrap();
        let holder = Holder(child);
        BufReader::new(holder_output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{words:?}");
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node of the device outside of `/dev`.
fn node_outside(device: &Path, directory: &Path) -> PathBuf {
    let node = directory.join("node");
    let number = fs::read_to_string(format!("/sys/class/block/{}/dev", common::name_of(device)));
    let number = number.unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    run(&["mknod", &text(&node), "b", major, minor]);
    node
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Attaches another loop device to `target`; it is detached when the second value is dropped.
fn looped(target: &Path) -> (String, Undo) {
    let node = run(&["losetup", "--find", "--show", &text(target)]).trim().to_string();
    let undo = Undo::with(&["losetup", "--detach", &node]);
    (node, undo)
}

fn mounted(node: &str, point: &Path) -> Undo {
    run(&["mount", node, &text(point)]);
    Undo::with(&["umount", &text(point)])
}

#[test]
fn a_loop_over_a_node_that_was_deleted_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    run(&["mkfs.ext4", "-q", "-F", &device.text()]);
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let point = tempfile::tempdir().unwrap();
    let node = node_outside(&device.node, directory.path());
    let (upper, _detach) = looped(&node);
    fs::remove_file(node).unwrap();
    let refusal = device.refusal(&format!("{}:ext4", device.name()));
    let expected = format!("{} is built on {}", common::name_of(Path::new(&upper)), device.name());
    assert!(refusal.contains(&expected), "{refusal}");
    let _unmount = mounted(&upper, point.path());
    let refusal = device.refusal(&format!("{}:ext4", device.name()));
    assert!(refusal.contains(&expected) && refusal.contains("is mounted on"), "{refusal}");
}

#[test]
fn a_loop_over_a_node_in_another_mount_namespace_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let number = fs::read_to_string(format!("/sys/class/block/{}/dev", device.name())).unwrap();
    let minor = number.trim().split_once(':').unwrap().1.to_string();
    let script = "mount -t tmpfs none \"$1\"; mknod \"$1/node\" b 7 \"$2\"
        losetup --find --show \"$1/node\" > \"$3\"; echo ready; exec sleep 60";
    let said = tempfile::NamedTempFile::new().unwrap();
    let arguments = [&*text(directory.path()), &*minor, &*text(said.path())];
    let _holder = Holder::start(&["unshare", "--mount"], script, &arguments);
    let upper = fs::read_to_string(said.path()).unwrap().trim().to_string();
    let _detach = Undo::with(&["losetup", "--detach", &upper]);
    let refusal = device.refusal(&device.name());
    let expected = format!("{} is built on {}", common::name_of(Path::new(&upper)), device.name());
    assert!(refusal.contains(&expected), "{refusal}");
}

#[test]
fn an_image_on_a_second_loop_device_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    run(&["mkfs.ext4", "-q", "-F", &device.text()]);
    let point = tempfile::tempdir().unwrap();
    // By another name of the same inode, so that no path tells.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let link = directory.path().join("link");
    fs::hard_link(device.image(), &link).unwrap();
    let (second, _detach) = looped(&link);
    let second_name = common::name_of(Path::new(&second));
    let permission = format!("{}:ext4", device.name());
    let expected = format!("{second_name} is attached to the same image");
    let refusal = device.refusal(&permission);
    assert!(refusal.contains(&expected), "{refusal}");
    let _unmount = mounted(&second, point.path());
    let refusal = device.refusal(&permission);
    assert!(refusal.contains(&expected) && refusal.contains("is mounted on"), "{refusal}");
}

#[test]
fn parts_of_one_image_that_lie_apart_are_no_business_of_each_others() {
    // Says why where there are no loop devices.
    let Some(_) = Loop::of_megabytes(1) else { return };
    let image = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    image.as_file().set_len(32 << 20).unwrap();
    let part = |offset: &str| {
        let image = text(image.path());
        let limit = ["--sizelimit", "8388608", &image];
        let node = run(&[&["losetup", "--find", "--show", "-o", offset], &limit[..]].concat());
        let detach = Undo::with(&["losetup", "--detach", node.trim()]);
        (PathBuf::from(node.trim()), detach)
    };
    let (first, _first) = part("0");
    let (_second, _detach) = part("8388608");
    let name = common::name_of(&first);
    drop(common::granted(&first, &name));
    // While it comes and goes, too: where it lies is asked together with what it is attached to.
    std::thread::scope(|scope| {
        let coming = scope.spawn(|| (0..100).for_each(|_| drop(part("16777216"))));
        while !coming.is_finished() {
            block::tool::check_not_attached(&first).unwrap();
        }
    });
    let (_across, _detach) = part("4194304");
    assert!(common::refusal(&first, &name).contains("attached to the same image"));
}

#[test]
fn an_image_that_a_process_has_open_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let script = "exec < \"$1\"; echo ready; exec sleep 60";
    let _holder = Holder::start(&[], script, &[&text(device.image())]);
    let refusal = device.refusal(&device.name());
    assert!(refusal.contains("the image behind it open"), "{refusal}");
}

#[test]
fn a_process_that_opened_a_node_outside_of_dev_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let node = node_outside(&device.node, directory.path());
    let script = "exec < \"$1\"; rm \"$1\"; echo ready; exec sleep 60";
    let holder = Holder::start(&[], script, &[&text(&node)]);
    let refusal = device.refusal(&device.name());
    assert!(refusal.contains(&format!("process {} (", holder.0.id())), "{refusal}");
    assert!(refusal.contains("has it open"), "{refusal}");
    drop(holder);

    let minor = fs::read_to_string(format!("/sys/class/block/{}/dev", device.name())).unwrap();
    let minor = minor.trim().split_once(':').unwrap().1.to_string();
    let script = "mount -t tmpfs none \"$1\"; mknod \"$1/node\" b 7 \"$2\"
        exec < \"$1/node\"; echo ready; exec sleep 60";
    let arguments = [&*text(directory.path()), &*minor];
    let _holder = Holder::start(&["unshare", "--mount"], script, &arguments);
    let refusal = device.refusal(&device.name());
    assert!(refusal.contains("has it open"), "{refusal}");
}

#[test]
fn a_partition_whose_disk_is_open_or_looped_is_refused() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let partition = device.divide(2048);
    let (part, name) = (&partition.node, partition.name());
    common::granted(part, &name);
    let script = "exec < \"$1\"; echo ready; exec sleep 60";
    let holder = Holder::start(&[], script, &[&device.text()]);
    let refusal = common::refusal(part, &name);
    assert!(refusal.contains(&format!("has {} open", device.name())), "{refusal}");
    drop(holder);
    let (disk_loop, detach) = looped(&device.node);
    let refusal = common::refusal(part, &name);
    let disk_loop = common::name_of(Path::new(&disk_loop));
    let expected = format!("{disk_loop} is built on {}", device.name());
    assert!(refusal.contains(&expected), "{refusal}");
    drop(detach);
    // The image of the disk, looped elsewhere, holds the same bytes as well.
    let (second, _detach) = looped(device.image());
    let refusal = common::refusal(part, &name);
    let second = common::name_of(Path::new(&second));
    assert!(refusal.contains(&format!("{second} is attached to the same image")), "{refusal}");
}

#[test]
fn a_disk_whose_partition_is_open_or_looped_is_refused_with_the_user() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    let partition = device.divide(2048);
    let part = &partition.node;
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let node = node_outside(part, directory.path());
    let script = "exec < \"$1\"; rm \"$1\"; echo ready; exec sleep 60";
    let _holder = Holder::start(&[], script, &[&text(&node)]);
    let refusal = device.refusal(&device.name());
    assert!(refusal.contains(&format!("has {}p1 open", device.name())), "{refusal}");
    let (upper, _detach) = looped(part);
    let refusal = device.refusal(&device.name());
    let upper = common::name_of(Path::new(&upper));
    assert!(refusal.contains(&format!("{upper} is built on {}p1", device.name())), "{refusal}");
}

#[test]
fn a_loop_over_a_disk_in_use_is_refused_as_the_disk_is() {
    let Some(device) = Loop::of_megabytes(32) else { return };
    run(&["mkfs.ext4", "-q", "-F", &device.text()]);
    let point = tempfile::tempdir().unwrap();
    let (upper, _detach) = looped(&device.node);
    let upper_name = common::name_of(Path::new(&upper));
    let permission = format!("{upper_name}:ext4");
    common::granted(Path::new(&upper), &permission);
    let _unmount = mounted(&device.text(), point.path());
    let refusal = common::refusal(Path::new(&upper), &permission);
    assert!(refusal.contains(&format!("{} is mounted on", device.name())), "{refusal}");
}

#[test]
fn a_member_of_a_btrfs_of_two_devices_is_refused_whatever_is_named() {
    let Some(first) = Loop::of_megabytes(128) else { return };
    let Some(second) = Loop::of_megabytes(128) else { return };
    run(&["mkfs.btrfs", "-q", "-f", "-d", "raid1", "-m", "raid1", &first.text(), &second.text()]);
    for device in [&first, &second] {
        let refusal = device.refusal(&format!("{}:btrfs", device.name()));
        assert!(refusal.contains("one of 2 devices"), "{refusal}");
        assert!(refusal.contains("wipefs") && !refusal.contains("--destroy"), "{refusal}");
    }
    // Alone it is a file system like any other.
    run(&["mkfs.btrfs", "-q", "-f", &first.text()]);
    common::granted(&first.node, &format!("{}:btrfs", first.name()));
}

/// Gives a device a world wide name, as a disk of a storage network has it, in this thread's mount
/// namespace: a copy of what sysfs has of it lies over that.
fn name_in_the_world(device: &Loop, wwid: &str, copies: &Path) {
    let from = PathBuf::from("/sys/devices/virtual/block").join(device.name());
    let copy = copies.join(device.name());
    let copy_directory = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            if entry.file_type().unwrap().is_file()
                && let Ok(bytes) = fs::read(entry.path())
            {
                fs::write(to.join(entry.file_name()), bytes).unwrap();
            }
        }
    };
    copy_directory(&from, &copy);
    for below in ["holders", "slaves", "loop", &format!("{}p1", device.name())] {
        if from.join(below).exists() {
            copy_directory(&from.join(below), &copy.join(below));
        }
    }
    fs::write(copy.join("wwid"), wwid).unwrap();
    rustix::mount::mount_bind(&copy, &from).unwrap();
}

/// Puts this thread into a mount namespace of its own.
fn leave_mounts_of_others() {
    use rustix::mount::{MountPropagationFlags, mount_change};
    #[allow(deprecated)]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
}

#[test]
fn another_path_to_the_same_disk_that_is_in_use_is_refused() {
    let (Some(named), Some(other)) = (Loop::of_megabytes(32), Loop::of_megabytes(32)) else {
        return;
    };
    leave_mounts_of_others();
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (copies, point) = (home.path().join("copies"), home.path().join("point"));
    fs::create_dir(&point).unwrap();
    for device in [&named, &other] {
        name_in_the_world(device, "naa.600508b1001c0001\n", &copies);
    }
    // Not in use, it is no objection.
    common::granted(&named.node, &named.name());

    run(&["mkfs.ext4", "-q", "-F", &other.text()]);
    run(&["mount", &other.text(), &text(&point)]);
    let mounted = named.refusal(&named.name());
    run(&["umount", &text(&point)]);
    let held = fs::File::options().read(true).custom_flags(libc::O_EXCL).open(&other.node).unwrap();
    let exclusive = named.refusal(&named.name());
    drop(held);
    let reader = Holder::start(&[], "exec 3< $1; echo ready; exec sleep 60", &[&other.text()]);
    let open = named.refusal(&named.name());
    drop(reader);

    let path = format!("{} is another path to the same disk (WWID naa.", other.name());
    for refusal in [&mounted, &exclusive, &open] {
        assert!(refusal.contains(&path) && !refusal.contains("--destroy"), "{refusal}");
    }
    assert!(mounted.contains(&format!("{} is mounted on", other.name())), "{mounted}");
    assert!(open.contains(&format!("has {} open", other.name())), "{open}");
    common::granted(&named.node, &named.name());
}

#[test]
fn of_a_partition_only_what_overlaps_on_the_other_path_counts() {
    let (Some(named), Some(other)) = (Loop::of_megabytes(32), Loop::of_megabytes(32)) else {
        return;
    };
    leave_mounts_of_others();
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let part = named.divide(2048);
    for (start_sector, overlaps) in [(2048, true), (8192, true), (20480, false)] {
        let there = other.divide(start_sector);
        let copies = home.path().join(start_sector.to_string());
        for device in [&named, &other] {
            name_in_the_world(device, "naa.600508b1001c0002\n", &copies);
        }
        let held = fs::File::options().read(true).custom_flags(libc::O_EXCL).open(&there.node);
        let held = held.unwrap();
        if overlaps {
            let refusal = common::refusal(&part.node, &part.name());
            let path = format!("{} is another path to the same disk", other.name());
            assert!(refusal.contains(&path), "{start_sector}: {refusal}");
        } else {
            drop(common::granted(&part.node, &part.name()))
        }
        drop(held);
        for device in [&named, &other] {
            run(&["umount", &format!("/sys/devices/virtual/block/{}", device.name())]);
        }
    }
}
