#!/bin/sh
# A load for 'kurabe crash': commits, each acknowledged once git has ended. Setup: git init -q repository; sync
# git.sh [FSYNC]: what git is told to sync (core.fsync): committed (its default), all, none.
cd repository
git config user.name kurabe
git config user.email kurabe@example.org
git config core.fsync "${1:-committed}"
for i in $(seq 15); do
    echo "$i" >file
    git add file && git commit -q -m "$i" && echo "$i"
done
