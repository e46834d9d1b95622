// SPDX-License-Identifier: MIT OR GPL-2.0
/* Free units, and where the bytes of a file lie. Nothing of it is on disk. */
#include <linux/bitmap.h>
#include <linux/slab.h>
#include "minfs.h"

/* What a growing file holds ahead of its end, while the volume has so many times as much free. */
#define MINFS_AHEAD_BYTES_MIN (1ULL << 20)
#define MINFS_AHEAD_BYTES_MAX (64ULL << 20)
#define MINFS_AHEAD_FREE_FACTOR 16

/*
 * The only place where units become used or free. A run may have 2^31 units and more, which is beyond the int
 * that bitmap_set and bitmap_clear take.
 */
static void mark(struct minfs_volume *v, const struct minfs_run *run, bool is_used)
{
	u64 at = run->start, end = at + run->count;

	while (at < end) {
		u32 step = min_t(u64, end - at, 1U << 24);

		if (is_used)
			bitmap_set(v->used, at, step);
		else
			bitmap_clear(v->used, at, step);
		at += step;
		cond_resched();
	}
	v->free_units += is_used ? -(u64)run->count : run->count;
}

/* Takes a run that no other file has, at a mount. */
void minfs_claim(struct minfs_volume *v, const struct minfs_run *run)
{
	mark(v, run, true);
}

/* Only after the flush of the record that gave them up. */
void minfs_free_units(struct minfs_volume *v, const struct minfs_run *runs, u32 count)
{
	u32 i;

	mutex_lock(&v->space_lock);
	for (i = 0; i < count; i++)
		mark(v, &runs[i], false);
	mutex_unlock(&v->space_lock);
}

u64 minfs_held_units(const struct minfs_node *n)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < n->now.extent_count; i++)
		sum += n->now.extents[i].count;
	return sum;
}

/* The free run at or after `from` that is long enough, else the longest seen. */
static struct minfs_run find_run(struct minfs_volume *v, u32 from, u64 wanted)
{
	struct minfs_run best = { 0, 0 };
	unsigned long at = find_next_zero_bit(v->used, v->unit_count, from), end;

	while (at < v->unit_count) {
		end = find_next_bit(v->used, min_t(u64, v->unit_count, at + wanted), at);
		if (end - at > best.count)
			best = (struct minfs_run){ at, end - at };
		if (best.count >= wanted)
			break;
		at = find_next_zero_bit(v->used, v->unit_count, end);
	}
	return best;
}

/* What a record must list of a file with this valid length. */
u64 minfs_needed_units(const struct minfs_volume *v, const struct minfs_node *n, u64 valid)
{
	return max(n->kept_units, (valid + v->unit_bytes - 1) >> v->unit_shift);
}

/* Adds `rest` units, or changes nothing. */
static int add_units(struct minfs_volume *v, struct minfs_node *n, u64 rest)
{
	struct minfs_record *r = &n->now;
	struct minfs_run *last = r->extent_count ? &r->extents[r->extent_count - 1] : NULL;
	u32 count_before = r->extent_count, last_before = last ? last->count : 0;
	int error = 0;

	mutex_lock(&v->space_lock);
	if (rest > v->free_units) {
		mutex_unlock(&v->space_lock);
		return -ENOSPC;
	}
	while (rest) {
		struct minfs_run run;

		last = r->extent_count ? &r->extents[r->extent_count - 1] : NULL;
		run = (struct minfs_run){ last ? last->start + last->count : 0, 0 };
		if (last && run.start < v->unit_count && !test_bit(run.start, v->used)) {
			u64 limit = min_t(u64, v->unit_count, run.start + rest);

			run.count = find_next_bit(v->used, limit, run.start) - run.start;
		} else {
			run = find_run(v, 0, rest);
		}
		if (last && last->start + last->count == run.start) {
			last->count += run.count;
		} else if (r->extent_count < MINFS_EXTENTS_MAX) {
			r->extents[r->extent_count++] = run;
		} else {
			error = -EFBIG;
			break;
		}
		mark(v, &run, true);
		rest -= run.count;
	}
	mutex_unlock(&v->space_lock);
	if (error) {
		if (count_before) {
			struct minfs_run *old = &r->extents[count_before - 1];
			struct minfs_run more = { old->start + last_before, old->count - last_before };

			minfs_free_units(v, &more, 1);
			old->count = last_before;
		}
		minfs_free_units(v, r->extents + count_before, r->extent_count - count_before);
		r->extent_count = count_before;
	}
	return error;
}

/* Takes back what other files hold to grow into, where nobody is busy with them. */
static void reclaim(struct minfs_volume *v)
{
	u32 i;

	/* The names may be locked by an operation that waits for the caller's file. */
	if (!mutex_trylock(&v->names))
		return;
	for (i = 0; i < v->inode_count; i++) {
		struct minfs_node *n = v->nodes[i];

		if (n && down_write_trylock(&n->space)) {
			minfs_give_back(v, n);
			up_write(&n->space);
		}
	}
	mutex_unlock(&v->names);
}

/*
 * Lets the file hold space for `end` bytes, or changes nothing; `ahead`: and some to grow into, so
 * that files that grow beside each other stay in few pieces. Under the file's space lock.
 */
int minfs_grow(struct minfs_volume *v, struct minfs_node *n, u64 end, bool ahead)
{
	u64 held = minfs_held_units(n), wanted = (end + v->unit_bytes - 1) >> v->unit_shift;
	u64 generous;
	int error = -ENOSPC;

	if (end > S64_MAX)
		return -EFBIG;
	if (wanted > held) {
		generous = clamp_t(u64, held << v->unit_shift, MINFS_AHEAD_BYTES_MIN,
				   MINFS_AHEAD_BYTES_MAX) >> v->unit_shift;
		if (ahead && generous > wanted - held &&
		    generous * MINFS_AHEAD_FREE_FACTOR <= v->free_units)
			error = add_units(v, n, generous);
		if (error)
			error = add_units(v, n, wanted - held);
		if (error == -ENOSPC) {
			reclaim(v);
			error = add_units(v, n, wanted - held);
		}
		if (error)
			return error;
	}
	n->busy_units = max(n->busy_units, wanted);
	return 0;
}

/* Keeps the first `units` units; `freed` (room for MINFS_EXTENTS_MAX) takes the rest. */
u32 minfs_cut(struct minfs_node *n, u64 units, struct minfs_run *freed)
{
	struct minfs_record *r = &n->now;
	u32 i, kept = 0, count = 0;

	for (i = 0; i < r->extent_count; i++) {
		struct minfs_run run = r->extents[i];
		u32 keep = min_t(u64, units, run.count);

		units -= keep;
		if (keep)
			r->extents[kept++].count = keep;
		if (keep < run.count)
			freed[count++] = (struct minfs_run){ run.start + keep, run.count - keep };
	}
	r->extent_count = kept;
	n->cuts++;
	return count;
}

/* Gives back what the file holds only to grow into: no record says that it is the file's. */
void minfs_give_back(struct minfs_volume *v, struct minfs_node *n)
{
	u64 keep = max(minfs_needed_units(v, n, n->now.valid), n->busy_units);
	u64 surplus = minfs_held_units(n);

	surplus = surplus > keep ? surplus - keep : 0;
	n->cuts += surplus > 0;
	while (surplus) {
		struct minfs_run *last = &n->now.extents[n->now.extent_count - 1];
		u32 count = min_t(u64, surplus, last->count);
		struct minfs_run run = { last->start + last->count - count, count };

		minfs_free_units(v, &run, 1);
		last->count -= count;
		surplus -= count;
		if (!last->count)
			n->now.extent_count--;
	}
}

/* Where byte `at` of the file lies, and how many lie there in one piece. */
bool minfs_place(const struct minfs_volume *v, const struct minfs_node *n, u64 at, u64 *where,
		 u64 *length)
{
	u64 start = 0;
	u32 i;

	for (i = 0; i < n->now.extent_count; i++) {
		const struct minfs_run *run = &n->now.extents[i];
		u64 bytes = (u64)run->count << v->unit_shift;

		if (at < start + bytes) {
			*where = minfs_unit_offset(v, run->start) + (at - start);
			*length = start + bytes - at;
			return true;
		}
		start += bytes;
	}
	return false;
}
