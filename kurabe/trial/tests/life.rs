//! Whole lives: a device is prepared, attached, formatted, mounted, used, unmounted, checked and
//! given back. Needs root and loop devices; says so and passes where there are none.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::contender::Contender;
use lab::spec::Device;
use lab::watched::{self, DisturbanceCause, Watched};
use measure::durable::{WholeSync, run_words};
use trial::device::{
    self, AttachSite, Attached, BlockDeviceFacts, DeviceError, DeviceRequest, PreparedDevice,
};
use trial::filesystem::{self, InstanceContext};
use trial::host_proc::HostProc;
use trial::scratch::Occupied;
use trial::stop::StopFlag;
use trial::tool::{Toolbox, find};
use trial::watch::Watch;
use trust::Directory;
use workloads::counters::DeviceCounters;

/// Whether this machine lets the tests use loop devices. Moves the calling thread into a mount
/// namespace of its own, as a trial does.
fn private_root() -> bool {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("SKIPPED: needs root and /dev/loop-control");
        return false;
    }
    // The thread shares no descriptors' table that this could split: only mounts are unshared.
    #[allow(deprecated)]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
    let private =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    true
}

/// The loop devices whose file lies, or lay, in this directory.
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

/// The scratch directory of a trial in `home`.
fn scratch(home: &Path, number: usize) -> Arc<Occupied> {
    let path = home.join(format!("kurabe-scratch-{number}"));
    fs::create_dir(&path).unwrap();
    Arc::new(Occupied::enter(&path).unwrap())
}

/// Bytes of the image that the host has allocated.
fn allocated_bytes(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// One trial's worth of hooks, in their order.
fn live(contender: &Contender, device: &Device, scratch: &Arc<Occupied>) {
    let file_system = filesystem::by_name(contender.file_system()).unwrap();
    assert_eq!(filesystem::missing(file_system), Vec::<String>::new());
    let discard = filesystem::asks_for_discard(contender);
    let attached = attach(device, discard, scratch).unwrap();
    assert_eq!(attached.notes(), Vec::<String>::new().as_slice());
    let facts = BlockDeviceFacts::of_node(attached.node().path()).unwrap();
    assert_eq!(facts.queue["discard_max_bytes"] == "0", !discard, "{contender:?}");
    let stage = InstanceContext::new(
        contender,
        Some(attached.node()),
        attached.size_bytes(),
        discard,
        scratch,
    );
    let mut instance = file_system.begin(stage);
    let bound = Instant::now() + Duration::from_secs(120);
    let mut tools = Toolbox::new(Some(bound), StopFlag::default());
    instance.make(&mut tools).unwrap();
    let geometry = instance.geometry(&mut tools).unwrap();
    assert!(geometry.len() > 200, "{geometry}");
    instance.mount(&mut tools).unwrap();
    let directory = instance.directory();
    fs::write(directory.join("file"), vec![7; 3 << 20]).unwrap();
    fs::create_dir(directory.join("directory")).unwrap();
    instance.cool(&mut tools).unwrap();
    assert_eq!(fs::read(directory.join("file")).unwrap(), vec![7; 3 << 20]);
    fs::remove_file(directory.join("file")).unwrap();
    instance.sync(&mut tools).unwrap();
    instance.unmount(&mut tools).unwrap();
    assert!(!directory.join("directory").exists());
    instance.check(&mut tools).unwrap();
    instance.end(&mut tools).unwrap();
    instance.end(&mut tools).unwrap();
    assert!(tools.commands().len() >= 5, "{:?}", tools.commands());
    let shown = tools.commands().join("\n");
    assert!(!shown.contains("nsenter"), "{shown}");
    let node = attached.node().path().to_path_buf();
    attached.detach().unwrap();
    assert!(!node.exists(), "{}", node.display());
}

fn attach(device: &Device, discard: bool, scratch: &Occupied) -> Result<Attached, DeviceError> {
    let host = HostProc::open().unwrap();
    device::attach(
        device,
        discard,
        &AttachSite { scratch, host: &host, stop: &StopFlag::default() },
    )
}

/// Where the runner holds an image.
fn path_of(device: &Device) -> PathBuf {
    device.prepared["path"].as_str().unwrap().into()
}

fn contender(text: &str) -> Contender {
    Contender::parse(text, &filesystem::known()).unwrap()
}

/// Runs a test on a memory device of its own, with a directory for its files, where that can be had.
fn on_memory(device: &str, test: impl FnOnce(&dyn PreparedDevice, &Path)) {
    if !private_root() {
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let own = Directory::private(&home.path().join("own")).unwrap();
    let request = DeviceRequest::parse(device, None).unwrap();
    let prepared = request.prepare(&own, &StopFlag::default(), &mut |_| {}).unwrap();
    test(&*prepared, home.path());
}

#[test]
fn every_file_system_lives_on_an_image_and_leaves_it_fully_allocated() {
    if !private_root() {
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let own = Directory::private(&home.path().join("own")).unwrap();
    let request = format!("loop:384M@{}", home.path().display());
    let request = DeviceRequest::parse(&request, None).unwrap();
    let mut reports = Vec::new();
    let prepared = request.prepare(&own, &StopFlag::default(), &mut |p| reports.push(p)).unwrap();
    assert_eq!(reports.last().unwrap().done_bytes, 384 << 20);
    assert_eq!(prepared.facts().backing.as_ref().unwrap().directory, home.path());
    let path = path_of(prepared.device());
    let full_bytes = allocated_bytes(&path);
    assert!(full_bytes >= 384 << 20);
    for (number, text) in [
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "zfs-fuse -O compression=on @ noatime",
        "ext4 -E lazy_itable_init=0 @ noatime",
    ]
    .iter()
    .enumerate()
    {
        let scratch = scratch(home.path(), number);
        live(&contender(text), prepared.device(), &scratch);
        assert_eq!(allocated_bytes(&path), full_bytes, "after {text}");
        assert_eq!(loop_devices_in(home.path()), Vec::<String>::new());
    }
    drop(prepared);
    // The number of its descriptor is another test's by now, and so may be its inode; a name it
    // never had.
    assert!(own.names().unwrap().is_empty());
}

#[test]
fn memory_is_a_device_and_holes_are_filled_again() {
    on_memory("mem:384M", |prepared, home| {
        let path = path_of(prepared.device());
        let full_bytes = allocated_bytes(&path);
        for (number, text) in ["ext4", "xfs", "btrfs @ discard=sync", "ext4"].iter().enumerate() {
            let scratch = scratch(home, number);
            if number == 3 {
                // The contender before asked for discards, and so left holes.
                assert!(allocated_bytes(&path) < full_bytes, "mkfs.btrfs discards");
                let attached = attach(prepared.device(), false, &scratch).unwrap();
                assert!(attached.notes()[0].contains("filled again"), "{:?}", attached.notes());
                assert_eq!(allocated_bytes(&path), full_bytes);
                continue;
            }
            live(&contender(text), prepared.device(), &scratch);
        }
    });
}

#[test]
fn parts_stand_side_by_side_and_leave_each_other_alone() {
    on_memory("mem:100M", |prepared, home| {
        let refusal = prepared.part(6, 7).unwrap_err().to_string();
        assert!(refusal.contains("too few for 7 contenders"), "{refusal}");
        let parts: Vec<_> = (0..3)
            .map(|index| {
                let device = prepared.part(index, 3).unwrap();
                let attached = attach(&device, false, &scratch(home, index as usize)).unwrap();
                assert_eq!(attached.size_bytes(), 33 << 20);
                attached
            })
            .collect();
        let own = |index: usize| fs::read(parts[index].node().path()).unwrap();
        let before = [own(0), own(2)];
        assert_eq!(before[0].len(), 33 << 20);
        let written = vec![7; 33 << 20];
        fs::write(parts[1].node().path(), &written).unwrap();
        fs::File::open(parts[1].node().path()).unwrap().sync_all().unwrap();
        let image = fs::read(path_of(prepared.device())).unwrap();
        assert!(image[33 << 20..66 << 20] == written);
        assert!(image[..33 << 20] == before[0] && image[66 << 20..99 << 20] == before[1]);
        // What lies beyond its own part, a trial does not attach.
        let mut device = prepared.part(2, 3).unwrap();
        device.part.as_mut().unwrap().offset_bytes += 2 << 20;
        let refusal = attach(&device, false, &scratch(home, 3)).err().unwrap().to_string();
        assert!(refusal.contains("ends at"), "{refusal}");
    });
}

/// A loop device of the test's own that plays the real disk, detached when dropped.
struct Disk(String);

impl Disk {
    fn on(image: &Path) -> Disk {
        let image = image.display().to_string();
        let mut tools = Toolbox::new(None, StopFlag::default());
        let words = ["losetup", "--find", "--show", "--direct-io=on", &image];
        Disk(tools.expect(&words, "attaching the test's disk").unwrap().stdout.trim().to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let tools = Toolbox::new(None, StopFlag::default());
        tools.run_unlogged(&["losetup", "--detach", &self.0]).unwrap();
    }
}

#[test]
fn a_real_device_is_claimed_filled_used_and_wiped() {
    if !private_root() {
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let image = home.path().join("disk");
    fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
    let disk = Disk::on(&image);
    let name = disk.0.strip_prefix("/dev/").unwrap();
    let own = Directory::private(&home.path().join("own")).unwrap();
    let prepare = |destroy: &str| {
        let request = DeviceRequest::parse(&disk.0, Some(destroy)).unwrap();
        request.prepare(&own, &StopFlag::default(), &mut |_| {})
    };
    let mut tools = Toolbox::new(None, StopFlag::default());
    tools.expect(&["mkfs.ext4", "-q", "-F", &disk.0], "making what stands in the way").unwrap();
    let refusal = prepare(name).err().unwrap().to_string();
    assert!(refusal.contains(&format!("--destroy '{name}:ext4'")), "{refusal}");

    let prepared = prepare(&format!("{name}:ext4")).unwrap();
    assert_eq!(prepared.facts().size_bytes, 320 << 20);
    assert_eq!(prepared.facts().block_device.as_ref().unwrap().name, name);
    let mut start = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(&disk.0).unwrap(), &mut start, 0)
        .unwrap();
    assert!(start.iter().filter(|byte| **byte == 0).count() < 100, "filled with random bytes");
    for (number, text) in ["xfs", "btrfs", "zfs-fuse", "ext4"].iter().enumerate() {
        let scratch = scratch(home.path(), number);
        live_on_real(&contender(text), &*prepared, &scratch);
    }
    drop(prepared);
    // Nothing stands in the way of the same command line any more.
    let findings = block::claim::examine(Path::new(&disk.0)).unwrap();
    assert_eq!((findings.signatures, findings.uses), (vec![], vec![]));
}

/// Makes and mounts only: the device is no loop device of kurabe's, so nothing is removed.
fn live_on_real(contender: &Contender, prepared: &dyn PreparedDevice, scratch: &Arc<Occupied>) {
    drop(prepared.claim_again().unwrap());
    let device = prepared.device();
    let mut attached = attach(device, false, scratch).unwrap();
    let stage = InstanceContext::new(
        contender,
        Some(attached.node()),
        attached.size_bytes(),
        false,
        scratch,
    );
    let mut instance = filesystem::by_name(contender.file_system()).unwrap().begin(stage);
    let mut tools = Toolbox::new(None, StopFlag::default());
    attached.begin_making();
    instance.make(&mut tools).unwrap();
    let marks = attached.note_made(None).unwrap();
    assert!(marks.iter().all(|mark| mark.uuid.as_deref() != Some("")), "{marks:?}");
    assert_eq!(marks.len(), 1, "{marks:?}");
    instance.mount(&mut tools).unwrap();
    fs::write(instance.directory().join("file"), vec![7; 8 << 20]).unwrap();
    // Mounted, it cannot be claimed for another trial.
    let refusal = prepared.claim_again().err().unwrap().to_string();
    let reasons =
        ["is mounted on", "part of the mounted Btrfs", "(zfs-fuse) has it open", "exclusively"];
    assert!(reasons.iter().any(|reason| refusal.contains(reason)), "{refusal}");
    instance.unmount(&mut tools).unwrap();
    instance.check(&mut tools).unwrap();
    instance.end(&mut tools).unwrap();
    // What somebody else has made by then is kept, and the trial says so.
    if contender.file_system() == "ext4" {
        let path = attached.node().path().display().to_string();
        tools.expect(&["mkfs.ext4", "-q", "-F", &path], "making another").unwrap();
        let kept = attached.detach().err().unwrap().to_string();
        assert!(kept.contains("it carries ext4") && kept.contains("did not make"), "{kept}");
        prepared.note_left(device::Left::Marked(&marks));
        let refused = prepared.claim_again().err().unwrap().to_string();
        assert!(refused.contains("which the last run did not make"), "{refused}");
        prepared.note_left(device::Left::Everything);
        return;
    }
    attached.detach().unwrap();
}

/// A file system on a memory device, made and mounted, for the tests of its hooks.
struct Live<'a> {
    instance: Box<dyn filesystem::Instance>,
    attached: device::Attached,
    tools: Toolbox,
    prepared: &'a dyn PreparedDevice,
}

impl<'a> Live<'a> {
    fn begin(prepared: &'a dyn PreparedDevice, text: &str, scratch: &Arc<Occupied>) -> Live<'a> {
        let contender = contender(text);
        let attached = attach(prepared.device(), false, scratch).unwrap();
        let stage = InstanceContext::new(
            &contender,
            Some(attached.node()),
            attached.size_bytes(),
            false,
            scratch,
        );
        let mut instance = filesystem::by_name(contender.file_system()).unwrap().begin(stage);
        let mut tools = Toolbox::new(None, StopFlag::default());
        instance.make(&mut tools).unwrap();
        instance.mount(&mut tools).unwrap();
        Live { instance, attached, tools, prepared }
    }

    fn counters(&self) -> lab::record::DeviceDelta {
        let counters =
            workloads::counters::DeviceCounters::of_node(self.attached.node().path()).unwrap();
        let zero = counters.read().unwrap();
        // The difference to nothing at all.
        zero.since(&Default::default())
    }

    fn end(mut self) {
        self.instance.end(&mut self.tools).unwrap();
        self.attached.detach().unwrap();
    }
}

/// ext4 that leaves nothing to be zeroed in the background.
const EAGER_EXT4: &str = "ext4 -E lazy_itable_init=0,lazy_journal_init=0";

/// Incompressible bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    device::fill::random_bytes(7, 0, &mut bytes);
    bytes
}

#[test]
fn a_sync_leaves_nothing_to_write_and_a_copy_of_the_device_has_the_file() {
    on_memory("mem:384M", |prepared, home| {
        let content = noise(24 << 20);
        let mut contenders = vec!["zfs-fuse", EAGER_EXT4, "xfs", "btrfs"];
        if find("minfs").is_some() {
            contenders.push("minfs-fuse");
        } else {
            eprintln!("SKIPPED: minfs-fuse: minfs is not in PATH (make test puts it there)");
        }
        // Once by the trial's own sync, once by that of a workload, which works in another process.
        let ways = contenders.iter().flat_map(|text| [(*text, false), (*text, true)]);
        for (number, (text, by_workload)) in ways.enumerate() {
            let scratch = scratch(home, number);
            let mut live = Live::begin(prepared, text, &scratch);
            let before = live.counters();
            fs::write(live.instance.directory().join("file"), &content).unwrap();
            if by_workload {
                let command = live.instance.sync_command();
                let sync = command.map_or(WholeSync::Call, WholeSync::Command);
                sync.run(&live.instance.directory()).unwrap();
            } else {
                live.instance.sync(&mut live.tools).unwrap();
            }
            let synced = live.counters();
            assert!(synced.written_bytes - before.written_bytes >= 24 << 20, "{text}");
            assert!(synced.flushes > before.flushes, "{text} flushed the device");
            // What a power cut right now would leave.
            let path = path_of(live.prepared.device());
            let copy = home.join("copy");
            fs::copy(path, &copy).unwrap();
            std::thread::sleep(Duration::from_secs(1));
            let later = live.counters();
            assert!(
                later.written_bytes - synced.written_bytes < 1 << 20,
                "{text} wrote {} bytes after its sync",
                later.written_bytes - synced.written_bytes
            );
            live.end();
            let found = read_from_copy(&copy, text.split(' ').next().unwrap(), home);
            assert!(found == content, "{text}: the file is not in the copy");
        }
    });
}

/// Mounts a copy of a device that was cut off and reads the file.
fn read_from_copy(copy: &Path, file_system: &str, home: &Path) -> Vec<u8> {
    let disk = Disk::on(copy);
    let point = home.join("copy-mount");
    let point_text = point.display().to_string();
    fs::create_dir_all(&point).unwrap();
    let tools = Toolbox::new(None, StopFlag::default());
    let run = |words: &[&str]| {
        let output = tools.run_unlogged(words).unwrap();
        assert_eq!(output.code, 0, "{output:?}");
    };
    if file_system == "minfs-fuse" {
        let out = home.join("copy-file");
        let _ = fs::remove_file(&out);
        run(&["minfs", "get", &disk.0, "file", &out.display().to_string()]);
        return fs::read(out).unwrap();
    }
    if file_system != "zfs-fuse" {
        run(&["mount", "-t", file_system, &disk.0, &point_text]);
        let found = fs::read(point.join("file")).unwrap();
        run(&["umount", &point_text]);
        return found;
    }
    let devices = home.join("copy-devices");
    fs::create_dir_all(&devices).unwrap();
    std::os::unix::fs::symlink(&disk.0, devices.join("disk")).unwrap();
    let script = "mount -t tmpfs tmpfs /run && mkdir -p /run/zfs /run/lock
        mount -t tmpfs tmpfs /var/lib/zfs
        zfs-fuse --no-daemon --no-kstat-mount & daemon=$!
        until zpool list > /dev/null 2>&1; do sleep 0.02; done
        pool=$(zpool import -d $0 | sed -n 's/^ *pool: //p')
        zpool import -f -d $0 $pool
        cp $(zfs get -H -o value mountpoint $pool)/file $1; code=$?
        zpool export $pool; kill -KILL $daemon; exit $code";
    let out = home.join("copy-file");
    run(&[
        "unshare",
        "--mount",
        "sh",
        "-c",
        script,
        &devices.display().to_string(),
        &out.display().to_string(),
    ]);
    fs::remove_file(devices.join("disk")).unwrap();
    fs::read(out).unwrap()
}

#[test]
fn after_cooling_everything_is_read_from_the_device_again() {
    on_memory("mem:384M", |prepared, home| {
        let content = noise(16 << 20);
        for (number, text) in ["zfs-fuse", "ext4", "xfs", "btrfs"].iter().enumerate() {
            let scratch = scratch(home, number);
            let mut live = Live::begin(prepared, text, &scratch);
            fs::write(live.instance.directory().join("file"), &content).unwrap();
            live.instance.sync(&mut live.tools).unwrap();
            let daemon = live.instance.daemon_cpu_ns();
            assert_eq!(daemon.is_some_and(|time| time > 1_000_000), *text == "zfs-fuse");
            // Again, since a cache could hide in something that the first time sets up; the last time as
            // a workload does it.
            for round in 0..4 {
                match live.instance.cool_command().filter(|_| round == 2) {
                    Some(by_workload) => run_words(&by_workload).unwrap(),
                    // As between turns.
                    None if round == 3 => live.instance.cool_alone(&mut live.tools).unwrap(),
                    None => live.instance.cool(&mut live.tools).unwrap(),
                }
                let before = live.counters();
                let file = live.instance.directory().join("file");
                assert!(fs::read(file).unwrap() == content, "{text}");
                let read_bytes = live.counters().read_bytes - before.read_bytes;
                assert!(read_bytes >= 16 << 20, "{text}, round {round}: read only {read_bytes}");
            }
            live.end();
        }
    });
}

/// ext4's journal holds the blocks that it wrote, past one drop of the caches.
#[test]
fn after_cooling_the_inodes_of_many_small_files_are_read_again() {
    on_memory("mem:128M", |prepared, home| {
        for (round, how) in ["cool", "mount anew, cool", "cool alone"].into_iter().enumerate() {
            let scratch = scratch(home, round);
            let mut live = Live::begin(prepared, EAGER_EXT4, &scratch);
            let files = || (0..40).flat_map(|d| (0..50).map(move |f| (d, f)));
            let directory = live.instance.directory();
            let path = |(d, f): (u32, u32)| directory.join(format!("{d}/{f}"));
            for file in files() {
                fs::create_dir_all(path(file).parent().unwrap()).unwrap();
                fs::write(path(file), b"x").unwrap();
            }
            live.instance.sync(&mut live.tools).unwrap();
            if how == "mount anew, cool" {
                live.instance.mount_anew(&mut live.tools).unwrap();
            }
            match how {
                "cool alone" => live.instance.cool_alone(&mut live.tools).unwrap(),
                _ => live.instance.cool(&mut live.tools).unwrap(),
            }
            let before = live.counters();
            files().for_each(|file| assert_eq!(path(file).metadata().unwrap().len(), 1));
            let read_bytes = live.counters().read_bytes - before.read_bytes;
            // Each of them has an inode of 256 bytes.
            assert!(read_bytes >= 2000 * 256, "{how}: read only {read_bytes} bytes");
            live.end();
        }
    });
}

#[test]
fn a_mount_anew_has_the_same_options_and_waits_for_nobody_for_long() {
    on_memory("mem:384M", |prepared, home| {
        let mount_line = |point: &Path| {
            let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
            let of_point = format!(" {} ", point.display());
            mounts.lines().find(|line| line.contains(&of_point)).map(String::from)
        };
        let all = ["ext2 @ noatime", "ext4 @ noatime", "xfs @ noatime", "btrfs @ noatime"];
        for (number, text) in all.iter().enumerate() {
            let scratch = scratch(home, number);
            let mut live = Live::begin(prepared, text, &scratch);
            let point = live.instance.directory();
            fs::write(point.join("file"), b"x").unwrap();
            std::os::unix::fs::chown(&point, Some(1234), Some(1235)).unwrap();
            let line = mount_line(&point);
            assert!(line.as_ref().unwrap().contains("noatime"), "{line:?}");
            live.instance.mount_anew(&mut live.tools).unwrap();
            assert_eq!(mount_line(&point), line, "{text}");
            let facts = point.metadata().unwrap();
            assert_eq!((facts.uid(), facts.gid()), (1234, 1235), "{text}");
            let shown = live.tools.commands().join("\n");
            assert!(shown.contains("umount "), "{shown}");
            // What the setup left open stays usable, and the record says what was not done.
            let held = fs::File::open(point.join("file")).unwrap();
            assert_eq!(live.tools.notes(), [""; 0]);
            live.instance.mount_anew(&mut live.tools).unwrap();
            let notes = live.tools.notes().join("\n");
            assert!(notes.contains("not remounted before the run: it is in use"), "{notes}");
            assert_eq!(mount_line(&point), line, "{text}");
            drop(held);
            live.end();
        }
    });
}

#[test]
fn a_layer_that_somebody_uses_stays_mounted() {
    on_memory("mem:384M", |prepared, home| {
        let scratch = scratch(home, 0);
        let mut live = Live::begin(prepared, "overlayfs over ext4", &scratch);
        let point = live.instance.directory();
        fs::write(point.join("file"), b"x").unwrap();
        let held = fs::File::open(point.join("file")).unwrap();
        live.instance.mount_anew(&mut live.tools).unwrap();
        let notes = live.tools.notes().join("\n");
        assert!(notes.contains("not remounted before the run: it is in use"), "{notes}");
        drop(held);
        live.instance.mount_anew(&mut live.tools).unwrap();
        assert_eq!(fs::read(point.join("file")).unwrap(), b"x");
        live.end();
    });
}

#[test]
fn a_check_notices_damage() {
    on_memory("mem:384M", |prepared, home| {
        for (number, text) in ["ext2", "ext4", "xfs", "btrfs", "zfs-fuse"].iter().enumerate() {
            let scratch = scratch(home, number);
            let mut live = Live::begin(prepared, text, &scratch);
            for name in 0..200 {
                fs::write(live.instance.directory().join(name.to_string()), noise(4096)).unwrap();
            }
            live.instance.unmount(&mut live.tools).unwrap();
            live.instance.check(&mut live.tools).unwrap();
            // Superblocks and labels survive; what they lead to does not.
            let device = fs::File::options().write(true).open(live.attached.node().path()).unwrap();
            let rest = match *text {
                "ext2" | "ext4" => 64 << 10..8 << 20,
                "zfs-fuse" => 4 << 20..300 << 20,
                _ => 8 << 20..380 << 20,
            };
            let bytes = noise((rest.end - rest.start) as usize);
            std::os::unix::fs::FileExt::write_all_at(&device, &bytes, rest.start).unwrap();
            device.sync_all().unwrap();
            drop(device);
            let Err(failure) = live.instance.check(&mut live.tools) else { panic!("{text}") };
            let failure = failure.to_string();
            assert!(failure.contains("check"), "{text}: {failure}");
            live.end();
        }
    });
}

#[test]
fn zfs_fuse_leaves_the_host_alone() {
    if !private_root() {
        return;
    }
    let places = || -> Vec<String> {
        let places = ["/run/zfs", "/run/lock", "/run/lock/zfs", "/var/lib/zfs", "/etc/zfs"];
        let mut names: Vec<String> = places
            .iter()
            .flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
            .map(|entry| entry.path().display().to_string())
            .collect();
        names.extend(
            places.iter().filter(|place| Path::new(place).exists()).map(ToString::to_string),
        );
        names
    };
    let before = places();
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let own = Directory::private(&home.path().join("own")).unwrap();
    let request = DeviceRequest::parse("mem:128M", None).unwrap();
    let devices: Vec<_> =
        (0..2).map(|_| request.prepare(&own, &StopFlag::default(), &mut |_| {}).unwrap()).collect();
    // Two at a time: neither sees the other's daemon.
    let one = Live::begin(&*devices[0], "zfs-fuse", &scratch(home.path(), 0));
    let other = Live::begin(&*devices[1], "zfs-fuse", &scratch(home.path(), 1));
    assert_eq!(places(), before);
    fs::write(one.instance.directory().join("one"), b"1").unwrap();
    assert!(!other.instance.directory().join("one").exists());
    one.end();
    fs::write(other.instance.directory().join("other"), b"2").unwrap();
    other.end();
    assert_eq!(places(), before);
    let mounts = trust::mounts::mounts().unwrap();
    assert!(mounts.iter().all(|mount| !mount.point.starts_with(home.path())), "{mounts:?}");
}

#[test]
fn a_busy_unmount_names_who_is_busy() {
    on_memory("mem:128M", |prepared, home| {
        for (number, text) in ["ext4", "zfs-fuse"].iter().enumerate() {
            let scratch = scratch(home, number);
            let mut live = Live::begin(prepared, text, &scratch);
            let mut user = std::process::Command::new("sleep")
                .arg("60")
                .current_dir(live.instance.directory())
                .spawn()
                .unwrap();
            let failure = live.instance.unmount(&mut live.tools).unwrap_err().to_string();
            assert!(failure.contains("busy after 10 s: used by sleep"), "{failure}");
            user.kill().unwrap();
            user.wait().unwrap();
            live.end();
        }
    });
}

#[test]
fn what_is_not_the_image_that_was_prepared_is_not_touched() {
    on_memory("mem:64M", |prepared, home| {
        let path = path_of(prepared.device());
        let (inode, size_bytes) =
            (prepared.device().prepared["inode"].as_u64().unwrap(), prepared.facts().size_bytes);
        let other = fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(home.join("disk"))
            .unwrap();
        other.set_len(size_bytes).unwrap();
        let other_path = format!("/proc/{}/fd/{}", std::process::id(), other.as_raw_fd());
        let scratch = scratch(home, 0);
        let attach = |path: PathBuf, inode: u64| {
            let mut device = prepared.device().clone();
            device.prepared["path"] = path.to_str().into();
            device.prepared["inode"] = inode.into();
            attach(&device, false, &scratch).err().unwrap().to_string()
        };
        let refusal = attach(other_path.into(), inode);
        assert!(refusal.contains("is not the image that was prepared"), "{refusal}");
        let refusal = attach(path, inode + 1);
        assert!(refusal.contains("is not the image that was prepared"), "{refusal}");
        // A name is no descriptor of the runner's, whatever it leads to.
        let refusal = attach(home.join("disk"), other.metadata().unwrap().ino());
        assert!(refusal.contains("no descriptor of a process"), "{refusal}");
        assert_eq!(other.metadata().unwrap().blocks(), 0, "nothing was written");
    });
}

/// The kernel says `(deleted)` of a file that has no name any more; a file can be called so.
#[test]
fn a_loop_device_whose_file_has_a_name_is_left_alone() {
    if !private_root() {
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let own = Directory::private(&home.path().join("own")).unwrap();
    let ledgers = own.make_directory("ledger", 0o700).unwrap();
    for name in ["image", "image (deleted)"] {
        let image = home.path().join(name);
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let facts = image.metadata().unwrap();
        let disk = Disk::on(&image);
        let index = disk.0.strip_prefix("/dev/loop").unwrap();
        let ledger = format!(
            "{{\"owner\":{{\"pid\":4294967295,\"start_ticks\":1,\"boot\":\"\"}}}}\n{{\"take\":{{\"id\":0,\"what\":{{\"kind\":\"loop-node\",\"index\":{index},\"file_system\":{},\"inode\":{}}}}}}}\n",
            facts.dev(),
            facts.ino()
        );
        ledgers.replace("kurabe-1-0.jsonl", ledger.as_bytes(), 0o600).unwrap();
        let report = trial::ledger::clean(&own).unwrap();
        assert!(report.done[0].contains("alone: it has another file"), "{name}: {report:?}");
        assert_eq!(loop_devices_in(home.path()).len(), 1, "{name} is still attached");
        // Once it has no name, nothing tells it from what a dead kurabe left.
        fs::remove_file(&image).unwrap();
        ledgers.replace("kurabe-1-0.jsonl", ledger.as_bytes(), 0o600).unwrap();
        let report = trial::ledger::clean(&own).unwrap();
        assert_eq!(report.done, [format!("removed the loop device {index}")], "{name}");
        std::mem::forget(disk);
    }
}

/// A writer beside a run is seen on the disk that holds the image, and what the run itself writes is
/// not taken for it.
#[test]
fn a_writer_beside_a_run_is_seen_on_the_images_disk() {
    if !private_root() {
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let own = Directory::private(&home.path().join("own")).unwrap();
    let request = format!("loop:64M@{}", home.path().display());
    let request = DeviceRequest::parse(&request, None).unwrap();
    let prepared = request.prepare(&own, &StopFlag::default(), &mut |_| {}).unwrap();
    let attached = attach(prepared.device(), false, &scratch(home.path(), 0)).unwrap();
    let mut watch = Watch::begin(Path::new("/"));
    let number = home.path().metadata().unwrap().dev();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let has_disk = Path::new("/sys/dev/block").join(number).exists();
    let Some(disk) = attached.disk_below().filter(|_| has_disk) else {
        eprintln!("SKIPPED: /var/tmp has no direct I/O, or lies on no disk with counters");
        return;
    };
    watch.disk(disk);
    let counters = DeviceCounters::of_node(attached.node().path()).unwrap();
    let write = |path: &Path, bytes: usize| {
        fs::write(path, vec![7; bytes]).unwrap();
        fs::File::open(path).unwrap().sync_all().unwrap();
    };
    let (before, looked) = (counters.read().unwrap(), watch.read());
    write(attached.node().path(), 32 << 20);
    write(&home.path().join("other"), 8 << 20);
    let did = counters.read().unwrap().since(&before);
    let ended = watch.read();
    let seen = ended.since(&looked, Some(did));
    assert!(seen.own_bytes.unwrap() >= 32 << 20, "{seen:?}");
    // Others of this machine may add to it, and the run's own writes not.
    assert!(seen.others_bytes.unwrap() >= 7 << 20, "{seen:?}");
    let all = ended.since(&looked, Some(lab::record::DeviceDelta::default())).others_bytes.unwrap();
    assert!(all - seen.others_bytes.unwrap() >= 32 << 20, "{seen:?}");
    let seen = Watched { stolen_ns: None, throttled: None, ..seen };
    assert_eq!(watched::causes(&[Some(seen)]), [Some(DisturbanceCause::OthersOnDisk)], "{seen:?}");
    attached.detach().unwrap();
}
