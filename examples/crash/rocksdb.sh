#!/bin/sh
# A load for 'kurabe crash': RocksDB's db_bench (rocksdb-tools) makes databases of five records, each acknowledged once
# db_bench has ended. rocksdb.sh load [SYNC]: 1 (the default) syncs each write, 0 none.
# rocksdb.sh check DIRECTORY FILE. 1: records are missing, 3: a database cannot be read.
case $1 in
load)
    for i in $(seq 10); do
        db_bench --db="db$i" --benchmarks=fillseq --num=5 --sync="${2:-1}" >/dev/null 2>&1 && echo "$i"
    done
    ;;
check)
    while read -r i; do
        found=$(ldb --db="$2/db$i" scan --hex 2>&1) || { echo "$i: $found"; exit 3; }
        [ "$(echo "$found" | grep -c '^0x')" -ge 5 ] || { echo "database $i has $(echo "$found" | grep -c '^0x') of 5"; exit 1; }
    done <"$3"
    ;;
esac
