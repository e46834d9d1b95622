//! The on-disk layout of minfs: every offset, size and constant, and nothing else.
//!
//! All integers are little-endian and packed. The structures are declared once, by
//! [`structure!`], which checks at compile time that the fields lie gap-free and fill the stated
//! size, and from which the C header for a kernel module is generated ([`c_header`]; a test
//! compares it with `minfs_format.h`). This module gives bytes to fields and back; it does not
//! judge them: that is `record` and `geometry`. The reasons are in `minfs/docs/format-minfs.md`.

/// Size in bytes of every metadata transfer and of the geometry and slot blocks.
pub const BLOCK_BYTES: u64 = 4096;
/// Unit in bytes that the medium is assumed to write whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// Sectors in a block.
pub const SECTORS_PER_BLOCK: usize = 8;
/// First bytes of the geometry block.
pub const GEOMETRY_MAGIC: [u8; 8] = *b"\x89minfs\r\n";
/// Format version that this code reads and writes.
pub const FORMAT_VERSION: u32 = 1;
/// First bytes of a slot.
pub const SLOT_MAGIC: [u8; 4] = *b"mino";
/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest label in bytes.
pub const LABEL_BYTES_MAX: usize = 64;
/// Most inodes that a volume can have.
pub const INODES_MAX: u32 = 65_536;
/// Smallest allocation unit in bytes.
pub const UNIT_BYTES_MIN: u32 = 4096;
/// Largest allocation unit in bytes.
pub const UNIT_BYTES_MAX: u32 = 1 << 30;
/// Most allocation units that a volume can have, so that a unit number fits 32 bits.
pub const UNITS_MAX: u32 = u32::MAX - 1;
/// Longest extension in bytes that a record may vouch for with a checksum of the data.
pub const TAIL_BYTES_MAX: u64 = 16 << 20;
/// Extents in each of the sectors 1 to 7 of a slot.
pub const EXTENTS_PER_SECTOR: usize = 62;
/// Most extents of a file.
pub const EXTENTS_MAX: usize = EXTENTS_PER_SECTOR * (SECTORS_PER_BLOCK - 1);
/// Generations are 1 to below this; at a million records a second it takes 290,000 years.
pub const GENERATION_END: u64 = 1 << 63;
/// Bytes of a slot's sector that carry content; the trailer follows.
pub const PAYLOAD_BYTES: usize = SECTOR_BYTES - SectorTrailer::SIZE;
/// `kind` of a record that says: this inode is free.
pub const KIND_FREE: u16 = 0;
/// `kind` of a record that describes a regular file.
pub const KIND_FILE: u16 = 1;
/// Flag of a record: the bytes from `tail_start` to `valid_bytes` count only if their checksum
/// is `tail_checksum`; otherwise the previous record counts.
pub const FLAG_TAIL: u16 = 1;
/// Value of `buried_inode` when the record buries nothing.
pub const NO_INODE: u32 = u32::MAX;

/// A type that can be a field of a structure on disk.
pub trait Field: Sized {
    /// Bytes on disk.
    const SIZE: usize;
    /// The C declaration of a field of this type with the name `NAME`.
    fn c_declaration(name: &str) -> String;
    /// Writes the value to the first `SIZE` bytes.
    fn put(&self, bytes: &mut [u8]);
    /// Reads the value from the first `SIZE` bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! integer_field {
    ($type:ty, $c:literal) => {
        impl Field for $type {
            const SIZE: usize = size_of::<$type>();
            fn c_declaration(name: &str) -> String {
                format!("{} {name};", $c)
            }
            fn put(&self, bytes: &mut [u8]) {
                bytes[..Self::SIZE].copy_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(&bytes[..Self::SIZE]);
                <$type>::from_le_bytes(own)
            }
        }
    };
}

integer_field!(u16, "__le16");
integer_field!(u32, "__le32");
integer_field!(u64, "__le64");
// C has no signed little-endian type: the two's complement lies in the same bytes.
integer_field!(i64, "__le64");

impl<const LENGTH: usize> Field for [u8; LENGTH] {
    const SIZE: usize = LENGTH;
    fn c_declaration(name: &str) -> String {
        format!("__u8 {name}[{LENGTH}];")
    }
    fn put(&self, bytes: &mut [u8]) {
        bytes[..LENGTH].copy_from_slice(self);
    }
    fn get(bytes: &[u8]) -> Self {
        let mut own = [0; LENGTH];
        own.copy_from_slice(&bytes[..LENGTH]);
        own
    }
}

/// Declares a packed structure: `field: type = offset`.
macro_rules! structure {
    ($(#[$about:meta])* $name:ident, $c_name:literal, $size:expr, {
        $($(#[doc = $note:literal])* $field:ident: $type:ty = $offset:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $note])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes on disk.
            pub const SIZE: usize = $size;

            const GAP_FREE: () = {
                let mut end = 0;
                $(
                    assert!($offset == end, "a field does not start where the last one ended");
                    end += <$type as Field>::SIZE;
                )*
                assert!(end == $size, "the fields do not fill the structure");
            };

            /// Writes all fields to the first [`Self::SIZE`] bytes.
            pub fn encode(&self, bytes: &mut [u8]) {
                let () = Self::GAP_FREE;
                $(self.$field.put(&mut bytes[$offset..]);)*
            }

            /// All fields zero.
            pub fn zeroed() -> Self {
                Self::decode(&[0; $size])
            }

            /// Reads all fields from the first [`Self::SIZE`] bytes; any bytes will do.
            pub fn decode(bytes: &[u8]) -> Self {
                let () = Self::GAP_FREE;
                Self { $($field: <$type as Field>::get(&bytes[$offset..]),)* }
            }

            fn c_structure() -> String {
                let mut text = format!("struct {} {{\n", $c_name);
                $(
                    let declaration = <$type as Field>::c_declaration(stringify!($field));
                    let note = [$($note),*].concat();
                    text += &format!("\t/* {:4}:{} */\n\t{declaration}\n", $offset, note);
                )*
                text += "} __attribute__((packed));\n";
                text += &format!(
                    "_Static_assert(sizeof(struct {}) == {}, \"size of {}\");\n",
                    $c_name, $size, $c_name
                );
                text
            }
        }
    };
}

structure! {
    /// Block 0 and the last block of the volume.
    Geometry, "minfs_geometry", 4096, {
        /// `GEOMETRY_MAGIC`.
        magic: [u8; 8] = 0,
        /// `FORMAT_VERSION`.
        version: u32 = 8,
        /// Always 4096.
        block_bytes: u32 = 12,
        /// A reader that does not know one of these refuses the volume.
        features_incompatible: u64 = 16,
        /// A reader that does not know one of these mounts read-only.
        features_read_only: u64 = 24,
        /// A reader may ignore these.
        features_compatible: u64 = 32,
        /// Identity of the volume; part of every checksum in the slots.
        uuid: [u8; 16] = 40,
        /// Label, zero-padded.
        label: [u8; 64] = 56,
        /// Size of the volume in blocks, the backup geometry included.
        volume_blocks: u64 = 120,
        /// Block of the first slot of inode 0; the first slots of all inodes follow.
        first_slots_block: u64 = 128,
        /// Block of the second slot of inode 0; the second slots of all inodes follow.
        second_slots_block: u64 = 136,
        /// Block where allocation unit 0 begins.
        data_block: u64 = 144,
        /// Block of the backup of this block: the last of the volume.
        backup_block: u64 = 152,
        /// Allocation unit in bytes, a power of two.
        unit_bytes: u32 = 160,
        /// Number of allocation units.
        unit_count: u32 = 164,
        /// Number of inodes.
        inode_count: u32 = 168,
        /// Zero.
        reserved_word: u32 = 172,
        /// When the volume was made, nanoseconds since 1970 UTC.
        created_ns: i64 = 176,
        /// Zero.
        reserved: [u8; 3908] = 184,
        /// CRC-32C of all bytes before.
        checksum: u32 = 4092,
    }
}

structure! {
    /// The end of each of the eight sectors of a slot.
    SectorTrailer, "minfs_sector_trailer", 12, {
        /// Generation of the record that this sector is part of.
        generation: u64 = 0,
        /// CRC-32C of uuid, inode (32 bits), slot (16 bits), sector (16 bits), then all bytes of
        /// the sector before this field.
        checksum: u32 = 8,
    }
}

structure! {
    /// Payload of sector 0 of a slot.
    SlotHeader, "minfs_slot_header", 500, {
        /// `SLOT_MAGIC`.
        magic: [u8; 4] = 0,
        /// `KIND_FREE` or `KIND_FILE`.
        kind: u16 = 4,
        /// `FLAG_TAIL` or zero.
        flags: u16 = 6,
        /// Number of the inode.
        inode: u32 = 8,
        /// Number of extents in sectors 1 to 7.
        extent_count: u32 = 12,
        /// Generation of the record that the other slot held when this one was written, or zero.
        previous_generation: u64 = 16,
        /// Records of `buried_inode` up to this generation count as free.
        buried_generation: u64 = 24,
        /// An inode whose name this one has taken over, or `NO_INODE`.
        buried_inode: u32 = 32,
        /// CRC-32C of the file's bytes from `tail_start` to `valid_bytes`, with `FLAG_TAIL`.
        tail_checksum: u32 = 36,
        /// See `tail_checksum`; zero without `FLAG_TAIL`.
        tail_start: u64 = 40,
        /// Length of the file in bytes.
        size_bytes: u64 = 48,
        /// Bytes from here on read as zeros, whatever the medium holds.
        valid_bytes: u64 = 56,
        /// Permission bits.
        mode: u32 = 64,
        /// Owner.
        user: u32 = 68,
        /// Group.
        group: u32 = 72,
        /// Length of the name in bytes.
        name_length: u32 = 76,
        /// Last access, nanoseconds since 1970 UTC.
        accessed_ns: i64 = 80,
        /// Last change of the content.
        modified_ns: i64 = 88,
        /// Last change of this record's other fields.
        changed_ns: i64 = 96,
        /// Creation.
        created_ns: i64 = 104,
        /// Name, zero-padded.
        name: [u8; 255] = 112,
        /// Zero.
        reserved: [u8; 133] = 367,
    }
}

structure! {
    /// Allocation units that hold consecutive bytes of a file.
    ExtentOnDisk, "minfs_extent", 8, {
        /// First unit.
        start: u32 = 0,
        /// Number of units.
        count: u32 = 4,
    }
}

const _: () = assert!(SlotHeader::SIZE == PAYLOAD_BYTES);
const _: () = assert!(EXTENTS_PER_SECTOR * ExtentOnDisk::SIZE <= PAYLOAD_BYTES);
const _: () = assert!(SECTOR_BYTES * SECTORS_PER_BLOCK == BLOCK_BYTES as usize);

/// The C header of this layout, for an implementation in the kernel.
pub fn c_header() -> String {
    let mut text = String::from(
        "/* SPDX-License-Identifier: MIT OR Apache-2.0 */\n\
         /* Generated from minfs/src/layout.rs; a test compares the two. */\n\
         #ifndef MINFS_FORMAT_H\n#define MINFS_FORMAT_H\n\n#include <linux/types.h>\n\n",
    );
    let numbers: [(&str, u64); 16] = [
        ("BLOCK_BYTES", BLOCK_BYTES),
        ("SECTOR_BYTES", SECTOR_BYTES as u64),
        ("FORMAT_VERSION", u64::from(FORMAT_VERSION)),
        ("NAME_BYTES_MAX", NAME_BYTES_MAX as u64),
        ("LABEL_BYTES_MAX", LABEL_BYTES_MAX as u64),
        ("INODES_MAX", u64::from(INODES_MAX)),
        ("UNIT_BYTES_MIN", u64::from(UNIT_BYTES_MIN)),
        ("UNIT_BYTES_MAX", u64::from(UNIT_BYTES_MAX)),
        ("TAIL_BYTES_MAX", TAIL_BYTES_MAX),
        ("EXTENTS_PER_SECTOR", EXTENTS_PER_SECTOR as u64),
        ("EXTENTS_MAX", EXTENTS_MAX as u64),
        ("GENERATION_END", GENERATION_END),
        ("KIND_FREE", u64::from(KIND_FREE)),
        ("KIND_FILE", u64::from(KIND_FILE)),
        ("FLAG_TAIL", u64::from(FLAG_TAIL)),
        ("NO_INODE", u64::from(NO_INODE)),
    ];
    for (name, value) in numbers {
        text += &format!("#define MINFS_{name} {value}ULL\n");
    }
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    text += &format!("#define MINFS_GEOMETRY_MAGIC \"{}\"\n", octal(&GEOMETRY_MAGIC));
    text += &format!("#define MINFS_SLOT_MAGIC \"{}\"\n\n", octal(&SLOT_MAGIC));
    let structures = [
        Geometry::c_structure(),
        SectorTrailer::c_structure(),
        SlotHeader::c_structure(),
        ExtentOnDisk::c_structure(),
    ];
    text += &structures.join("\n");
    text += "\n#endif\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set `MINFS_WRITE_HEADER=1` to write the header anew after a change of the layout.
    #[test]
    fn the_c_header_says_what_this_file_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/minfs_format.h");
        if std::env::var_os("MINFS_WRITE_HEADER").is_some() {
            std::fs::write(path, c_header()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), c_header());
    }

    #[test]
    fn fields_come_back_from_their_bytes() {
        let bytes: Vec<u8> = (0..500).map(|index| (index * 7 + 1) as u8).collect();
        let header = SlotHeader::decode(&bytes);
        let mut again = vec![0; 500];
        header.encode(&mut again);
        assert_eq!(again, bytes);
        assert_eq!(header.inode, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]));
    }
}
