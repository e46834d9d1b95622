"""Carries out on a mounted minfs what module.rs asks for, one line at a time: AGENT PORT DISK DIRECTORY."""

import ctypes
import errno
import mmap
import os
import random
import subprocess
import sys
import threading

KEEP_SIZE, ZERO_RANGE = 1, 16
libc = ctypes.CDLL(None, use_errno=True)
port_lock = threading.Lock()
held = []
# Mappings stay, so that later stores may find pages that need no fault.
mappings = {}


def allocate(file, mode, offset, length):
    if libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


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
            aligned = mmap.mmap(-1, len(data))
            aligned[:] = data
            data = aligned
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
    """Appends to a file that all threads share and overwrites what it appended there, a sync after each."""
    chance = random.Random(f"{seed} {thread}")
    # Who writes a page directly and through the page cache at once gets what he deserves.
    is_direct = seed % 2 and thread % 2
    flags = os.O_DIRECT if is_direct else 0
    end = os.open("shared", os.O_RDWR | os.O_APPEND | flags)
    place = os.open("shared", os.O_RDWR | flags)
    own = []
    for round in range(rounds):
        number, byte = thread * 1000 + round, chance.randrange(1, 256)
        if own and chance.randrange(2):
            earlier, offset, length = own.pop(chance.randrange(len(own)))
            ask(f"begin {earlier}")
        else:
            length = 4096 * chance.randrange(1, 4) if seed % 2 else chance.randrange(1, 6000)
            offset = None
        data = mmap.mmap(-1, length)
        data[:] = bytes([byte]) * length
        if offset is None:
            os.write(end, data)
            offset = os.lseek(end, 0, os.SEEK_CUR) - length
        elif is_direct or chance.randrange(2):
            os.pwrite(place, data, offset)
        else:
            mmap.mmap(place, offset + length)[offset:] = data[:]
        os.fsync(place)
        ask(f"told {number} {offset} {length} {byte}")
        own.append((number, offset, length))
    os.close(end)
    os.close(place)


def carry_out(words):
    match words:
        case ["mount"]:
            os.chdir("/")
            subprocess.run(["mount", "-i", "-t", "minfs", sys.argv[2], sys.argv[3]], check=True)
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
        case _:
            raise OSError(errno.EINVAL, "unknown")


with open(sys.argv[1], "rb+", buffering=0) as port:
    rest = b""
    while True:
        while b"\n" not in rest:
            rest += port.read(65536)
        line, rest = rest.split(b"\n", 1)
        try:
            carry_out(line.decode().split())
            answer = "done"
        except OSError as error:
            answer = errno.errorcode.get(error.errno, "EIO")
        except subprocess.CalledProcessError as error:
            answer = str(error)
        port.write(f"{answer}\n".encode())
