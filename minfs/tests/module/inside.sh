#!/bin/sh
# In the guest: inside.sh MODULE [PROGRAM ARGUMENT...] loads the module and runs the program, whose output goes to the port,
# or agent.py. A guest that ends before `booted` has not loaded the module: see harness.rs. The port stays open
# from then on, since the kernel drops what arrives at a port that is closed.
module=$1
shift
port=$(echo /dev/vport*p1)
if [ $# = 0 ]; then
	exec 3<>"$port"
	echo booted >&3
fi
modprobe crc32c_generic
modprobe libcrc32c
insmod "$module" || exit 1
mkdir -p /tmp/volume
[ $# -gt 0 ] || exec python3 "$(dirname "$0")/agent.py" 3 /dev/vda /tmp/volume
exec "$@" >"$port"
