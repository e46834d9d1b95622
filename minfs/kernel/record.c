// SPDX-License-Identifier: MIT OR GPL-2.0
/* The slots of minfs: bytes to records and back. Trusts nothing that was read. */
#include <linux/crc32c.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>
#include "minfs.h"

u32 minfs_crc(u32 before, const void *bytes, size_t length)
{
	return ~crc32c(~before, bytes, length);
}

static bool is_zero(const void *bytes, size_t length)
{
	return !length || !memchr_inv(bytes, 0, length);
}

static u32 sector_crc(const struct minfs_volume *v, u32 inode, int slot, int index, const u8 *sector)
{
	u8 place[24];
	__le32 number = cpu_to_le32(inode);
	__le16 which = cpu_to_le16(slot), sector_number = cpu_to_le16(index);

	memcpy(place, v->uuid, 16);
	memcpy(place + 16, &number, 4);
	memcpy(place + 20, &which, 2);
	memcpy(place + 22, &sector_number, 2);
	return minfs_crc(minfs_crc(0, place, sizeof(place)), sector, MINFS_SECTOR_BYTES - 4);
}

bool minfs_valid_name(const char *name, u32 length)
{
	if (length < 1 || length > MINFS_NAME_BYTES_MAX)
		return false;
	if (memchr(name, '/', length) || memchr(name, 0, length))
		return false;
	return !(name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')));
}

void minfs_free_record(struct minfs_record *r)
{
	if (r) {
		kfree(r->extents);
		kfree(r);
	}
}

static struct minfs_extent *extent_at(u8 *block, u32 index)
{
	u8 *sector = block + MINFS_SECTOR_BYTES * (1 + index / MINFS_EXTENTS_PER_SECTOR);

	return (struct minfs_extent *)sector + index % MINFS_EXTENTS_PER_SECTOR;
}

static int by_start(const void *a, const void *b)
{
	const struct minfs_run *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* The extents, or false where they break a rule. 0 extents are good. */
static int check_extents(const struct minfs_volume *v, u8 *block, struct minfs_record *r)
{
	struct minfs_run *sorted;
	u64 sum = 0;
	u32 i;
	int sector, error = 0;

	for (i = 0; i < r->extent_count; i++) {
		const struct minfs_extent *e = extent_at(block, i);
		u32 start = le32_to_cpu(e->start), count = le32_to_cpu(e->count);

		if (!count || (u64)start + count > v->unit_count)
			return -EUCLEAN;
		sum += count;
		r->extents[i] = (struct minfs_run){ start, count };
	}
	if (sum > v->unit_count)
		return -EUCLEAN;
	for (sector = 0; sector < MINFS_SECTORS - 1; sector++) {
		u32 before = sector * MINFS_EXTENTS_PER_SECTOR;
		u32 used = r->extent_count > before ?
			min_t(u32, r->extent_count - before, MINFS_EXTENTS_PER_SECTOR) : 0;
		u32 at = used * sizeof(struct minfs_extent);

		if (!is_zero(block + (sector + 1) * MINFS_SECTOR_BYTES + at, MINFS_PAYLOAD - at))
			return -EUCLEAN;
	}
	if (r->extent_count < 2)
		return 0;
	sorted = kmemdup(r->extents, r->extent_count * sizeof(*sorted), GFP_NOFS | __GFP_NOFAIL);
	sort(sorted, r->extent_count, sizeof(*sorted), by_start, NULL);
	for (i = 1; i < r->extent_count; i++)
		if ((u64)sorted[i - 1].start + sorted[i - 1].count > sorted[i].start)
			error = -EUCLEAN;
	kfree(sorted);
	return error;
}

/* A record out of a block whose sectors are good and of one generation. */
static int check_record(const struct minfs_volume *v, u8 *block, u32 inode, u64 generation,
			struct minfs_record **out)
{
	const struct minfs_slot_header *h = (void *)block;
	struct minfs_record *r;
	u16 flags = le16_to_cpu(h->flags), kind = le16_to_cpu(h->kind);
	u64 allocated = 0;
	u32 i;
	int error = -EUCLEAN;

	if (memcmp(h->magic, MINFS_SLOT_MAGIC, 4) || kind > MINFS_KIND_FILE ||
	    (flags & ~MINFS_FLAG_TAIL) || le32_to_cpu(h->inode) != inode ||
	    le32_to_cpu(h->extent_count) > MINFS_EXTENTS_MAX ||
	    le32_to_cpu(h->name_length) > MINFS_NAME_BYTES_MAX ||
	    !is_zero(h->reserved, sizeof(h->reserved)))
		return -EUCLEAN;
	r = kzalloc(sizeof(*r), GFP_NOFS | __GFP_NOFAIL);
	r->extents = kcalloc(MINFS_EXTENTS_MAX, sizeof(*r->extents), GFP_NOFS | __GFP_NOFAIL);
	r->inode = inode;
	r->generation = generation;
	r->previous_generation = le64_to_cpu(h->previous_generation);
	r->buried_generation = le64_to_cpu(h->buried_generation);
	r->buried_inode = le32_to_cpu(h->buried_inode);
	r->is_file = kind == MINFS_KIND_FILE;
	r->has_tail = flags & MINFS_FLAG_TAIL;
	r->tail_checksum = le32_to_cpu(h->tail_checksum);
	r->tail_start = le64_to_cpu(h->tail_start);
	r->size = le64_to_cpu(h->size_bytes);
	r->valid = le64_to_cpu(h->valid_bytes);
	r->mode = le32_to_cpu(h->mode);
	r->user = le32_to_cpu(h->user);
	r->group = le32_to_cpu(h->group);
	r->accessed_ns = le64_to_cpu(h->accessed_ns);
	r->modified_ns = le64_to_cpu(h->modified_ns);
	r->changed_ns = le64_to_cpu(h->changed_ns);
	r->created_ns = le64_to_cpu(h->created_ns);
	r->name_length = le32_to_cpu(h->name_length);
	r->extent_count = le32_to_cpu(h->extent_count);
	memcpy(r->name, h->name, MINFS_NAME_BYTES_MAX);
	if (generation <= r->previous_generation || generation <= r->buried_generation)
		goto bad;
	if (r->buried_inode == MINFS_NO_INODE ? r->buried_generation != 0 :
	    r->buried_inode >= v->inode_count || r->buried_inode == inode)
		goto bad;
	error = check_extents(v, block, r);
	if (error)
		goto bad;
	error = -EUCLEAN;
	if (!r->is_file) {
		/* From the tail's checksum to the name, a free record has nothing. */
		if (flags || r->extent_count ||
		    !is_zero(&h->tail_checksum, offsetof(struct minfs_slot_header, reserved) -
			     offsetof(struct minfs_slot_header, tail_checksum)))
			goto bad;
		*out = r;
		return 0;
	}
	for (i = 0; i < r->extent_count; i++)
		allocated += (u64)r->extents[i].count << v->unit_shift;
	if (!minfs_valid_name(r->name, r->name_length) ||
	    !is_zero(h->name + r->name_length, MINFS_NAME_BYTES_MAX - r->name_length) ||
	    r->valid > allocated || r->size > S64_MAX || r->mode > 07777)
		goto bad;
	if (r->has_tail ? r->tail_start >= r->valid || r->valid > r->size ||
	    r->valid - r->tail_start > MINFS_TAIL_BYTES_MAX : r->tail_start || r->tail_checksum)
		goto bad;
	*out = r;
	return 0;
bad:
	minfs_free_record(r);
	return error;
}

/* Judges a slot; whole means that `out` has the record. */
void minfs_read_slot(const struct minfs_volume *v, const u8 *block, u32 inode, int slot,
		    struct minfs_slot *out)
{
	const struct minfs_slot_header *h = (const void *)block;
	bool is_broken = false;
	int i;

	memset(out, 0, sizeof(*out));
	if (is_zero(block, MINFS_BLOCK))
		return;
	out->has_name = !memcmp(h->magic, MINFS_SLOT_MAGIC, 4) &&
		minfs_valid_name((const char *)h->name,
				 min_t(u32, le32_to_cpu(h->name_length), MINFS_NAME_BYTES_MAX));
	for (i = 0; i < MINFS_SECTORS; i++) {
		const u8 *sector = block + i * MINFS_SECTOR_BYTES;
		const struct minfs_sector_trailer *t = (const void *)(sector + MINFS_PAYLOAD);
		u64 generation = le64_to_cpu(t->generation);

		if (is_zero(sector, MINFS_SECTOR_BYTES)) {
			out->has_zeros = true;
		} else if (le32_to_cpu(t->checksum) == sector_crc(v, inode, slot, i, sector) &&
			   generation && generation < MINFS_GENERATION_END) {
			out->oldest = out->has_good ? min(out->oldest, generation) : generation;
			out->newest = out->has_good ? max(out->newest, generation) : generation;
			out->has_good = true;
		} else {
			is_broken = true;
		}
	}
	out->kind = MINFS_DECAYED;
	if (is_broken)
		return;
	if (out->has_zeros || out->oldest != out->newest) {
		out->kind = MINFS_INTERRUPTED;
		out->previous_generation = le64_to_cpu(h->previous_generation);
		return;
	}
	if (!check_record(v, (u8 *)block, inode, out->newest, &out->record))
		out->kind = MINFS_WHOLE;
}

/* The block of a record, proved by reading it back: nothing that a mount would refuse is written. */
int minfs_encode(const struct minfs_volume *v, const struct minfs_record *r, int slot, u8 *block)
{
	struct minfs_slot_header *h = (void *)block;
	struct minfs_slot back;
	int i;

	memset(block, 0, MINFS_BLOCK);
	memcpy(h->magic, MINFS_SLOT_MAGIC, 4);
	h->inode = cpu_to_le32(r->inode);
	h->previous_generation = cpu_to_le64(r->previous_generation);
	h->buried_generation = cpu_to_le64(r->buried_generation);
	h->buried_inode = cpu_to_le32(r->buried_inode);
	if (r->is_file) {
		h->kind = cpu_to_le16(MINFS_KIND_FILE);
		h->extent_count = cpu_to_le32(r->extent_count);
		if (r->has_tail) {
			h->flags = cpu_to_le16(MINFS_FLAG_TAIL);
			h->tail_checksum = cpu_to_le32(r->tail_checksum);
			h->tail_start = cpu_to_le64(r->tail_start);
		}
		h->size_bytes = cpu_to_le64(r->size);
		h->valid_bytes = cpu_to_le64(r->valid);
		h->mode = cpu_to_le32(r->mode);
		h->user = cpu_to_le32(r->user);
		h->group = cpu_to_le32(r->group);
		h->accessed_ns = cpu_to_le64(r->accessed_ns);
		h->modified_ns = cpu_to_le64(r->modified_ns);
		h->changed_ns = cpu_to_le64(r->changed_ns);
		h->created_ns = cpu_to_le64(r->created_ns);
		h->name_length = cpu_to_le32(r->name_length);
		memcpy(h->name, r->name, r->name_length);
		for (i = 0; i < r->extent_count; i++) {
			struct minfs_extent *e = extent_at(block, i);

			e->start = cpu_to_le32(r->extents[i].start);
			e->count = cpu_to_le32(r->extents[i].count);
		}
	}
	for (i = 0; i < MINFS_SECTORS; i++) {
		u8 *sector = block + i * MINFS_SECTOR_BYTES;
		struct minfs_sector_trailer *t = (void *)(sector + MINFS_PAYLOAD);

		t->generation = cpu_to_le64(r->generation);
		t->checksum = cpu_to_le32(sector_crc(v, r->inode, slot, i, sector));
	}
	minfs_read_slot(v, block, r->inode, slot, &back);
	minfs_free_record(back.record);
	return back.kind == MINFS_WHOLE ? 0 : -EUCLEAN;
}
