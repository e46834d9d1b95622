#!/bin/sh
# A load for 'kurabe crash --kill-node': all nodes make files in one directory, each acknowledged once it is synced.
# nodes.sh load SECONDS [unsynced], nodes.sh check DIRECTORY FILE. 1: a file is missing, 2: it has other bytes.
# unsynced is the canary, which must be violated: nothing is synced, and each node has a directory of its own, since
# one that goes from node to node is made durable on the way.
case $1 in
load)
    end=$(($(date +%s) + $2)) i=0 own=
    [ "$3" != unsynced ] || { own=node$KURABE_NODE/ && mkdir "$own" || exit 1; }
    while [ "$(date +%s)" -lt "$end" ]; do
        i=$((i + 1)) name=${own}node$KURABE_NODE-$i
        printf '%s%01000d\n' "$name" 0 >"$name" && { [ "$3" = unsynced ] || sync "$name"; } && echo "$name" || exit 1
    done
    ;;
check)
    while read -r name; do
        [ -f "$2/$name" ] || { echo "$name is missing"; exit 1; }
        [ "$(cat "$2/$name")" = "$(printf '%s%01000d' "$name" 0)" ] || { echo "$name has other bytes"; exit 2; }
    done <"$3"
    ;;
esac
