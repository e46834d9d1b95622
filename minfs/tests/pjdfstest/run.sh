#!/bin/sh
# Runs pjdfstest over a volume of minfs; started by `tests/pjdfstest.rs` in a mount namespace and a
# process namespace of its own, in a directory with minfs, shim.so and config.toml. The kernel mounts
# the volume on MINFS_DISK, if that is set.
set -eu
pjdfstest=$1
work=$PWD
chmod 755 "$work"
mkdir -p volume base second helpers
mount -t tmpfs tmpfs base
mount -t tmpfs tmpfs second
chmod 755 base second
if [ -n "${MINFS_DISK:-}" ]; then
    mount -i -t minfs "$MINFS_DISK" volume
else
    # The tests of read-only file systems call mount(8), which calls the helper in /sbin.
    ln -s "$work/minfs" helpers/mount.fuse.minfs
    sbin=$(readlink -f /sbin)
    mount -t overlay overlay -o "lowerdir=$work/helpers:$sbin" "$sbin"
    ./minfs mkfs -q --size 5G image
    ./minfs mount -o root_mode=755 image volume
fi

run() { # CONFIGURATION TEST...
    configuration=$1
    shift
    LD_PRELOAD=$work/shim.so MINFS_VOLUME=$work/volume RUST_BACKTRACE=0 NO_COLOR=1 \
        "$pjdfstest" -c "$configuration" -p "$work/base" -s "$work/second" "$@" || true
}

# These first and alone: open::einval_invalid_combination leaves files open for writing, and no file
# system can be made read-only then.
run config.toml erofs
sed 's/allow_remount = true/allow_remount = false/' config.toml >no-remount.toml
run no-remount.toml
for bound in base/.tmp*/.tmp*; do
    umount "$bound" 2>/dev/null || true
done
if [ -n "${MINFS_DISK:-}" ]; then
    umount volume
else
    ./minfs umount volume
    ./minfs fsck -n image
fi
