#!/bin/sh
# A load for 'kurabe crash --lose-member': blocks of one file are written anew in place, each synced and acknowledged,
# next to files that nobody writes to. On RAID 5 they share stripes.
# write-hole.sh setup, write-hole.sh load, write-hole.sh check DIRECTORY FILE
# Check: 2: a block has changed that was not written to, 1: an acknowledged one is missing, 3: there is no directory.
case $1 in
setup)
    # Four files of the size of md's chunk, of 128 blocks that say what they are.
    for n in 0 1 2 3; do
        awk -v n=$n 'BEGIN { for (i = 0; i < 128; i++) printf "%-4095s\n", "f" n " " i }' >f$n
        sync f$n
    done
    ;;
load)
    i=0
    while [ $i -lt 128 ]; do
        printf '%-4095s\n' "written $i" |
            dd of=f1 bs=4096 seek=$i conv=notrunc,fsync iflag=fullblock 2>/dev/null || exit 1
        echo $i
        i=$((i + 1))
    done
    ;;
check)
    cd "$2" || exit 3
    awk -v acknowledged="$(wc -l <"$3")" '
        FILENAME != "f1" { want = FILENAME " " FNR - 1; code = 2; what = "has changed and was not written to" }
        FILENAME == "f1" { want = "written " FNR - 1; code = 1; what = "was acknowledged and is missing" }
        FILENAME == "f1" && FNR > acknowledged { next }
        substr($0, 1, length(want) + 1) != want " " {
            print "block " FNR - 1 " of " FILENAME " " what
            failed = code
            exit
        }
        END {
            if (!failed && NR != 512) {
                print "there are " NR " lines in the place of 512"
                failed = 2
            }
            exit failed
        }' f0 f2 f3 f1
    ;;
esac
