#!/bin/sh
# In the guest: inside.sh MODULE
modprobe crc32c_generic
modprobe libcrc32c
insmod "$1" || exit 1
mkdir -p /tmp/volume
exec python3 "$(dirname "$0")/agent.py" /dev/vport*p1 /dev/vda /tmp/volume
