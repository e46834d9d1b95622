// SPDX-License-Identifier: GPL-2.0
/*
 * The bytes of files. `now.valid` is the end of what was written: below it each block is in the
 * page cache or on the device, above it nothing is read. A record states a valid length only after
 * a flush that covers the bytes below it, so this module writes no tails.
 */
#include <linux/iomap.h>
#include <linux/pagemap.h>
#include <linux/uio.h>
#include <linux/slab.h>
#include <linux/falloc.h>
#include "minfs.h"

static struct minfs_node *node_of(struct inode *inode)
{
	return inode->i_private;
}

static int map(struct inode *inode, u64 at, u64 length, bool writes, struct iomap *m)
{
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = node_of(inode);
	u64 where, run, end;

	down_read(&n->space);
	end = round_up(n->now.valid, MINFS_BLOCK);
	m->bdev = inode->i_sb->s_bdev;
	m->offset = round_down(at, MINFS_BLOCK);
	m->length = round_up(at + length, MINFS_BLOCK) - m->offset;
	m->flags = 0;
	if (!writes && m->offset >= end) {
		m->type = IOMAP_HOLE;
		m->addr = IOMAP_NULL_ADDR;
	} else if (!minfs_place(v, n, m->offset, &where, &run)) {
		up_read(&n->space);
		return writes ? -EIO : -EUCLEAN;
	} else {
		m->type = IOMAP_MAPPED;
		m->addr = where;
		m->length = min(m->length, run);
		if (m->offset >= end)
			m->flags = IOMAP_F_NEW;	/* what is not written there becomes zeros */
		else
			m->length = min(m->length, end - m->offset);
	}
	up_read(&n->space);
	return 0;
}

static int begin(struct inode *inode, loff_t at, loff_t length, unsigned int flags,
		 struct iomap *m, struct iomap *source)
{
	return map(inode, at, length, flags & (IOMAP_WRITE | IOMAP_ZERO), m);
}

/* Writes are in order, their caller has the inode's lock and has filled the gap before them. */
static int end(struct inode *inode, loff_t at, loff_t length, ssize_t written, unsigned int flags,
	       struct iomap *m)
{
	struct minfs_node *n = node_of(inode);

	if ((flags & (IOMAP_WRITE | IOMAP_ZERO)) && !(flags & (IOMAP_DIRECT | IOMAP_FAULT)) &&
	    written > 0) {
		down_write(&n->space);
		n->now.valid = max_t(u64, n->now.valid, at + written);
		up_write(&n->space);
	}
	return 0;
}

static const struct iomap_ops ops = { .iomap_begin = begin, .iomap_end = end };

/* The block in which the valid length ends may hold anything behind it: zeros are read there. */
static bool is_cut(struct inode *inode, pgoff_t index)
{
	u64 valid = READ_ONCE(node_of(inode)->now.valid);

	return valid % MINFS_BLOCK && valid / MINFS_BLOCK == index;
}

static int read_folio(struct file *file, struct folio *folio)
{
	struct inode *inode = folio->mapping->host;
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = node_of(inode);
	u64 where = 0, run;
	u32 from = n->now.valid % MINFS_BLOCK;
	void *bounce;
	bool has_place;
	int error = -EUCLEAN;

	if (PAGE_SIZE != MINFS_BLOCK || !is_cut(inode, folio->index))
		return iomap_read_folio(folio, &ops);
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
		folio_mark_uptodate(folio);
	}
	free_page((unsigned long)bounce);
	folio_unlock(folio);
	return error;
}

static void readahead(struct readahead_control *rac)
{
	u64 cut = node_of(rac->mapping->host)->now.valid / MINFS_BLOCK;
	struct folio *folio;

	if (cut >= readahead_index(rac) && cut < readahead_index(rac) + readahead_count(rac)) {
		while ((folio = readahead_folio(rac)))
			read_folio(NULL, folio);
		return;
	}
	iomap_readahead(rac, &ops);
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
static int map_blocks(struct iomap_writepage_ctx *wpc, struct inode *inode, loff_t at)
#else
static int map_blocks(struct iomap_writepage_ctx *wpc, struct inode *inode, loff_t at,
		      unsigned int length)
#endif
{
	if (at >= wpc->iomap.offset && at < wpc->iomap.offset + wpc->iomap.length)
		return 0;
	return map(inode, at, MINFS_BLOCK, true, &wpc->iomap);
}

static const struct iomap_writeback_ops writeback_ops = { .map_blocks = map_blocks };

static int writepages(struct address_space *mapping, struct writeback_control *wbc)
{
	struct iomap_writepage_ctx wpc = {};

	return iomap_writepages(mapping, wbc, &wpc, &writeback_ops);
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

static ssize_t read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct minfs_node *n = node_of(inode);
	u64 last = iocb->ki_pos + iov_iter_count(to);
	ssize_t got;

	if (n->is_damaged)
		return -EUCLEAN;
	inode_lock_shared(inode);
	/* Where zeros begin within a block, the page cache makes them. */
	if ((iocb->ki_flags & IOCB_DIRECT) &&
	    (last <= n->now.valid || n->now.valid >= i_size_read(inode))) {
		got = iomap_dio_rw(iocb, to, &ops, NULL, 0, NULL, 0);
	} else {
		iocb->ki_flags &= ~IOCB_DIRECT;
		got = generic_file_read_iter(iocb, to);
	}
	inode_unlock_shared(inode);
	return got;
}

/* Zeros from the valid length to `to`, through the page cache. The inode is locked. */
static int fill_gap(struct inode *inode, u64 to)
{
	struct minfs_node *n = node_of(inode);
	struct folio *cut = NULL;
	u64 from = n->now.valid;
	int error;

	if (to <= from)
		return 0;
	if (from % MINFS_BLOCK) {
		/* Held, so that nobody reads it from the device again while it is changed. */
		cut = read_mapping_folio(inode->i_mapping, from / MINFS_BLOCK, NULL);
		if (IS_ERR(cut))
			return PTR_ERR(cut);
	}
	error = iomap_zero_range(inode, from, to - from, NULL, &ops);
	if (cut)
		folio_put(cut);
	return error;
}

static ssize_t write_cached(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct minfs_node *n = node_of(inode);
	struct folio *cut = NULL;
	ssize_t put;

	if (is_cut(inode, iocb->ki_pos / MINFS_BLOCK)) {
		cut = read_mapping_folio(inode->i_mapping, n->now.valid / MINFS_BLOCK, NULL);
		if (IS_ERR(cut))
			return PTR_ERR(cut);
	}
	put = iomap_file_buffered_write(iocb, from, &ops);
	if (cut)
		folio_put(cut);
	return put;
}

static ssize_t write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = node_of(inode);
	bool is_direct = iocb->ki_flags & IOCB_DIRECT;
	loff_t at, last;
	ssize_t put;

	if (n->is_damaged)
		return -EUCLEAN;
	inode_lock(inode);
	put = minfs_writable(v);
	if (!put)
		put = generic_write_checks(iocb, from);
	if (put <= 0)
		goto out;
	put = file_modified(iocb->ki_filp);
	if (put)
		goto out;
	at = iocb->ki_pos;
	last = at + iov_iter_count(from);
	down_write(&n->space);
	put = minfs_grow(v, n, last);
	up_write(&n->space);
	if (!put)
		put = fill_gap(inode, min_t(u64, at, S64_MAX));
	if (put)
		goto out;
	if (is_direct && last <= n->now.valid && last <= i_size_read(inode)) {
		/* In place: no metadata, and others may do the same beside it. */
		inode_unlock(inode);
		inode_lock_shared(inode);
		if (last <= n->now.valid && last <= i_size_read(inode))
			put = iomap_dio_rw(iocb, from, &ops, NULL, 0, NULL, 0);
		else
			put = -EAGAIN;
		inode_unlock_shared(inode);
		if (put > 0)
			put = generic_write_sync(iocb, put);
		return put;
	}
	iocb->ki_flags &= ~IOCB_DIRECT;
	put = write_cached(iocb, from);
	if (put > 0 && is_direct) {
		int error = filemap_write_and_wait_range(inode->i_mapping, at, at + put - 1);

		if (error)
			put = error;
		else
			invalidate_mapping_pages(inode->i_mapping, at >> PAGE_SHIFT,
						 (at + put - 1) >> PAGE_SHIFT);
	}
out:
	inode_unlock(inode);
	if (put > 0)
		put = generic_write_sync(iocb, put);
	return put;
}

static int fsync(struct file *file, loff_t start, loff_t last, int datasync)
{
	return minfs_store(file_inode(file));
}

static vm_fault_t page_mkwrite(struct vm_fault *vmf)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct minfs_node *n = node_of(inode);
	vm_fault_t result = VM_FAULT_SIGBUS;

	sb_start_pagefault(inode->i_sb);
	filemap_invalidate_lock_shared(inode->i_mapping);
	/* Draft: a page beyond the valid length would need the inode's lock, which comes first. */
	if (!minfs_writable(minfs_of(inode->i_sb)) &&
	    (u64)vmf->pgoff << PAGE_SHIFT < n->now.valid) {
		file_update_time(vmf->vma->vm_file);
		result = iomap_page_mkwrite(vmf, &ops);
	}
	filemap_invalidate_unlock_shared(inode->i_mapping);
	sb_end_pagefault(inode->i_sb);
	return result;
}

static const struct vm_operations_struct vm_operations = {
	.fault = filemap_fault,
	.map_pages = filemap_map_pages,
	.page_mkwrite = page_mkwrite,
};

static int mmap(struct file *file, struct vm_area_struct *vma)
{
	if (node_of(file_inode(file))->is_damaged)
		return -EUCLEAN;
	file_accessed(file);
	vma->vm_ops = &vm_operations;
	return 0;
}

static int truncate(struct inode *inode, u64 size)
{
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = node_of(inode);
	struct minfs_run *freed;
	u32 count = 0;
	int error;

	freed = kvcalloc(MINFS_EXTENTS_MAX, sizeof(*freed), GFP_KERNEL);
	if (!freed)
		return -ENOMEM;
	inode_dio_wait(inode);
	/* Bytes that stay and were never recorded are flushed before a record vouches for them. */
	error = filemap_write_and_wait(inode->i_mapping);
	filemap_invalidate_lock(inode->i_mapping);
	mutex_lock(&n->turn);
	if (!error) {
		bool shrinks = size < i_size_read(inode);

		truncate_setsize(inode, size);
		down_write(&n->space);
		n->now.valid = min(n->now.valid, size);
		if (shrinks)
			count = minfs_cut(v, n, (size + v->unit_bytes - 1) >> v->unit_shift, freed);
		up_write(&n->space);
	}
	mutex_unlock(&n->turn);
	filemap_invalidate_unlock(inode->i_mapping);
	if (!error)
		error = minfs_store(inode);
	/* After a failure nothing is written any more, so nobody can be given the space. */
	if (!error)
		minfs_free_units(v, freed, count);
	kvfree(freed);
	return error;
}

int minfs_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	struct minfs_volume *v = minfs_of(inode->i_sb);
	int error = setattr_prepare(idmap, dentry, attr);

	if (!error)
		error = minfs_writable(v);
	if (!error && node_of(inode)->is_damaged)
		error = -EUCLEAN;
	if (!error && (attr->ia_valid & ATTR_SIZE) && attr->ia_size != i_size_read(inode))
		error = truncate(inode, attr->ia_size);
	if (error)
		return error;
	setattr_copy(idmap, inode, attr);
	mark_inode_dirty(inode);
	if (attr->ia_valid & (ATTR_MODE | ATTR_UID | ATTR_GID))
		error = minfs_store(inode);
	return error;
}

static long fallocate(struct file *file, int mode, loff_t at, loff_t length)
{
	struct inode *inode = file_inode(file);
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = node_of(inode);
	int error;

	if (mode & ~FALLOC_FL_KEEP_SIZE)
		return -EOPNOTSUPP;
	inode_lock(inode);
	error = minfs_writable(v);
	if (!error && n->is_damaged)
		error = -EUCLEAN;
	if (!error && !(mode & FALLOC_FL_KEEP_SIZE))
		error = inode_newsize_ok(inode, max_t(loff_t, at + length, i_size_read(inode)));
	if (!error) {
		down_write(&n->space);
		error = minfs_grow(v, n, at + length);
		if (!error)
			n->kept_units = minfs_held_units(n);
		up_write(&n->space);
	}
	if (!error && !(mode & FALLOC_FL_KEEP_SIZE) && at + length > i_size_read(inode))
		i_size_write(inode, at + length);
	if (!error)
		error = minfs_store(inode);
	inode_unlock(inode);
	return error;
}

const struct file_operations minfs_file_operations = {
	.llseek = generic_file_llseek,
	.read_iter = read_iter,
	.write_iter = write_iter,
	.mmap = mmap,
	.fsync = fsync,
	.fallocate = fallocate,
	.splice_write = iter_file_splice_write,
};

const struct inode_operations minfs_file_inode_operations = { .setattr = minfs_setattr };
