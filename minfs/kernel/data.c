// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The bytes of files. `now.valid` is the end of what was written: below it each block is in the page
 * cache or on the device, above it only zeros are read. It grows with a page held, so that nobody
 * takes a page that was just written for one of zeros; it shrinks only where inode and pages are
 * locked. What is added to a file is summed up as it is added, for the tail of the next record; who
 * then changes such bytes says so first (minfs_before_change), and so does a mapping that takes a page.
 */
#include <linux/crc32.h>
#include <linux/fs.h>
#include <linux/iomap.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include "minfs.h"

/* `length` of 0: as much as lies there in one piece. */
static int map(struct inode *inode, u64 at, u64 length, unsigned int flags, struct iomap *m)
{
	bool writes = flags & (IOMAP_WRITE | IOMAP_ZERO);
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = minfs_node_of(inode);
	u64 end = round_up(n->now.valid, MINFS_BLOCK), kept = n->kept_units << v->unit_shift;
	u64 where, run;

	m->bdev = inode->i_sb->s_bdev;
	m->offset = round_down(at, MINFS_BLOCK);
	m->length = length ? round_up(at + length, MINFS_BLOCK) - m->offset : U64_MAX;
	m->flags = 0;
	if (!writes && m->offset >= end && !((flags & IOMAP_REPORT) && m->offset < kept)) {
		m->type = IOMAP_HOLE;
		m->addr = IOMAP_NULL_ADDR;
		return 0;
	}
	if (!minfs_place(v, n, m->offset, &where, &run))
		return writes ? -EIO : -EUCLEAN;
	m->type = IOMAP_MAPPED;
	m->addr = where;
	m->length = min(m->length, run);
	if (!writes && m->offset >= end) {
		m->type = IOMAP_UNWRITTEN;
		m->length = min(m->length, kept - m->offset);
		return 0;
	}
	/* Until its record is durable too, what lies behind the recorded length is not. */
	if (writes && (n->is_dirty || at + length > min(n->now.valid, n->recorded_valid)))
		m->flags |= IOMAP_F_DIRTY;
	if (m->offset >= end)
		m->flags |= IOMAP_F_NEW;	/* what is not written there becomes zeros */
	else if (length)
		m->length = min(m->length, end - m->offset);
	return 0;
}

/*
 * Bytes below `to` were written, and so was everything before them: to this folio, or where a direct
 * write announced it. Under the file's space lock.
 */
static void raise_locked(struct minfs_node *n, u64 to, struct folio *folio)
{
	u64 from = n->now.valid;

	if (to <= from)
		return;
	/* While a mapping holds a page nobody knows what it stores there. */
	if (n->lent != n->returned || to - n->sum_start > MINFS_TAIL_BYTES_MAX)
		n->has_sum = false;
	if (!n->has_sum) {
		/* Nothing to sum up. */
	} else if (folio && from >= folio_pos(folio)) {
		u8 *bytes = kmap_local_folio(folio, offset_in_folio(folio, from));

		n->sum = minfs_crc(n->sum, bytes, to - from);
		kunmap_local(bytes);
	} else if (!folio && n->added_start == from && n->added_end == to) {
		n->sum = __crc32c_le_combine(n->sum, n->added_sum, to - from);
	} else {
		n->has_sum = false;
	}
	WRITE_ONCE(n->now.valid, to);
	n->is_dirty = true;
	minfs_update_plain_end(n);
}

static void raise_valid(struct inode *inode, u64 to, struct folio *folio)
{
	struct minfs_node *n = minfs_node_of(inode);

	if (to <= READ_ONCE(n->now.valid))
		return;
	down_write(&n->space);
	raise_locked(n, to, folio);
	up_write(&n->space);
}

static bool is_in_tail(const struct minfs_node *n, u64 from, u64 to)
{
	return n->tail_start < n->tail_end && from < n->tail_end && to > n->tail_start;
}

/*
 * Before bytes are changed that are in the file: a record that vouches for them is settled, and the
 * next one will not. The inode is locked, or a mapping wants the page.
 */
int minfs_before_change(struct inode *inode, u64 from, u64 to)
{
	struct minfs_node *n = minfs_node_of(inode);
	bool is_vouched;
	int error = 0;

	do {
		down_write(&n->space);
		is_vouched = is_in_tail(n, from, to);
		if (!is_vouched && from < n->now.valid && to > n->sum_start &&
		    n->sum_start < n->now.valid) {
			n->has_sum = false;
			minfs_update_plain_end(n);
		}
		up_write(&n->space);
		if (is_vouched) {
			mutex_lock(&n->turn);
			error = minfs_settle(minfs_of(inode->i_sb), n);
			mutex_unlock(&n->turn);
		}
	} while (is_vouched && !error);
	return error;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static void page_done(struct inode *inode, loff_t at, unsigned int copied, struct page *page)
{
	if (page && copied)
		raise_valid(inode, at + copied, page_folio(page));
}

static const struct iomap_page_ops page_ops = { .page_done = page_done };
#define set_page_ops(m) ((m)->page_ops = &page_ops)
#else
static void put_written(struct inode *inode, loff_t at, unsigned int copied, struct folio *folio)
{
	if (copied)
		raise_valid(inode, at + copied, folio);
	folio_unlock(folio);
	folio_put(folio);
}

static const struct iomap_folio_ops folio_ops = { .put_folio = put_written };
#define set_page_ops(m) ((m)->folio_ops = &folio_ops)
#endif

static int begin(struct inode *inode, loff_t at, loff_t length, unsigned int flags,
		 struct iomap *m, struct iomap *source)
{
	struct minfs_node *n = minfs_node_of(inode);
	int error;

	if (!(flags & IOMAP_NOWAIT))
		down_read(&n->space);
	else if (!down_read_trylock(&n->space))
		return -EAGAIN;
	error = map(inode, at, length, flags, m);
	up_read(&n->space);
	if ((flags & IOMAP_WRITE) && !(flags & (IOMAP_DIRECT | IOMAP_FAULT)))
		set_page_ops(m);
	return error;
}

const struct iomap_ops minfs_iomap_ops = { .iomap_begin = begin };

/* The block in which the valid length ends may hold anything behind it: zeros are read there. */
static int read_folio(struct file *file, struct folio *folio)
{
	struct inode *inode = folio->mapping->host;
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = minfs_node_of(inode);
	u64 valid = READ_ONCE(n->now.valid), where = 0, run;
	u32 from = valid % MINFS_BLOCK;
	void *bounce;
	bool has_place;
	int error = -EUCLEAN;

	if (!from || folio->index != valid / MINFS_BLOCK)
		return iomap_read_folio(folio, &minfs_iomap_ops);
	bounce = (void *)__get_free_page(GFP_NOFS);
	if (!bounce) {
		folio_unlock(folio);
		return -ENOMEM;
	}
	down_read(&n->space);
	has_place = minfs_place(v, n, folio_pos(folio), &where, &run);
	up_read(&n->space);
	if (has_place)
		error = minfs_io(v, REQ_OP_READ, where / MINFS_BLOCK, bounce);
	if (!error) {
		memset(bounce + from, 0, MINFS_BLOCK - from);
		memcpy_to_page(folio_page(folio, 0), 0, bounce, MINFS_BLOCK);
		flush_dcache_folio(folio);
		folio_mark_uptodate(folio);
	}
	free_page((unsigned long)bounce);
	folio_unlock(folio);
	return error;
}

static void readahead(struct readahead_control *rac)
{
	u64 cut = READ_ONCE(minfs_node_of(rac->mapping->host)->now.valid) / MINFS_BLOCK;
	struct folio *folio;

	if (cut >= readahead_index(rac) && cut < readahead_index(rac) + readahead_count(rac)) {
		while ((folio = readahead_folio(rac)))
			read_folio(NULL, folio);
		return;
	}
	iomap_readahead(rac, &minfs_iomap_ops);
}

/* A run of pages that is being written, and the state of the extents that its place is of. */
struct writeback {
	struct iomap_writepage_ctx context;
	u32 cuts;
};

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
static int map_blocks(struct iomap_writepage_ctx *wpc, struct inode *inode, loff_t at)
#else
static int map_blocks(struct iomap_writepage_ctx *wpc, struct inode *inode, loff_t at,
		      unsigned int length)
#endif
{
	struct writeback *w = container_of(wpc, struct writeback, context);
	struct minfs_node *n = minfs_node_of(inode);
	struct iomap *m = &wpc->iomap;
	int error = 0;

	/* Nothing is written after a failure: iomap drops the page. */
	if (READ_ONCE(minfs_of(inode->i_sb)->has_failed)) {
		WRITE_ONCE(n->has_lost, true);
		return -EROFS;
	}
	down_read(&n->space);
	/* The page is locked: whoever cuts its space off waits for it. */
	if (w->cuts != n->cuts || at < m->offset || at >= m->offset + m->length) {
		error = map(inode, at, 0, IOMAP_WRITE, m);
		w->cuts = n->cuts;
	}
	up_read(&n->space);
	return error;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#define bio_of(ioend) ((ioend)->io_bio)
#define ioend_of(bio) ((struct iomap_ioend *)(bio)->bi_private)
#else
#define bio_of(ioend) (&(ioend)->io_bio)
#define ioend_of(bio) iomap_ioend_from_bio(bio)
#endif

/* The function with which iomap ends every write of pages. */
static bio_end_io_t *iomap_end_write;

/*
 * A failed write of pages stops the volume here, where the device reports it. A later sync cannot tell: the
 * error of the mapping that it sees may also come from a direct write that collided with a store to the same
 * page, and that concerns one program only.
 */
static void end_writeback(struct bio *bio)
{
	struct inode *inode = ioend_of(bio)->io_inode;

	if (bio->bi_status) {
		WRITE_ONCE(minfs_node_of(inode)->has_lost, true);
		minfs_fail(minfs_of(inode->i_sb), "a write of data",
			   blk_status_to_errno(bio->bi_status));
	}
	iomap_end_write(bio);
}

static int prepare_ioend(struct iomap_ioend *ioend, int status)
{
	struct bio *bio = bio_of(ioend);

	WRITE_ONCE(iomap_end_write, bio->bi_end_io);
	bio->bi_end_io = end_writeback;
	return status;
}

static const struct iomap_writeback_ops writeback_ops = {
	.map_blocks = map_blocks,
	.prepare_ioend = prepare_ioend,
};

static int writepages(struct address_space *mapping, struct writeback_control *wbc)
{
	struct writeback w = {};

	return iomap_writepages(mapping, wbc, &w.context, &writeback_ops);
}

const struct address_space_operations minfs_aops = {
	.read_folio = read_folio,
	.readahead = readahead,
	.writepages = writepages,
	.dirty_folio = filemap_dirty_folio,
	.release_folio = iomap_release_folio,
	.invalidate_folio = iomap_invalidate_folio,
	.is_partially_uptodate = iomap_is_partially_uptodate,
	.migrate_folio = filemap_migrate_folio,
};

/* Lets the file hold space for `to` bytes. */
int minfs_reserve(struct inode *inode, u64 to, bool ahead)
{
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = minfs_node_of(inode);
	int error;

	down_write(&n->space);
	error = minfs_grow(v, n, to, ahead);
	inode->i_blocks = minfs_held_units(n) << (v->unit_shift - 9);
	up_write(&n->space);
	return error;
}

/*
 * Makes what lies between the valid length and `to` a part of the file, which holds space there.
 * Pages are read, as zeros or as what another thread has just written, and become dirty: nothing is
 * overwritten. Beyond the size, and summed up, only with the inode locked.
 */
int minfs_fill_gap(struct inode *inode, u64 to, bool sums)
{
	struct address_space *mapping = inode->i_mapping;
	struct minfs_node *n = minfs_node_of(inode);
	struct folio *folio;
	int error = 0;

	mutex_lock(&n->gap);
	while (!error && n->now.valid < to) {
		u64 next = round_down(n->now.valid, MINFS_BLOCK) + MINFS_BLOCK;

		folio = read_mapping_folio(mapping, n->now.valid / MINFS_BLOCK, NULL);
		if (IS_ERR(folio)) {
			error = PTR_ERR(folio);
			break;
		}
		folio_lock(folio);
		if (folio->mapping == mapping) {
			next = min(next, to);
			/* A page wholly beyond the size would not be written. */
			if (next > i_size_read(inode))
				i_size_write(inode, next);
			filemap_dirty_folio(mapping, folio);
			down_write(&n->space);
			n->has_sum &= sums;
			raise_locked(n, next, folio);
			up_write(&n->space);
		}
		folio_unlock(folio);
		folio_put(folio);
		balance_dirty_pages_ratelimited(mapping);
		if (fatal_signal_pending(current))
			error = -EINTR;
	}
	mutex_unlock(&n->gap);
	return error;
}

/* Before the size grows: what a program wrote behind it through a mapping becomes zeros. */
void minfs_clear_behind_size(struct inode *inode)
{
	u64 size = i_size_read(inode);
	struct page *page;

	if (!(size % PAGE_SIZE))
		return;
	page = find_lock_page(inode->i_mapping, size / PAGE_SIZE);
	if (page) {
		/* The next store through a mapping faults again, so that the valid length rises with it. */
		if (folio_mkclean(page_folio(page)))
			set_page_dirty(page);
		zero_user_segment(page, size % PAGE_SIZE, PAGE_SIZE);
		unlock_page(page);
		put_page(page);
	}
}

/*
 * The page in which the valid length ends, if it lies in a range that is about to be written; held,
 * so that nobody reads its block from the device again. To be released with folio_put, or NULL.
 */
struct folio *minfs_hold_cut(struct inode *inode, u64 from, u64 to)
{
	u64 valid = READ_ONCE(minfs_node_of(inode)->now.valid);
	u64 block = round_down(valid, MINFS_BLOCK);

	if (valid == block || to <= block || from >= block + MINFS_BLOCK)
		return NULL;
	return read_mapping_folio(inode->i_mapping, valid / MINFS_BLOCK, NULL);
}

static int lock_for(struct inode *inode, struct kiocb *iocb, bool is_shared)
{
	bool waits = !(iocb->ki_flags & IOCB_NOWAIT);

	if (is_shared && waits)
		inode_lock_shared(inode);
	else if (waits)
		inode_lock(inode);
	else if (is_shared ? !inode_trylock_shared(inode) : !inode_trylock(inode))
		return -EAGAIN;
	return 0;
}

static void unlock(struct inode *inode, bool is_shared)
{
	if (is_shared)
		inode_unlock_shared(inode);
	else
		inode_unlock(inode);
}

ssize_t minfs_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct minfs_node *n = minfs_node_of(inode);
	ssize_t got;

	if (n->is_damaged)
		return -EUCLEAN;
	got = lock_for(inode, iocb, true);
	if (got)
		return got;
	/* Where zeros begin within a block, the page cache makes them. */
	if ((iocb->ki_flags & IOCB_DIRECT) &&
	    (iocb->ki_pos + iov_iter_count(to) <= n->now.valid ||
	     (n->now.valid == i_size_read(inode) && !(n->now.valid % MINFS_BLOCK)))) {
		got = minfs_direct(iocb, to);
		if (got == -ENOTBLK)
			got = iomap_dio_rw(iocb, to, &minfs_iomap_ops, NULL, 0, NULL, 0);
	} else {
		iocb->ki_flags &= ~IOCB_DIRECT;
		got = generic_file_read_iter(iocb, to);
	}
	inode_unlock_shared(inode);
	return got;
}

static ssize_t write_cached(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct folio *cut = minfs_hold_cut(inode, iocb->ki_pos, iocb->ki_pos + iov_iter_count(from));
	ssize_t put;

	if (IS_ERR(cut))
		return PTR_ERR(cut);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
	put = iomap_file_buffered_write(iocb, from, &minfs_iomap_ops);
	if (put > 0)
		iocb->ki_pos += put;
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
	put = iomap_file_buffered_write(iocb, from, &minfs_iomap_ops);
#else
	put = iomap_file_buffered_write(iocb, from, &minfs_iomap_ops, NULL);
#endif
	if (cut)
		folio_put(cut);
	return put;
}

/* Called before pages that were read meanwhile are dropped. */
static int end_direct(struct kiocb *iocb, ssize_t size, int error, unsigned int flags)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct minfs_node *n = minfs_node_of(inode);
	loff_t to = iocb->ki_pos + size;

	if (error || !size)
		return error;
	down_write(&n->space);
	raise_locked(n, to, NULL);
	if (to > i_size_read(inode))
		i_size_write(inode, to);
	up_write(&n->space);
	return 0;
}

static const struct iomap_dio_ops direct_ops = { .end_io = end_direct };

/* Pages of the kernel with what a direct write adds to a file. */
struct added {
	struct bio_vec *pages;
	u32 count;
};

static void free_added(struct added *a)
{
	while (a->count)
		__free_page(a->pages[--a->count].bv_page);
	kvfree(a->pages);
}

/*
 * Copies and sums up what is about to be written, so that a program which changes its buffer
 * meanwhile changes neither the bytes nor their checksum. False: there is no memory, or no buffer.
 */
static bool copy_added(struct minfs_node *n, u64 at, struct iov_iter *from, struct added *a)
{
	size_t left = iov_iter_count(from), length = left;
	u64 valid = n->now.valid;
	u32 sum = 0;

	a->count = 0;
	a->pages = kvmalloc_array(DIV_ROUND_UP(length, PAGE_SIZE), sizeof(*a->pages), GFP_KERNEL);
	while (a->pages && left) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
		size_t step = min_t(size_t, left, PAGE_SIZE), skip;

		if (!page)
			break;
		a->pages[a->count++] = (struct bio_vec){ .bv_page = page, .bv_len = step };
		if (copy_page_from_iter(page, 0, step, from) != step)
			break;
		skip = valid > at ? min_t(u64, valid - at, step) : 0;
		sum = minfs_crc(sum, page_address(page) + skip, step - skip);
		at += step;
		left -= step;
	}
	if (left || !a->pages) {
		iov_iter_revert(from, length - iov_iter_count(from));
		free_added(a);
		return false;
	}
	n->added_sum = sum;
	n->added_start = valid;
	n->added_end = at;
	return true;
}

static ssize_t write_direct(struct kiocb *iocb, struct iov_iter *from)
{
	struct minfs_node *n = minfs_node_of(file_inode(iocb->ki_filp));
	u64 at = iocb->ki_pos, last = at + iov_iter_count(from);
	size_t length = iov_iter_count(from);
	struct iov_iter copy;
	struct added a;
	ssize_t put;

	if (last <= n->now.valid || !n->has_sum || last - n->sum_start > MINFS_TAIL_BYTES_MAX ||
	    !copy_added(n, at, from, &a))
		return iomap_dio_rw(iocb, from, &minfs_iomap_ops, &direct_ops,
				    IOMAP_DIO_FORCE_WAIT, NULL, 0);
	iov_iter_bvec(&copy, WRITE, a.pages, a.count, length);
	put = iomap_dio_rw(iocb, &copy, &minfs_iomap_ops, &direct_ops, IOMAP_DIO_FORCE_WAIT, NULL,
			   0);
	iov_iter_revert(from, length - max_t(ssize_t, put, 0));
	n->added_start = n->added_end = 0;
	free_added(&a);
	return put;
}

/* A write that makes the file longer, or that goes through the page cache. The inode is locked. */
static ssize_t write_alone(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	u64 at = iocb->ki_pos, last = at + iov_iter_count(from);
	struct minfs_node *n = minfs_node_of(inode);
	ssize_t put = kiocb_modified(iocb);

	if (!put)
		put = minfs_before_change(inode, at, last);
	if (!put)
		put = minfs_reserve(inode, last, last > n->now.valid);
	if (put)
		return put;
	if (last > i_size_read(inode))
		minfs_clear_behind_size(inode);
	put = minfs_fill_gap(inode, at, true);
	if (put)
		return put;
	if (iocb->ki_flags & IOCB_DIRECT) {
		put = write_direct(iocb, from);
		if (put != -ENOTBLK)
			return put;
		/* Its pages could not be dropped: it goes through them. */
		iocb->ki_flags &= ~IOCB_DIRECT;
		put = write_cached(iocb, from);
		if (put > 0) {
			int error = filemap_write_and_wait_range(inode->i_mapping, at,
								 at + put - 1);

			if (error)
				return minfs_fail(minfs_of(inode->i_sb), "a write of data", error);
		}
		return put;
	}
	return write_cached(iocb, from);
}

ssize_t minfs_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct minfs_node *n = minfs_node_of(inode);
	bool is_direct = iocb->ki_flags & IOCB_DIRECT, is_shared = is_direct;
	ssize_t put;

	if (n->is_damaged)
		return -EUCLEAN;
	if (!is_direct && (iocb->ki_flags & IOCB_NOWAIT))
		return -EAGAIN;
again:
	put = lock_for(inode, iocb, is_shared);
	if (put)
		return put;
	put = minfs_writable(minfs_of(inode->i_sb));
	if (!put)
		put = generic_write_checks(iocb, from);
	if (put <= 0)
		goto out;
	if (is_shared) {
		u64 last = iocb->ki_pos + iov_iter_count(from);

		if (!IS_NOSEC(inode) ||
		    last > min_t(u64, READ_ONCE(n->plain_end), i_size_read(inode))) {
			unlock(inode, true);
			if (iocb->ki_flags & IOCB_NOWAIT)
				return -EAGAIN;
			is_shared = false;
			goto again;
		}
		/* In place and in no tail: no metadata, and others may do the same beside it. */
		put = kiocb_modified(iocb);
		if (!put) {
			put = minfs_direct(iocb, from);
			if (put == -ENOTBLK)
				put = iomap_dio_rw(iocb, from, &minfs_iomap_ops, NULL, 0, NULL, 0);
		}
		if (put == -ENOTBLK) {
			unlock(inode, true);
			if (iocb->ki_flags & IOCB_NOWAIT)
				return -EAGAIN;
			is_shared = false;
			goto again;
		}
		goto out;
	}
	put = write_alone(iocb, from);
out:
	unlock(inode, is_shared);
	/* A direct write does it itself. */
	if (put > 0 && !(iocb->ki_flags & IOCB_DIRECT))
		put = generic_write_sync(iocb, put);
	return put;
}

/* A mapping may store to this page, which is locked, until it is written; false: it is in a tail. */
static bool lend(struct minfs_node *n, u64 at)
{
	bool is_vouched;

	down_write(&n->space);
	is_vouched = is_in_tail(n, at, at + PAGE_SIZE);
	if (!is_vouched) {
		n->lent++;
		n->has_sum = false;
		minfs_update_plain_end(n);
	}
	up_write(&n->space);
	return !is_vouched;
}

static vm_fault_t page_mkwrite(struct vm_fault *vmf)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	u64 at = (u64)vmf->pgoff << PAGE_SHIFT, to;
	vm_fault_t result = VM_FAULT_SIGBUS;
	int error = 0;

	sb_start_pagefault(inode->i_sb);
	file_update_time(vmf->vma->vm_file);
	filemap_invalidate_lock_shared(inode->i_mapping);
	to = min_t(u64, at + PAGE_SIZE, i_size_read(inode));
	if (minfs_writable(minfs_of(inode->i_sb)) || at >= to)
		goto out;
	if (to > READ_ONCE(minfs_node_of(inode)->now.valid)) {
		error = minfs_reserve(inode, to, false);
		if (!error)
			error = minfs_fill_gap(inode, to, false);
	}
	if (!error)
		error = minfs_before_change(inode, at, at + PAGE_SIZE);
	if (error) {
		result = error == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS;
		goto out;
	}
	result = iomap_page_mkwrite(vmf, &minfs_iomap_ops);
	if ((result & VM_FAULT_LOCKED) && !lend(minfs_node_of(inode), at)) {
		/* Another thread's sync was faster. */
		unlock_page(vmf->page);
		result = VM_FAULT_NOPAGE;
	}
out:
	filemap_invalidate_unlock_shared(inode->i_mapping);
	sb_end_pagefault(inode->i_sb);
	return result;
}

static const struct vm_operations_struct vm_operations = {
	.fault = filemap_fault,
	.map_pages = filemap_map_pages,
	.page_mkwrite = page_mkwrite,
};

int minfs_mmap(struct file *file, struct vm_area_struct *vma)
{
	if (minfs_node_of(file_inode(file))->is_damaged)
		return -EUCLEAN;
	file_accessed(file);
	vma->vm_ops = &vm_operations;
	return 0;
}
