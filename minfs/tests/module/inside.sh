#!/bin/sh
# In the guest: inside.sh MODULE [PROGRAM ARGUMENT...]; the program's output goes to the port.
modprobe crc32c_generic
modprobe libcrc32c
insmod "$1" || exit 1
shift
mkdir -p /tmp/volume
port=$(echo /dev/vport*p1)
[ $# -gt 0 ] || exec python3 "$(dirname "$0")/agent.py" "$port" /dev/vda /tmp/volume
exec "$@" >"$port"
