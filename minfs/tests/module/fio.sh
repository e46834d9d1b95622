#!/bin/sh
# In the guest, with a volume of `minfs mkfs` (256M) as its disk: fio.sh. Three files that lie in turns, so that each
# has several extents, are overwritten by direct writes, asynchronous in two of them, read back and compared, once more after
# a new mount. Then again, some read back while others are under way, and while a reader brings their pages to the
# cache and drops them; and what the cache has is compared with what the device has. How many of these reads and
# writes ended in place, and how many writes dropped pages, is told.
set -eu
exec 2>&1
mount -i -t minfs /dev/vda /tmp/volume
for part in 0 1 2 3; do
    for name in a b c; do
        dd if=/dev/zero "of=/tmp/volume/$name" bs=1M count=8 seek=$((part * 8)) oflag=direct conv=fsync,notrunc status=none
    done
done
# A tail is settled by the first change in it.
for name in a b c; do
    dd if=/dev/zero "of=/tmp/volume/$name" bs=1M count=32 oflag=direct conv=fsync,notrunc status=none
done
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
cd /sys/kernel/tracing
for name in end_read end_write tell_write; do
    echo "p:$name minfs:$name" >>kprobe_events
done
echo 1 >events/kprobes/enable
cat >/tmp/verify.fio <<'END'
[global]
rw=randwrite
bsrange=4k-256k
ba=4k
size=32m
direct=1
iodepth=8
overwrite=1
allow_file_create=0
verify=crc32c
verify_fatal=1
verify_state_save=0
randseed=7
thread=1
[libaio]
ioengine=libaio
filename=/tmp/volume/a
[io_uring]
ioengine=io_uring
filename=/tmp/volume/b
[psync]
ioengine=psync
filename=/tmp/volume/c
END
fio --minimal /tmp/verify.fio >/dev/null
umount /tmp/volume
mount -i -t minfs /dev/vda /tmp/volume
fio --minimal --verify_only=1 /tmp/verify.fio >/dev/null
cat >/tmp/reader.py <<'END'
import os, random, time
files = [os.open(f"/tmp/volume/{name}", os.O_RDONLY) for name in "abc"]
for file in files:
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
while os.path.exists("/tmp/verify.fio"):
    for file in files:
        os.pread(file, 4096, random.randrange(32 << 20))
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(0.001)
END
python3 /tmp/reader.py &
sed 's/randseed=7/randseed=8\nverify_backlog=16/' /tmp/verify.fio >/tmp/again.fio
fio --minimal /tmp/again.fio >/dev/null
rm /tmp/verify.fio
wait
for name in a b c; do
    cat "/tmp/volume/$name" >/dev/null
    dd "if=/tmp/volume/$name" bs=1M iflag=direct status=none | cmp - "/tmp/volume/$name"
done
umount /tmp/volume
awk '{ print $1, $2 }' kprobe_profile
echo "all bytes found"
