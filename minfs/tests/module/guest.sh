#!/bin/sh
# Boots a guest of `kurabe guest build debian` with DISK and runs a program in it, with the standard input and output
# of this script: guest.sh DISK [PROGRAM ARGUMENT...]. Without PROGRAM, it loads minfs/kernel/minfs.ko (or
# MINFS_MODULE) and runs agent.py. Keep the input open: once it is closed, the guest waits forever to write its output.
# MINFS_MODULE_MEMORY  memory of the guest (1G)
# MINFS_MODULE_CPUS    processors (2); with 1, a program with one thread is emulated several times as fast
# MINFS_MODULE_KERNEL  another vmlinux, with all drivers built in
# MINFS_MODULE_COUNTS  1: one processor, and a clock that counts its instructions, one per nanosecond, so that other
#                      work on this machine does not show
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
