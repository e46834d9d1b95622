"""What agent.py and ideas.py share: system calls that Python lacks, files laid out for a test, child processes."""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import subprocess
import sys
import traceback

KEEP_SIZE, ZERO_RANGE = 1, 16
# System calls of x86-64.
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209
GET, PUT = 0, 1
BLOCK = 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_long
libc.mmap.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_long, ctypes.c_long]
libc.pwrite.restype = ctypes.c_long
libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_long]


def checked(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def allocate(file, mode, offset, length):
    checked(libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)))


def aligned(data):
    pages = mmap.mmap(-1, len(data))
    pages[:] = data
    return pages


class Flight:
    """Direct reads and writes that the kernel has under way, each with a key."""

    def __init__(self, depth):
        self.context = ctypes.c_ulong()
        checked(libc.syscall(IO_SETUP, depth, ctypes.byref(self.context)))
        self.under_way = {}

    def put(self, file, writes):
        """Begins (key, offset, data) at once."""
        self.begin(PUT, file, [(key, offset, aligned(data)) for key, offset, data in writes])

    def begin(self, what, file, requests):
        """Begins (key, offset, pages) at once."""
        pointers = (ctypes.c_void_p * len(requests))()
        for index, (key, offset, pages) in enumerate(requests):
            at, length = ctypes.addressof(ctypes.c_char.from_buffer(pages)), len(pages)
            block = ctypes.create_string_buffer(
                struct.pack("=QIIHhIQQqQII", key, 0, 0, what, 0, file, at, length, offset, 0, 0, 0))
            pointers[index] = ctypes.addressof(block)
            self.under_way[key] = (block, pages, length)
        if checked(libc.syscall(IO_SUBMIT, self.context, len(requests), pointers)) != len(requests):
            raise OSError(errno.EINVAL, "not all were taken")

    def take(self, least):
        """The keys of those that have ended, at least so many."""
        if not self.under_way:
            return []
        events = ctypes.create_string_buffer(32 * len(self.under_way))
        count = checked(libc.syscall(IO_GETEVENTS, self.context, least, len(self.under_way), events, None))
        ended, failed = [], 0
        for key, _, result, _ in struct.iter_unpack("=QQqq", events.raw[:32 * count]):
            if result != self.under_way.pop(key)[2]:
                failed = -result if result < 0 else errno.ENODATA
            ended.append(key)
        if failed:
            self.take(len(self.under_way))
            raise OSError(failed, os.strerror(failed))
        return ended

    def take_all(self):
        return self.take(len(self.under_way))


flight = Flight(64)


def lay(name, bytes_count, byte):
    """A file that was written directly and is in no tail."""
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    end = os.fstat(file).st_size
    os.pwrite(file, aligned(bytes([byte]) * (bytes_count - end)), end)
    os.fsync(file)
    # A tail is settled by the first change in it.
    os.pwrite(file, aligned(bytes([byte]) * BLOCK), end)
    os.fsync(file)
    return file


def has_only(pages, byte):
    return pages[:] == bytes([byte]) * len(pages)


def read_directly(name, bytes_count):
    pages = aligned(b"\0" * bytes_count)
    file = os.open(name, os.O_RDONLY | os.O_DIRECT)
    os.preadv(file, [pages], 0)
    os.close(file)
    return pages


def in_child(action):
    """A process that does this and ends with the number of its error, or 0."""
    child = os.fork()
    if child == 0:
        code = errno.EINVAL
        try:
            action()
            code = 0
        except BaseException as error:
            traceback.print_exc()
            code = getattr(error, "errno", code)
        finally:
            os._exit(code)
    return child


def wait_for(child):
    """Raises the error with which a child process ended."""
    _, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise OSError(code, os.strerror(code) if code > 0 else f"signal {-code}")


def remount(options):
    subprocess.run(["mount", "-i", "-o", f"remount,{options}", sys.argv[2], sys.argv[3]], check=True)


def freeze(is_frozen):
    directory = os.open(".", os.O_RDONLY)
    try:
        # FIFREEZE, FITHAW
        fcntl.ioctl(directory, 0xC0045877 if is_frozen else 0xC0045878, 0)
    finally:
        os.close(directory)
