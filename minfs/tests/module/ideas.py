"""
Ideas of those generic tests of xfstests that apply to a file system without directories and links, each as a
function named after the test's number. Each runs in the directory of a mounted volume that has some tens of MiB
free, raises what it finds, and removes its files.
"""

import errno
import mmap
import os
import random
import resource
import signal
import time

from basics import (BLOCK, KEEP_SIZE, ZERO_RANGE, Flight, aligned, allocate, checked, freeze, in_child, lay, libc,
                    remount, wait_for)

SIZE = 64 * BLOCK


def must(holds, what):
    if not holds:
        raise AssertionError(what)


def must_fail(code, action):
    try:
        action()
    except OSError as error:
        must(error.errno == code, f"{errno.errorcode[error.errno]} for {errno.errorcode[code]}")
        return
    raise AssertionError(f"it did not fail with {errno.errorcode[code]}")


def content(name):
    with open(name, "rb") as file:
        return file.read()


def dropped(file):
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def g029():
    """A store by a mapping behind the end is not seen when the file grows over it."""
    file = lay("f", 2 * BLOCK, 1)
    pages = mmap.mmap(file, 2 * BLOCK)
    os.ftruncate(file, BLOCK + 100)
    pages[BLOCK + 100:2 * BLOCK] = b"\5" * (BLOCK - 100)
    os.ftruncate(file, 2 * BLOCK)
    must(pages[BLOCK + 100:] == bytes(BLOCK - 100), "in the mapping")
    pages.close()
    dropped(file)
    must(content("f")[BLOCK + 100:] == bytes(BLOCK - 100), "on the device")
    os.close(file)


def g758():
    """The same where the file grows by a write, or by fallocate, behind a hole."""
    for grow in [lambda file: os.pwrite(file, b"\7", 3 * BLOCK - 1), lambda file: allocate(file, 0, 0, 3 * BLOCK),
                 lambda file: allocate(file, ZERO_RANGE, 2 * BLOCK, BLOCK)]:
        os.close(lay("f", BLOCK, 1))
        file = os.open("f", os.O_RDWR)
        pages = mmap.mmap(file, BLOCK)
        os.ftruncate(file, BLOCK // 2)
        pages[BLOCK // 2:] = b"\5" * (BLOCK // 2)
        grow(file)
        pages.close()
        dropped(file)
        must(content("f")[BLOCK // 2:3 * BLOCK - 1] == bytes(3 * BLOCK - 1 - BLOCK // 2), "not zero")
        os.close(file)
        os.unlink("f")


def g080():
    """A store by a mapping changes the file's time at the latest with msync."""
    file = lay("f", BLOCK, 1)
    os.utime(file, (1, 1))
    with mmap.mmap(file, BLOCK) as pages:
        pages[0] = 9
        pages.flush()
    must(os.fstat(file).st_mtime > 1, "the time of the last change is old")
    os.close(file)


def g130():
    """Vectors of odd lengths at odd offsets."""
    file, expected = os.open("f", os.O_RDWR | os.O_CREAT), bytearray()
    for number in range(200):
        parts = [bytes([number]) * (1 + number * 7 % 97) for _ in range(3)]
        os.pwritev(file, parts, len(expected))
        expected += b"".join(parts)
    dropped(file)
    must(content("f") == expected, "other bytes")
    os.close(file)


def g213():
    """fallocate beyond the free space fails and takes none; what is preallocated reads as zeros."""
    facts = os.statvfs(".")
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    must_fail(errno.ENOSPC, lambda: allocate(file, 0, 0, (facts.f_bfree + 1) * facts.f_frsize))
    must(os.statvfs(".").f_bfree == facts.f_bfree, "space is lost")
    allocate(file, 0, 0, SIZE)
    must(content("f") == bytes(SIZE), "not zeros")
    os.pwrite(file, b"\3" * 100, 5 * BLOCK + 7)
    dropped(file)
    must(content("f") == bytes(5 * BLOCK + 7) + b"\3" * 100 + bytes(SIZE - 5 * BLOCK - 107), "around a write")
    os.close(file)


def g015():
    """A full volume gives all its space back."""
    free = os.statvfs(".").f_bfree
    for direct in [0, os.O_DIRECT]:
        file, at, data = os.open("f", os.O_RDWR | os.O_CREAT | direct), 0, aligned(b"\4" * (1 << 20))
        try:
            while True:
                at += os.pwrite(file, data, at)
        except OSError as error:
            must(error.errno == errno.ENOSPC, errno.errorcode[error.errno])
        must_fail(errno.ENOSPC, lambda: allocate(file, KEEP_SIZE, 0, at + (64 << 20)))
        os.fsync(file)
        os.close(file)
        os.unlink("f")
        must(os.statvfs(".").f_bfree == free, "space is lost")


def g208():
    """Cached reads beside asynchronous direct writes see one state or the other, and the new one after the end."""
    file, cached = lay("f", SIZE, 1), os.open("f", os.O_RDONLY)
    flight = Flight(64)
    for round in range(2, 20):
        flight.put(file, [(at, at * BLOCK, bytes([round]) * BLOCK) for at in range(SIZE // BLOCK)])
        for at in random.sample(range(SIZE // BLOCK), 8):
            found = os.pread(cached, BLOCK, at * BLOCK)
            must(set(found) <= {round - 1, round}, f"{set(found)} in round {round}")
        flight.take_all()
        must(os.pread(cached, SIZE, 0) == bytes([round]) * SIZE, "old bytes after the end")
    os.close(cached)
    os.close(file)


def g247():
    """Direct writes beside stores by a mapping of other pages: nobody loses any."""
    file = lay("f", SIZE, 1)
    pages = mmap.mmap(file, SIZE)
    for round in range(2, 30):
        for at in range(0, SIZE, 2 * BLOCK):
            pages[at] = round
        os.pwrite(file, aligned(bytes([round]) * BLOCK), BLOCK * (1 + 2 * (round % (SIZE // BLOCK // 2))))
    pages.close()
    dropped(file)
    found = content("f")
    must(all(found[at] == 29 for at in range(0, SIZE, 2 * BLOCK)), "a store is lost")
    os.close(file)


def g248():
    """A write whose bytes are a mapping of the same page, cached and direct: no deadlock, right bytes."""
    file = lay("f", 4 * BLOCK, 1)
    plain = os.open("f", os.O_RDWR)
    pages = mmap.mmap(plain, 4 * BLOCK)
    pages[:5] = b"hello"
    os.pwrite(plain, memoryview(pages)[:100], 50)
    must(content("f")[:55] == b"hello" + b"\1" * 45 + b"hello", "cached")
    dropped(plain)
    os.pwrite(file, memoryview(pages)[:BLOCK], 2 * BLOCK)
    must(content("f")[2 * BLOCK:2 * BLOCK + 5] == b"hello", "direct")
    # A direct read into a mapping of the same file.
    os.preadv(file, [memoryview(pages)[3 * BLOCK:]], 2 * BLOCK)
    must(pages[3 * BLOCK:3 * BLOCK + 5] == b"hello", "read")
    os.close(file)
    os.close(plain)


def g285():
    """SEEK_DATA and SEEK_HOLE around what was written."""
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"\2" * 3 * BLOCK, 0)
    os.ftruncate(file, 1 << 20)
    must(os.lseek(file, 0, os.SEEK_DATA) == 0, "data at 0")
    must(os.lseek(file, 0, os.SEEK_HOLE) == 3 * BLOCK, "hole at 3 blocks")
    must_fail(errno.ENXIO, lambda: os.lseek(file, 3 * BLOCK, os.SEEK_DATA))
    must_fail(errno.ENXIO, lambda: os.lseek(file, 1 << 20, os.SEEK_HOLE))
    os.close(file)


def g294():
    """Changes of a volume that is read-only say so."""
    os.close(lay("f", BLOCK, 1))
    remount("ro")
    try:
        for change in [lambda: os.open("new", os.O_RDWR | os.O_CREAT), lambda: os.open("f", os.O_RDWR),
                       lambda: os.unlink("f"), lambda: os.rename("f", "g"), lambda: os.truncate("f", 0),
                       lambda: os.chmod("f", 0o600), lambda: os.utime("f", (1, 1))]:
            must_fail(errno.EROFS, change)
    finally:
        remount("rw")


def g308():
    """The greatest offset: beyond it nothing can be, and before it a write fails for want of space only."""
    file, last = os.open("f", os.O_RDWR | os.O_CREAT), (1 << 63) - 1
    os.ftruncate(file, last)
    must(os.fstat(file).st_size == last and os.pread(file, 5, last - 5) == bytes(5), "the end reads as zeros")
    # The kernel refuses what would end beyond the greatest offset before it asks the file system.
    for at, codes in [(last, [errno.EINVAL, errno.EFBIG]), (last - 1, [errno.ENOSPC, errno.EFBIG])]:
        try:
            os.pwrite(file, b"x", at)
            must(False, "it was written")
        except OSError as error:
            must(error.errno in codes, errno.errorcode[error.errno])
    os.ftruncate(file, 0)
    os.close(file)


def g394():
    """The limit of a process on the length of files, for writes, truncation and fallocate."""
    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * BLOCK, 2 * BLOCK))
        file = os.open("f", os.O_RDWR | os.O_CREAT)
        must(os.pwrite(file, b"x" * 3 * BLOCK, 0) == 2 * BLOCK, "a write up to the limit is short")
        must_fail(errno.EFBIG, lambda: os.pwrite(file, b"x", 2 * BLOCK))
        must_fail(errno.EFBIG, lambda: os.ftruncate(file, 2 * BLOCK + 1))
        must_fail(errno.EFBIG, lambda: allocate(file, 0, 0, 3 * BLOCK))
        must(os.fstat(file).st_size == 2 * BLOCK, "longer than the limit")
    wait_for(in_child(limited))


def g465():
    """A reader beside asynchronous direct writes at the end sees what was written, or the end, but no zeros."""
    file = os.open("f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    reader = os.open("f", os.O_RDONLY | os.O_DIRECT)
    flight = Flight(8)
    for at in range(0, SIZE, BLOCK):
        flight.put(file, [(0, at, b"\6" * BLOCK)])
        pages = aligned(bytes(SIZE))
        got = os.preadv(reader, [pages], 0)
        must(pages[:got] == b"\6" * got, f"other bytes than those written at {at}")
        flight.take_all()
    os.close(reader)
    os.close(file)


def g586():
    """A direct write at the end, and truncation to the same end at the same time: the length is right."""
    for _ in range(10):
        file = lay("f", BLOCK, 1)
        child = in_child(lambda: os.pwrite(file, aligned(b"\2" * 4 * BLOCK), BLOCK))
        os.ftruncate(file, 3 * BLOCK)
        wait_for(child)
        size, found = os.fstat(file).st_size, content("f")
        must(size in (3 * BLOCK, 5 * BLOCK) and len(found) == size, f"{size} bytes long")
        must(found[:BLOCK] == b"\1" * BLOCK and set(found[BLOCK:]) <= {0, 2}, "other bytes")
        os.close(file)
        os.unlink("f")


def g591():
    """sendfile and splice of cached, dropped and directly opened files."""
    expected = os.urandom(SIZE)
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, expected, 0)
    os.fsync(file)
    for flags in [0, os.O_DIRECT]:
        source, target = os.open("f", os.O_RDONLY | flags), os.open("g", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        at = 0
        while at < SIZE:
            got, tells = os.pipe()
            count = os.splice(source, tells, 4 * BLOCK, offset_src=at)
            must(count > 0 and os.splice(got, target, count) == count, "short")
            at += count
            os.close(got)
            os.close(tells)
        must(content("g") == expected, f"other bytes with flags {flags:#o}")
        os.close(source)
        os.close(target)
        dropped(file)
    os.close(file)
    os.unlink("g")


def g068():
    """Freezing and thawing beside programs that write, sync, truncate and rename."""
    def busy(name):
        for number in range(1, 60):
            file = os.open(name, os.O_RDWR | os.O_CREAT)
            os.pwrite(file, bytes([number]) * 3000, number * 100)
            os.fsync(file)
            os.ftruncate(file, number * 100 + 2000)
            os.close(file)
            os.rename(name, name + "-")
            os.rename(name + "-", name)
    children = [in_child(lambda name=name: busy(name)) for name in "fgh"]
    for _ in range(8):
        freeze(True)
        time.sleep(0.02)
        freeze(False)
        time.sleep(0.02)
    for child in children:
        wait_for(child)
    for name in "fgh":
        must(content(name)[5900:] == bytes([59]) * 2000, "the last write is not there")
        os.unlink(name)


def g729():
    """A direct write from, and read into, memory that is not there yet: all bytes are moved, or the fault is told."""
    file = lay("f", SIZE, 1)
    fresh = mmap.mmap(-1, SIZE)
    must(os.pwrite(file, fresh, 0) == SIZE and content("f") == bytes(SIZE), "a write of untouched memory")
    os.pwrite(file, aligned(b"\3" * SIZE), 0)
    source = os.open("f", os.O_RDONLY)
    mapped = mmap.mmap(source, SIZE, prot=mmap.PROT_READ)
    dropped(file)
    other = lay("g", SIZE, 2)
    must(os.pwrite(other, mapped, 0) == SIZE and content("g") == b"\3" * SIZE, "a write of another file's pages")
    address = libc.mmap(0, 2 * BLOCK, 3, 0x22, -1, 0)
    checked(libc.munmap(address + BLOCK, BLOCK))
    before = content("f")
    put = libc.pwrite(file, address, 2 * BLOCK, 0)
    must(put in (-1, BLOCK) and content("f")[BLOCK:] == before[BLOCK:], "more was written than there was")
    checked(libc.munmap(address, BLOCK))
    for one in (source, other, file):
        os.close(one)
    os.unlink("g")


def g361():
    """Two programs fill a volume that has room for one of them: each keeps what it was told."""
    def fill(name):
        file, at = os.open(name, os.O_RDWR | os.O_CREAT), 0
        try:
            while True:
                at += os.pwrite(file, name.encode() * 65536, at)
                os.fsync(file)
        except OSError as error:
            must(error.errno == errno.ENOSPC, errno.errorcode[error.errno])
        dropped(file)
        found = content(name)
        must(len(found) >= at and set(found[:at]) <= set(name.encode()), "not what was written")
    free = os.statvfs(".").f_bfree
    for child in [in_child(lambda name=name: fill(name)) for name in "fg"]:
        wait_for(child)
    os.unlink("f")
    os.unlink("g")
    must(os.statvfs(".").f_bfree == free, "space is lost")


IDEAS = {name: idea for name, idea in globals().items() if name[0] == "g" and name[1:].isdigit()}
