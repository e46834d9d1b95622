#!/bin/sh
# In the guest, with a volume of `minfs mkfs` as its disk: fsx.sh FSX SEED OPERATIONS [UNMAP] (`cargo install fsx`);
# UNMAP is fsx-unmap.c compiled.
set -eu
# fsx says there how it went.
exec 2>&1
cat >/tmp/fsx.toml <<'END'
flen = 65536
[opsize]
max = 8192
min = 1
align = 1
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 10
fsync = 5
fdatasync = 5
posix_fallocate = 2
sendfile = 2
posix_fadvise = 2
copy_file_range = 2
END
mount -i -t minfs /dev/vda /tmp/volume
LD_PRELOAD=${4:-} "$1" -f /tmp/fsx.toml -S "$2" -N "$3" -P /tmp /tmp/volume/file
umount /tmp/volume
