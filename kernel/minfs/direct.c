// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Direct writes over what a storage engine has written before: whole blocks, in one extent, below the
 * valid length. iomap tells the end of an asynchronous write from a thread; here the last
 * bio's end tells it in place, as for a block device. -ENOTBLK: iomap is to do it.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/task_io_accounting_ops.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include "minfs.h"

struct direct {
	struct kiocb *iocb;
	struct inode *inode;
	ssize_t bytes;
	atomic_t left;
	int error;
	struct work_struct work;
};

static void tell_end(struct direct *d)
{
	struct kiocb *iocb = d->iocb;
	ssize_t result = d->error ? d->error : d->bytes;

	if (!d->error)
		iocb->ki_pos += d->bytes;
	inode_dio_end(d->inode);
	kfree(d);
	iocb->ki_complete(iocb, result);
}

/* Pages that somebody read while their bytes were written may be older than these. */
static void drop_pages(struct work_struct *work)
{
	struct direct *d = container_of(work, struct direct, work);
	loff_t at = d->iocb->ki_pos;

	invalidate_inode_pages2_range(d->inode->i_mapping, at >> PAGE_SHIFT,
				      (at + d->bytes - 1) >> PAGE_SHIFT);
	tell_end(d);
}

static void put_part(struct direct *d)
{
	if (!atomic_dec_and_test(&d->left))
		return;
	if (d->inode->i_mapping->nrpages) {
		INIT_WORK(&d->work, drop_pages);
		queue_work(system_unbound_wq, &d->work);
	} else {
		tell_end(d);
	}
}

static void end_bio(struct bio *bio)
{
	struct direct *d = bio->bi_private;

	if (bio->bi_status)
		cmpxchg(&d->error, 0, blk_status_to_errno(bio->bi_status));
	put_part(d);
	bio_release_pages(bio, false);
	bio_put(bio);
}

/* The inode is locked, shared: nobody cuts space off before inode_dio_end. */
ssize_t minfs_overwrite(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct block_device *bdev = inode->i_sb->s_bdev;
	struct minfs_node *n = minfs_node_of(inode);
	size_t length = iov_iter_count(from);
	blk_opf_t op = REQ_OP_WRITE | REQ_SYNC | REQ_IDLE;
	struct blk_plug plug;
	struct direct *d;
	u64 where, run;
	bool has_place;
	int error = 0;

	if (is_sync_kiocb(iocb) || !user_backed_iter(from) || !length || inode->i_mapping->nrpages ||
	    (iocb->ki_flags & (IOCB_NOWAIT | IOCB_HIPRI | IOCB_DSYNC)) ||
	    ((iocb->ki_pos | length | iov_iter_alignment(from)) & (MINFS_BLOCK - 1)))
		return -ENOTBLK;
	down_read(&n->space);
	has_place = iocb->ki_pos + length <= n->now.valid &&
		minfs_place(minfs_of(inode->i_sb), n, iocb->ki_pos, &where, &run);
	up_read(&n->space);
	if (!has_place || run < length)
		return -ENOTBLK;
	d = kmalloc(sizeof(*d), GFP_KERNEL);
	if (!d)
		return -ENOTBLK;
	*d = (struct direct){ .iocb = iocb, .inode = inode, .bytes = length };
	atomic_set(&d->left, 1);
	inode_dio_begin(inode);
	blk_start_plug(&plug);
	while (!error && iov_iter_count(from)) {
		struct bio *bio = bio_alloc(bdev, bio_iov_vecs_to_alloc(from, BIO_MAX_VECS), op, GFP_KERNEL);

		bio->bi_iter.bi_sector = where >> SECTOR_SHIFT;
		bio->bi_private = d;
		bio->bi_end_io = end_bio;
		bio->bi_ioprio = iocb->ki_ioprio;
		error = bio_iov_iter_get_pages(bio, from);
		if (error) {
			bio_put(bio);
			break;
		}
		task_io_account_write(bio->bi_iter.bi_size);
		where += bio->bi_iter.bi_size;
		atomic_inc(&d->left);
		submit_bio(bio);
	}
	blk_finish_plug(&plug);
	if (error)
		cmpxchg(&d->error, 0, error);
	put_part(d);
	return -EIOCBQUEUED;
}
