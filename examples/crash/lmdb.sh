#!/bin/sh
# A load for 'kurabe crash': records that mdb_load puts into LMDB (lmdb-utils), a transaction each, acknowledged once it has
# ended. lmdb.sh setup, lmdb.sh load, lmdb.sh check DIRECTORY FILE. 1: a record is missing, 3: the database cannot be read.
put() { printf 'VERSION=3\nformat=print\ntype=btree\nHEADER=END\n k%s\n v\nDATA=END\n' "$1" | mdb_load -n db; }
case $1 in
setup) put 0 && sync ;;
load) for i in $(seq 20); do put "$i" && echo "$i"; done ;;
check)
    found=$(mdb_dump -n -p "$2/db" 2>&1) || { echo "$found"; exit 3; }
    while read -r i; do echo "$found" | grep -qx " k$i" || { echo "record $i is missing"; exit 1; }; done <"$3"
    ;;
esac
