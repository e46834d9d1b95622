//! The life of a file device: images everywhere, loop devices where the test runs as root.

use std::os::unix::fs::FileExt;
use std::process::Command;

use block::{
    AlignedBuffer, BlockDevice, DirectAccess, FileDevice, FileDeviceOptions, MemoryDevice,
};

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn an_image_keeps_what_was_written_from_aligned_and_unaligned_memory() {
    let directory = tempfile::tempdir().unwrap();
    for direct in [DirectAccess::Prefer, DirectAccess::Never] {
        let path = directory.path().join(format!("{direct:?}"));
        let options = FileDeviceOptions { set_length: Some(8 << 20), direct, ..Default::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        let model = MemoryDevice::new(8 << 20, device.block_size());
        assert_eq!(device.len(), 8 << 20);
        assert!(!device.is_block_device());
        let bytes = pattern((2 << 20) + 8192 + 1, 3);
        // Starting at index 1 makes the address odd.
        let odd = &bytes[1..];
        let even = AlignedBuffer::copied_from(odd);
        for (offset, data) in [(4096, odd), (4 << 20, &even[..])] {
            device.write_at(data, offset).unwrap();
            model.write_at(data, offset).unwrap();
        }
        device.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), model.image());
        let mut back = vec![0; odd.len() + 1];
        device.read_at(&mut back[1..], 4096).unwrap();
        assert_eq!(&back[1..], odd);
        device.zero_range(4096, 4096).unwrap();
        device.read_at(&mut back[..4096], 4096).unwrap();
        assert!(back[..4096].iter().all(|byte| *byte == 0));
        device.discard(8192, 4096).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
        assert!(device.write_at(&[0; 4096], 8 << 20).is_err());
        assert!(device.read_at(&mut [0; 100], 0).is_err());
    }
}

#[test]
fn a_read_only_device_refuses_every_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    FileDevice::create(&path, 1 << 20).unwrap();
    let options = FileDeviceOptions { read_only: true, ..Default::default() };
    let device = FileDevice::open(&path, &options).unwrap();
    assert!(device.is_read_only());
    for outcome in
        [device.write_at(&[1; 4096], 0), device.discard(0, 4096), device.zero_range(0, 4096)]
    {
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
    device.read_at(&mut [0; 4096], 0).unwrap();
}

#[test]
fn an_exclusive_image_is_not_opened_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    FileDevice::create(&path, 1 << 20).unwrap();
    let exclusive = FileDeviceOptions { exclusive: true, ..Default::default() };
    let reading = FileDeviceOptions { read_only: true, ..exclusive.clone() };
    let first = FileDevice::open(&path, &exclusive).unwrap();
    let busy = FileDevice::open(&path, &exclusive).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    assert!(FileDevice::open(&path, &reading).is_err());
    drop(first);
    let _reader = FileDevice::open(&path, &reading).unwrap();
    FileDevice::open(&path, &reading).expect("readers share");
    assert!(FileDevice::open(&path, &exclusive).is_err());
}

#[test]
fn a_directory_is_no_device() {
    let directory = tempfile::tempdir().unwrap();
    let options = FileDeviceOptions { read_only: true, ..Default::default() };
    assert!(FileDevice::open(directory.path(), &options).is_err());
    assert!(FileDevice::open("/dev/null", &options).is_err());
}

/// A loop device of this test's own, given back on drop.
struct Loop(String);

impl Loop {
    fn attach(image: &std::path::Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        output
            .status
            .success()
            .then(|| Self(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_loop_device_is_a_block_device_taken_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    FileDevice::create(&path, 4 << 20).unwrap();
    let Some(attached) = Loop::attach(&path) else {
        eprintln!("SKIPPED: attaching a loop device needs root and losetup");
        return;
    };
    let exclusive = FileDeviceOptions { exclusive: true, ..Default::default() };
    let device = FileDevice::open(&attached.0, &exclusive).unwrap();
    assert!(device.is_block_device());
    assert_eq!(device.len(), 4 << 20);
    let busy = FileDevice::open(&attached.0, &exclusive).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    let data = pattern(1 << 20, 9);
    device.write_at(&data, 1 << 20).unwrap();
    device.flush().unwrap();
    let mut behind = vec![0; data.len()];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut behind, 1 << 20).unwrap();
    assert!(behind == data, "the image behind the loop device holds the data after a flush");
    device.zero_range(1 << 20, 4096).unwrap();
    device.discard(2 << 20, 1 << 20).unwrap();
    let mut back = vec![1; 4096];
    device.read_at(&mut back, 1 << 20).unwrap();
    assert!(back.iter().all(|byte| *byte == 0));
}

#[test]
fn a_write_protected_device_is_read_only_though_it_can_be_opened_for_writing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    FileDevice::create(&path, 4 << 20).unwrap();
    let Some(attached) = Loop::attach(&path) else {
        eprintln!("SKIPPED: attaching a loop device needs root and losetup");
        return;
    };
    assert!(!FileDevice::open(&attached.0, &FileDeviceOptions::default()).unwrap().is_read_only());
    let protect = |flag: &str| {
        let status = Command::new("blockdev").args([flag, &attached.0]).status().unwrap();
        assert!(status.success());
    };
    protect("--setro");
    let device = FileDevice::open(&attached.0, &FileDeviceOptions::default()).unwrap();
    // The flag outlives the attachment, and would meet whoever gets the loop device next.
    protect("--setrw");
    assert!(device.is_read_only());
    assert_eq!(device.write_at(&[1; 4096], 0).unwrap_err().raw_os_error(), Some(libc::EROFS));
    device.read_at(&mut [0; 4096], 0).unwrap();
}

#[test]
fn writes_at_once_arrive_whole_whether_aligned_or_not() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for direct in [DirectAccess::Prefer, DirectAccess::Never] {
        let options = FileDeviceOptions { direct, set_length: Some(1 << 20), ..Default::default() };
        let device = FileDevice::open(directory.path().join("image"), &options).unwrap();
        println!("{direct:?}: at once {}", device.writes_at_once());
        assert!(device.is_direct() || !device.merges_flushes());
        for shift in [0, 1] {
            let memory = AlignedBuffer::copied_from(&vec![7 + shift as u8; 100 * 4096 + 1]);
            let bytes = &memory[shift..];
            let mut writes: Vec<(&[u8], u64)> =
                bytes.chunks_exact(4096).zip(0..).map(|(part, n)| (part, 8192 * n)).collect();
            writes.push((&bytes[..4096], 1 << 20));
            let outcomes = device.write_each(&writes);
            assert!(outcomes[..100].iter().all(Result::is_ok) && outcomes[100].is_err());
            writes.pop();
            assert!(device.write_each(&writes).iter().all(Result::is_ok));
            let mut found = AlignedBuffer::zeroed(100 * 8192);
            device.read_at(&mut found, 0).unwrap();
            for pair in found.chunks(8192) {
                assert!(pair[..4096].iter().all(|byte| *byte == 7 + shift as u8));
                assert!(pair[4096..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
