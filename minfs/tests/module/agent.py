"""Carries out on a mounted minfs what the tests ask for, one line at a time: AGENT PORT DISK DIRECTORY.

PORT is the number of a file descriptor."""

import errno
import mmap
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

from basics import (BLOCK, GET, KEEP_SIZE, ZERO_RANGE, Flight, aligned, allocate, flight, freeze, has_only,
                    in_child, lay, read_directly, remount, wait_for)
from ideas import IDEAS

TRACING = pathlib.Path("/sys/kernel/tracing")
# What the kernel says of its own faults, those that KASAN, lockdep and UBSAN find among them.
COMPLAINT = re.compile(r"BUG: |WARNING: |INFO: (trying|possible|task)|UBSAN: |Oops|blocked for more than")
port_lock = threading.Lock()
held = []
# Mappings stay, so that later stores may find pages that need no fault.
mappings = {}


def with_file(name, action):
    file = os.open(name, os.O_RDWR)
    try:
        action(file)
    finally:
        os.close(file)


def preallocate(file, offset, length, keep, zero):
    mode = KEEP_SIZE if keep else 0
    size = os.fstat(file).st_size
    allocate(file, mode, offset, length)
    start = max(size, offset)
    if zero and offset + length > start:
        allocate(file, mode | ZERO_RANGE, start, offset + length - start)


def forget(name):
    if os.path.exists(name):
        mappings.pop(os.stat(name).st_ino, None)


def write(name, offset, data):
    """Cached, direct or through a mapping, as the bytes decide and the place allows."""
    end, way = offset + len(data), data[-1] % 3
    file = os.open(name, os.O_RDWR)
    try:
        number, size = os.fstat(file).st_ino, os.fstat(file).st_size
        if way == 1 and end <= size:
            if number not in mappings or len(mappings[number]) < end:
                mappings[number] = mmap.mmap(file, size)
            mappings[number][offset:end] = data
            return
        if way == 2 and offset % 512 == len(data) % 512 == 0:
            os.close(file)
            file = os.open(name, os.O_RDWR | os.O_DIRECT)
            if data[0] % 2:
                # In place ends in place where the cache has no page.
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            flight.put(file, [(0, offset, data)])
            flight.take_all()
            return
        if os.pwrite(file, data, offset) != len(data):
            raise OSError(errno.EIO, "short")
    finally:
        os.close(file)


def ask(line):
    """A line to the other side, which answers with one."""
    with port_lock:
        port.write(f"{line}\n".encode())
        while port.read(1) != b"\n":
            pass


def work(seed, thread, rounds):
    """
    Appends to a file that all threads share and overwrites what it appended there, a sync after each, until
    the device fails.
    """
    chance = random.Random(f"{seed} {thread}")
    # Who writes a page directly and through the page cache at once gets what he deserves.
    is_direct = seed % 2 and thread % 2
    flags = os.O_DIRECT if is_direct else 0
    end = os.open("shared", os.O_RDWR | os.O_APPEND | flags)
    place = os.open("shared", os.O_RDWR | flags)
    try:
        append_and_overwrite(chance, thread, rounds, end, place, seed % 2, is_direct)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EROFS):
            raise
        ask("failed")
    finally:
        os.close(end)
        os.close(place)


def store(pages, offset, data):
    """Stores to a mapping by a system call, which fails where a store of our own would be a signal."""
    source = os.memfd_create("source")
    os.write(source, data)
    part = memoryview(pages)[offset:offset + len(data)]
    try:
        if os.preadv(source, [part], 0) != len(data):
            raise OSError(errno.EIO, "not all was stored")
    except OSError as error:
        raise OSError(errno.EIO, "the store failed") from error
    finally:
        part.release()
        os.close(source)


def append_and_overwrite(chance, thread, rounds, end, place, has_blocks, is_direct):
    own = []
    for round in range(rounds):
        number, byte = thread * 1000 + round, chance.randrange(1, 256)
        if own and chance.randrange(2):
            earlier, offset, length = own.pop(chance.randrange(len(own)))
            ask(f"begin {earlier}")
        else:
            length = 4096 * chance.randrange(1, 4) if has_blocks else chance.randrange(1, 6000)
            offset = None
        data = aligned(bytes([byte]) * length)
        if offset is None:
            os.write(end, data)
            offset = os.lseek(end, 0, os.SEEK_CUR) - length
        elif is_direct or chance.randrange(2):
            os.pwrite(place, data, offset)
        else:
            with mmap.mmap(place, offset + length) as pages:
                store(pages, offset, data)
        os.fsync(place)
        ask(f"told {number} {offset} {length} {byte}")
        own.append((number, offset, length))


def overwrite(name, offset, count, byte):
    """Overwrites so many blocks, every second one, at once, where the cache has no page."""
    file = os.open(name, os.O_RDWR | os.O_DIRECT)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        # Neighbours would become one request.
        flight.put(file, [(one, offset + one * 2 * BLOCK, bytes([byte]) * BLOCK) for one in range(count)])
        flight.take_all()
    finally:
        os.close(file)


def overlap(seed, rounds):
    """
    Keeps writes of one file under way that may overlap, and syncs meanwhile. Told is what had ended before
    a sync began, alone at its place.
    """
    chance, blocks, initial = random.Random(seed), 48, 255
    os.close(lay("shared", blocks // 2 * BLOCK, initial))
    os.close(lay("between", BLOCK * 40, initial))
    file = lay("shared", blocks * BLOCK, initial)
    # Of a number: offset, length, byte. `alone` and `ended` are of those under way, or not yet synced.
    what, alone, ended, told = {}, set(), set(), set()
    for number in range(blocks):
        what[number] = (number * BLOCK, BLOCK, initial)
        ask(f"writes {number * BLOCK} {BLOCK} {initial}")
        ask(f"told {number} {number * BLOCK} {BLOCK} {initial}")
        told.add(number)

    def meet(number, others):
        offset, length, _ = what[number]
        return {one for one in others if what[one][0] < offset + length and offset < what[one][0] + what[one][1]}

    def sync():
        durable = ended & alone
        os.fsync(file)
        for number in durable:
            ask(f"told {number} {' '.join(map(str, what[number]))}")
        told.update(durable)
        ended.clear()

    for _ in range(rounds):
        writes = []
        for _ in range(chance.randrange(1, 9)):
            number, start, length = len(what), chance.randrange(blocks), chance.choice([1, 1, 1, 2, 4])
            length, byte = min(length, blocks - start) * BLOCK, chance.randrange(1, 255)
            what[number] = (start * BLOCK, length, byte)
            ask(f"writes {start * BLOCK} {length} {byte}")
            for earlier in meet(number, told):
                told.discard(earlier)
                ask(f"begin {earlier}")
            under_way = meet(number, flight.under_way.keys() | {one for one, _, _ in writes})
            alone.difference_update(under_way, meet(number, ended))
            if not under_way:
                alone.add(number)
            writes.append((number, start * BLOCK, bytes([byte]) * length))
        flight.put(file, writes)
        if chance.randrange(3) == 0:
            sync()
        ended.update(flight.take(chance.randrange(len(flight.under_way) + 1)))
        if chance.randrange(2) == 0:
            sync()
    ended.update(flight.take_all())
    sync()
    os.close(file)


def slowly(begin, end=lambda: True):
    """
    Has a process whose bytes pass at 1 MiB a second `begin` with a flight of its own, and returns that
    process. It fails if, when all has ended, `end` is false.
    """
    groups = control_groups()
    (groups / "slow").mkdir(exist_ok=True)
    disk = os.stat(sys.argv[2]).st_rdev
    (groups / "slow/io.max").write_text(f"{os.major(disk)}:{os.minor(disk)} rbps={1 << 20} wbps={1 << 20}")
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            (groups / "slow/cgroup.procs").write_text("0")
            own = Flight(64)
            begin(own)
            os.write(tells, b"x")
            own.take_all()
            os._exit(0 if end() else 1)
        finally:
            os._exit(1)
    os.close(tells)
    begun = os.read(told, 1)
    os.close(told)
    if not begun:
        raise OSError(errno.ECHILD, "it did not begin")
    return child


def cut_off(reads):
    """Cuts a file short below what is under way there, and gives its space to another one."""
    large, kept, part = 2048 << 10, 512 << 10, 64 << 10
    file, parts = lay("large", large, 1), range(kept, large, part)
    if reads:
        gets = [(at, at, aligned(b"\0" * part)) for at in parts]
        child = slowly(lambda own: own.begin(GET, file, gets), lambda: all(has_only(pages, 1) for _, _, pages in gets))
    else:
        child = slowly(lambda own: own.put(file, [(at, at, b"\x02" * part) for at in parts]))
    os.ftruncate(file, kept)
    other = os.open("other", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    for at in range(0, large - kept, part):
        os.pwrite(other, aligned(b"\x03" * part), at)
    os.fsync(other)
    _, status = os.waitpid(child, 0)
    if status or not has_only(read_directly("other", large - kept), 3):
        raise OSError(errno.EUCLEAN, "another file's blocks")
    os.close(other)
    os.close(file)


def read_to_file(waits):
    """
    Reads from one file into mapped pages of another, which are written to their file, and so are clean, before
    the read ends. What was read must be written too.
    """
    def begin(own):
        if not waits:
            own.begin(GET, source, [(0, 0, pages)])

    def end():
        return not waits or os.preadv(source, [pages], 0) == length

    length = 1 << 20
    source = lay("source", length, 5)
    target = os.open("target", os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(target, b"\x01" * length, 0)
    os.fsync(target)
    pages = mmap.mmap(target, length)
    child = slowly(begin, end)
    while waits and pathlib.Path(f"/proc/{child}/stat").read_text().split()[2] != "D":
        time.sleep(0.005)
    os.fsync(target)
    was_early = os.waitpid(child, os.WNOHANG) == (0, 0) and not has_only(pages, 5)
    _, status = os.waitpid(child, 0)
    pages.close()
    os.fsync(target)
    os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
    if not was_early or status or not has_only(read_directly("target", length), 5):
        raise OSError(errno.EUCLEAN, "what was read is lost")
    os.close(target)
    os.close(source)
    os.unlink("target")
    os.unlink("source")


def read(name, length, byte, waits):
    """Whether a read where the cache has no page finds only this byte."""
    file = os.open(name, os.O_RDONLY | os.O_DIRECT)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        pages = aligned(b"\0" * length)
        if waits:
            os.preadv(file, [pages], 0)
        else:
            flight.begin(GET, file, [(0, 0, pages)])
            flight.take_all()
        if not has_only(pages, byte):
            raise OSError(errno.EUCLEAN, "other bytes")
    finally:
        os.close(file)


def count_ends():
    """From now on, how often the functions are called in which direct.c ends: `ends` says it."""
    subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=False)
    names = ["end_read", "end_write", "tell_read"]
    (TRACING / "kprobe_events").write_text("".join(f"p:{name} minfs:{name}\n" for name in names))
    (TRACING / "events/kprobes/enable").write_text("1")


def ends(name):
    lines = map(str.split, (TRACING / "kprobe_profile").read_text().splitlines())
    return next(int(count) for one, count, _ in lines if one == name)


def collide(rounds):
    """
    As an ordinary user, overwrites pages of a file directly while another process stores to them through a
    mapping, with a sync after each, until three syncs failed; returns how many did.
    """
    told, tells = os.pipe()

    def collided():
        os.setgid(65534)
        os.setuid(65534)
        file = lay("collided", 16 * BLOCK, 1)
        pages = mmap.mmap(os.open("collided", os.O_RDWR), 16 * BLOCK)
        stores = in_child(lambda: store_for_ever(pages))
        data, failed = aligned(b"\2" * 16 * BLOCK), 0
        try:
            for _ in range(rounds):
                if failed == 3:
                    break
                os.pwrite(file, data, 0)
                try:
                    os.fsync(file)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    failed += 1
        finally:
            os.kill(stores, signal.SIGKILL)
            os.waitpid(stores, 0)
        os.write(tells, str(failed).encode())

    child = in_child(collided)
    os.close(tells)
    answer = os.read(told, 20).decode()
    os.close(told)
    wait_for(child)
    return answer


def store_for_ever(pages):
    while True:
        for at in range(0, len(pages), BLOCK):
            pages[at] = 3


def change_all():
    """Begins each kind of change of a frozen volume, and returns when all of them wait for its end."""
    def store():
        pages[0] = 7

    def direct():
        own = Flight(4)
        own.put(place, [(0, 0, b"\7" * BLOCK)])
        own.take_all()

    # Opened before the freezing, as by `changes`.
    place, pages = changing["place"], changing["pages"]
    changes = [
        lambda: os.pwrite(changing["file"], b"\7" * 100, 0),
        lambda: os.pwrite(changing["file"], b"\7" * 100, 1 << 20),
        direct, store,
        lambda: os.close(os.open("new", os.O_RDWR | os.O_CREAT, 0o600)),
        lambda: os.unlink("gone"),
        lambda: os.rename("named", "renamed"),
        lambda: os.truncate("cut", 5),
        lambda: os.chmod("mode", 0o640),
        lambda: os.utime("time", (1, 1)),
        lambda: allocate(changing["file"], KEEP_SIZE, 0, 2 << 20),
    ]
    waiting = [in_child(change) for change in changes]
    for child in waiting:
        while pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] != "D":
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                raise OSError(errno.EUCLEAN, "a change did not wait")
            time.sleep(0.005)
    changing["waiting"] = waiting


def prepare_changes():
    for name in ["file", "gone", "named", "cut", "mode", "time", "pages"]:
        os.close(lay(name, 2 * BLOCK, 1))
    changing["file"] = os.open("file", os.O_RDWR)
    changing["place"] = lay("place", 2 * BLOCK, 1)
    with_file("pages", lambda file: changing.update(pages=mmap.mmap(file, BLOCK)))
    # Written within the valid length, and a tail: neither has a record of its own.
    os.pwrite(changing["file"], b"\6" * 100, 0)
    os.pwrite(changing["file"], b"\6" * 100, 2 * BLOCK)


def end_changes():
    for child in changing["waiting"]:
        wait_for(child)
    changing["pages"].close()
    os.close(changing["file"])
    os.close(changing["place"])
    changing.clear()


def press(seed, rounds):
    """
    Asynchronous direct writes, cached ones, stores by mappings and syncs by processes that share too little
    memory, while the caches of the whole guest are dropped. Each checks its file at the end.
    """
    groups = control_groups()
    tight = groups / "tight"
    if not tight.exists():
        tight.mkdir()
        (tight / "memory.high").write_text(str(12 << 20))
    kinds = [write_under_pressure, write_under_pressure, cache_under_pressure, store_under_pressure]

    def run(number, kind):
        (tight / "cgroup.procs").write_text("0")
        chance, blocks = random.Random(f"{seed} {number}"), 1024
        name = f"pressed-{number}"
        expected = bytearray(b"\1" * blocks)
        file = lay(name, blocks * BLOCK, 1)
        kind(file, name, chance, blocks, expected, rounds)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        for at in range(blocks):
            pages = aligned(bytes(BLOCK))
            os.preadv(file, [pages], at * BLOCK)
            if not has_only(pages, expected[at]):
                raise OSError(errno.EUCLEAN, f"{name}: block {at} is {pages[0]}, not {expected[at]}")
        os.close(file)
        os.unlink(name)

    def drop_caches():
        while True:
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
            time.sleep(0.01)

    dropping = in_child(drop_caches)
    try:
        for child in [in_child(lambda one=one: run(*one)) for one in enumerate(kinds)]:
            wait_for(child)
    finally:
        os.kill(dropping, signal.SIGKILL)
        os.waitpid(dropping, 0)


def write_under_pressure(file, name, chance, blocks, expected, rounds):
    own = Flight(64)
    for _ in range(rounds):
        starts = chance.sample(range(0, blocks, 16), 16)
        writes = []
        for start in starts:
            count, byte = chance.randrange(1, 17), chance.randrange(256)
            writes.append((start, start * BLOCK, bytes([byte]) * (count * BLOCK)))
            expected[start:start + count] = bytes([byte]) * count
        own.put(file, writes)
        own.take_all()
        if chance.randrange(4) == 0:
            os.fsync(file)


def cache_under_pressure(file, name, chance, blocks, expected, rounds):
    plain = os.open(name, os.O_RDWR)
    for _ in range(rounds * 8):
        at, byte = chance.randrange(blocks), chance.randrange(256)
        os.pwrite(plain, bytes([byte]) * BLOCK, at * BLOCK)
        expected[at] = byte
        if chance.randrange(16) == 0:
            os.fdatasync(plain)
    os.close(plain)


def store_under_pressure(file, name, chance, blocks, expected, rounds):
    plain = os.open(name, os.O_RDWR)
    with mmap.mmap(plain, blocks * BLOCK) as pages:
        for _ in range(rounds * 8):
            at, byte = chance.randrange(blocks), chance.randrange(256)
            pages[at * BLOCK:(at + 1) * BLOCK] = bytes([byte]) * BLOCK
            expected[at] = byte
            if chance.randrange(32) == 0:
                pages.flush()
    os.close(plain)


def control_groups():
    groups = pathlib.Path("/tmp/groups")
    if not groups.exists():
        groups.mkdir()
        subprocess.run(["mount", "-t", "cgroup2", "cgroup2", groups], check=True)
        (groups / "cgroup.subtree_control").write_text("+io +memory")
    return groups


changing = {}


def carry_out(words):
    match words:
        case ["mount", *options]:
            os.chdir("/")
            subprocess.run(["mount", "-i", "-t", "minfs", *options, sys.argv[2], sys.argv[3]], check=True)
            os.chdir(sys.argv[3])
        case ["unmount"]:
            while held:
                os.close(held.pop())
            mappings.clear()
            os.chdir("/")
            subprocess.run(["umount", sys.argv[3]], check=True)
        case ["create", name]:
            os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        case ["unlink", name]:
            forget(name)
            os.unlink(name)
        case ["rename", name, to]:
            forget(to)
            os.rename(name, to)
        case ["truncate", name, size]:
            os.truncate(name, int(size))
        case ["preallocate", name, *numbers]:
            with_file(name, lambda file: preallocate(file, *map(int, numbers)))
        case ["hold", name]:
            held.append(os.open(name, os.O_RDWR))
        case ["drop", index]:
            os.close(held[int(index)])
            held[int(index)] = held[-1]
            held.pop()
        case ["sync", name]:
            with_file(name, os.fsync)
        case ["write", name, offset, data]:
            write(name, int(offset), bytes.fromhex(data))
        case ["threads", seed, count, rounds]:
            os.close(os.open("shared", os.O_CREAT | os.O_EXCL, 0o600))
            threads = [threading.Thread(target=work, args=(int(seed), thread, int(rounds)))
                       for thread in range(int(count))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        case ["overwrite", name, *numbers]:
            overwrite(name, *map(int, numbers))
        case ["overlap", seed, rounds]:
            overlap(int(seed), int(rounds))
        case ["cut", "off", what]:
            cut_off(what == "reads")
        case ["read", "to", "file", *waits]:
            read_to_file(bool(waits))
        case ["read", name, length, byte, *waits]:
            read(name, int(length), int(byte), bool(waits))
        case ["collide", rounds]:
            return collide(int(rounds))
        case ["remount", options]:
            remount(options)
        case ["set", "time", name, seconds]:
            os.utime(name, (int(seconds), int(seconds)))
        case ["time", name]:
            return f"{os.stat(name).st_mtime_ns}"
        case ["prepare", "changes"]:
            prepare_changes()
        case ["freeze"]:
            freeze(True)
        case ["change", "all"]:
            change_all()
        case ["thaw"]:
            freeze(False)
        case ["end", "changes"]:
            end_changes()
        case ["free"]:
            facts = os.statvfs(".")
            return f"{facts.f_bfree * facts.f_frsize}"
        case ["log", *words]:
            log = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True, check=True).stdout
            return f"{log.count(' '.join(words))}"
        case ["press", seed, rounds]:
            press(int(seed), int(rounds))
        case ["ideas"]:
            return " ".join(IDEAS)
        case ["idea", name]:
            try:
                IDEAS[name]()
            except Exception as error:
                traceback.print_exc()
                return repr(error)
            for left in os.listdir("."):
                os.unlink(left)
        case ["complaints"]:
            log = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True, check=True).stdout
            found = [line for line in log.splitlines() if COMPLAINT.search(line)]
            print(*found, sep="\n", file=sys.stderr)
            return f"{len(found)}"
        case ["ends", name]:
            return f"{ends(name)}"
        case _:
            raise OSError(errno.EINVAL, "unknown")
    return "done"


count_ends()
with open(int(sys.argv[1]), "rb+", buffering=0) as port:
    rest = b""
    while True:
        while b"\n" not in rest:
            rest += port.read(65536)
        line, rest = rest.split(b"\n", 1)
        try:
            answer = carry_out(line.decode().split())
        except OSError as error:
            answer = errno.errorcode.get(error.errno, "EIO")
        except subprocess.CalledProcessError as error:
            answer = str(error)
        port.write(f"{answer}\n".encode())
