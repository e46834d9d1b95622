#!/bin/sh
# What an administrator does with an installed minfs, step by step. Runs in a mount namespace and
# a process namespace of its own, so that nothing of it outlives it; `tests/install.rs` starts it
# with the directory that `make install` filled, a directory to work in, and minfs's README.
set -eu
root=$1
work=$2
readme=$3

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

echo "the example of the README"
mkdir "$work/example"
sed -n '/^```sh/,/^```/p' "$readme" |
    grep -v -e '^```' -e kurabe | sed "s:sudo ::; s:/mnt:$point:" >"$work/example/steps"
[ "$(grep -c -e '^minfs ' -e '^mount ' -e '^umount ' "$work/example/steps")" -ge 5 ]
cd "$work/example"
expect 0 sh -e steps
cd "$work"

echo "labels"
# blkid does not know minfs, so nothing finds a volume by its label or UUID; a partition is found.
if command -v sfdisk >"$work/output"; then
    truncate -s 64M "$work/disk"
    echo 'start=2048, uuid=5d0c8a2e-6f0b-4d5c-9d63-0c4e1f3a7b21' |
        sfdisk -q --label gpt "$work/disk"
    device=$(losetup --find --show --partscan "$work/disk")
    code=0
    (
        # A kernel without partition tables learns of the partition so.
        expect 0 partx --update "$device"
        expect 0 minfs mkfs -q -L found -U 7a2d1c64-6a52-4b2f-8c57-1d0f6f1f9b10 "${device}p1"
        expect 0 minfs stat "${device}p1"
        grep -q '^LABEL=found$' "$work/output"
        expect 1 mount -t fuse.minfs LABEL=found "$point"
        expect 1 mount -t fuse.minfs UUID=7a2d1c64-6a52-4b2f-8c57-1d0f6f1f9b10 "$point"
        expect 0 mount -t fuse.minfs PARTUUID=5d0c8a2e-6f0b-4d5c-9d63-0c4e1f3a7b21 "$point"
        [ "$(findmnt -n -o SOURCE "$point")" = "${device}p1" ]
        expect 0 umount "$point"
        expect 0 minfs ls "${device}p1"
    ) || code=$?
    losetup --detach "$device"
    [ "$code" = 0 ] || { cat "$work/output"; exit "$code"; }
fi

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

# Each tool that writes says what protects DEVICE, and what lifts that; nothing is touched.
refused() { # HINT DEVICE COMMAND...
    hint=$1
    protected=$2
    shift 2
    for arguments in "put $protected /etc/passwd new" "rm $protected written" "mv $protected written new" \
        "mkfs -f $protected" "fsck --repair $protected"; do
        code=2
        case $arguments in fsck*) code=8 ;; esac
        expect "$code" "$@" minfs $arguments
        grep -q -F -e "$hint" "$work/output" || { cat "$work/output"; exit 1; }
    done
}

echo "a write-protected image"
mkdir "$work/protected"
mount -t tmpfs tmpfs "$work/protected"
cp "$image" "$work/protected/image"
mount -o remount,ro "$work/protected"
refused 'mount -o remount,rw' "$work/protected/image"
# Its daemon reads only, whatever the kernel's flag says.
expect 0 mount -t fuse.minfs "$work/protected/image" "$point"
expect 32 minfs mount -o remount,rw "$work/protected/image" "$point"
grep -q 'write-protected' "$work/output"
expect 0 minfs umount "$point"
if device=$(losetup --find --show --read-only "$work/protected/image"); then
    expect 0 mount -t fuse.minfs "$device" "$point"
    expect 32 minfs mount -o remount,rw "$device" "$point"
    expect 0 minfs umount "$point"
    losetup --detach "$device"
fi
umount "$work/protected"
# Where another user gets to it.
mode=/run/mount/image
cp "$image" "$mode"
chmod 444 "$mode"
refused 'chmod u+w' "$mode" setpriv --reuid 65534 --regid 65534 --clear-groups
# Not every file system has this attribute.
if chattr +i "$mode"; then
    refused 'chattr -i' "$mode"
    expect 2 minfs get -f "$image" written "$mode"
    chattr -i "$mode"
fi

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
    refused 'blockdev --setrw' "$device"
) || code=$?
losetup --detach "$device"
exit "$code"
