// SPDX-License-Identifier: MIT OR GPL-2.0
/* Mounts, names and VFS inodes of minfs. Every change of a name is one durable record. */
#include <linux/blkdev.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include "minfs.h"

static struct inode *get_inode(struct super_block *sb, struct minfs_node *n)
{
	struct inode *inode = iget_locked(sb, MINFS_FIRST_INO + n->number);

	if (!inode)
		return ERR_PTR(-ENOMEM);
	if (!(inode->i_state & I_NEW))
		return inode;
	inode->i_private = n;
	inode->i_mode = S_IFREG | n->now.mode;
	i_uid_write(inode, n->now.user);
	i_gid_write(inode, n->now.group);
	set_nlink(inode, 1);
	inode->i_size = n->now.size;
	inode->i_blocks = minfs_held_units(n) << (minfs_of(sb)->unit_shift - 9);
	minfs_set_time(inode, atime, ns_to_timespec64(n->now.accessed_ns));
	minfs_set_time(inode, mtime, ns_to_timespec64(n->now.modified_ns));
	minfs_set_time(inode, ctime, ns_to_timespec64(n->now.changed_ns));
	inode->i_op = &minfs_file_inode_operations;
	inode->i_fop = &minfs_file_operations;
	inode->i_mapping->a_ops = &minfs_aops;
	unlock_new_inode(inode);
	return inode;
}

static struct dentry *lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct minfs_volume *v = minfs_of(dir->i_sb);
	struct minfs_node *n;
	struct inode *inode = NULL;

	if (dentry->d_name.len > MINFS_NAME_BYTES_MAX)
		return ERR_PTR(-ENAMETOOLONG);
	mutex_lock(&v->names);
	n = minfs_find(v, dentry->d_name.name, dentry->d_name.len);
	if (n)
		inode = get_inode(dir->i_sb, n);
	mutex_unlock(&v->names);
	return d_splice_alias(inode, dentry);
}

static void touch_root(struct inode *dir)
{
	struct timespec64 now = current_time(dir);

	minfs_set_time(dir, mtime, now);
	minfs_set_time(dir, ctime, now);
}

static int create(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode,
		  bool exclusive)
{
	struct minfs_volume *v = minfs_of(dir->i_sb);
	struct minfs_node *n = NULL;
	struct inode *inode;
	s64 number = -1;
	u32 i;
	int error = minfs_writable(v);

	if (error)
		return error;
	mutex_lock(&v->names);
	/* Buried inodes first: their next record ends the burial at no cost. */
	for (i = 0; i < v->inode_count; i++) {
		if (!v->slots[i].is_free)
			continue;
		if (v->slots[i].is_buried) {
			number = i;
			break;
		}
		if (number < 0)
			number = i;
	}
	error = number < 0 ? -ENOSPC : 0;
	if (!error) {
		n = minfs_new_node(number);
		error = n ? 0 : -ENOMEM;
	}
	if (!error) {
		n->now.name_length = dentry->d_name.len;
		memcpy(n->now.name, dentry->d_name.name, dentry->d_name.len);
		n->now.mode = mode & 07777;
		n->now.user = from_kuid(&init_user_ns, current_fsuid());
		n->now.group = dir->i_mode & S_ISGID ? i_gid_read(dir) :
			from_kgid(&init_user_ns, current_fsgid());
		n->now.created_ns = ktime_get_coarse_real_ns();
		n->now.accessed_ns = n->now.modified_ns = n->now.changed_ns = n->now.created_ns;
		error = minfs_record_now(v, &n->now, -1);
	}
	if (error) {
		minfs_drop_node(n);
		mutex_unlock(&v->names);
		return error;
	}
	v->slots[number].is_free = v->slots[number].is_buried = false;
	v->nodes[number] = n;
	minfs_link(v, n);
	inode = get_inode(dir->i_sb, n);
	mutex_unlock(&v->names);
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	touch_root(dir);
	d_instantiate(dentry, inode);
	return 0;
}

static void lose_name(struct minfs_volume *v, struct minfs_node *n)
{
	hash_del(&n->by_name);
	v->file_count--;
	n->is_unlinked = true;
	minfs_forget_tail(v, n);
}

static int unlink(struct inode *dir, struct dentry *dentry)
{
	struct minfs_volume *v = minfs_of(dir->i_sb);
	struct inode *inode = d_inode(dentry);
	struct minfs_node *n = inode->i_private;
	struct minfs_record gone = { .inode = n->number };
	int error = minfs_writable(v);

	if (error)
		return error;
	mutex_lock(&v->names);
	mutex_lock(&n->turn);
	error = minfs_record_now(v, &gone, -1);
	if (!error)
		lose_name(v, n);
	mutex_unlock(&n->turn);
	mutex_unlock(&v->names);
	if (!error) {
		touch_root(dir);
		drop_nlink(inode);	/* evict_inode gives space and number back */
	}
	return error;
}

/* Gives the inode that `burier` buries a record of its own that says so, unless it has one or is `next`. */
static int end_burial(struct minfs_volume *v, u32 burier, u32 next)
{
	const struct minfs_slot_state *s = &v->slots[burier];
	struct minfs_record gone = { .inode = s->buried_inode };

	if (s->buried_inode == MINFS_NO_INODE || s->buried_inode == next ||
	    v->slots[s->buried_inode].durable_generation > s->buried_generation)
		return 0;
	return minfs_record_now(v, &gone, -1);
}

static int rename(struct mnt_idmap *idmap, struct inode *from_dir, struct dentry *from,
		  struct inode *to_dir, struct dentry *to, unsigned int flags)
{
	struct minfs_volume *v = minfs_of(from_dir->i_sb);
	struct inode *inode = d_inode(from), *over = d_inode(to);
	struct minfs_node *n = inode->i_private, *victim = over ? over->i_private : NULL;
	int error = minfs_writable(v);

	if (flags & ~RENAME_NOREPLACE)
		return -EINVAL;
	if (error)
		return error;
	mutex_lock(&v->names);
	mutex_lock(&n->turn);
	if (victim)
		mutex_lock_nested(&victim->turn, SINGLE_DEPTH_NESTING);
	/*
	 * A record buries one inode: an older burial ends with a record of the buried one. What the
	 * victim buried would come back if its record, which nobody needs any more, decayed.
	 */
	if (victim)
		error = end_burial(v, n->number, victim->number);
	if (victim && !error)
		error = end_burial(v, victim->number, n->number);
	/* A program that replaces a file this way expects the new content under the name. */
	if (!error) {
		minfs_set_time(inode, ctime, current_time(inode));
		error = minfs_store_as(v, n, inode, &to->d_name,
				       victim ? (s64)victim->number : -1, false);
	}
	if (!error) {
		if (victim) {
			v->slots[victim->number].is_buried = true;
			lose_name(v, victim);
		}
		hash_del(&n->by_name);
		v->file_count--;
		memset(n->now.name, 0, sizeof(n->now.name));
		memcpy(n->now.name, to->d_name.name, to->d_name.len);
		n->now.name_length = to->d_name.len;
		minfs_link(v, n);
	}
	if (victim)
		mutex_unlock(&victim->turn);
	mutex_unlock(&n->turn);
	mutex_unlock(&v->names);
	if (!error) {
		if (over)
			drop_nlink(over);
		touch_root(to_dir);
	}
	return error;
}

static int iterate(struct file *file, struct dir_context *ctx)
{
	struct minfs_volume *v = minfs_of(file_inode(file)->i_sb);
	char name[MINFS_NAME_BYTES_MAX];

	if (!dir_emit_dots(file, ctx))
		return 0;
	while (ctx->pos - 2 < v->inode_count) {
		u32 number = ctx->pos - 2, length = 0;
		struct minfs_node *n;

		/* The caller's memory may fault, so no lock is held while it is filled. */
		mutex_lock(&v->names);
		n = v->nodes[number];
		if (n && !n->is_unlinked) {
			length = n->now.name_length;
			memcpy(name, n->now.name, length);
		}
		mutex_unlock(&v->names);
		if (length && !dir_emit(ctx, name, length, MINFS_FIRST_INO + number, DT_REG))
			return 0;
		ctx->pos++;
	}
	return 0;
}

static const struct file_operations root_file_operations = {
	.llseek = generic_file_llseek,
	.read = generic_read_dir,
	.iterate_shared = iterate,
	.fsync = noop_fsync,
};

/* No record states owner and mode of the root directory: they are options of the mount. */
static int root_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	const struct inode *root = d_inode(dentry);

	if (((attr->ia_valid & ATTR_MODE) && (attr->ia_mode ^ root->i_mode) & 07777) ||
	    ((attr->ia_valid & ATTR_UID) && !uid_eq(attr->ia_uid, root->i_uid)) ||
	    ((attr->ia_valid & ATTR_GID) && !gid_eq(attr->ia_gid, root->i_gid)))
		return -EPERM;
	return simple_setattr(idmap, dentry, attr);
}

static const struct inode_operations root_operations = {
	.setattr = root_setattr,
	.lookup = lookup,
	.create = create,
	.unlink = unlink,
	.rename = rename,
};

static void evict_inode(struct inode *inode)
{
	struct minfs_volume *v = minfs_of(inode->i_sb);
	struct minfs_node *n = inode->i_private;

	/* A later record would vouch for bytes that are not there, and nobody could tell any more. */
	if (n && !n->is_unlinked && filemap_check_errors(&inode->i_data))
		minfs_fail(v, "a write of data", -EIO);
	truncate_inode_pages_final(&inode->i_data);
	if (n) {
		down_write(&n->space);
		n->now.size = i_size_read(inode);
		minfs_take_inode(n, inode);
		n->busy_units = 0;
		minfs_give_back(v, n);
		up_write(&n->space);
	}
	clear_inode(inode);
	if (n && n->is_unlinked) {
		mutex_lock(&v->names);
		minfs_release(v, n);
		mutex_unlock(&v->names);
	}
}

/* Records all files of which more than the bytes is new; `takes_times`: and notes the times of the others. */
static int store_all(struct super_block *sb, bool takes_times)
{
	struct minfs_volume *v = minfs_of(sb);
	u32 i;
	int error = 0;

	for (i = 0; i < v->inode_count && error >= 0; i++) {
		struct inode *inode = NULL;
		struct minfs_node *n;

		mutex_lock(&v->names);
		n = v->nodes[i];
		if (n && !n->is_unlinked) {
			inode = ilookup(sb, MINFS_FIRST_INO + i);
			if (!inode)
				error = minfs_store_if_dirty(v, n, NULL);
		}
		mutex_unlock(&v->names);
		if (!inode)
			continue;
		error = minfs_store_if_dirty(v, n, inode);
		if (takes_times) {
			down_write(&n->space);
			minfs_take_inode(n, inode);
			up_write(&n->space);
		}
		iput(inode);
	}
	return min(error, 0);
}

static int sync_fs(struct super_block *sb, int wait)
{
	struct minfs_volume *v = minfs_of(sb);
	int error;

	if (!wait || sb_rdonly(sb))
		return 0;
	error = minfs_bound_tails(v);
	if (!error)
		error = store_all(sb, false);
	return error ? error : minfs_flush(v);
}

/*
 * What sync_fs leaves: tails, and times of writes. A mount after this has nothing to do. Nobody writes: the
 * volume is being unmounted, frozen, or made read-only.
 */
static int make_clean(struct super_block *sb)
{
	int error = store_all(sb, true);

	return error ? error : minfs_settle_all(minfs_of(sb), true);
}

static void tell_loss(struct minfs_volume *v)
{
	u32 i, count = 0;

	for (i = 0; i < v->inode_count; i++) {
		const struct minfs_node *n = v->nodes[i];

		count += n && (n->is_dirty || n->has_times || n->has_lost);
	}
	pr_err("minfs: %s: unmounted after the error above: changes that were not synced before it are lost, in at least %u files\n",
	       v->sb->s_id, count);
}

static void put_super(struct super_block *sb)
{
	struct minfs_volume *v = minfs_of(sb);

	if (sb_rdonly(sb))
		return;
	make_clean(sb);
	if (v->has_failed)
		tell_loss(v);
}

static int statfs(struct dentry *dentry, struct kstatfs *to)
{
	struct minfs_volume *v = minfs_of(dentry->d_sb);

	to->f_type = MINFS_MAGIC;
	to->f_bsize = v->unit_bytes;
	to->f_blocks = v->unit_count;
	to->f_bfree = to->f_bavail = v->free_units;
	to->f_files = v->inode_count;
	to->f_ffree = v->inode_count - v->file_count;
	to->f_namelen = MINFS_NAME_BYTES_MAX;
	return 0;
}

static void free_volume(struct minfs_volume *v)
{
	if (v) {
		minfs_free_nodes(v);
		kvfree(v->nodes);
		kvfree(v->slots);
		kvfree(v->used);
		kfree(v);
	}
}

static void kill_sb(struct super_block *sb)
{
	struct minfs_volume *v = minfs_of(sb);

	kill_block_super(sb);
	free_volume(v);
}

static int show_options(struct seq_file *to, struct dentry *root)
{
	struct inode *inode = d_inode(root);

	if ((inode->i_mode & 07777) != 0755)
		seq_printf(to, ",root_mode=%o", inode->i_mode & 07777);
	if (i_uid_read(inode))
		seq_printf(to, ",root_user=%u", i_uid_read(inode));
	if (i_gid_read(inode))
		seq_printf(to, ",root_group=%u", i_gid_read(inode));
	return 0;
}

static const struct super_operations operations = {
	.show_options = show_options,
	.evict_inode = evict_inode,
	.put_super = put_super,
	.sync_fs = sync_fs,
	.freeze_fs = make_clean,
	.statfs = statfs,
};

/* What a mount says of the root directory. */
struct root_options {
	umode_t mode;
	u32 user, group;
};

static void set_root(struct inode *root, const struct root_options *options)
{
	root->i_mode = S_IFDIR | options->mode;
	i_uid_write(root, options->user);
	i_gid_write(root, options->group);
}

static int fill_super(struct super_block *sb, struct fs_context *fc)
{
	struct minfs_volume *v = kzalloc(sizeof(*v), GFP_KERNEL);
	struct inode *root;
	int error;

	if (!v)
		return -ENOMEM;
	sb->s_fs_info = v;
	v->sb = sb;
	mutex_init(&v->names);
	mutex_init(&v->flush_lock);
	mutex_init(&v->space_lock);
	hash_init(v->by_name);
	/* The page cache is read and written in blocks of the format. */
	if (PAGE_SIZE != MINFS_BLOCK || !sb_set_blocksize(sb, MINFS_BLOCK))
		return -EINVAL;
	sb->s_magic = MINFS_MAGIC;
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_time_gran = 1;
	/* Times are 64 bits of nanoseconds: of the years 1677 to 2262. */
	sb->s_time_min = div_s64(S64_MIN, NSEC_PER_SEC);
	sb->s_time_max = div_s64(S64_MAX, NSEC_PER_SEC);
	sb->s_op = &operations;
	/* Reads change no time. */
	sb->s_flags |= SB_NOATIME;
	error = minfs_read_geometry(v);
	if (error)
		return error;
	v->nodes = kvcalloc(v->inode_count, sizeof(*v->nodes), GFP_KERNEL);
	v->slots = kvcalloc(v->inode_count, sizeof(*v->slots), GFP_KERNEL);
	v->used = kvcalloc(BITS_TO_LONGS(v->unit_count), sizeof(long), GFP_KERNEL);
	if (!v->nodes || !v->slots || !v->used)
		return -ENOMEM;
	v->free_units = v->unit_count;
	if (v->has_unknown_read_only || bdev_read_only(sb->s_bdev))
		sb->s_flags |= SB_RDONLY;
	error = minfs_survey(v);
	if (error)
		return error;
	if (v->is_error)
		sb->s_flags |= SB_RDONLY;
	root = new_inode(sb);
	if (!root)
		return -ENOMEM;
	root->i_ino = MINFS_ROOT_INO;
	set_root(root, fc->fs_private);
	set_nlink(root, 2);
	minfs_set_time(root, atime, current_time(root));
	touch_root(root);
	root->i_op = &root_operations;
	root->i_fop = &root_file_operations;
	sb->s_root = d_make_root(root);
	return sb->s_root ? 0 : -ENOMEM;
}

static int get_tree(struct fs_context *fc)
{
	return get_tree_bdev(fc, fill_super);
}

/* Only a mount that once was for writing may become so again: others lack its flush and records. */
static int reconfigure(struct fs_context *fc)
{
	struct super_block *sb = fc->root->d_sb;
	struct minfs_volume *v = minfs_of(sb);
	int error;

	if (sb_rdonly(sb) && !(fc->sb_flags & SB_RDONLY) && (!v->is_durable || v->has_failed))
		return -EROFS;
	error = sync_filesystem(sb);
	if (!error && !sb_rdonly(sb) && (fc->sb_flags & SB_RDONLY))
		error = make_clean(sb);
	if (!error)
		set_root(d_inode(fc->root), fc->fs_private);
	return error;
}

enum { ROOT_MODE, ROOT_USER, ROOT_GROUP };

static const struct fs_parameter_spec parameters[] = {
	fsparam_u32oct("root_mode", ROOT_MODE),
	fsparam_u32("root_user", ROOT_USER),
	fsparam_u32("root_group", ROOT_GROUP),
	{}
};

static int parse_param(struct fs_context *fc, struct fs_parameter *given)
{
	struct root_options *options = fc->fs_private;
	struct fs_parse_result result;
	int which = fs_parse(fc, parameters, given, &result);

	if (which < 0)
		return which;
	if (which == ROOT_MODE ? result.uint_32 > 07777 : result.uint_32 == U32_MAX)
		return invalfc(fc, "%s: %s is out of range", given->key, given->string);
	if (which == ROOT_MODE)
		options->mode = result.uint_32;
	else if (which == ROOT_USER)
		options->user = result.uint_32;
	else
		options->group = result.uint_32;
	return 0;
}

static void free_context(struct fs_context *fc)
{
	kfree(fc->fs_private);
}

static const struct fs_context_operations context_operations = {
	.parse_param = parse_param,
	.free = free_context,
	.get_tree = get_tree,
	.reconfigure = reconfigure,
};

static int init_fs_context(struct fs_context *fc)
{
	struct root_options *options = kzalloc(sizeof(*options), GFP_KERNEL);

	if (!options)
		return -ENOMEM;
	options->mode = 0755;
	if (fc->root) {
		const struct inode *root = d_inode(fc->root);

		options->mode = root->i_mode & 07777;
		options->user = i_uid_read(root);
		options->group = i_gid_read(root);
	}
	fc->fs_private = options;
	fc->ops = &context_operations;
	return 0;
}

static struct file_system_type minfs_type = {
	.owner = THIS_MODULE,
	.name = "minfs",
	.init_fs_context = init_fs_context,
	.kill_sb = kill_sb,
	.fs_flags = FS_REQUIRES_DEV,
};
MODULE_ALIAS_FS("minfs");

static int __init minfs_init(void)
{
	int error = minfs_direct_init();

	if (error)
		return error;
	error = register_filesystem(&minfs_type);
	if (error)
		minfs_direct_exit();
	return error;
}

static void __exit minfs_exit(void)
{
	unregister_filesystem(&minfs_type);
	minfs_direct_exit();
}

module_init(minfs_init);
module_exit(minfs_exit);
MODULE_DESCRIPTION("minfs: a flat file system for storage engines");
MODULE_LICENSE("Dual MIT/GPL");
