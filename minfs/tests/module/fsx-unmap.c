/*
 * Before fsx: unmaps what fsx 0.3.2 maps to read and leaves mapped. A run of 1,000,000 operations would
 * otherwise have more mappings than a process may, and each operation look at all of them.
 *
 *     cc -shared -fPIC -o fsx-unmap.so fsx-unmap.c
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>

static void *left;
static size_t left_bytes;

int munmap(void *at, size_t bytes)
{
	int (*next)(void *, size_t) = dlsym(RTLD_NEXT, "munmap");

	if (at == left)
		left = NULL;
	return next(at, bytes);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap64");

	if (!(flags & MAP_SHARED) || (flags & MAP_ANONYMOUS))
		return next(at, bytes, protection, flags, file, offset);
	if (left)
		munmap(left, left_bytes);
	left = next(at, bytes, protection, flags, file, offset);
	left_bytes = bytes;
	if (left == MAP_FAILED) {
		left = NULL;
		return MAP_FAILED;
	}
	return left;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
	return mmap64(at, bytes, protection, flags, file, offset);
}
