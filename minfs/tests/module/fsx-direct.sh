#!/bin/sh
# In the guest, with a volume of `minfs mkfs` as its disk: fsx-direct.sh FSX SEED OPERATIONS, with the fsx of xfstests,
# built with -DAIO and -DFALLOCATE. All reads and writes are direct and asynchronous, of whole blocks; truncation and
# fallocate are not, and what these bring to the page cache another process drops. How many ended in place is told.
set -eu
exec 2>&1
mount -i -t minfs /dev/vda /tmp/volume
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
cd /sys/kernel/tracing
for name in end_read end_write tell_write tell_read; do
    echo "p:$name minfs:$name" >>kprobe_events
done
echo 1 >events/kprobes/enable
python3 -c '
import os
file = os.open("/tmp/volume/file", os.O_RDWR | os.O_CREAT)
while True:
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
' &
"$1" -q -A -Z -R -W -r 4096 -w 4096 -S "$2" -N "$3" -P /tmp /tmp/volume/file
kill $!
wait
umount /tmp/volume
awk '{ print $1, $2 }' kprobe_profile
