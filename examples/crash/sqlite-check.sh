#!/bin/sh
# Its check: DIRECTORY FILE. 1: an acknowledged row is missing, 2: the database is damaged, 3: it does not open.
acknowledged=$(wc -l <"$2")
found=$(sqlite3 "$1/db" 'pragma integrity_check; select count(*) from rows;' 2>&1) || { echo "$found"; exit 3; }
case $found in ok*) ;; *) echo "$found"; exit 2 ;; esac
rows=$(echo "$found" | tail -n 1)
[ "$rows" -ge "$acknowledged" ] || { echo "$rows rows of $acknowledged"; exit 1; }
