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

/* Ends that may wait. Memory may only become free by them; and none outlives the module. */
static struct workqueue_struct *ends;

int __init minfs_direct_init(void)
{
	ends = alloc_workqueue("minfs", WQ_MEM_RECLAIM, 0);
	return ends ? 0 : -ENOMEM;
}

void minfs_direct_exit(void)
{
	destroy_workqueue(ends);
}

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

/*
 * Pages that somebody read while their bytes were written may be older than these. Who has stored to
 * one through a mapping will overwrite them: the next sync tells it, as iomap does.
 */
static void drop_pages(struct work_struct *work)
{
	struct direct *d = container_of(work, struct direct, work);
	struct address_space *mapping = d->inode->i_mapping;
	loff_t at = d->iocb->ki_pos;

	if (invalidate_inode_pages2_range(mapping, at >> PAGE_SHIFT, (at + d->bytes - 1) >> PAGE_SHIFT))
		errseq_set(&mapping->wb_err, -EIO);
	tell_end(d);
}

static void put_part(struct direct *d)
{
	if (!atomic_dec_and_test(&d->left))
		return;
	if (READ_ONCE(d->inode->i_mapping->nrpages)) {
		INIT_WORK(&d->work, drop_pages);
		queue_work(ends, &d->work);
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
	    (iocb->ki_flags & IOCB_HIPRI) || iocb_is_dsync(iocb) ||
	    ((iocb->ki_pos | length | iov_iter_alignment(from)) & (MINFS_BLOCK - 1)))
		return -ENOTBLK;
	if (!(iocb->ki_flags & IOCB_NOWAIT))
		down_read(&n->space);
	else if (!down_read_trylock(&n->space))
		return -EAGAIN;
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
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
		bio->bi_write_hint = inode->i_write_hint;
#endif
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
