#!/bin/sh
# A load for 'kurabe crash': rows that psql inserts, each acknowledged once it is committed.
# postgresql.sh setup: makes the cluster. postgresql.sh load [SETTING...], such as fsync=off.
# postgresql.sh check DIRECTORY FILE. 1: a row is missing, 3: the server does not start.
part=$1
shift
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
# The server is no root, and reaches the directory through a place of its own.
place=$(mktemp -d /tmp/crash-postgresql.XXXXXX)
mkdir "$place/data" && chown postgres "$place"
[ "$part" = check ] && from=$1 || from=$PWD
cd / && mount --bind "$from" "$place/data" || exit 3
trap 'umount "$place/data" && rm -rf "$place"' EXIT
as() { runuser -u postgres -- "$@"; }
query() { as psql -X -q -A -t -h "$place" -c "$1" postgres; }
start() { as "$bin/pg_ctl" -D "$place/data/cluster" -w -s -l "$place/log" -o "-k $place -h '' $1" start; }
stop() { as "$bin/pg_ctl" -D "$place/data/cluster" -s -m fast stop; }
case $part in
setup)
    mkdir "$place/data/cluster" && chown postgres "$place/data/cluster"
    as "$bin/initdb" -D "$place/data/cluster" -N -A trust >/dev/null && start && query 'create table rows(i int)' && stop && sync
    ;;
load)
    start "$(printf -- '-c %s ' fsync=on "$@")" || { cat "$place/log" >&2; exit 3; }
    for i in $(seq 20); do query "insert into rows values ($i)" && echo "$i"; done
    stop
    ;;
check)
    [ -s "$2" ] || exit 0
    # It names a process of before the cut, whose number another one has here.
    rm -f "$place/data/cluster/postmaster.pid"
    start || { tail -n 3 "$place/log"; exit 3; }
    rows=$(query 'select count(*) from rows' 2>&1)
    stop
    [ "$rows" -ge "$(wc -l <"$2")" ] || { echo "$rows rows of $(wc -l <"$2")"; exit 1; }
    ;;
esac
