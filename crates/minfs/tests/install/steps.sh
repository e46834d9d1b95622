#!/bin/sh
# What an administrator does with an installed minfs, step by step. Runs in a mount namespace and
# a process namespace of its own, so that nothing of it outlives it; `tests/install.rs` starts it
# with the directory that `make install` filled and a directory to work in.
set -eu
root=$1
work=$2

expect() { # CODE COMMAND...
    wanted=$1
    shift
    code=0
    "$@" >"$work/output" 2>&1 || code=$?
    if [ "$code" != "$wanted" ]; then
        echo "$*: exit code $code, expected $wanted"
        cat "$work/output"
        exit 1
    fi
}

# The system's directories, with what was installed on top.
over() {
    mount -t overlay overlay -o "lowerdir=$root$1:$(readlink -f "$1")" "$(readlink -f "$1")"
}
over /sbin
over /usr/local/bin
over /usr/local/sbin
mkdir -p /run/mount
mount -t tmpfs tmpfs /run/mount
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

image=$work/image
point=$work/point
mkdir "$point"
truncate -s 64M "$image"

echo "mkfs(8)"
expect 0 mkfs -t minfs -L first "$image"
expect 2 mkfs -t minfs "$image"
expect 0 mkfs -t minfs -f -q "$image"

echo "fsck(8)"
expect 0 fsck -t minfs -n "$image"
printf 'damage' | dd of="$image" bs=1 seek=4700 conv=notrunc status=none
expect 4 fsck -t minfs -n "$image"
expect 1 fsck -t minfs -y "$image"
expect 0 fsck -t minfs -a "$image"
expect 8 fsck.minfs "$work/no-such-image"
expect 16 fsck.minfs --no-such-flag "$image"

echo "mount(8) and umount(8)"
for type in fuse.minfs minfs; do
    expect 0 mount -t "$type" "$image" "$point"
    [ "$(findmnt -n -o FSTYPE "$point")" = fuse.minfs ]
    [ "$(findmnt -n -o SOURCE "$point")" = "$image" ]
    echo "$type" >"$point/written"
    expect 32 mount -t "$type" "$image" "$point"
    expect 8 fsck -t minfs -n "$image"
    expect 0 mount -o remount,ro "$point"
    expect 1 touch "$point/written"
    expect 0 mount -o remount,rw "$point"
    echo again >>"$point/written"
    expect 0 umount "$point"
    # umount(8) does not wait for the daemon; the check does.
    expect 0 fsck -t minfs -n "$image"
done
expect 0 mount -t fuse.minfs -o ro,noexec "$image" "$point"
[ "$(cat "$point/written")" = "$(printf 'minfs\nagain\n')" ]
expect 1 touch "$point/new"
findmnt -n -o OPTIONS "$point" | grep -q '^ro,.*noexec'
expect 0 umount "$point"
expect 1 mount -t fuse.minfs -o no_such_option "$image" "$point"
expect 32 mount -t fuse.minfs "$work/no-such-image" "$point"
expect 32 mount -t fuse.minfs /dev/zero "$point"
expect 1 mount.minfs "$image"
# As a system does that has no helper of minfs's own, but that of FUSE.
if [ -x /sbin/mount.fuse ]; then
    expect 0 mount.fuse "$image" "$point" -t fuse.minfs -o rw,nosuid,nodev
    [ "$(findmnt -n -o FSTYPE "$point")" = fuse.minfs ]
    expect 0 umount "$point"
fi

echo "fstab(5)"
second=$work/second
mkdir "$second"
expect 0 minfs mkfs -q --size 16M "$work/other"
cat >"$work/fstab" <<END
$image $point fuse.minfs noauto,_netdev,nofail,user,x-systemd.device-timeout=5,noatime 0 0
$work/other $second fuse.minfs defaults,nofail,direct_io 0 2
END
mount --bind "$work/fstab" /etc/fstab
expect 0 mount -a -t fuse.minfs
expect 0 findmnt "$second"
expect 1 findmnt "$point"
expect 0 mount "$point"
findmnt -n -o OPTIONS "$point" | grep -q noatime
expect 0 umount "$point"
expect 0 umount "$second"
# By the entry of the table, whose type is fuse.minfs.
expect 0 fsck "$second"

echo "a device that fails"
mkdir "$work/full"
mount -t tmpfs -o size=2M tmpfs "$work/full"
expect 0 minfs mkfs -q --size 64M "$work/full/image"
expect 0 mount -t fuse.minfs "$work/full/image" "$point"
echo kept >"$point/kept"
sync "$point/kept"
expect 1 dd if=/dev/zero "of=$point/big" bs=1M count=8 conv=fsync
# From then on nothing is written any more, and everything that was is there.
expect 1 touch "$point/new"
grep -q 'Read-only file system' "$work/output"
[ "$(cat "$point/kept")" = kept ]
expect 0 umount "$point"
expect 0 fsck.minfs -n "$work/full/image"
[ "$(minfs get "$work/full/image" kept)" = kept ]
umount "$work/full"

echo "a write-protected device"
chmod 444 "$image"
device=$(losetup --find --show --read-only "$image")
code=0
(
    expect 0 mount -t fuse.minfs "$device" "$point"
    findmnt -n -o OPTIONS "$point" | grep -q '^ro,' || exit 1
    expect 1 touch "$point/new"
    # The image is not to be reached past its device.
    expect 2 minfs rm "$image" written
    expect 0 umount "$point"
    expect 0 fsck -t minfs -n "$device"
) || code=$?
losetup --detach "$device"
exit "$code"
