//! The bytes of an extent: a value, and the trailer that says which put wrote it.
//!
//! An extent is the value, zeros up to the tail, the CRC-32C of each chunk of the value, and the
//! trailer, which ends with the last unit. The index entry has a checksum of key, place, length and
//! chunks' checksums, so whoever wants the value reads no further than that. Does not choose where
//! extents lie. Invariant: nothing but the value, its checksums and zeros is ever written.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use block::AlignedBuffer;
use zerocopy::IntoBytes;

use crate::checksum::crc32c;
use crate::data::Memory;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::index::Entry;
use crate::layout::{
    BLOCK_BYTES, CHUNK_BYTES, PLACED_MAGIC, TRAILER_MAGIC, Trailer, WINDOW_EXTENT_BYTES_MAX,
    checksum_of, read,
};
use crate::medium::Source;

const TRAILER_BYTES: usize = size_of::<Trailer>();
/// Extents up to this many bytes are read whole for any range: two reads would not be faster.
const RANGE_READ_BYTES: u64 = 256 << 10;

/// Memory for a value: aligned for direct transfers, with room for what the store adds.
///
/// It derefs to the bytes of the value. Filled in place and given to
/// [`crate::Store::put_value`], it is written without a copy; its memory can be used again after.
#[derive(Clone)]
pub struct Value {
    memory: AlignedBuffer,
    length: usize,
}

impl Value {
    /// `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        Self { memory: AlignedBuffer::zeroed(capacity(length)), length }
    }

    /// Makes it `length` bytes long; what they are is not said. Memory is kept where it is enough.
    pub fn resize(&mut self, length: usize) {
        if self.memory.len() < capacity(length) {
            self.memory = AlignedBuffer::zeroed(capacity(length));
        }
        self.length = length;
    }

    /// Whether most of its memory is for what it holds.
    pub(crate) fn fills_its_memory(&self) -> bool {
        self.memory.len() <= 2 * capacity(self.length)
    }

    /// Other memory in its place, of the same length; it is made where `spare` is too small.
    pub(crate) fn exchange(&mut self, spare: Option<AlignedBuffer>) {
        let fitting = spare.filter(|spare| spare.len() >= capacity(self.length));
        let new = || AlignedBuffer::zeroed(capacity(self.length));
        self.memory = fitting.unwrap_or_else(new);
    }

    /// Lends the memory out; until it is back the value has none.
    pub(crate) fn lend(&mut self) -> AlignedBuffer {
        std::mem::replace(&mut self.memory, AlignedBuffer::zeroed(0))
    }

    pub(crate) fn take_back(&mut self, memory: Option<Memory>) {
        match memory {
            Some(Memory::Lent(memory)) => self.memory = memory,
            _ => unreachable!("what was lent comes back with the answer"),
        }
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        let mut value = Self::zeroed(bytes.len());
        value.copy_from_slice(bytes);
        value
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl DerefMut for Value {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length]
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Value({} bytes)", self.length)
    }
}

fn chunk_count(length: usize) -> usize {
    length.div_ceil(CHUNK_BYTES)
}

/// Bytes of the tail: the checksums of the chunks and the trailer.
fn tail_bytes(length: usize) -> usize {
    4 * chunk_count(length) + TRAILER_BYTES
}

/// Enough for the largest unit.
fn capacity(length: usize) -> usize {
    (length + tail_bytes(length)).next_multiple_of(BLOCK_BYTES as usize)
}

/// Units of the extent of a value of `length` bytes.
pub(crate) fn unit_count(geometry: &Geometry, length: u64) -> u64 {
    (length + tail_bytes(length as usize) as u64).div_ceil(geometry.unit_bytes)
}

/// Bytes of that extent.
pub(crate) fn extent_bytes(geometry: &Geometry, length: usize) -> usize {
    (unit_count(geometry, length as u64) * geometry.unit_bytes) as usize
}

/// A range of bytes of a value of `length` bytes.
///
/// # Errors
///
/// [`Error::BadRange`] where the value does not have them.
pub(crate) fn range_of(length: u64, range: Range<u64>) -> Result<Range<usize>> {
    let Range { start, end } = range;
    if start <= end && end <= length {
        Ok(start as usize..end as usize)
    } else {
        Err(Error::BadRange { start, end, length_bytes: length })
    }
}

/// What tells one put from all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub epoch: u64,
    pub sequence: u64,
}

/// The checksum of each chunk of a value, as a tail has them.
pub(crate) fn chunk_checksums(value: &[u8]) -> Vec<u8> {
    value.chunks(CHUNK_BYTES).flat_map(|chunk| crc32c(&[chunk]).to_le_bytes()).collect()
}

impl Entry {
    /// Units of its extent.
    pub fn units(&self, geometry: &Geometry) -> u64 {
        unit_count(geometry, u64::from(self.length))
    }

    /// The checksum that belongs into the entry of a value with these checksums of its chunks.
    fn checksum_of(&self, geometry: &Geometry, chunks: &[u8]) -> u32 {
        let (key, start) = (self.key.to_le_bytes(), self.start.to_le_bytes());
        crc32c(&[&geometry.uuid, &key, &start, &self.length.to_le_bytes(), chunks])
    }
}

/// The checksum of a trailer, which vouches for the entry too.
fn trailer_checksum(entry: &Entry, trailer: &[u8]) -> u32 {
    checksum_of(&entry.checksum.to_le_bytes(), trailer)
}

/// Writes the tail of a value into its memory, for the extent that begins at a unit; an opening may
/// have to find it if that is `in_window`. Returns how many bytes of it the extent has, and the entry.
pub(crate) fn seal(
    geometry: &Geometry,
    key: u128,
    start: u64,
    stamp: Stamp,
    in_window: bool,
    value: &mut Value,
) -> (usize, Entry) {
    let bytes = extent_bytes(geometry, value.length);
    let chunks = chunk_checksums(value);
    let memory = &mut value.memory[..bytes];
    (bytes, seal_with(geometry, key, start, stamp, in_window, value.length, &chunks, memory))
}

/// As [`seal`], of an extent whose memory begins with a value of `length` bytes, and the checksums of its
/// chunks.
#[expect(clippy::too_many_arguments)]
pub(crate) fn seal_with(
    geometry: &Geometry,
    key: u128,
    start: u64,
    stamp: Stamp,
    in_window: bool,
    length: usize,
    chunks: &[u8],
    memory: &mut [u8],
) -> Entry {
    let tail = &mut memory[length..];
    let tail_at = tail.len() - tail_bytes(length);
    tail[..tail_at].fill(0);
    let mut entry = Entry { key, start, length: length as u32, checksum: 0 };
    entry.checksum = entry.checksum_of(geometry, chunks);
    let mut fields = Trailer {
        magic: if in_window { PLACED_MAGIC } else { TRAILER_MAGIC },
        checksum: 0.into(),
        length: entry.length.into(),
        key: key.into(),
        epoch: stamp.epoch.into(),
        sequence: stamp.sequence.into(),
    };
    fields.checksum = trailer_checksum(&entry, fields.as_bytes()).into();
    let (tail, trailer) = tail[tail_at..].split_at_mut(chunks.len());
    tail.copy_from_slice(chunks);
    trailer.copy_from_slice(fields.as_bytes());
    entry
}

/// The extents that puts left in a window: the entry and the sequence of each.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub whole: Vec<(Entry, u64)>,
    /// Those of which the trailer is whole and the value is not.
    pub broken: Vec<(Entry, u64)>,
}

/// Adds the extents that puts of an epoch left in a range of a window, from one sequence on. `bytes`
/// is the range, and `first` its first unit.
///
/// It goes from the end to the start, since an extent is told by its end: what looks like an extent
/// inside of a value is never looked at, if that value is whole.
pub(crate) fn find_placed(
    geometry: &Geometry,
    mut bytes: &[u8],
    first: u64,
    least: Stamp,
    found: &mut Placed,
) {
    let unit = geometry.unit_bytes as usize;
    while !bytes.is_empty() {
        let rest = match placed_at_end(geometry, bytes, first, least) {
            Some((entry, sequence, true)) => {
                found.whole.push((entry, sequence));
                (entry.start - first) as usize * unit
            }
            Some((entry, sequence, false)) => {
                found.broken.push((entry, sequence));
                bytes.len() - unit
            }
            None => bytes.len() - unit,
        };
        bytes = &bytes[..rest];
    }
}

/// What the last bytes are the trailer of: entry and sequence, and whether the value is whole.
fn placed_at_end(
    geometry: &Geometry,
    bytes: &[u8],
    first: u64,
    least: Stamp,
) -> Option<(Entry, u64, bool)> {
    let fields: Trailer = read(&bytes[bytes.len() - TRAILER_BYTES..]);
    let (length, sequence) = (fields.length.get(), fields.sequence.get());
    let is_candidate = fields.magic == PLACED_MAGIC
        && fields.epoch.get() == least.epoch
        && sequence >= least.sequence;
    let extent = extent_bytes(geometry, length as usize);
    if !is_candidate || extent as u64 > WINDOW_EXTENT_BYTES_MAX {
        return None;
    }
    let at = bytes.len().checked_sub(extent)?;
    let (start, bytes) = (first + at as u64 / geometry.unit_bytes, &bytes[at..]);
    let mut entry = Entry { key: fields.key.get(), start, length, checksum: 0 };
    let (checksums, trailer) = split_tail(bytes, length as usize);
    entry.checksum = entry.checksum_of(geometry, checksums);
    // The trailer first: whoever puts what looks like one does not know the store's identity.
    let extent = Extent { geometry, entry };
    extent.judge_trailer(checksums, trailer).ok()?;
    let is_whole = extent.judge_chunks(checksums, 0, &bytes[..length as usize]).is_ok();
    Some((entry, sequence, is_whole))
}

/// The checksums of the chunks and the trailer, of the last bytes of an extent.
fn split_tail(bytes: &[u8], length: usize) -> (&[u8], &[u8]) {
    bytes[bytes.len() - tail_bytes(length)..].split_at(4 * chunk_count(length))
}

/// The extent of an entry on the device.
pub(crate) struct Extent<'a> {
    pub geometry: &'a Geometry,
    pub entry: Entry,
}

impl Extent<'_> {
    fn offset(&self) -> u64 {
        self.geometry.unit_offset(self.entry.start)
    }

    fn corrupt(&self, what: String, expected: u32, found: u32) -> Error {
        Error::Corrupt {
            key: self.entry.key,
            offset: self.offset(),
            length_bytes: u64::from(self.entry.length),
            what,
            expected,
            found,
        }
    }

    fn read_at(&self, source: &dyn Source, bytes: &mut [u8], offset: u64) -> Result<()> {
        let (key, at) = (self.entry.key, self.offset());
        source.read_into(bytes, offset).map_err(|source| Error::Device {
            action: format!("read key {key:032x} from the extent at byte {at}"),
            source,
        })
    }

    /// Judges the checksums of the chunks: where they are those of the entry, so are the chunks that
    /// have them.
    fn judge_checksums(&self, chunks: &[u8], what: &str) -> Result<()> {
        match self.entry.checksum_of(self.geometry, chunks) {
            found if found == self.entry.checksum => Ok(()),
            found => Err(self.corrupt(what.into(), self.entry.checksum, found)),
        }
    }

    /// Judges the value by nothing but itself and the entry.
    fn judge_value(&self, value: &[u8]) -> Result<()> {
        self.judge_checksums(&chunk_checksums(value), "the value")
    }

    /// Judges the whole extent, value and tail, which no get of the value looks at; returns the put
    /// that wrote it.
    fn judge_all(&self, bytes: &[u8]) -> Result<Stamp> {
        let value = &bytes[..self.entry.length as usize];
        let (checksums, trailer) = split_tail(bytes, value.len());
        match self.judge_trailer(checksums, trailer) {
            Ok(stamp) => self.judge_chunks(checksums, 0, value).map(|()| stamp),
            Err(error) => Err(self.judge_value(value).err().unwrap_or(error)),
        }
    }

    fn judge_trailer(&self, checksums: &[u8], trailer: &[u8]) -> Result<Stamp> {
        let what = "the trailer (the value is whole)";
        self.judge_checksums(checksums, what)?;
        let fields: Trailer = read(trailer);
        let expected = trailer_checksum(&self.entry, trailer);
        if fields.checksum.get() != expected {
            return Err(self.corrupt(what.into(), expected, fields.checksum.get()));
        }
        // Only a collision of checksums gets here with another's trailer.
        let is_own = [TRAILER_MAGIC, PLACED_MAGIC].contains(&fields.magic)
            && fields.key.get() == self.entry.key
            && fields.length.get() == self.entry.length;
        if !is_own {
            return Err(self.corrupt("the trailer of another value".into(), 0, expected));
        }
        Ok(Stamp { epoch: fields.epoch.get(), sequence: fields.sequence.get() })
    }

    /// Judges chunks of the value, the first of which has the index `first`.
    fn judge_chunks(&self, checksums: &[u8], first: usize, bytes: &[u8]) -> Result<()> {
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let at = 4 * (first + index);
            let expected = u32::from_le_bytes(checksums[at..at + 4].try_into().expect("4 bytes"));
            let found = crc32c(&[chunk]);
            if found != expected {
                let what = format!("chunk {} of 64 KiB", first + index);
                return Err(self.corrupt(what, expected, found));
            }
        }
        Ok(())
    }

    /// Reads and verifies the value, with one read of the units that hold it.
    pub fn read(&self, source: &dyn Source, value: &mut Value) -> Result<()> {
        let length = self.entry.length as usize;
        value.resize(length);
        let bytes = length.next_multiple_of(self.geometry.unit_bytes as usize);
        self.read_at(source, &mut value.memory[..bytes], self.offset())?;
        self.judge_value(value)
    }

    /// Reads and verifies all of the extent; returns the put that wrote it.
    pub fn read_all(&self, source: &dyn Source, value: &mut Value) -> Result<Stamp> {
        value.resize(self.entry.length as usize);
        let bytes = extent_bytes(self.geometry, self.entry.length as usize);
        self.read_at(source, &mut value.memory[..bytes], self.offset())?;
        self.judge_all(&value.memory[..bytes])
    }

    /// Reads and verifies some bytes of the value: with one read where the extent is small or
    /// most of it is wanted, with two otherwise.
    pub fn read_range(&self, source: &dyn Source, range: Range<u64>) -> Result<Vec<u8>> {
        let length = self.entry.length as usize;
        let range = range_of(length as u64, range)?;
        let whole_bytes = extent_bytes(self.geometry, length);
        if whole_bytes as u64 <= RANGE_READ_BYTES || range.len() > whole_bytes / 2 {
            let mut value = Value::zeroed(0);
            self.read(source, &mut value)?;
            return Ok(value[range].to_vec());
        }
        let unit = self.geometry.unit_bytes as usize;
        let tail_start = (whole_bytes - tail_bytes(length)) / unit * unit;
        let mut tail = AlignedBuffer::zeroed(whole_bytes - tail_start);
        self.read_at(source, &mut tail, self.offset() + tail_start as u64)?;
        let (checksums, _) = split_tail(&tail, length);
        self.judge_checksums(checksums, "the checksums of the chunks")?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let first = range.start / CHUNK_BYTES;
        let start = first * CHUNK_BYTES;
        let end = range.end.next_multiple_of(CHUNK_BYTES).min(length);
        let mut chunks = AlignedBuffer::zeroed((end - start).next_multiple_of(unit));
        self.read_at(source, &mut chunks, self.offset() + start as u64)?;
        self.judge_chunks(checksums, first, &chunks[..end - start])?;
        Ok(chunks[range.start - start..range.end - start].to_vec())
    }
}
