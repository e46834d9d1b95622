// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Direct reads and writes in place: whole blocks, in one extent, below the valid length, in one bio. For
 * these iomap allocates more, looks at each page of a reader three times, and tells the end of an asynchronous
 * write from a thread; here the bio has all that its end needs, and the end is told in place, as for a block
 * device. -ENOTBLK: iomap is to do it.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/task_io_accounting_ops.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include "minfs.h"

struct direct {
	struct kiocb *iocb;
	size_t bytes;
	struct work_struct work;
	struct bio bio;			/* the last: its vectors follow */
};

static struct bio_set pool;
/* Ends that may wait. Memory may only become free by them; and none outlives the module. */
static struct workqueue_struct *ends;

int __init minfs_direct_init(void)
{
	int error = bioset_init(&pool, BIO_POOL_SIZE, offsetof(struct direct, bio), BIOSET_NEED_BVECS);

	if (error)
		return error;
	ends = alloc_workqueue("minfs", WQ_MEM_RECLAIM, 0);
	if (!ends)
		bioset_exit(&pool);
	return ends ? 0 : -ENOMEM;
}

void minfs_direct_exit(void)
{
	destroy_workqueue(ends);
	bioset_exit(&pool);
}

/* Each folio: bio_release_pages of 6.1 would leave out those of several pages. */
static void make_dirty(struct bio *bio)
{
	struct folio_iter at;

	bio_for_each_folio_all(at, bio) {
		folio_lock(at.folio);
		folio_mark_dirty(at.folio);
		folio_unlock(at.folio);
	}
}

static ssize_t finish(struct direct *d)
{
	ssize_t result = blk_status_to_errno(d->bio.bi_status);

	if (!result) {
		result = d->bytes;
		d->iocb->ki_pos += result;
	}
	bio_release_pages(&d->bio, false);
	bio_put(&d->bio);
	return result;
}

/* The last is to tell: then the file may be closed, and the module unloaded. */
static void tell_end(struct direct *d)
{
	struct kiocb *iocb = d->iocb;
	ssize_t result = finish(d);

	inode_dio_end(file_inode(iocb->ki_filp));
	iocb->ki_complete(iocb, result);
}

static void tell_later(struct direct *d, work_func_t how)
{
	INIT_WORK(&d->work, how);
	queue_work(ends, &d->work);
}

/*
 * Pages that somebody read while their bytes were written may be older than these. Who has stored to
 * one through a mapping will overwrite them: the next sync tells it, as iomap does.
 */
static void drop_pages(struct direct *d)
{
	struct address_space *mapping = file_inode(d->iocb->ki_filp)->i_mapping;
	loff_t at = d->iocb->ki_pos;

	if (invalidate_inode_pages2_range(mapping, at >> PAGE_SHIFT, (at + d->bytes - 1) >> PAGE_SHIFT))
		errseq_set(&mapping->wb_err, -EIO);
}

static void tell_write(struct work_struct *work)
{
	struct direct *d = container_of(work, struct direct, work);

	drop_pages(d);
	tell_end(d);
}

static void end_write(struct bio *bio)
{
	struct direct *d = container_of(bio, struct direct, bio);

	if (READ_ONCE(file_inode(d->iocb->ki_filp)->i_mapping->nrpages))
		tell_later(d, tell_write);
	else
		tell_end(d);
}

static void tell_read(struct work_struct *work)
{
	struct direct *d = container_of(work, struct direct, work);

	make_dirty(&d->bio);
	tell_end(d);
}

/*
 * The reader's memory may be pages of a file, which must be written. They became dirty before the read, since
 * that may wait; one that is clean again was written meanwhile, perhaps without these bytes.
 */
static void end_read(struct bio *bio)
{
	struct direct *d = container_of(bio, struct direct, bio);
	struct folio_iter at;

	bio_for_each_folio_all(at, bio) {
		if (!folio_test_dirty(at.folio)) {
			tell_later(d, tell_read);
			return;
		}
	}
	tell_end(d);
}

/* The inode is locked, shared: nobody cuts space off before inode_dio_end. */
ssize_t minfs_direct(struct kiocb *iocb, struct iov_iter *iter)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct minfs_node *n = minfs_node_of(inode);
	bool is_write = iov_iter_rw(iter) == WRITE, has_place;
	size_t length = iov_iter_count(iter);
	struct direct *d;
	struct bio *bio;
	u64 where, run;
	int error;

	if (!user_backed_iter(iter) || !length || length > BIO_MAX_VECS * PAGE_SIZE ||
	    (iocb->ki_flags & IOCB_HIPRI) || (is_write && iocb_is_dsync(iocb)) ||
	    ((iocb->ki_pos | length | iov_iter_alignment(iter)) & (MINFS_BLOCK - 1)))
		return -ENOTBLK;
	if (!(iocb->ki_flags & IOCB_NOWAIT))
		down_read(&n->space);
	else if (!down_read_trylock(&n->space))
		return -EAGAIN;
	has_place = iocb->ki_pos + length <= n->now.valid &&
		minfs_place(minfs_of(inode->i_sb), n, iocb->ki_pos, &where, &run);
	up_read(&n->space);
	/* After the valid length: what raised it was on the device, or in the cache, before. */
	if (!has_place || run < length || READ_ONCE(inode->i_mapping->nrpages))
		return -ENOTBLK;
	bio = bio_alloc_bioset(inode->i_sb->s_bdev, bio_iov_vecs_to_alloc(iter, BIO_MAX_VECS),
			       is_write ? REQ_OP_WRITE | REQ_SYNC | REQ_IDLE : REQ_OP_READ, GFP_KERNEL,
			       &pool);
	bio->bi_iter.bi_sector = where >> SECTOR_SHIFT;
	bio->bi_end_io = is_write ? end_write : end_read;
	bio->bi_ioprio = iocb->ki_ioprio;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	bio->bi_write_hint = inode->i_write_hint;
#endif
	error = bio_iov_iter_get_pages(bio, iter);
	if (error) {
		bio_put(bio);
		return error;
	}
	d = container_of(bio, struct direct, bio);
	d->iocb = iocb;
	d->bytes = bio->bi_iter.bi_size;
	if (is_write)
		task_io_account_write(d->bytes);
	if (is_sync_kiocb(iocb)) {
		submit_bio_wait(bio);
		if (is_write && !bio->bi_status)
			drop_pages(d);
		else if (!is_write)
			make_dirty(bio);
		return finish(d);
	}
	if (!is_write)
		make_dirty(bio);
	inode_dio_begin(inode);
	submit_bio(bio);
	return -EIOCBQUEUED;
}
