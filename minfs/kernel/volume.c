// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Records and flushes in their order, as minfs/src/shared.rs has it:
 * a record goes to the slot that does not hold the durable one, an operation returns after a flush
 * that covers its record, and space is handed out again only after that flush. After an error of a
 * write of metadata or of a flush nothing more is written. A record that moves the valid length names
 * the checksum of the bytes that it adds (their tail), or is written after a flush that covers them.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/slab.h>
#include <linux/stringhash.h>
#include "minfs.h"

/* One block of metadata; `bytes` is a page. */
int minfs_io(struct minfs_volume *v, blk_opf_t op, u64 block, void *bytes)
{
	struct bio_vec vec;
	struct bio bio;
	int error;

	bio_init(&bio, v->sb->s_bdev, &vec, 1, op | REQ_META | REQ_SYNC);
	bio.bi_iter.bi_sector = block * (MINFS_BLOCK / SECTOR_SIZE);
	__bio_add_page(&bio, virt_to_page(bytes), MINFS_BLOCK, offset_in_page(bytes));
	error = submit_bio_wait(&bio);
	bio_uninit(&bio);
	return error;
}

int minfs_writable(struct minfs_volume *v)
{
	return READ_ONCE(v->has_failed) || sb_rdonly(v->sb) ? -EROFS : 0;
}

int minfs_fail(struct minfs_volume *v, const char *what, int error)
{
	if (!xchg(&v->has_failed, true))
		pr_err("minfs: %s: read-only, since %s failed: %d\n", v->sb->s_id, what, error);
	return error;
}

/* A flush that begins after this covers what was written before. */
u64 minfs_flush_mark(const struct minfs_volume *v)
{
	smp_mb();
	return READ_ONCE(v->flush_begun);
}

/* Flushes, unless a flush that began after the mark has succeeded. */
int minfs_flush_since(struct minfs_volume *v, u64 mark)
{
	int error = 0;

	mutex_lock(&v->flush_lock);
	if (v->has_failed) {
		error = -EROFS;
	} else if (v->flush_done <= mark) {
		WRITE_ONCE(v->flush_begun, v->flush_begun + 1);
		smp_mb();
		error = blkdev_issue_flush(v->sb->s_bdev);
		if (error)
			minfs_fail(v, "a flush", error);
		else
			v->flush_done = v->flush_begun;
	}
	mutex_unlock(&v->flush_lock);
	return error;
}

/* Covers what was written before it began; callers that wait share one. */
int minfs_flush(struct minfs_volume *v)
{
	return minfs_flush_since(v, minfs_flush_mark(v));
}

/* Writes a record, not yet durable; `then` becomes the inode's slot state after the next flush. */
int minfs_write_record(struct minfs_volume *v, struct minfs_record *r, s64 buries,
		       struct minfs_slot_state *then)
{
	struct minfs_slot_state *now = &v->slots[r->inode];
	int slot = now->durable_slot < 0 ? 0 : 1 - now->durable_slot, error;
	u8 *block;

	if (READ_ONCE(v->has_failed))
		return -EROFS;
	/* A file whose space was cut must not wait for its record until there is memory. */
	block = (u8 *)__get_free_page(GFP_NOFS | __GFP_NOFAIL);
	r->generation = atomic64_fetch_inc(&v->next_generation);
	r->previous_generation = now->durable_generation;
	r->buried_inode = MINFS_NO_INODE;
	r->buried_generation = 0;
	if (buries >= 0) {
		r->buried_inode = buries;
		r->buried_generation = r->generation - 1;
	} else if (now->buried_inode != MINFS_NO_INODE &&
		   v->slots[now->buried_inode].durable_generation <= now->buried_generation) {
		/* Carried on until the buried inode has a record of its own. */
		r->buried_inode = now->buried_inode;
		r->buried_generation = now->buried_generation;
	}
	error = minfs_encode(v, r, slot, block);
	if (error) {
		WARN_ONCE(1, "minfs: a record would not be readable\n");
		minfs_fail(v, "the check of a record", error);
	} else {
		error = minfs_io(v, REQ_OP_WRITE, v->slots_block[slot] + r->inode, block);
		if (error)
			minfs_fail(v, "the write of a record", error);
	}
	free_page((unsigned long)block);
	*then = *now;
	then->durable_slot = slot;
	then->durable_generation = r->generation;
	then->buried_inode = r->buried_inode;
	then->buried_generation = r->buried_generation;
	return error;
}

/* The same, and a flush. */
int minfs_record_now(struct minfs_volume *v, struct minfs_record *r, s64 buries)
{
	struct minfs_slot_state then;
	int error = minfs_write_record(v, r, buries, &then);

	if (!error)
		error = minfs_flush(v);
	if (!error)
		v->slots[r->inode] = then;
	return error;
}

struct minfs_node *minfs_new_node(u32 number)
{
	struct minfs_node *n = kzalloc(sizeof(*n), GFP_NOFS);

	if (!n)
		return NULL;
	n->now.extents = kcalloc(MINFS_EXTENTS_MAX, sizeof(*n->now.extents), GFP_NOFS);
	if (!n->now.extents) {
		kfree(n);
		return NULL;
	}
	n->number = n->now.inode = number;
	n->now.is_file = n->has_sum = true;
	mutex_init(&n->turn);
	mutex_init(&n->gap);
	init_rwsem(&n->space);
	INIT_HLIST_NODE(&n->by_name);
	return n;
}

void minfs_drop_node(struct minfs_node *n)
{
	if (n) {
		kfree(n->now.extents);
		kfree(n);
	}
}

static s64 to_ns(struct timespec64 t)
{
	return timespec64_to_ns(&t);
}

/* What the next record says of owner, mode and times. */
void minfs_take_inode(struct minfs_node *n, struct inode *inode)
{
	struct minfs_record *r = &n->now;
	s64 accessed = to_ns(minfs_time(inode, atime)), modified = to_ns(minfs_time(inode, mtime));
	s64 changed = to_ns(minfs_time(inode, ctime));

	n->has_times |= r->accessed_ns != accessed || r->modified_ns != modified ||
		r->changed_ns != changed;
	r->mode = inode->i_mode & 07777;
	r->user = i_uid_read(inode);
	r->group = i_gid_read(inode);
	r->accessed_ns = accessed;
	r->modified_ns = modified;
	r->changed_ns = changed;
}

/* What a record says of a file with this valid length; `extents` has room for MINFS_EXTENTS_MAX. */
static struct minfs_record describe(struct minfs_volume *v, struct minfs_node *n, u64 valid,
				    struct minfs_run *extents)
{
	struct minfs_record r = n->now;
	u64 units = minfs_needed_units(v, n, valid);
	u32 i;

	r.valid = valid;
	r.extents = extents;
	r.extent_count = 0;
	for (i = 0; units && i < n->now.extent_count; i++) {
		struct minfs_run run = n->now.extents[i];

		run.count = min_t(u64, run.count, units);
		units -= run.count;
		extents[r.extent_count++] = run;
	}
	return r;
}

static struct minfs_run *new_extents(void)
{
	return kcalloc(MINFS_EXTENTS_MAX, sizeof(struct minfs_run), GFP_NOFS | __GFP_NOFAIL);
}

/* The durable record has this tail. The caller has the turn. */
static void set_tail(struct minfs_volume *v, struct minfs_node *n, u64 start, u64 end)
{
	atomic64_add(end - start - n->tail_bytes, &v->tail_bytes);
	n->tail_bytes = end - start;
	n->tail_start = start;
	n->tail_end = end;
	minfs_update_plain_end(n);
}

void minfs_forget_tail(struct minfs_volume *v, struct minfs_node *n)
{
	down_write(&n->space);
	set_tail(v, n, 0, 0);
	up_write(&n->space);
}

/*
 * Makes the file durable: its pages, then a record of it, under another name and burying another
 * file if so asked. One flush if the record may have a tail and what was added to the file is no
 * more than a tail holds and was changed by nobody since. `inode` is absent of a file that the VFS
 * has forgotten. The caller has the turn.
 */
int minfs_store_as(struct minfs_volume *v, struct minfs_node *n, struct inode *inode,
		   const struct qstr *name, s64 buries, bool may_have_tail)
{
	struct minfs_run *extents;
	struct minfs_slot_state then;
	struct minfs_record copy;
	u64 valid, size, start = n->recorded_valid;
	bool was_dirty, has_tail;
	u32 sum, lent;
	int error = 0;

	down_write(&n->space);
	size = inode ? i_size_read(inode) : n->now.size;
	valid = min(n->now.valid, size);
	has_tail = may_have_tail && n->has_sum && n->sum_start == start && valid > start &&
		valid == n->now.valid && valid - start <= MINFS_TAIL_BYTES_MAX &&
		atomic64_read(&v->tail_bytes) <= MINFS_TAILS_BYTES_MAX;
	sum = n->sum;
	lent = n->lent;
	was_dirty = n->is_dirty;
	n->is_dirty = false;
	n->sum_start = valid;
	n->sum = 0;
	n->has_sum = valid == n->now.valid;
	/* Whoever changes these bytes from here on waits; until the flush the record before counts too. */
	if (has_tail && !n->tail_bytes)
		n->tail_start = start;
	if (has_tail)
		n->tail_end = valid;
	minfs_update_plain_end(n);
	up_write(&n->space);
	if (inode)
		error = filemap_write_and_wait(inode->i_mapping);
	if (error)
		minfs_fail(v, "a write of data", error);
	/* A record that vouches for these bytes without their checksum comes after them. */
	if (!error && valid > start && !has_tail)
		error = minfs_flush(v);
	if (!error) {
		extents = new_extents();
		down_write(&n->space);
		n->returned = lent;
		if (inode)
			minfs_take_inode(n, inode);
		n->now.size = size;
		copy = describe(v, n, valid, extents);
		n->has_times = false;
		up_write(&n->space);
		copy.has_tail = has_tail;
		copy.tail_start = start;
		copy.tail_checksum = sum;
		if (name) {
			memset(copy.name, 0, sizeof(copy.name));
			memcpy(copy.name, name->name, name->len);
			copy.name_length = name->len;
		}
		error = minfs_write_record(v, &copy, buries, &then);
		kfree(extents);
	}
	if (!error)
		error = minfs_flush(v);
	down_write(&n->space);
	if (!error) {
		v->slots[n->number] = then;
		n->recorded_valid = valid;
		set_tail(v, n, has_tail ? start : valid, valid);
	} else {
		n->is_dirty |= was_dirty;
		n->has_lost = true;
	}
	up_write(&n->space);
	return error;
}

/* Writes the newest record again, without its tail. The caller has the turn. */
int minfs_write_settled(struct minfs_volume *v, struct minfs_node *n,
			struct minfs_slot_state *then)
{
	struct minfs_run *extents = new_extents();
	struct minfs_record copy;
	int error;

	down_write(&n->space);
	copy = describe(v, n, n->recorded_valid, extents);
	n->has_times = false;
	up_write(&n->space);
	error = minfs_write_record(v, &copy, -1, then);
	kfree(extents);
	return error;
}

/* Before bytes of a tail are changed: one record and one flush. The caller has the turn. */
int minfs_settle(struct minfs_volume *v, struct minfs_node *n)
{
	struct minfs_slot_state then;
	int error;

	/* A record of this tail failed while the caller waited for its turn: perhaps it counts. */
	if (READ_ONCE(v->has_failed))
		return -EROFS;
	if (!n->tail_bytes)
		return 0;
	error = minfs_write_settled(v, n, &then);
	if (!error)
		error = minfs_flush(v);
	if (!error) {
		v->slots[n->number] = then;
		minfs_forget_tail(v, n);
	}
	return error;
}

static bool lock_to_settle(struct minfs_volume *v, struct minfs_node *n, bool is_final)
{
	if (!READ_ONCE(n->tail_bytes) && !(is_final && READ_ONCE(n->has_times) && !n->is_unlinked))
		return false;
	if (!is_final)
		return mutex_trylock(&n->turn);
	mutex_lock_nest_lock(&n->turn, &v->names);
	return true;
}

/*
 * Settles the tails of all files that nobody records just now, many with one flush. `is_final`: of all files,
 * and records times that no record has, so that a later mount has nothing to do.
 */
int minfs_settle_all(struct minfs_volume *v, bool is_final)
{
	struct settled {
		struct minfs_node *n;
		struct minfs_slot_state then;
	} *written;
	const u32 at_once = 32;		/* lockdep knows up to 48 locks of a thread */
	u32 i, k, count = 0;
	int error = 0;

	written = kcalloc(at_once, sizeof(*written), GFP_KERNEL);
	if (!written)
		return -ENOMEM;
	mutex_lock(&v->names);
	for (i = 0; i < v->inode_count && !error; i++) {
		struct minfs_node *n = v->nodes[i];

		if (n && lock_to_settle(v, n, is_final)) {
			written[count].n = n;
			error = minfs_write_settled(v, n, &written[count++].then);
		}
		if (!count || (count < at_once && i + 1 < v->inode_count && !error))
			continue;
		if (!error)
			error = minfs_flush(v);
		for (k = 0; k < count; k++) {
			if (!error) {
				v->slots[written[k].n->number] = written[k].then;
				minfs_forget_tail(v, written[k].n);
			}
			mutex_unlock(&written[k].n->turn);
		}
		count = 0;
	}
	mutex_unlock(&v->names);
	kfree(written);
	return error;
}

int minfs_bound_tails(struct minfs_volume *v)
{
	return atomic64_read(&v->tail_bytes) > MINFS_TAILS_BYTES_MAX ? minfs_settle_all(v, false) : 0;
}

/* Makes the file durable if more than its bytes is new; 0 leaves the flush to the caller, else 1. */
int minfs_store_if_dirty(struct minfs_volume *v, struct minfs_node *n, struct inode *inode)
{
	int error = 0;

	mutex_lock(&n->turn);
	if (n->is_dirty && !n->is_unlinked)
		error = minfs_store_as(v, n, inode, NULL, -1, true) ?: 1;
	mutex_unlock(&n->turn);
	return error;
}

static u32 name_hash(const char *name, u32 length)
{
	return full_name_hash(NULL, name, length);
}

struct minfs_node *minfs_find(struct minfs_volume *v, const char *name, u32 length)
{
	struct minfs_node *n;

	hash_for_each_possible(v->by_name, n, by_name, name_hash(name, length))
		if (n->now.name_length == length && !memcmp(n->now.name, name, length))
			return n;
	return NULL;
}

void minfs_link(struct minfs_volume *v, struct minfs_node *n)
{
	hash_add(v->by_name, &n->by_name, name_hash(n->now.name, n->now.name_length));
	v->file_count++;
}

/* A file without name and VFS inode: its space and its number are free again. */
void minfs_release(struct minfs_volume *v, struct minfs_node *n)
{
	minfs_free_units(v, n->now.extents, n->now.extent_count);
	v->nodes[n->number] = NULL;
	v->slots[n->number].is_free = true;
	minfs_drop_node(n);
}
