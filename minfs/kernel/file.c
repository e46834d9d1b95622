// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * What is asked of a file as a whole: its syncs, size, space and attributes. Its bytes are data.c's.
 */
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/iomap.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include "minfs.h"

static int fsync(struct file *file, loff_t start, loff_t last, int datasync)
{
	struct inode *inode = file_inode(file);
	struct minfs_volume *v = minfs_of(inode->i_sb);
	u64 mark;
	int error, told;

	if (sb_rdonly(inode->i_sb))
		return 0;
	/* The first knows lost bytes only, the second also collisions of direct writes with stores. */
	error = filemap_write_and_wait_range(inode->i_mapping, start, last);
	told = file_check_and_advance_wb_err(file);
	if (error)
		return minfs_fail(v, "a write of data", error);
	if (told)
		return told;
	mark = minfs_flush_mark(v);
	error = minfs_bound_tails(v);
	if (!error)
		error = minfs_store_if_dirty(v, minfs_node_of(inode), inode);
	/* While this thread waited for its turn, another's flush may have covered all of it. */
	error = error ? min(error, 0) : minfs_flush_since(v, mark);
	if (error)
		WRITE_ONCE(minfs_node_of(inode)->has_lost, true);
	return error;
}

/* The inode is locked. Space is free again only when a durable record says so. */
static int truncate(struct inode *inode, u64 size)
{
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = minfs_node_of(inode);
	bool shrinks = size < i_size_read(inode);
	struct minfs_run *freed;
	u32 count = 0;
	int error = 0;

	freed = kcalloc(MINFS_EXTENTS_MAX, sizeof(*freed), GFP_KERNEL);
	if (!freed)
		return -ENOMEM;
	inode_dio_wait(inode);
	filemap_invalidate_lock(inode->i_mapping);
	mutex_lock(&n->turn);
	/* A page that is cut may be written before the record. */
	if (shrinks && size < n->tail_end)
		error = minfs_settle(v, n);
	if (error)
		goto out;
	if (!shrinks)
		minfs_clear_behind_size(inode);
	/* Pages behind the size are dropped, and those under way waited for. */
	truncate_setsize(inode, size);
	down_write(&n->space);
	WRITE_ONCE(n->now.valid, min(n->now.valid, size));
	n->sum_start = min(n->sum_start, n->now.valid);
	n->has_sum &= !shrinks;
	minfs_update_plain_end(n);
	if (shrinks) {
		u64 units = (size + v->unit_bytes - 1) >> v->unit_shift;

		n->kept_units = n->busy_units = min(units, minfs_held_units(n));
		count = minfs_cut(n, units, freed);
		inode->i_blocks = minfs_held_units(n) << (v->unit_shift - 9);
	}
	n->is_dirty = true;
	up_write(&n->space);
	if (!n->is_unlinked)
		error = minfs_store_as(v, n, inode, NULL, -1, !shrinks);
out:
	mutex_unlock(&n->turn);
	filemap_invalidate_unlock(inode->i_mapping);
	/* After a failure nothing is written any more, so nobody can be given the space. */
	if (!error)
		minfs_free_units(v, freed, count);
	kfree(freed);
	return error;
}

static int setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = minfs_node_of(inode);
	int error = setattr_prepare(idmap, dentry, attr);
	bool has_size;

	if (!error)
		error = minfs_writable(v);
	if (!error && n->is_damaged)
		error = -EUCLEAN;
	if (error)
		return error;
	has_size = (attr->ia_valid & ATTR_SIZE) && attr->ia_size != i_size_read(inode);
	if (has_size)
		attr->ia_valid |= ATTR_MTIME | ATTR_CTIME;
	setattr_copy(idmap, inode, attr);
	mark_inode_dirty(inode);
	/* Times that were set are durable after a sync. */
	if (attr->ia_valid & (ATTR_MODE | ATTR_UID | ATTR_GID | ATTR_ATIME | ATTR_MTIME)) {
		down_write(&n->space);
		n->is_dirty = true;
		up_write(&n->space);
	}
	if (has_size)
		return truncate(inode, attr->ia_size);
	if (attr->ia_valid & (ATTR_MODE | ATTR_UID | ATTR_GID))
		error = minfs_store_if_dirty(v, n, inode);
	return min(error, 0);
}

static long fallocate(struct file *file, int mode, loff_t at, loff_t length)
{
	struct inode *inode = file_inode(file);
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = minfs_node_of(inode);
	bool zeroes = mode & FALLOC_FL_ZERO_RANGE;
	loff_t size, end = at + length;
	struct folio *cut = NULL;
	u64 units, valid;
	int error;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	inode_lock(inode);
	size = i_size_read(inode);
	error = minfs_writable(v);
	if (!error && n->is_damaged)
		error = -EUCLEAN;
	if (!error && !(mode & FALLOC_FL_KEEP_SIZE))
		error = inode_newsize_ok(inode, max(end, size));
	if (!error)
		error = file_modified(file);
	if (!error)
		error = minfs_reserve(inode, end, false);
	if (error)
		goto out;
	down_write(&n->space);
	units = (end + v->unit_bytes - 1) >> v->unit_shift;
	n->is_dirty |= units > n->kept_units;
	n->kept_units = max(n->kept_units, units);
	valid = n->now.valid;
	up_write(&n->space);
	if (end > size && !(mode & FALLOC_FL_KEEP_SIZE)) {
		minfs_clear_behind_size(inode);
		/* A record that is being written must not take the old size and leave the file clean. */
		down_write(&n->space);
		i_size_write(inode, end);
		n->is_dirty = true;
		up_write(&n->space);
		pagecache_isize_extended(inode, size, end);
		size = end;
	}
	if (zeroes) {
		inode_dio_wait(inode);
		end = min(end, size);
		error = minfs_fill_gap(inode, end, true);
		if (!error)
			error = minfs_before_change(inode, at, end);
		if (!error && at < end && at < valid) {
			cut = minfs_hold_cut(inode, at, end);
			error = PTR_ERR_OR_ZERO(cut);
			if (!error)
				error = iomap_zero_range(inode, at, min_t(u64, end, valid) - at, NULL,
							 &minfs_iomap_ops);
			if (!IS_ERR_OR_NULL(cut))
				folio_put(cut);
		}
	}
	if (!error)
		error = minfs_store_if_dirty(v, n, inode);
out:
	inode_unlock(inode);
	return min(error, 0);
}

static int open(struct inode *inode, struct file *file)
{
	file->f_mode |= FMODE_NOWAIT | FMODE_CAN_ODIRECT;
	return generic_file_open(inode, file);
}

/* When the last writer closes the file, it needs no space to grow into. */
static int release(struct inode *inode, struct file *file)
{
	struct minfs_node *n = minfs_node_of(inode);

	if (!(file->f_mode & FMODE_WRITE) || atomic_read(&inode->i_writecount) != 1)
		return 0;
	inode_lock(inode);
	down_write(&n->space);
	if (atomic_read(&inode->i_writecount) == 1) {
		n->busy_units = 0;
		minfs_give_back(minfs_of(inode->i_sb), n);
		inode->i_blocks = minfs_held_units(n) << (minfs_of(inode->i_sb)->unit_shift - 9);
	}
	up_write(&n->space);
	inode_unlock(inode);
	return 0;
}

static loff_t llseek(struct file *file, loff_t offset, int whence)
{
	struct inode *inode = file->f_mapping->host;

	if (whence != SEEK_HOLE && whence != SEEK_DATA)
		return generic_file_llseek(file, offset, whence);
	inode_lock_shared(inode);
	offset = whence == SEEK_HOLE ? iomap_seek_hole(inode, offset, &minfs_iomap_ops) :
		iomap_seek_data(inode, offset, &minfs_iomap_ops);
	inode_unlock_shared(inode);
	return offset < 0 ? offset : vfs_setpos(file, offset, inode->i_sb->s_maxbytes);
}

const struct file_operations minfs_file_operations = {
	.open = open,
	.release = release,
	.llseek = llseek,
	.read_iter = minfs_read_iter,
	.write_iter = minfs_write_iter,
	.mmap = minfs_mmap,
	.fsync = fsync,
	.fallocate = fallocate,
	.splice_write = iter_file_splice_write,
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
	.splice_read = generic_file_splice_read,
#else
	.splice_read = filemap_splice_read,
#endif
};

static int fiemap(struct inode *inode, struct fiemap_extent_info *info, u64 start, u64 length)
{
	int error;

	if (minfs_node_of(inode)->is_damaged)
		return -EUCLEAN;
	inode_lock_shared(inode);
	error = iomap_fiemap(inode, info, start, length, &minfs_iomap_ops);
	inode_unlock_shared(inode);
	return error;
}

const struct inode_operations minfs_file_inode_operations = {
	.setattr = setattr,
	.fiemap = fiemap,
};
