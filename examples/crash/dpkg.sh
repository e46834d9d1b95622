#!/bin/sh
# A load for 'kurabe crash': packages that dpkg installs below root/, each acknowledged once dpkg has ended.
# dpkg.sh setup: makes them. dpkg.sh [--force-unsafe-io].
if [ "$1" = setup ]; then
    mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates packages
    touch root/var/lib/dpkg/status root/var/lib/dpkg/available
    for i in $(seq 8); do
        mkdir -p "p$i/DEBIAN" "p$i/usr/share/p$i"
        printf 'Package: p%s\nVersion: 1\nArchitecture: all\nMaintainer: k <k@example.org>\nDescription: p\n' "$i" >"p$i/DEBIAN/control"
        head -c 9000 /dev/zero | tr '\0' "$i" >"p$i/usr/share/p$i/file"
        dpkg-deb -Znone -b "p$i" "packages/p$i.deb" >/dev/null
    done
    exec sync
fi
for i in $(seq 8); do
    dpkg --root="$PWD/root" --log=/dev/null --force-not-root "$@" -i "packages/p$i.deb" >/dev/null && echo "p$i"
done
