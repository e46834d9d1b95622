//! Windows as an opening finds them: puts that no journal names.

use super::*;

/// A device on which a sector, at this byte, cannot be read.
struct BadSector(MemoryDevice, u64);

impl BlockDevice for BadSector {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn block_size(&self) -> u32 {
        self.0.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if (offset..offset + buffer.len() as u64).contains(&self.1) {
            Err(io::Error::other("on purpose"))
        } else {
            self.0.read_at(buffer, offset)
        }
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.discard(offset, length)
    }
}

/// An image as a power cut leaves it, with puts that no journal names; its contents.
fn in_a_window() -> (Vec<u8>, BTreeMap<u128, Vec<u8>>) {
    let device = created(MemoryDevice::new(MEBIBYTE, 512), &small());
    let store = open_so(device.clone(), true);
    for step in 0..12_u64 {
        store.put(u128::from(step % 5), &pattern(step, 500 * step as usize), Durable).unwrap();
    }
    (device.image(), contents(&store))
}

#[test]
fn puts_that_no_journal_names_are_found_and_only_where_they_were_put() {
    let (image, found) = in_a_window();
    assert_eq!(found.len(), 5);
    let device = Arc::new(MemoryDevice::from_image(&image, 512));
    let report = check(device.clone()).unwrap();
    assert_eq!((report.findings, report.scrub.objects), (vec![], 5));
    assert_eq!(device.image(), image, "a check writes nothing");
    // The last put, torn: the value before it is there.
    let ends = |end: usize| image[end - 48..end].starts_with(&layout::PLACED_MAGIC);
    let extents: Vec<usize> = (512..=image.len()).step_by(512).filter(|end| ends(*end)).collect();
    assert!(extents.len() >= 10, "{extents:?}");
    let mut torn = image.clone();
    torn[extents.last().unwrap() - 600] ^= 1;
    let store = open(Arc::new(MemoryDevice::from_image(&torn, 512)));
    assert_eq!(store.get(1).unwrap().unwrap()[..], pattern(6, 3000));
    drop(store);
    // The last one again, where the window has room still: a copy is no put.
    let last = *extents.last().unwrap();
    let length = (5500 + 52_usize).next_multiple_of(512);
    let mut copied = image.clone();
    copied.copy_within(last - length..last, last + 4096);
    copied[last - 600] ^= 1;
    let store = open(Arc::new(MemoryDevice::from_image(&copied, 512)));
    assert_eq!(store.get(1).unwrap().unwrap()[..], pattern(6, 3000));
    drop(store);
    // The journal names the first put and announces the window. When that put decays, those in the
    // window still say that the journal was durable.
    let tail = |unit: &[u8]| unit[512 - 48..].starts_with(&layout::TRAILER_MAGIC);
    let first = image.chunks(512).position(tail).unwrap() * 512;
    let mut decayed = image.clone();
    decayed[first + 500] ^= 1;
    assert_eq!(contents(&open(Arc::new(MemoryDevice::from_image(&decayed, 512)))), found);
    // A window that cannot be read at once is read in units.
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from_image(&image, 512), vec![]));
    let options = OpenOptions { read_only: true, ..Default::default() };
    drop(Store::open(device.clone(), &options).unwrap());
    let reads = device.request_counts().0;
    let opened = (0..reads).filter(|read| {
        let fault = vec![Fault::FailRead(*read)];
        let device = FaultyDevice::new(MemoryDevice::from_image(&image, 512), fault);
        let store = Store::open(Arc::new(device), &options);
        store.is_ok_and(|store| contents(&store) == found)
    });
    // Of the superblock there is a copy.
    assert_eq!(opened.count(), 2, "the reads that may fail");
    // What can never be read may be a put that was answered: nothing is written.
    let device = BadSector(MemoryDevice::from_image(&image, 512), last as u64 - 1024);
    let device = Arc::new(device);
    let error = Store::open(device.clone(), &OpenOptions::default()).err().unwrap().to_string();
    assert!(error.contains(&format!("read byte {}", last - 1024)), "{error}");
    assert!(check(device.clone()).is_err() && device.0.image() == image);
    // Opened and cut off again and again: windows come to lie where the extents of earlier ones are.
    let (mut image, mut found) = (image, found);
    for round in 0..8 {
        let device = Arc::new(MemoryDevice::from_image(&image, 512));
        let store = open_so(device.clone(), true);
        assert_eq!(contents(&store), found, "round {round}");
        for step in 0..round * 3 {
            store.put(u128::from(step % 4), &pattern(step, 300), Durable).unwrap();
            if step % 5 == 4 {
                store.delete(u128::from(step % 3), Durable).unwrap();
            }
        }
        (image, found) = (device.image(), contents(&store));
    }
}

#[test]
fn a_large_window_has_several_ranges_and_all_are_read() {
    let device = created(CountingDevice::new(MemoryDevice::new(160 * MEBIBYTE, 512)), &small());
    let store = open_so(device.clone(), true);
    for step in 0..90 {
        store.put(u128::from(step), &pattern(step, 256 << 10), Durable).unwrap();
    }
    let image = device.inner().image();
    drop(store);
    let device = Arc::new(CountingDevice::new(MemoryDevice::from_image(&image, 512)));
    let store = open(device.clone());
    assert!(device.take_counts().read_bytes > 32 << 20);
    assert_eq!(store.usage().objects, 90);
    for step in 0..90 {
        assert_eq!(store.get(u128::from(step)).unwrap().unwrap()[..], pattern(step, 256 << 10));
    }
}
