//! The on-disk layout of lump: every structure, size and constant, and nothing else.
//!
//! All integers are little-endian. The structures hold no padding, which their derives check at
//! compile time. This module gives bytes to fields and back, and seals blocks with a checksum; it
//! does not judge what the fields say. The reasons are in `lump/docs/format-lump.md`.

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;

/// Size in bytes of a metadata block: superblock, root, journal block, checkpoint block.
pub const BLOCK_BYTES: u64 = 4096;
/// Format version that this code reads and writes.
pub const FORMAT_VERSION: u32 = 2;
/// First bytes of a superblock; the claim on devices in `block` knows them and where the UUID is.
pub const SUPERBLOCK_MAGIC: [u8; 8] = *b"\x89lump\r\n\x1a";
/// First bytes of a root.
pub const ROOT_MAGIC: [u8; 8] = *b"lumproot";
/// First bytes of a journal block.
pub const JOURNAL_MAGIC: [u8; 8] = *b"lumpjrnl";
/// First bytes of a checkpoint block.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"lumpckpt";
/// First bytes of a block of additions to a checkpoint.
pub const ADDITIONS_MAGIC: [u8; 8] = *b"lumpadds";
/// First bytes of the trailer of an extent.
pub const TRAILER_MAGIC: [u8; 8] = *b"lumptail";
/// First bytes of the trailer of an extent in a window.
pub const PLACED_MAGIC: [u8; 8] = *b"lumphere";
/// Block of the first of the two roots.
pub const ROOTS_BLOCK: u64 = 1;
/// First block of the journal.
pub const JOURNAL_BLOCK: u64 = 3;
/// A value is checked in chunks of this many bytes.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;
/// A range of a window has at most this many bytes: an opening needs as much memory.
pub const RANGE_BYTES_MAX: u64 = 16 << 20;
/// All ranges of a window have at most this many bytes: an opening reads them.
pub const WINDOW_BYTES_MAX: u64 = 128 << 20;
/// An extent in a window has at most this many bytes: one of a value of 256 KiB.
pub const WINDOW_EXTENT_BYTES_MAX: u64 = (256 << 10) + 4096;
/// Journal blocks, epochs and generations are below this, so that no sum of them overflows.
pub const NUMBER_END: u64 = 1 << 62;
/// Bytes of a block after its header.
pub const PAYLOAD_BYTES: usize = BLOCK_BYTES as usize - size_of::<BlockHeader>();
/// Records in a journal block, at the most.
pub const RECORDS_PER_BLOCK: usize = PAYLOAD_BYTES / size_of::<RecordOnDisk>();
/// Entries in a checkpoint block, at the most.
pub const ENTRIES_PER_BLOCK: usize = PAYLOAD_BYTES / size_of::<EntryOnDisk>();
/// `kind` of a record that says: this key has this value.
pub const KIND_PUT: u8 = 1;
/// `kind` of a record that says: this key has no value.
pub const KIND_DELETE: u8 = 2;
/// `kind` of a record that says: no key from `key` to `last` has a value.
pub const KIND_DELETE_RANGE: u8 = 3;
/// `kind` of a record that says: the window before is over; a new one has the ranges that follow.
pub const KIND_WINDOW: u8 = 4;
/// `kind` of a record that says: these units belong to the window.
pub const KIND_RANGE: u8 = 5;

/// Where the checksum of a block or a trailer lies: after the magic.
const CHECKSUM_AT: std::ops::Range<usize> = 8..12;

/// Block 0 and, as a copy, the last block.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// `SUPERBLOCK_MAGIC`.
    pub magic: [u8; 8],
    /// CRC-32C of all other bytes of the block.
    pub checksum: U32,
    /// `FORMAT_VERSION`.
    pub version: U32,
    /// Zero: a reader refuses a store with any that it does not know.
    pub features: U64,
    /// Identity of the store; part of every other checksum.
    pub uuid: [u8; 16],
    /// Size of the store in blocks, both superblocks included.
    pub store_blocks: U64,
    /// Blocks of the journal.
    pub journal_blocks: U64,
    /// Blocks of each of the two checkpoint areas, which follow the journal.
    pub area_blocks: U64,
    /// Most objects that the store may hold.
    pub objects_max: U64,
    /// Allocation unit of the data in bytes, 512 or 4096; the data follow the areas.
    pub unit_bytes: U32,
    /// Zero.
    pub reserved: [u8; 4020],
}

/// One of two blocks, written in turn: the one with the greater generation counts.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Root {
    /// `ROOT_MAGIC`.
    pub magic: [u8; 8],
    /// CRC-32C of the store's UUID and all other bytes of the block.
    pub checksum: U32,
    /// CRC-32C of the journal block before `journal_next`, or zero.
    pub journal_previous: U32,
    /// Number of the root; its place is this modulo 2.
    pub generation: U64,
    /// Blocks of the checkpoint.
    pub checkpoint_blocks: U64,
    /// Objects in the checkpoint.
    pub objects: U64,
    /// First journal block that is to be applied to the checkpoint and its additions.
    pub journal_next: U64,
    /// Epoch of the journal block before that.
    pub epoch: U64,
    /// All journal blocks up to this one, and the data they speak of, were durable before this
    /// root was written.
    pub fenced: U64,
    /// How many roots only added to a checkpoint: the number of the checkpoint is `generation`
    /// less this, and its area is that modulo 2.
    pub additions: U64,
    /// Blocks of additions, which follow those of the checkpoint.
    pub added_blocks: U64,
    /// Checksum of the last of them, or zero.
    pub added_checksum: U32,
    /// Zero.
    pub reserved: [u8; 4012],
}

/// The start of a block of the journal, of a checkpoint, or of additions to a checkpoint, which
/// hold records of the journal.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    /// `JOURNAL_MAGIC`, `CHECKPOINT_MAGIC` or `ADDITIONS_MAGIC`.
    pub magic: [u8; 8],
    /// CRC-32C of the store's UUID and all other bytes of the block.
    pub checksum: U32,
    /// Records or entries that follow.
    pub count: U32,
    /// Journal: number of the block, from 1 on; it lies at this modulo the journal's length.
    /// Checkpoint: index of the block. Additions: number of the block, from 1 on.
    pub sequence: U64,
    /// Journal: number of the opening that wrote it. Otherwise number of the checkpoint.
    pub epoch: U64,
    /// Journal: all blocks up to this one, and the data they speak of, were durable before this
    /// one was written. Otherwise zero.
    pub fenced: U64,
    /// Journal and additions: checksum of the block before, or zero. Checkpoint: zero.
    pub previous: U32,
    /// Zero.
    pub reserved: [u8; 20],
}

/// A change of the index.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordOnDisk {
    /// `KIND_PUT`, `KIND_DELETE`, `KIND_DELETE_RANGE`, `KIND_WINDOW` or `KIND_RANGE`.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// Put: the number in the trailer of the extent. Window: the least of the puts in it.
    /// Otherwise zero.
    pub sequence: U64,
    /// The key, or the first one. Window: the number of its ranges. Range of it: the first unit.
    pub key: U128,
    /// Put: as in an entry. Delete range: the last key. Range of a window: the number of units.
    /// Otherwise zero.
    pub body: [u8; 16],
}

/// An object in a checkpoint.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryOnDisk {
    /// The key.
    pub key: U128,
    /// First unit of the extent.
    pub start: U64,
    /// Length of the value in bytes.
    pub length: U32,
    /// CRC-32C of the store's UUID, the key, `start`, `length` and the CRC-32C of each chunk of the
    /// value.
    pub checksum: U32,
}

/// The last bytes of an extent; before it lie the CRC-32C of each chunk of the value, before
/// these zeros, and at the start of the extent the value.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Trailer {
    /// `TRAILER_MAGIC` or `PLACED_MAGIC`.
    pub magic: [u8; 8],
    /// CRC-32C of the checksum of the entry and all other bytes of the trailer.
    pub checksum: U32,
    /// Length of the value in bytes.
    pub length: U32,
    /// The key.
    pub key: U128,
    /// Number of the opening that wrote it.
    pub epoch: U64,
    /// Number of the put within the epoch.
    pub sequence: U64,
}

const _: () = assert!(size_of::<Superblock>() == BLOCK_BYTES as usize);
const _: () = assert!(size_of::<Root>() == BLOCK_BYTES as usize);
const _: () = assert!(size_of::<BlockHeader>() == 64);
const _: () = assert!(size_of::<RecordOnDisk>() == 48);
const _: () = assert!(size_of::<EntryOnDisk>() == 32);
const _: () = assert!(size_of::<Trailer>() == 48);

/// The checksum that belongs into `bytes`, a block or a trailer, after what came `before` it.
pub(crate) fn checksum_of(before: &[u8], bytes: &[u8]) -> u32 {
    crc32c(&[before, &bytes[..CHECKSUM_AT.start], &bytes[CHECKSUM_AT.end..]])
}

/// Writes its checksum into a block and returns it.
pub fn seal(uuid: &[u8; 16], block: &mut [u8]) -> u32 {
    let checksum = checksum_of(uuid, block);
    block[CHECKSUM_AT].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// Whether a block begins with `magic` and carries its checksum.
pub fn is_sealed(uuid: &[u8; 16], magic: &[u8; 8], block: &[u8]) -> bool {
    block.starts_with(magic) && block[CHECKSUM_AT] == checksum_of(uuid, block).to_le_bytes()
}

/// The structure at the start of `bytes`, which must be long enough.
pub fn read<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).expect("the caller gives at least the size of the structure").0
}
