#!/bin/sh
# Its check: DIRECTORY FILE. 1: an acknowledged commit is missing, 2: the repository is damaged.
last=$(tail -n 1 "$2")
[ -n "$last" ] || exit 0
found=$(git -C "$1/repository" log -1 --format=%s 2>&1) || { echo "$found"; exit 2; }
damage=$(git -C "$1/repository" fsck --full 2>&1) || { echo "$damage"; exit 2; }
[ "$found" -ge "$last" ] || { echo "commit $found of $last"; exit 1; }
