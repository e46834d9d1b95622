#!/bin/sh
# Boots a guest of `kurabe guest build debian` with DISK, loads kernel/minfs/minfs.ko there (or what
# MINFS_MODULE names), and runs agent.py with this program's input and output: guest.sh DISK
set -eu
here=$(cd "$(dirname "$0")" && pwd)
guests=${KURABE_HOME:-/var/lib/kurabe}/guests
kernel=$(ls -d "$guests"/kernels/*/vmlinux | head -n 1)
image=$(ls -d "$guests"/images/*/initramfs.cpio | head -n 1)
module=${MINFS_MODULE:-$here/../../../../kernel/minfs/minfs.ko}
exec qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -nic none \
	-M q35 -accel tcg,thread=multi -cpu max -smp 2 -m 1G -kernel "$kernel" -initrd "$image" \
	-append "console=ttyS0 quiet panic=-1 oops=panic rdinit=/kurabe kurabe.console -- inside sh $here/inside.sh $module" \
	-fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
	-device virtio-9p-pci,fsdev=host,mount_tag=host -device isa-debug-exit,iobase=0x501,iosize=1 \
	-drive "if=none,id=disk,format=raw,cache=none,file=$1" -device virtio-blk-pci,drive=disk \
	-device virtio-serial-pci -chardev stdio,id=port,signal=off -device virtserialport,chardev=port,name=agent \
	-chardev file,id=console,path=/dev/stderr -serial chardev:console
