//! Mutated images, shared by the mutation test and the fuzz targets.
//!
//! A mutation is a few bytes of input that change metadata of a good image; the checksums of what
//! was changed are then made right again (or not, as the input says), so that the changed values
//! reach the code behind the checksums. Whatever comes of it, nothing may panic, leave the device,
//! or take more requests than a bound.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{BlockDevice, MemoryDevice};
use minfs::{MkfsOptions, MountOptions, Volume, fsck, mkfs};

const DEVICE_BYTES: u64 = 256 << 10;
const FILES: u32 = 6;
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// Where the generation lies in a sector of a slot.
const TRAILER: usize = SECTOR - 12;
/// Far more than any honest check of so small a device takes.
const REQUESTS_MAX: u64 = 20_000;

/// A device that panics when it is asked for something outside of itself, or too often.
struct Guard {
    inner: MemoryDevice,
    requests: AtomicU64,
}

impl Guard {
    fn new(image: &[u8]) -> Self {
        Self { inner: MemoryDevice::from_image(image, 512), requests: AtomicU64::new(0) }
    }

    fn check(&self, offset: u64, length: u64) {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.inner.len());
        assert!(is_inside, "{length} bytes at {offset} are outside the device");
        let requests = self.requests.fetch_add(1, Ordering::Relaxed);
        assert!(requests < REQUESTS_MAX, "more than {REQUESTS_MAX} requests");
    }
}

impl BlockDevice for Guard {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(offset, buffer.len() as u64);
        self.inner.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.check(offset, buffer.len() as u64);
        self.inner.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check(offset, length);
        self.inner.discard(offset, length)
    }
}

/// A good image with files, holes, a tail, a buried inode and an unlinked one.
pub fn base_image() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES, 512));
    let options = MkfsOptions {
        files: Some(FILES),
        uuid: Some(uuid::Uuid::from_u128(7)),
        created_ns: Some(1),
        ..Default::default()
    };
    mkfs(&device, &options).expect("the device is large enough");
    let volume = Volume::mount(device.clone(), &MountOptions::default()).expect("it is new");
    let work = || -> minfs::Result<()> {
        for name in [&b"a"[..], b"b", b"c", b"d"] {
            volume.create(name, 0o644)?.write(&[name[0]; 10_000], 0)?;
        }
        volume.open(b"a")?.preallocate(0, 20_000, true, true)?;
        volume.open(b"b")?.sync()?;
        volume.rename(b"c", b"d", true)?;
        volume.create(b"e", 0o644)?;
        volume.unlink(b"e")?;
        let tail = volume.open(b"b")?;
        tail.append(&[9; 5000])?;
        tail.sync()
    };
    work().expect("there is space");
    // The image is taken before the unmount, which would settle the tail.
    device.image()
}

/// Blocks of the image that hold metadata.
fn metadata_blocks() -> Vec<usize> {
    let last = DEVICE_BYTES as usize / BLOCK - 1;
    (0..1 + 2 * FILES as usize).chain([last]).collect()
}

/// Changes `image` as `input` says: five bytes a change.
pub fn mutate(image: &mut [u8], input: &[u8]) {
    let blocks = metadata_blocks();
    for change in input.chunks_exact(5) {
        let block = blocks[usize::from(change[0] & 0x3f) % blocks.len()];
        let wide = usize::from(u16::from_le_bytes([change[1], change[2]]));
        // Half of the changes go to the first 120 bytes, where the numbers are.
        let inside = if change[0] & 0x40 != 0 { wide % 120 } else { wide % BLOCK };
        let at = block * BLOCK + inside;
        match change[3] & 3 {
            0 => image[at] = change[4],
            1 => image[at] ^= change[4],
            2 => image[at] = image[at].wrapping_add(change[4]),
            _ => {
                let end = (at + 8).min((block + 1) * BLOCK);
                image[at..end].fill(change[4]);
            }
        }
        if change[0] & 0x80 != 0 {
            seal(image, block);
        }
    }
}

/// Makes the checksums of a metadata block right.
pub fn seal(image: &mut [u8], block: usize) {
    let last = DEVICE_BYTES as usize / BLOCK - 1;
    let uuid: [u8; 16] = image[40..56].try_into().expect("16 bytes");
    let bytes = &mut image[block * BLOCK..(block + 1) * BLOCK];
    if block == 0 || block == last {
        let checksum = crc32c::crc32c(&bytes[..BLOCK - 4]);
        bytes[BLOCK - 4..].copy_from_slice(&checksum.to_le_bytes());
        return;
    }
    let slot = (block - 1) / FILES as usize;
    let inode = ((block - 1) % FILES as usize) as u32;
    for (index, sector) in bytes.chunks_mut(SECTOR).enumerate() {
        let mut place = uuid.to_vec();
        place.extend(inode.to_le_bytes());
        place.extend((slot as u16).to_le_bytes());
        place.extend((index as u16).to_le_bytes());
        let seed = crc32c::crc32c(&place);
        let checksum = crc32c::crc32c_append(seed, &sector[..SECTOR - 4]);
        sector[SECTOR - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Uses an image in every way; any outcome but a panic is fine. Returns whether it mounted.
pub fn exercise(image: &[u8]) -> bool {
    let device = Arc::new(Guard::new(image));
    let _ = minfs::identify(&device);
    let _ = fsck(&device, false);
    let has_mounted = use_volume(&device);
    let repaired = Arc::new(Guard::new(image));
    if let Ok(report) = fsck(&repaired, true) {
        // The device keeps what is written, so nothing may be left, and it must mount for writing.
        assert!(report.is_repaired(), "left: {:?}", report.remaining);
        let volume = Volume::mount(repaired.clone(), &MountOptions::default());
        let volume = volume.unwrap_or_else(|error| panic!("repaired, but {error}"));
        assert_eq!(volume.read_only_reason(), None, "repaired, but read-only");
        drop(volume);
        use_volume(&repaired);
    }
    has_mounted
}

fn use_volume(device: &Arc<Guard>) -> bool {
    let Ok(volume) = Volume::mount(device.clone(), &MountOptions::default()) else {
        return false;
    };
    let mut buffer = vec![0; 70_000];
    for facts in volume.list() {
        let Ok(file) = volume.open(&facts.name) else { continue };
        let _ = file.read(&mut buffer, 0);
        let _ = file.read(&mut buffer, facts.size.saturating_sub(1000));
        let _ = file.pieces();
        let _ = file.write(b"overwritten", 100);
        let _ = file.append(b"more");
        let _ = file.sync();
        let _ = file.truncate(3000);
    }
    let keep = |file: minfs::File| file.write(&buffer, 0).and_then(|()| file.sync());
    let is_kept = volume.create(b"new", 0o600).and_then(keep).is_ok();
    let _ = volume.rename(b"a", b"b", true);
    let _ = volume.unlink(b"d");
    let _ = volume.space();
    if volume.unmount().is_ok() && is_kept {
        let again = Volume::mount(device.clone(), &MountOptions::default());
        let kept = again.and_then(|volume| volume.stat(b"new"));
        assert_eq!(kept.expect("what was made and synced is there").size, buffer.len() as u64);
    }
    true
}

/// Gives the record in a metadata block another generation.
pub fn set_generation(image: &mut [u8], block: usize, generation: u64) {
    for sector in image[block * BLOCK..(block + 1) * BLOCK].chunks_mut(SECTOR) {
        sector[TRAILER..SECTOR - 4].copy_from_slice(&generation.to_le_bytes());
    }
    seal(image, block);
}

/// The base image with each number of each metadata block at the ends of its range, one at a time,
/// and what was changed. Numbers are aligned to their width, and every such place counts as one.
pub fn range_ends() -> impl Iterator<Item = (String, Vec<u8>)> {
    let base = base_image();
    let is_geometry = |block| block == 0 || block == DEVICE_BYTES as usize / BLOCK - 1;
    metadata_blocks().into_iter().flat_map(move |block| {
        let base = base.clone();
        let places: Vec<usize> = if is_geometry(block) {
            (8..184).step_by(4).collect()
        } else {
            // The header, the first two extents, and the generations of all sectors at once.
            (0..112).chain(SECTOR..SECTOR + 16).step_by(4).chain([TRAILER]).collect()
        };
        let wide = u64::MAX;
        let values = [0, 1, wide, wide - 1, 1 << 63, (1 << 63) - 1].map(|value| (8, value));
        let wide = u64::from(u32::MAX);
        let narrow = [0, 1, wide, wide - 1, 1 << 31, (1 << 31) - 1].map(|value| (4, value));
        let changes = places.into_iter().flat_map(move |at| {
            let fitting = values.into_iter().chain(narrow);
            let fitting =
                fitting.filter(move |(width, _)| at == TRAILER || at.is_multiple_of(*width));
            fitting.map(move |(width, value)| (at, width, value))
        });
        changes.map(move |(at, width, value)| {
            let mut image = base.clone();
            if at == TRAILER {
                set_generation(&mut image, block, value);
            } else {
                let bytes = &mut image[block * BLOCK + at..][..width];
                bytes.copy_from_slice(&value.to_le_bytes()[..width]);
                seal(&mut image, block);
            }
            (format!("block {block}, {width} bytes at {at}: {value:#x}"), image)
        })
    })
}
