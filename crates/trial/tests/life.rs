//! Whole lives: a device is prepared, attached, formatted, mounted, used, unmounted, checked and
//! given back. Needs root and loop devices; says so and passes where there are none.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use kurabe_trial as trial;
use lab::contender::Contender;
use lab::spec::Device;
use trial::device::{self, DeviceRequest};
use trial::filesystem::{self, Stage};
use trial::host_proc::HostProc;
use trial::ledger::Ledger;
use trial::stop::Stop;
use trial::tool::Toolbox;

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

fn loop_devices_of(path: &Path) -> Vec<String> {
    fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .filter(|entry| {
            fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|text| Path::new(text.trim()) == path)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Bytes of the image that the host has allocated.
fn allocated_bytes(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// One trial's worth of hooks, in their order.
fn live(contender: &Contender, device: &Device, scratch: &Path) {
    let file_system = filesystem::by_name(&contender.file_system).unwrap();
    assert_eq!(filesystem::missing(file_system), Vec::<String>::new());
    let host = HostProc::open().unwrap();
    let discard = filesystem::asks_for_discard(contender);
    let attached = device::attach(device, discard, scratch, &host, &Stop::default()).unwrap();
    assert_eq!(attached.notes(), Vec::<String>::new().as_slice());
    let facts = attached.facts().unwrap();
    assert_eq!(facts.queue["discard_max_bytes"] == "0", !discard, "{contender:?}");
    let stage = Stage::new(contender, attached.node(), attached.size_bytes(), discard, scratch);
    let mut instance = file_system.begin(stage);
    let bound = Instant::now() + Duration::from_secs(120);
    let mut tools = Toolbox::new(Some(bound), Stop::default());
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
    let node = attached.node().to_path_buf();
    attached.detach().unwrap();
    assert!(!node.exists(), "{}", node.display());
}

fn contender(text: &str) -> Contender {
    Contender::parse(text, &filesystem::names()).unwrap()
}

#[test]
fn every_file_system_lives_on_an_image_and_leaves_it_fully_allocated() {
    if !private_root() {
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = Ledger::start(&home.path().join("ledger")).unwrap();
    let request = format!("loop:384M@{}", home.path().display());
    let request = DeviceRequest::parse(&request, None).unwrap();
    let mut reports = Vec::new();
    let prepared =
        device::prepare(&request, &ledger, &Stop::default(), &mut |p| reports.push(p)).unwrap();
    assert_eq!(reports.last().unwrap().done_bytes, 384 << 20);
    assert_eq!(prepared.facts().backing.as_ref().unwrap().directory, home.path());
    let Device::Image { path, .. } = prepared.device().clone() else { panic!() };
    let full_bytes = allocated_bytes(&path);
    assert!(full_bytes >= 384 << 20);
    for (number, text) in
        ["ext2", "ext3", "ext4", "xfs", "btrfs", "ext4 -E lazy_itable_init=0 @ noatime"]
            .iter()
            .enumerate()
    {
        let scratch = home.path().join(format!("kurabe-scratch-{number}"));
        fs::create_dir(&scratch).unwrap();
        live(&contender(text), prepared.device(), &scratch);
        assert_eq!(allocated_bytes(&path), full_bytes, "after {text}");
        assert_eq!(loop_devices_of(&path), Vec::<String>::new());
    }
    drop(prepared);
    assert!(!path.exists());
    assert_eq!(ledger.held(), []);
}

#[test]
fn memory_is_a_device_and_holes_are_filled_again() {
    if !private_root() {
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = Ledger::start(&home.path().join("ledger")).unwrap();
    let request = DeviceRequest::parse("mem:384M", None).unwrap();
    let prepared = device::prepare(&request, &ledger, &Stop::default(), &mut |_| {}).unwrap();
    let Device::Image { path, memory, .. } = prepared.device().clone() else { panic!() };
    assert!(memory);
    let full_bytes = allocated_bytes(&path);
    for (number, text) in ["ext4", "xfs", "btrfs @ discard=sync", "ext4"].iter().enumerate() {
        let scratch = home.path().join(format!("kurabe-scratch-{number}"));
        fs::create_dir(&scratch).unwrap();
        if number == 3 {
            // The contender before asked for discards, and so left holes.
            assert!(allocated_bytes(&path) < full_bytes, "mkfs.btrfs discards");
            let host = HostProc::open().unwrap();
            let attached =
                device::attach(prepared.device(), false, &scratch, &host, &Stop::default())
                    .unwrap();
            assert!(attached.notes()[0].contains("filled again"), "{:?}", attached.notes());
            assert_eq!(allocated_bytes(&path), full_bytes);
            continue;
        }
        live(&contender(text), prepared.device(), &scratch);
    }
}

/// A loop device of the test's own that plays the real disk, detached when dropped.
struct Disk(String);

impl Disk {
    fn on(image: &Path) -> Disk {
        let image = image.display().to_string();
        let mut tools = Toolbox::new(None, Stop::default());
        let words = ["losetup", "--find", "--show", "--direct-io=on", &image];
        Disk(tools.expect(&words, "attaching the test's disk").unwrap().stdout.trim().to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let tools = Toolbox::new(None, Stop::default());
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
    let ledger = Ledger::start(&home.path().join("ledger")).unwrap();
    let prepare = |destroy: &str| {
        let request = DeviceRequest::parse(&disk.0, Some(destroy)).unwrap();
        device::prepare(&request, &ledger, &Stop::default(), &mut |_| {})
    };
    let mut tools = Toolbox::new(None, Stop::default());
    tools.expect(&["mkfs.ext4", "-q", "-F", &disk.0], "making what stands in the way").unwrap();
    let refusal = prepare(name).unwrap_err().to_string();
    assert!(refusal.contains(&format!("--destroy '{name}:ext4'")), "{refusal}");

    let prepared = prepare(&format!("{name}:ext4")).unwrap();
    assert_eq!(prepared.size_bytes(), 320 << 20);
    assert_eq!(prepared.facts().block_device.as_ref().unwrap().name, name);
    let mut start = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(&disk.0).unwrap(), &mut start, 0)
        .unwrap();
    assert!(start.iter().filter(|byte| **byte == 0).count() < 100, "filled with random bytes");
    for (number, text) in ["xfs", "btrfs", "ext4"].iter().enumerate() {
        let scratch = home.path().join(format!("kurabe-scratch-{number}"));
        fs::create_dir(&scratch).unwrap();
        live_on_real(&contender(text), prepared.device(), &scratch);
    }
    drop(prepared);
    // Nothing stands in the way of the same command line any more.
    let findings = block::claim::examine(Path::new(&disk.0)).unwrap();
    assert_eq!((findings.signatures, findings.uses), (vec![], vec![]));
}

/// Makes and mounts only: the device is no loop device of kurabe's, so nothing is removed.
fn live_on_real(contender: &Contender, device: &Device, scratch: &Path) {
    let host = HostProc::open().unwrap();
    let attached = device::attach(device, false, scratch, &host, &Stop::default()).unwrap();
    let stage = Stage::new(contender, attached.node(), attached.size_bytes(), false, scratch);
    let mut instance = filesystem::by_name(&contender.file_system).unwrap().begin(stage);
    let mut tools = Toolbox::new(None, Stop::default());
    instance.make(&mut tools).unwrap();
    instance.mount(&mut tools).unwrap();
    // Mounted, it cannot be claimed by another trial.
    let second = device::attach(device, false, scratch, &host, &Stop::default());
    assert!(
        second.unwrap_err().to_string().contains("is mounted on") || contender.label == "btrfs"
    );
    instance.end(&mut tools).unwrap();
    instance.check(&mut tools).unwrap();
    attached.detach().unwrap();
}
