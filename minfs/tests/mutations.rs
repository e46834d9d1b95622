//! Mutated images never panic, never leave the device, never loop. The fuzz targets in `fuzz/`
//! run the same harness under coverage guidance; this runs it from seeds on any toolchain.
//!
//! `MINFS_MUTATIONS` sets how many images.

#[path = "common/mount.rs"]
mod common;
#[path = "common/mutation.rs"]
mod mutation;

use std::fs;
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use block::BlockDevice;
use common::Mount;
use minfs::{MkfsOptions, MountOptions, Volume};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn mutated_images_do_no_harm() {
    let wanted = std::env::var("MINFS_MUTATIONS").ok().and_then(|text| text.parse().ok());
    let wanted: u64 = wanted.unwrap_or(3000);
    let base = mutation::base_image();
    assert!(mutation::exercise(&base));
    let mut mounted = 0;
    for seed in 0..wanted {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut input = vec![0; 5 * random.random_range(1..12)];
        random.fill(&mut input[..]);
        // Most changes are sealed, or hardly any would get past the checksums.
        for change in input.chunks_mut(5) {
            if random.random_range(0..4) > 0 {
                change[0] |= 0x80;
            }
        }
        let mut image = base.clone();
        mutation::mutate(&mut image, &input);
        let outcome = std::panic::catch_unwind(|| mutation::exercise(&image));
        match outcome {
            Ok(has_mounted) => mounted += u64::from(has_mounted),
            Err(_) => panic!("seed {seed}, input {input:?}"),
        }
    }
    println!("{wanted} images, {mounted} of them mounted");
    // If nearly none mounted, the test would prove little about what comes after the mount.
    assert!(mounted > wanted / 4 && mounted < wanted);
}

#[test]
fn numbers_at_the_ends_of_their_ranges_do_no_harm() {
    let (mut images, mut mounted) = (0, 0);
    for (title, image) in mutation::range_ends() {
        match std::panic::catch_unwind(|| mutation::exercise(&image)) {
            Ok(has_mounted) => mounted += u64::from(has_mounted),
            Err(_) => panic!("{title}"),
        }
        images += 1;
    }
    println!("{images} images, {mounted} of them mounted");
    assert!(mounted > images / 4 && mounted < images);
}

#[test]
fn a_volume_at_the_end_of_its_generations_is_read_only_and_says_so() {
    const MINFS: &str = env!("CARGO_BIN_EXE_minfs");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, source) = (path("image"), path("source"));
    fs::write(&source, b"content").unwrap();
    let minfs = |arguments: &[&str]| Command::new(MINFS).args(arguments).output().unwrap();
    let says = |output: &Output| {
        let said = [&output.stdout[..], &output.stderr].concat();
        String::from_utf8_lossy(&said).contains("generations")
    };
    // Two leaps of a repair from the end is where it stops.
    let last = (1 << 63) - (1 << 49);
    for generation in [last, last + 1, (1 << 63) - 2, (1 << 63) - 1] {
        let mut bytes = mutation::base_image();
        // The first slot of the file `a`, whose newest record is in the second.
        mutation::set_generation(&mut bytes, 1, generation);
        fs::write(&image, &bytes).unwrap();
        let put = minfs(&["put", &image, &source, "new"]);
        if generation == last {
            assert!(put.status.success(), "{put:?}");
            assert_eq!(minfs(&["get", &image, "new"]).stdout, b"content");
            continue;
        }
        assert_eq!(put.status.code(), Some(2), "{generation}: {put:?}");
        let check = minfs(&["fsck", "-n", &image]);
        assert_eq!(check.status.code(), Some(4), "{generation}: {check:?}");
        let repair = minfs(&["fsck", "--repair", &image]);
        assert_eq!(repair.status.code(), Some(8), "{generation}: {repair:?}");
        assert!(says(&put) && says(&check) && says(&repair), "{put:?} {check:?} {repair:?}");
        assert!(fs::read(&image).unwrap() == bytes, "{generation}: the image was changed");
        assert_eq!(minfs(&["get", &image, "d"]).stdout, [b'c'; 10_000]);
    }
}

/// A device of 2^62 bytes of which the first 256 KiB and the last block are kept.
struct Huge(Mutex<[Vec<u8>; 2]>);

impl Huge {
    const BYTES: u64 = 1 << 62;

    fn with_kept<T>(&self, offset: u64, work: impl FnOnce(Option<&mut [u8]>) -> T) -> T {
        let [head, last] = &mut *self.0.lock().unwrap();
        let last_start = Self::BYTES - last.len() as u64;
        if offset >= last_start {
            return work(last.get_mut((offset - last_start) as usize..));
        }
        work(usize::try_from(offset).ok().and_then(|offset| head.get_mut(offset..)))
    }
}

impl BlockDevice for Huge {
    fn len(&self) -> u64 {
        Self::BYTES
    }
    fn block_size(&self) -> u32 {
        512
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with_kept(offset, |kept| match kept {
            Some(kept) => buffer.copy_from_slice(&kept[..buffer.len()]),
            None => buffer.fill(0),
        });
        Ok(())
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with_kept(offset, |kept| {
            if let Some(kept) = kept {
                kept[..bytes.len()].copy_from_slice(bytes);
            }
        });
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn files_that_all_claim_the_largest_volume_are_counted_once() {
    let device = Arc::new(Huge(Mutex::new([vec![0; 256 << 10], vec![0; 4096]])));
    let options = MkfsOptions { files: Some(6), ..Default::default() };
    let geometry = minfs::mkfs(&device, &options).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let file = volume.create(b"0", 0o644).unwrap();
    file.preallocate(0, geometry.data_bytes(), false, false).unwrap();
    drop(file);
    volume.unmount().unwrap();
    {
        let [head, _] = &mut *device.0.lock().unwrap();
        // The second slot of the first inode becomes that of all, each with a name of its own.
        for inode in 1..6_usize {
            let block = 7 + inode;
            head.copy_within(7 * 4096..8 * 4096, block * 4096);
            head[block * 4096 + 8] = inode as u8;
            head[block * 4096 + 112] = b'0' + inode as u8;
            mutation::seal(head, block);
        }
    }
    let report = minfs::fsck(&device, false).unwrap();
    assert_eq!((report.files, report.used_bytes), (6, geometry.data_bytes()));
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    assert_eq!((volume.list().len(), volume.space().free_bytes), (6, 0));
    drop(volume);
    let report = minfs::fsck(&device, true).unwrap();
    assert!(report.is_repaired() && report.files == 1, "{:?}", report.remaining);
}

/// Needs root and /dev/fuse.
#[test]
fn sizes_times_and_owners_at_the_ends_of_their_ranges_show_in_a_mount() {
    let Some(mount) = Mount::new("16M", "rw") else { return };
    for (time, seconds, nanoseconds) in
        [(i64::MIN, -9_223_372_037, 145_224_192), (i64::MAX, 9_223_372_036, 854_775_807)]
    {
        mount.umount();
        let mut image = mutation::base_image();
        // The file `a`, in whose second slot its newest record lies.
        let block = 7;
        let header = &mut image[block * 4096..];
        header[48..56].copy_from_slice(&i64::MAX.to_le_bytes());
        // The last owner and group that there are; of one more the kernel opens nothing to write.
        for field in header[68..76].chunks_mut(4) {
            field.copy_from_slice(&(u32::MAX - 1).to_le_bytes());
        }
        for field in header[80..112].chunks_mut(8) {
            field.copy_from_slice(&time.to_le_bytes());
        }
        mutation::seal(&mut image, block);
        fs::write(mount.image(), image).unwrap();
        mount.mount();
        let facts = fs::metadata(mount.path("a")).unwrap();
        assert_eq!(facts.len(), i64::MAX as u64);
        assert_eq!((facts.mtime(), facts.mtime_nsec()), (seconds, nanoseconds));
        assert_eq!((facts.atime(), facts.ctime()), (seconds, seconds));
        assert_eq!((facts.uid(), facts.gid()), (u32::MAX - 1, u32::MAX - 1));
        let mut file = fs::OpenOptions::new().append(true).open(mount.path("a")).unwrap();
        assert_eq!(file.write(b"x").unwrap_err().raw_os_error(), Some(libc::EFBIG));
        let mut end = [1; 10];
        assert_eq!(file.seek(io::SeekFrom::End(-10)).unwrap(), i64::MAX as u64 - 10);
        fs::File::open(mount.path("a")).unwrap().read_exact_at(&mut end, 1 << 62).unwrap();
        assert_eq!(end, [0; 10]);
        drop(file);
    }
    mount.umount();
    assert_eq!(mount.fsck(), 0);
}
