//! A disk as a power cut left it: which recorded bytes lie in which sector, over the disk that was there before,
//! and whatever is written after the cut, in memory.
//!
//! Each disk is fresh: what one writes no other sees. Copying one costs no more than its directory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use block::BlockDevice;

use crate::SECTOR_BYTES;

/// Sectors of a page of the map.
const PAGE_SECTORS: usize = 512;

/// Which recorded sector lies in each sector of a disk: 0 for none, else its number in the
/// recording's file and 1. Later bytes have greater numbers. A copy shares its pages.
#[derive(Debug, Clone)]
pub(crate) struct Map {
    pages: Vec<Option<Arc<[u32; PAGE_SECTORS]>>>,
}

impl Map {
    pub(crate) fn new(sectors: u64) -> Map {
        Map { pages: vec![None; sectors.div_ceil(PAGE_SECTORS as u64) as usize] }
    }

    pub(crate) fn get(&self, sector: u64) -> u32 {
        let page = &self.pages[sector as usize / PAGE_SECTORS];
        page.as_ref().map_or(0, |page| page[sector as usize % PAGE_SECTORS])
    }

    /// The sectors of its pages that the other does not share; they may hold other bytes.
    fn unshared<'a>(&'a self, other: &'a Map) -> impl Iterator<Item = Range<u64>> + 'a {
        let pages = self.pages.iter().zip(&other.pages).enumerate();
        let differ = pages.filter(|(_, (one, other))| match (one, other) {
            (None, None) => false,
            (Some(one), Some(other)) => !Arc::ptr_eq(one, other),
            _ => true,
        });
        differ.map(|(number, _)| {
            let first = (number * PAGE_SECTORS) as u64;
            first..first + PAGE_SECTORS as u64
        })
    }

    /// Puts a recorded sector there unless a later one is; returns what was there before, when
    /// something changed.
    pub(crate) fn put(&mut self, sector: u64, value: u32) -> Option<u32> {
        let page = self.pages[sector as usize / PAGE_SECTORS]
            .get_or_insert_with(|| Arc::new([0; PAGE_SECTORS]));
        let at = sector as usize % PAGE_SECTORS;
        let before = page[at];
        (before < value).then(|| {
            Arc::make_mut(page)[at] = value;
            before
        })
    }
}

/// Bytes of a page of what was written after the cut.
const OWN_PAGE_BYTES: u64 = 4096;

/// A disk as a power cut left it. It can be mounted and written; what is written stays in memory.
pub struct CrashedDisk {
    before: Arc<dyn BlockDevice>,
    /// Where recorded bytes lie, and those; absent where nothing was recorded.
    left: Option<(Map, Arc<File>)>,
    own: Mutex<HashMap<u64, Box<[u8]>>>,
}

impl CrashedDisk {
    pub(crate) fn new(before: Arc<dyn BlockDevice>, map: Map, data: Arc<File>) -> CrashedDisk {
        CrashedDisk { left: Some((map, data)), ..CrashedDisk::over(before) }
    }

    /// A disk that no power cut was on yet.
    pub fn over(before: Arc<dyn BlockDevice>) -> CrashedDisk {
        assert_eq!(before.len() % OWN_PAGE_BYTES, 0, "a device is whole pages");
        CrashedDisk { before, left: None, own: Mutex::default() }
    }

    /// All of its bytes.
    pub fn image(&self) -> io::Result<Vec<u8>> {
        let mut image = vec![0; self.len() as usize];
        self.read_at(&mut image, 0).map(|()| image)
    }

    /// Byte ranges outside of which a disk of the same recording, on which nothing was written yet, reads as `before`
    /// reads now. They do not overlap, and ascend.
    pub fn differs_from(&self, before: &CrashedDisk) -> Vec<Range<u64>> {
        let everything = || std::iter::once(0..self.len()).collect();
        let (Some((map, data)), Some((other, other_data))) = (&self.left, &before.left) else {
            return everything();
        };
        if !Arc::ptr_eq(data, other_data) || self.len() != before.len() {
            return everything();
        }
        let bytes = |range: Range<u64>| range.start * SECTOR_BYTES..range.end * SECTOR_BYTES;
        let mut ranges: Vec<Range<u64>> = map.unshared(other).map(bytes).collect();
        let own = before.own.lock().expect("no thread panics while it holds the pages");
        ranges.extend(own.keys().map(|page| page * OWN_PAGE_BYTES..(page + 1) * OWN_PAGE_BYTES));
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => merged.push(range),
            }
        }
        if let Some(last) = merged.last_mut() {
            last.end = last.end.min(self.len());
        }
        merged
    }

    /// The bytes that the cut left.
    fn read_left(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let Some((map, data)) = &self.left else { return self.before.read_at(buffer, offset) };
        let first = offset / SECTOR_BYTES;
        let count = buffer.len() as u64 / SECTOR_BYTES;
        let mut at = 0;
        while at < count {
            // As many sectors at a time as lie one after the other in the same source.
            let value = map.get(first + at);
            let follows = |step: u64| match value {
                0 => 0,
                value => value.saturating_add(step as u32),
            };
            let run = (1..count - at)
                .find(|step| map.get(first + at + step) != follows(*step))
                .unwrap_or(count - at);
            let bytes =
                &mut buffer[(at * SECTOR_BYTES) as usize..((at + run) * SECTOR_BYTES) as usize];
            match value {
                0 => self.before.read_at(bytes, (first + at) * SECTOR_BYTES)?,
                value => read_data(data, bytes, u64::from(value - 1) * SECTOR_BYTES)?,
            }
            at += run;
        }
        Ok(())
    }

    /// Calls `visit` with each page that a range touches: its number, the range in it, the range
    /// in the caller's buffer.
    fn pages(
        offset: u64,
        length: usize,
        mut visit: impl FnMut(u64, Range<usize>, Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            let place = offset + done as u64;
            let inside = (place % OWN_PAGE_BYTES) as usize;
            let step = (OWN_PAGE_BYTES as usize - inside).min(length - done);
            visit(place / OWN_PAGE_BYTES, inside..inside + step, done..done + step)?;
            done += step;
        }
        Ok(())
    }
}

/// Reads the recording's file, of which a hole at the end is not there.
fn read_data(data: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match data.read_at(bytes, offset)? {
            0 => {
                bytes.fill(0);
                return Ok(());
            }
            read => {
                bytes = &mut bytes[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

impl BlockDevice for CrashedDisk {
    fn len(&self) -> u64 {
        self.before.len()
    }

    fn block_size(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_left(buffer, offset)?;
        let own = self.own.lock().expect("no thread panics while it holds the pages");
        if own.is_empty() {
            return Ok(());
        }
        CrashedDisk::pages(offset, buffer.len(), |page, inside, outside| {
            if let Some(bytes) = own.get(&page) {
                buffer[outside].copy_from_slice(&bytes[inside]);
            }
            Ok(())
        })
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let mut own = self.own.lock().expect("no thread panics while it holds the pages");
        CrashedDisk::pages(offset, buffer.len(), |page, inside, outside| {
            let bytes = match own.entry(page) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    let mut bytes = vec![0; OWN_PAGE_BYTES as usize].into_boxed_slice();
                    if inside.len() < bytes.len() {
                        self.read_left(&mut bytes, page * OWN_PAGE_BYTES)?;
                    }
                    entry.insert(bytes)
                }
            };
            bytes[inside].copy_from_slice(&buffer[outside]);
            Ok(())
        })
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A disk that was in use before: bytes that look like nothing, the same in every run, and held
/// nowhere. Writing to it is refused; stand a layer on it.
#[derive(Debug, Clone, Copy)]
pub struct Stale {
    length: u64,
}

impl Stale {
    /// A disk of so many bytes.
    pub fn new(length: u64) -> Stale {
        assert!(length.is_multiple_of(OWN_PAGE_BYTES), "a device is whole pages");
        Stale { length }
    }
}

impl BlockDevice for Stale {
    fn len(&self) -> u64 {
        self.length
    }

    fn block_size(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        for (index, word) in buffer.chunks_mut(8).enumerate() {
            // splitmix64 of the place (Steele, Lea, Flood: Fast splittable pseudorandom number
            // generators, 2014).
            let place = offset / 8 + index as u64 + 1;
            let mut value = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(value ^ (value >> 31)).to_le_bytes()[..word.len()]);
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
