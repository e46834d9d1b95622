#!/bin/sh
# A load for 'kurabe crash': rows that sqlite3 inserts, each acknowledged once it is committed.
# sqlite.sh [SYNCHRONOUS]: EXTRA, FULL (the default), NORMAL, OFF.
{
    echo "pragma synchronous = ${1:-FULL};"
    for i in $(seq 40); do
        echo "insert into rows values ($i, hex(randomblob(300)));"
        echo ".system echo $i"
    done
} | sqlite3 db
