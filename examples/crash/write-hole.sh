#!/bin/sh
# A load for 'kurabe crash --lose-member': blocks of every other file are written anew in place, synced and acknowledged,
# next to files that nobody writes to. On RAID 5 they share stripes.
# write-hole.sh setup, write-hole.sh load, write-hole.sh check DIRECTORY FILE
# Check: 2: a block has changed that was not written to, 1: an acknowledged one is missing, 3: there is no directory.
case $1 in
setup)
    # Files of the size of md's chunk, of 128 blocks that say what they are: whichever member is lost has some of those
    # that nobody writes to.
    for n in 0 1 2 3 4 5; do
        awk -v n=$n 'BEGIN { for (i = 0; i < 128; i++) printf "%-4095s\n", "f" n " " i }' >f$n
        sync f$n
    done
    ;;
load)
    step=0
    while [ $step -lt 8 ]; do
        for file in f1 f3 f5; do
            awk -v i=$((16 * step)) 'BEGIN { for (end = i + 16; i < end; i++) printf "%-4095s\n", "written " i }' |
                dd of=$file bs=65536 seek=$step conv=notrunc iflag=fullblock 2>/dev/null || exit 1
        done
        sync -f f1 || exit 1
        echo $step
        step=$((step + 1))
    done
    ;;
check)
    cd "$2" || exit 3
    awk -v acknowledged="$(wc -l <"$3")" '
        FILENAME ~ /[024]$/ { want = FILENAME " " FNR - 1; code = 2; what = "has changed and was not written to" }
        FILENAME ~ /[135]$/ { want = "written " FNR - 1; code = 1; what = "was acknowledged and is missing" }
        FILENAME ~ /[135]$/ && FNR > 16 * acknowledged { next }
        substr($0, 1, length(want) + 1) != want " " {
            print "block " FNR - 1 " of " FILENAME " " what
            failed = code
            exit
        }
        END {
            if (!failed && NR != 768) {
                print "there are " NR " lines in the place of 768"
                failed = 2
            }
            exit failed
        }' f0 f2 f4 f1 f3 f5
    ;;
esac
