/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* minfs as a kernel module: what its parts share. The rules are those of minfs/docs/format-minfs.md. */
#ifndef MINFS_H
#define MINFS_H

#include <linux/blk_types.h>
#include <linux/fs.h>
#include <linux/iomap.h>
#include <linux/pagemap.h>
#include <linux/writeback.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/hashtable.h>
#include <linux/version.h>
#include "minfs_format.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#define mnt_idmap user_namespace
#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
#define minfs_time(inode, which) ((inode)->i_##which)
#define minfs_set_time(inode, which, t) ((inode)->i_##which = (t))
#else
#define minfs_time(inode, which) inode_get_##which(inode)
#define minfs_set_time(inode, which, t) inode_set_##which##_to_ts(inode, t)
#endif

#define MINFS_BLOCK ((u32)MINFS_BLOCK_BYTES)
#define MINFS_SECTORS 8
#define MINFS_PAYLOAD 500
#define MINFS_ROOT_INO 1
#define MINFS_FIRST_INO 2
/* Two leaps of a repair (2^48 each) below the end of the range. */
#define MINFS_GENERATION_WRITABLE_MAX (MINFS_GENERATION_END - (1ULL << 49))
#define MINFS_MAGIC 0x6d696e66
/* When the tails of all files exceed this they are settled: it bounds what a mount reads. */
#define MINFS_TAILS_BYTES_MAX (64ULL << 20)

struct minfs_run {
	u32 start, count;
};

/* What a record says; `extents` is allocated. */
struct minfs_record {
	u64 generation, previous_generation, buried_generation;
	u32 inode, buried_inode;
	bool is_file, has_tail;
	u32 tail_checksum;
	u64 tail_start, size, valid;
	u32 mode, user, group;
	s64 accessed_ns, modified_ns, changed_ns, created_ns;
	u32 name_length, extent_count;
	char name[MINFS_NAME_BYTES_MAX + 1];
	struct minfs_run *extents;
};

enum minfs_slot_kind { MINFS_BLANK, MINFS_WHOLE, MINFS_INTERRUPTED, MINFS_DECAYED };

struct minfs_slot {
	enum minfs_slot_kind kind;
	bool has_good, has_zeros, has_name;
	u64 oldest, newest;		/* generations of the good sectors */
	u64 previous_generation;	/* of an interrupted one */
	struct minfs_record *record;	/* of a whole one */
};

/* Which slot of an inode holds the durable record. */
struct minfs_slot_state {
	s8 durable_slot;		/* -1: none */
	bool is_free, is_buried, is_barred;
	u32 buried_inode;
	u64 durable_generation, buried_generation;
};

/*
 * A file; lives as long as its name or its VFS inode. While it has an inode, size, owner, mode and
 * times are the inode's, and `now` has those of the newest record. Locks are taken in the order
 * inode, invalidation of pages, names, turn, gap, folio, space, space_lock; two turns only under the names.
 */
struct minfs_node {
	struct hlist_node by_name;
	u32 number;
	struct mutex turn;		/* to write a record of the file */
	struct mutex gap;		/* to make zeros out of what lies behind the valid length */
	struct rw_semaphore space;	/* everything below */
	struct minfs_record now;	/* extents: room for MINFS_EXTENTS_MAX */
	u64 recorded_valid;		/* that of the newest durable record */
	u64 sum_start;			/* from here to the valid length bytes have this checksum, */
	u32 sum;
	bool has_sum;			/* unless some were changed since they were added */
	u32 added_sum;			/* the same of what a direct write is about to add */
	u64 added_start, added_end;
	u64 tail_start, tail_end;	/* records that may count vouch for these; equal: nothing */
	u64 tail_bytes;			/* of the durable record */
	u64 plain_end;			/* bytes below it are in no tail, and will be in none */
	u32 lent, returned;		/* pages lent to mappings for stores, and surely taken back */
	u64 kept_units;			/* the file's even beyond the valid length */
	u64 busy_units;			/* where somebody may be writing */
	u32 cuts;			/* how often space was taken away */
	bool is_dirty;			/* more than the time of a write differs from the newest record */
	bool has_times;			/* `now` has times that no record has */
	bool is_damaged, is_unlinked;
	bool has_lost;			/* bytes or a record, since the volume failed */
};

struct minfs_volume {
	struct super_block *sb;
	u8 uuid[16];
	u64 slots_block[2], data_block, volume_blocks, backup_block;
	u32 unit_bytes, unit_shift, unit_count, inode_count;
	bool has_unknown_read_only, has_failed, is_error;
	bool is_durable;		/* what the mount found is, and void records are replaced */
	struct mutex names;
	DECLARE_HASHTABLE(by_name, 10);
	u32 file_count;
	struct minfs_node **nodes;
	struct minfs_slot_state *slots;
	atomic64_t next_generation;
	struct mutex space_lock;		/* the two below */
	unsigned long *used;
	u64 free_units;
	struct mutex flush_lock;
	u64 flush_begun, flush_done;
	atomic64_t tail_bytes;		/* of all files */
};

static inline struct minfs_volume *minfs_of(struct super_block *sb)
{
	return sb->s_fs_info;
}

/* Of a file; the root has none. */
static inline struct minfs_node *minfs_node_of(struct inode *inode)
{
	return inode->i_private;
}

/* After any of the above has changed. */
static inline void minfs_update_plain_end(struct minfs_node *n)
{
	u64 end = n->has_sum ? n->sum_start : n->now.valid;

	WRITE_ONCE(n->plain_end, n->tail_start < n->tail_end ? min(end, n->tail_start) : end);
}

static inline u64 minfs_unit_offset(const struct minfs_volume *v, u32 unit)
{
	return v->data_block * MINFS_BLOCK + ((u64)unit << v->unit_shift);
}

/* record.c: bytes to records and back; any bytes will do. */
u32 minfs_crc(u32 before, const void *bytes, size_t length);
void minfs_read_slot(const struct minfs_volume *v, const u8 *block, u32 inode, int slot,
		     struct minfs_slot *out);
int minfs_encode(const struct minfs_volume *v, const struct minfs_record *r, int slot, u8 *block);
bool minfs_valid_name(const char *name, u32 length);
void minfs_free_record(struct minfs_record *r);

/* survey.c: what a mount finds. */
int minfs_read_geometry(struct minfs_volume *v);
int minfs_survey(struct minfs_volume *v);
void minfs_free_nodes(struct minfs_volume *v);

/* space.c: free units, and where the bytes of a file lie. */
void minfs_claim(struct minfs_volume *v, const struct minfs_run *run);
void minfs_free_units(struct minfs_volume *v, const struct minfs_run *runs, u32 count);
int minfs_grow(struct minfs_volume *v, struct minfs_node *n, u64 end, bool ahead);
u32 minfs_cut(struct minfs_node *n, u64 units, struct minfs_run *freed);
void minfs_give_back(struct minfs_volume *v, struct minfs_node *n);
u64 minfs_held_units(const struct minfs_node *n);
u64 minfs_needed_units(const struct minfs_volume *v, const struct minfs_node *n, u64 valid);
bool minfs_place(const struct minfs_volume *v, const struct minfs_node *n, u64 at, u64 *where,
		 u64 *length);

/* volume.c: records and flushes in their order. */
int minfs_io(struct minfs_volume *v, blk_opf_t op, u64 block, void *bytes);
int minfs_writable(struct minfs_volume *v);
int minfs_fail(struct minfs_volume *v, const char *what, int error);
u64 minfs_flush_mark(const struct minfs_volume *v);
int minfs_flush_since(struct minfs_volume *v, u64 mark);
int minfs_flush(struct minfs_volume *v);
int minfs_write_record(struct minfs_volume *v, struct minfs_record *r, s64 buries,
		       struct minfs_slot_state *then);
int minfs_record_now(struct minfs_volume *v, struct minfs_record *r, s64 buries);
struct minfs_node *minfs_new_node(u32 number);
void minfs_drop_node(struct minfs_node *n);
struct minfs_node *minfs_find(struct minfs_volume *v, const char *name, u32 length);
void minfs_link(struct minfs_volume *v, struct minfs_node *n);
void minfs_release(struct minfs_volume *v, struct minfs_node *n);
void minfs_take_inode(struct minfs_node *n, struct inode *inode);
int minfs_store_as(struct minfs_volume *v, struct minfs_node *n, struct inode *inode,
		   const struct qstr *name, s64 buries, bool may_have_tail);
int minfs_store_if_dirty(struct minfs_volume *v, struct minfs_node *n, struct inode *inode);
int minfs_write_settled(struct minfs_volume *v, struct minfs_node *n,
			struct minfs_slot_state *then);
int minfs_settle(struct minfs_volume *v, struct minfs_node *n);
int minfs_settle_all(struct minfs_volume *v, bool is_final);
int minfs_bound_tails(struct minfs_volume *v);
void minfs_forget_tail(struct minfs_volume *v, struct minfs_node *n);

/* data.c: the bytes of files. */
extern const struct iomap_ops minfs_iomap_ops;
extern const struct address_space_operations minfs_aops;
int minfs_before_change(struct inode *inode, u64 from, u64 to);
int minfs_reserve(struct inode *inode, u64 to, bool ahead);
int minfs_fill_gap(struct inode *inode, u64 to, bool sums);
void minfs_clear_behind_size(struct inode *inode);
struct folio *minfs_hold_cut(struct inode *inode, u64 from, u64 to);
ssize_t minfs_read_iter(struct kiocb *iocb, struct iov_iter *to);
ssize_t minfs_write_iter(struct kiocb *iocb, struct iov_iter *from);
int minfs_mmap(struct file *file, struct vm_area_struct *vma);

/* direct.c: direct reads and writes in place that need nothing of iomap. */
int minfs_direct_init(void);
void minfs_direct_exit(void);
ssize_t minfs_direct(struct kiocb *iocb, struct iov_iter *iter);

/* file.c: what is asked of a file as a whole. */
extern const struct file_operations minfs_file_operations;
extern const struct inode_operations minfs_file_inode_operations;

#endif
