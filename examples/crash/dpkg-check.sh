#!/bin/sh
# Its check: DIRECTORY FILE. 1: a package is not installed any more, 2: a file of it has other bytes,
# 3: dpkg cannot read its list.
dpkg-query --admindir="$1/root/var/lib/dpkg" -W >/dev/null || exit 3
while read -r package; do
    status=$(dpkg-query --admindir="$1/root/var/lib/dpkg" -W -f '${Status}' "$package" 2>&1)
    [ "$status" = 'install ok installed' ] || { echo "$package: $status"; exit 1; }
    cmp "$1/root/usr/share/$package/file" "$1/$package/usr/share/$package/file" || exit 2
done <"$2"
