// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * What a mount finds, as minfs/src/survey.rs judges it, but stricter: a damaged slot is
 * never read in part, and of two files with one name the older is not shown. Where there is doubt
 * the volume is read-only and the file in doubt cannot be read (EUCLEAN); `minfs fsck` says more.
 */
#include <linux/blkdev.h>
#include <linux/log2.h>
#include <linux/maple_tree.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>
#include "minfs.h"

/* A tail is read in pieces of so many bytes at most. */
#define TAIL_PIECE_BYTES (256u << 10)

/* What is known of one inode while the survey lasts. */
struct judged {
	struct minfs_record *record, *previous;
	int slot;
	bool has_doubt, has_newest, is_barred, is_buried, is_void;
	bool has_space;		/* no younger file has any of its units */
	bool gives_way;		/* a younger one had some before tails were looked at */
	u64 newest, buried_until;
};

static int parse_geometry(struct minfs_volume *v, const u8 *block)
{
	const struct minfs_geometry *g = (const void *)block;
	u64 slots, data;

	if (memcmp(g->magic, MINFS_GEOMETRY_MAGIC, 8))
		return -EINVAL;
	if (le32_to_cpu(g->checksum) !=
	    minfs_crc(0, block, offsetof(struct minfs_geometry, checksum)))
		return -EUCLEAN;
	if (le32_to_cpu(g->version) != MINFS_FORMAT_VERSION || g->features_incompatible)
		return -EOPNOTSUPP;
	v->unit_bytes = le32_to_cpu(g->unit_bytes);
	v->unit_count = le32_to_cpu(g->unit_count);
	v->inode_count = le32_to_cpu(g->inode_count);
	v->volume_blocks = le64_to_cpu(g->volume_blocks);
	v->backup_block = le64_to_cpu(g->backup_block);
	v->slots_block[0] = le64_to_cpu(g->first_slots_block);
	v->slots_block[1] = le64_to_cpu(g->second_slots_block);
	v->data_block = le64_to_cpu(g->data_block);
	v->has_unknown_read_only = g->features_read_only != 0;
	memcpy(v->uuid, g->uuid, 16);
	if (le32_to_cpu(g->block_bytes) != MINFS_BLOCK || g->reserved_word ||
	    memchr_inv(g->reserved, 0, sizeof(g->reserved)) || !is_power_of_2(v->unit_bytes) ||
	    v->unit_bytes < MINFS_UNIT_BYTES_MIN || v->unit_bytes > MINFS_UNIT_BYTES_MAX ||
	    !v->unit_count || !v->inode_count || v->inode_count > MINFS_INODES_MAX ||
	    v->volume_blocks > U64_MAX / MINFS_BLOCK / 2 || v->slots_block[0] < 1)
		return -EUCLEAN;
	v->unit_shift = ilog2(v->unit_bytes);
	slots = v->inode_count;
	data = (u64)(v->unit_bytes / MINFS_BLOCK) * v->unit_count;
	/* All are below volume_blocks, so no sum overflows. */
	if (v->backup_block >= v->volume_blocks || v->data_block >= v->volume_blocks ||
	    v->slots_block[0] >= v->volume_blocks || v->slots_block[1] >= v->volume_blocks ||
	    v->slots_block[0] + slots > v->slots_block[1] ||
	    v->slots_block[1] + slots > v->data_block || v->data_block + data > v->backup_block ||
	    v->backup_block + 1 != v->volume_blocks)
		return -EUCLEAN;
	return 0;
}

int minfs_read_geometry(struct minfs_volume *v)
{
	u64 blocks = bdev_nr_bytes(v->sb->s_bdev) / MINFS_BLOCK;
	u8 *block = (u8 *)__get_free_page(GFP_KERNEL);
	int error;

	if (!block)
		return -ENOMEM;
	error = blocks < 2 ? -EINVAL : minfs_io(v, REQ_OP_READ, 0, block);
	if (!error)
		error = parse_geometry(v, block);
	if (error && error != -EOPNOTSUPP && blocks >= 2) {
		int first = error;

		error = minfs_io(v, REQ_OP_READ, blocks - 1, block);
		if (!error)
			error = parse_geometry(v, block);
		if (error)
			error = first;
		else
			pr_warn("minfs: %s: the first geometry is damaged\n", v->sb->s_id);
	}
	if (!error && v->volume_blocks > blocks)
		error = -EUCLEAN;
	free_page((unsigned long)block);
	return error;
}

/* Nothing in the other slot can be younger than `generation`. */
static bool holds_nothing_after(const struct minfs_slot *s, u64 generation)
{
	return s->has_good && s->oldest < generation;
}

static void judge(struct judged *j, struct minfs_slot s[2])
{
	const struct minfs_slot *other;
	int chosen;

	j->newest = max(s[0].newest, s[1].newest);
	if (s[0].kind == MINFS_WHOLE && s[1].kind == MINFS_WHOLE) {
		chosen = s[1].newest > s[0].newest;
		j->record = s[chosen].record;
		j->previous = s[!chosen].record;
		j->slot = chosen;
		s[0].record = s[1].record = NULL;
		if (s[0].newest == s[1].newest)
			j->has_doubt = j->is_barred = j->has_newest = true;
		return;
	}
	if (s[0].kind != MINFS_WHOLE && s[1].kind != MINFS_WHOLE) {
		if (s[1].kind == MINFS_BLANK &&
		    (s[0].kind == MINFS_BLANK ||
		     (s[0].kind == MINFS_INTERRUPTED && !s[0].previous_generation)))
			return;
		j->is_barred = true;
		if (s[0].kind == MINFS_BLANK && s[1].kind == MINFS_DECAYED && !s[1].has_good &&
		    !s[1].has_name)
			return;
		j->has_doubt = true;
		j->has_newest = s[0].has_good && (s[1].kind == MINFS_BLANK || s[1].has_good);
		return;
	}
	chosen = s[1].kind == MINFS_WHOLE;
	other = &s[!chosen];
	j->slot = chosen;
	j->record = s[chosen].record;
	s[chosen].record = NULL;
	if (other->kind == MINFS_DECAYED ||
	    (j->record->previous_generation &&
	     (other->kind == MINFS_BLANK ||
	      (other->kind == MINFS_INTERRUPTED && other->has_zeros)))) {
		if (holds_nothing_after(other, j->record->generation))
			return;
		j->has_doubt = j->is_barred = true;
		j->has_newest = other->has_good;
	}
}

static struct minfs_record *file_of(const struct judged *j)
{
	return !j->is_buried && j->record && j->record->is_file ? j->record : NULL;
}

/* Reads whole blocks into `piece`, which has TAIL_PIECE_BYTES. */
static int read_piece(struct minfs_volume *v, u64 where, u32 length, u8 *piece)
{
	struct bio *bio = bio_alloc(v->sb->s_bdev, TAIL_PIECE_BYTES / PAGE_SIZE,
				    REQ_OP_READ | REQ_META | REQ_SYNC, GFP_KERNEL);
	u32 at;
	int error;

	bio->bi_iter.bi_sector = where >> SECTOR_SHIFT;
	for (at = 0; at < length; at += PAGE_SIZE)
		__bio_add_page(bio, vmalloc_to_page(piece + at), PAGE_SIZE, 0);
	error = submit_bio_wait(bio);
	bio_put(bio);
	return error;
}

/* 1: the bytes are there, 0: they are not, or an error. */
static int tail_matches(struct minfs_volume *v, struct minfs_record *r, u8 *piece)
{
	struct minfs_node n = { .now = *r };
	u64 at = r->tail_start;
	u32 crc = 0;

	while (at < r->valid) {
		u32 within = at % MINFS_BLOCK, step;
		u64 where, run;
		int error;

		if (fatal_signal_pending(current))
			return -EINTR;
		if (!minfs_place(v, &n, at - within, &where, &run))
			return -EUCLEAN;
		run = min_t(u64, run, TAIL_PIECE_BYTES);
		step = min(run - within, r->valid - at);
		error = read_piece(v, where, round_up(within + step, MINFS_BLOCK), piece);
		if (error)
			return error;
		crc = minfs_crc(crc, piece + within, step);
		at += step;
	}
	return crc == r->tail_checksum;
}

/*
 * Only of files that have their space for themselves, so that all tails together are no longer than the volume;
 * other files are in doubt whatever their tails are.
 */
static int check_tail(struct minfs_volume *v, struct judged *j, u8 *piece)
{
	struct minfs_record *r = file_of(j);
	int matches;

	if (!r || !r->has_tail || j->has_doubt || !j->has_space)
		return 0;
	matches = tail_matches(v, r, piece);
	if (matches == -EINTR)
		return matches;
	if (matches == 1) {
		r->has_tail = false;	/* settled before anything else is written */
		j->is_void = true;
		return 0;
	}
	if (!matches && j->previous && j->previous->generation == r->previous_generation) {
		minfs_free_record(r);
		j->record = j->previous;
		j->previous = NULL;
		j->record->has_tail = false;
		j->slot = !j->slot;
		j->is_void = true;
		return 0;
	}
	j->is_barred = true;
	v->is_error = true;
	pr_err("minfs: %s: inode %u: its newest bytes are damaged\n", v->sb->s_id, r->inode);
	return 0;
}

static int younger_first(const void *a, const void *b)
{
	const struct judged *x = *(const struct judged **)a, *y = *(const struct judged **)b;

	return x->record->generation > y->record->generation ? -1 :
		x->record->generation < y->record->generation;
}

/* The files, the younger first; `files` has room for all inodes. */
static u32 sort_files(const struct minfs_volume *v, struct judged *all, struct judged **files)
{
	u32 i, count = 0;

	for (i = 0; i < v->inode_count; i++)
		if (file_of(&all[i]))
			files[count++] = &all[i];
	sort(files, count, sizeof(*files), younger_first, NULL);
	return count;
}

/* Lets each file have its units unless a younger one has any of them, however long the runs are. */
static int share_space(struct judged **files, u32 count)
{
	struct maple_tree taken;
	u32 i, k;
	int error = 0;

	mt_init(&taken);
	for (i = 0; i < count && !error; i++) {
		const struct minfs_record *r = files[i]->record;

		files[i]->has_space = true;
		for (k = 0; k < r->extent_count; k++) {
			unsigned long start = r->extents[k].start, last = start + r->extents[k].count - 1;

			files[i]->has_space &= !mt_find(&taken, &start, last);
		}
		for (k = 0; files[i]->has_space && k < r->extent_count && !error; k++) {
			unsigned long start = r->extents[k].start, last = start + r->extents[k].count - 1;

			error = mtree_insert_range(&taken, start, last, xa_mk_value(1), GFP_KERNEL);
		}
		if (fatal_signal_pending(current))
			error = -EINTR;
	}
	mtree_destroy(&taken);
	return error;
}

/* Gives up what did not arrive, of files that have their space; then who has it is settled. */
static int settle_space(struct minfs_volume *v, struct judged *all)
{
	struct judged **files = kvcalloc(v->inode_count, sizeof(*files), GFP_KERNEL);
	u8 *piece = vmalloc(TAIL_PIECE_BYTES);
	u32 i, count;
	int error = files && piece ? 0 : -ENOMEM;

	if (!error) {
		count = sort_files(v, all, files);
		error = share_space(files, count);
	}
	for (i = 0; !error && i < count; i++) {
		files[i]->gives_way = !files[i]->has_space;
		error = check_tail(v, files[i], piece);
	}
	/* Records before those that were given up may claim other units, on a volume that was forged. */
	if (!error) {
		count = sort_files(v, all, files);
		error = share_space(files, count);
	}
	vfree(piece);
	kvfree(files);
	return error;
}

/* Takes names and space for the files, the younger first. */
static int build(struct minfs_volume *v, struct judged *all)
{
	struct judged **files = kvcalloc(v->inode_count, sizeof(*files), GFP_KERNEL);
	u32 i, k, count;
	int error = 0;

	if (!files)
		return -ENOMEM;
	count = sort_files(v, all, files);
	for (i = 0; i < count && !error; i++) {
		struct judged *j = files[i];
		struct minfs_record *r = j->record;
		struct minfs_node *n;
		bool has_name = !minfs_find(v, r->name, r->name_length);

		for (k = 0; j->has_space && k < r->extent_count; k++)
			minfs_claim(v, &r->extents[k]);
		if (!has_name || !j->has_space || j->gives_way) {
			j->is_barred = v->is_error = true;
			pr_err("minfs: %s: inode %u: a younger file has its %s\n", v->sb->s_id,
			       r->inode, has_name ? "space" : "name");
		}
		if (!has_name)
			continue;
		n = minfs_new_node(r->inode);
		if (!n) {
			error = -ENOMEM;
			break;
		}
		kfree(n->now.extents);
		n->now = *r;
		r->extents = NULL;
		n->kept_units = minfs_held_units(n);
		n->is_damaged = j->is_barred;
		/* Beyond the size there may be bytes that were never synced. */
		n->now.valid = n->recorded_valid = n->sum_start = min(r->valid, r->size);
		n->now.has_tail = false;
		minfs_update_plain_end(n);
		v->nodes[r->inode] = n;
		minfs_link(v, n);
	}
	kvfree(files);
	return error;
}

/* Before any space is handed out: what was read is durable, void records are replaced. */
static int make_durable(struct minfs_volume *v, struct judged *all)
{
	struct minfs_slot_state then;
	bool any = false;
	u32 i;
	int error = minfs_flush(v);

	for (i = 0; i < v->inode_count && !error; i++) {
		struct minfs_record copy;

		if (!all[i].is_void || all[i].is_buried)
			continue;
		copy = *all[i].record;
		if (v->nodes[i])
			copy.extents = v->nodes[i]->now.extents;
		error = minfs_write_record(v, &copy, -1, &then);
		all[i].previous = NULL;
		all[i].newest = copy.generation;
		any = true;
	}
	if (!error && any)
		error = minfs_flush(v);
	for (i = 0; i < v->inode_count && !error && any; i++)
		if (all[i].is_void && !all[i].is_buried) {
			v->slots[i].durable_slot = 1 - v->slots[i].durable_slot;
			v->slots[i].durable_generation = all[i].newest;
		}
	return error;
}

int minfs_survey(struct minfs_volume *v)
{
	struct judged *all = kvcalloc(v->inode_count, sizeof(*all), GFP_KERNEL);
	u8 *block = (u8 *)__get_free_page(GFP_KERNEL);
	u64 newest = 0;
	u32 i;
	int k, error = all && block ? 0 : -ENOMEM;

	for (i = 0; i < v->inode_count && !error; i++) {
		struct minfs_slot slots[2] = {};

		for (k = 0; k < 2; k++) {
			if (minfs_io(v, REQ_OP_READ, v->slots_block[k] + i, block))
				slots[k].kind = MINFS_DECAYED;
			else
				minfs_read_slot(v, block, i, k, &slots[k]);
		}
		judge(&all[i], slots);
		minfs_free_record(slots[0].record);
		minfs_free_record(slots[1].record);
		newest = max(newest, all[i].newest);
		if (fatal_signal_pending(current))
			error = -EINTR;
	}
	for (i = 0; i < v->inode_count && !error; i++) {
		const struct minfs_record *r = all[i].record;
		struct judged *victim;

		if (!r || r->buried_inode == MINFS_NO_INODE)
			continue;
		victim = &all[r->buried_inode];
		victim->buried_until = max(victim->buried_until, r->buried_generation);
		if (victim->record && victim->record->generation <= r->buried_generation)
			victim->is_buried = true;
	}
	if (!error)
		error = settle_space(v, all);
	if (!error)
		error = build(v, all);
	for (i = 0; i < v->inode_count && !error; i++) {
		const struct judged *j = &all[i];
		struct minfs_slot_state *s = &v->slots[i];

		s->durable_slot = -1;
		s->buried_inode = MINFS_NO_INODE;
		if (j->record) {
			s->durable_slot = j->slot;
			s->durable_generation = j->record->generation;
			s->buried_inode = j->record->buried_inode;
			s->buried_generation = j->record->buried_generation;
		}
		s->is_buried = j->is_buried;
		s->is_barred = j->is_barred;
		s->is_free = !j->is_barred && !file_of(j);
		if (j->has_doubt && !(j->has_newest && j->newest <= j->buried_until)) {
			v->is_error = true;
			pr_err("minfs: %s: inode %u: its newest record may be lost; run fsck.minfs\n",
			       v->sb->s_id, i);
		}
	}
	if (newest > MINFS_GENERATION_WRITABLE_MAX)
		v->is_error = true;
	atomic64_set(&v->next_generation, newest + 1);
	if (!error && !v->is_error && !v->has_unknown_read_only && !sb_rdonly(v->sb)) {
		error = make_durable(v, all);
		v->is_durable = !error;
	} else if (!error) {
		/* So that a power cut cannot take back what is shown; a device that cannot flush is shown anyway. */
		blkdev_issue_flush(v->sb->s_bdev);
	}
	for (i = 0; all && i < v->inode_count; i++) {
		minfs_free_record(all[i].record);
		minfs_free_record(all[i].previous);
	}
	kvfree(all);
	free_page((unsigned long)block);
	return error;
}

void minfs_free_nodes(struct minfs_volume *v)
{
	u32 i;

	for (i = 0; v->nodes && i < v->inode_count; i++)
		minfs_drop_node(v->nodes[i]);
}
