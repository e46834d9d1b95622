/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Generated from minfs/src/layout.rs; a test compares the two. */
#ifndef MINFS_FORMAT_H
#define MINFS_FORMAT_H

#include <linux/types.h>

#define MINFS_BLOCK_BYTES 4096ULL
#define MINFS_SECTOR_BYTES 512ULL
#define MINFS_FORMAT_VERSION 1ULL
#define MINFS_NAME_BYTES_MAX 255ULL
#define MINFS_LABEL_BYTES_MAX 64ULL
#define MINFS_INODES_MAX 65536ULL
#define MINFS_UNIT_BYTES_MIN 4096ULL
#define MINFS_UNIT_BYTES_MAX 1073741824ULL
#define MINFS_TAIL_BYTES_MAX 16777216ULL
#define MINFS_EXTENTS_PER_SECTOR 62ULL
#define MINFS_EXTENTS_MAX 434ULL
#define MINFS_GENERATION_END 9223372036854775808ULL
#define MINFS_KIND_FREE 0ULL
#define MINFS_KIND_FILE 1ULL
#define MINFS_FLAG_TAIL 1ULL
#define MINFS_NO_INODE 4294967295ULL
#define MINFS_GEOMETRY_MAGIC "\211\155\151\156\146\163\015\012"
#define MINFS_SLOT_MAGIC "\155\151\156\157"

struct minfs_geometry {
	/*    0: `GEOMETRY_MAGIC`. */
	__u8 magic[8];
	/*    8: `FORMAT_VERSION`. */
	__le32 version;
	/*   12: Always 4096. */
	__le32 block_bytes;
	/*   16: A reader that does not know one of these refuses the volume. */
	__le64 features_incompatible;
	/*   24: A reader that does not know one of these mounts read-only. */
	__le64 features_read_only;
	/*   32: A reader may ignore these. */
	__le64 features_compatible;
	/*   40: Identity of the volume; part of every checksum in the slots. */
	__u8 uuid[16];
	/*   56: Label, zero-padded. */
	__u8 label[64];
	/*  120: Size of the volume in blocks, the backup geometry included. */
	__le64 volume_blocks;
	/*  128: Block of the first slot of inode 0; the first slots of all inodes follow. */
	__le64 first_slots_block;
	/*  136: Block of the second slot of inode 0; the second slots of all inodes follow. */
	__le64 second_slots_block;
	/*  144: Block where allocation unit 0 begins. */
	__le64 data_block;
	/*  152: Block of the backup of this block: the last of the volume. */
	__le64 backup_block;
	/*  160: Allocation unit in bytes, a power of two. */
	__le32 unit_bytes;
	/*  164: Number of allocation units. */
	__le32 unit_count;
	/*  168: Number of inodes. */
	__le32 inode_count;
	/*  172: Zero. */
	__le32 reserved_word;
	/*  176: When the volume was made, nanoseconds since 1970 UTC. */
	__le64 created_ns;
	/*  184: Zero. */
	__u8 reserved[3908];
	/* 4092: CRC-32C of all bytes before. */
	__le32 checksum;
} __attribute__((packed));
_Static_assert(sizeof(struct minfs_geometry) == 4096, "size of minfs_geometry");

struct minfs_sector_trailer {
	/*    0: Generation of the record that this sector is part of. */
	__le64 generation;
	/*    8: CRC-32C of uuid, inode (32 bits), slot (16 bits), sector (16 bits), then all bytes of the sector before this field. */
	__le32 checksum;
} __attribute__((packed));
_Static_assert(sizeof(struct minfs_sector_trailer) == 12, "size of minfs_sector_trailer");

struct minfs_slot_header {
	/*    0: `SLOT_MAGIC`. */
	__u8 magic[4];
	/*    4: `KIND_FREE` or `KIND_FILE`. */
	__le16 kind;
	/*    6: `FLAG_TAIL` or zero. */
	__le16 flags;
	/*    8: Number of the inode. */
	__le32 inode;
	/*   12: Number of extents in sectors 1 to 7. */
	__le32 extent_count;
	/*   16: Generation of the record that the other slot held when this one was written, or zero. */
	__le64 previous_generation;
	/*   24: Records of `buried_inode` up to this generation count as free. */
	__le64 buried_generation;
	/*   32: An inode whose name this one has taken over, or `NO_INODE`. */
	__le32 buried_inode;
	/*   36: CRC-32C of the file's bytes from `tail_start` to `valid_bytes`, with `FLAG_TAIL`. */
	__le32 tail_checksum;
	/*   40: See `tail_checksum`; zero without `FLAG_TAIL`. */
	__le64 tail_start;
	/*   48: Length of the file in bytes. */
	__le64 size_bytes;
	/*   56: Bytes from here on read as zeros, whatever the medium holds. */
	__le64 valid_bytes;
	/*   64: Permission bits. */
	__le32 mode;
	/*   68: Owner. */
	__le32 user;
	/*   72: Group. */
	__le32 group;
	/*   76: Length of the name in bytes. */
	__le32 name_length;
	/*   80: Last access, nanoseconds since 1970 UTC. */
	__le64 accessed_ns;
	/*   88: Last change of the content. */
	__le64 modified_ns;
	/*   96: Last change of this record's other fields. */
	__le64 changed_ns;
	/*  104: Creation. */
	__le64 created_ns;
	/*  112: Name, zero-padded. */
	__u8 name[255];
	/*  367: Zero. */
	__u8 reserved[133];
} __attribute__((packed));
_Static_assert(sizeof(struct minfs_slot_header) == 500, "size of minfs_slot_header");

struct minfs_extent {
	/*    0: First unit. */
	__le32 start;
	/*    4: Number of units. */
	__le32 count;
} __attribute__((packed));
_Static_assert(sizeof(struct minfs_extent) == 8, "size of minfs_extent");

#endif
