#!/bin/sh
# Boots a guest of `kurabe guest build debian` with DISK (and MINFS_MODULE_MEMORY, 1G), and runs a program
# there with this one's input and output: guest.sh DISK [PROGRAM ARGUMENT...]. Without one, it loads
# minfs/kernel/minfs.ko (or what MINFS_MODULE names) and runs agent.py. With MINFS_MODULE_COUNTS=1 the
# guest's clock counts the instructions of its one processor, one a nanosecond, whatever else runs here.
# MINFS_MODULE_KERNEL is another vmlinux that has all drivers built in. MINFS_MODULE_CPUS is 2 unless given; what has one thread is several times as fast with 1. The input must
# stay open: a guest whose port nobody holds waits for ever with what it says.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
guests=${KURABE_HOME:-/var/lib/kurabe}/guests
kernel=${MINFS_MODULE_KERNEL:-$(ls -d "$guests"/kernels/*/vmlinux | head -n 1)}
image=$(ls -d "$guests"/images/*/initramfs.cpio | head -n 1)
disk=$1
shift
[ $# -gt 0 ] || set -- sh "$here/inside.sh" "${MINFS_MODULE:-$here/../../kernel/minfs.ko}"
# A clock that needs no device, and copies that are not byte by byte, which is slow to emulate.
khz=$(awk '/cpu MHz/ { printf "%d", $4 * 1000; exit }' /proc/cpuinfo)
processor="-accel tcg,thread=multi -smp ${MINFS_MODULE_CPUS:-2}"
if [ "${MINFS_MODULE_COUNTS:-0}" = 1 ]; then
	khz=1000000
	processor="-accel tcg,thread=single -smp 1 -icount shift=0,sleep=off"
fi
exec qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -nic none \
	-M q35 $processor -cpu max,-erms -m "${MINFS_MODULE_MEMORY:-1G}" \
	-kernel "$kernel" -initrd "$image" \
	-append "console=ttyS0 quiet panic=-1 oops=panic softlockup_panic=1 watchdog_thresh=60 tsc=reliable tsc_early_khz=$khz mitigations=off init_on_alloc=0 cryptomgr.notests no_timer_check rdinit=/kurabe kurabe.console -- inside $*" \
	-fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
	-device virtio-9p-pci,fsdev=host,mount_tag=host -device isa-debug-exit,iobase=0x501,iosize=1 \
	-drive "if=none,id=disk,format=raw,cache=none,file=$disk" -device virtio-blk-pci,drive=disk \
	-device virtio-serial-pci -chardev stdio,id=port,signal=off -device virtserialport,chardev=port,name=agent \
	-chardev file,id=console,path=/dev/stderr,append=on -serial chardev:console
