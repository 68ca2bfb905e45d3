#define _DEFAULT_SOURCE /* MAP_ANONYMOUS and madvise with -std=c11 */
#define _DARWIN_C_SOURCE

#include "cb_memory.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define CB_HUGE_PAGE ((size_t)2 << 20)

#if defined(_WIN32)

#include <malloc.h>

int cb_memory_map(cb_memory *memory, size_t bytes, cb_pages pages, int file) {
    (void)file;
    memset(memory, 0, sizeof *memory);
    if (pages == CB_PAGES_FILE) {
        return ENOTSUP;
    }
    memory->base = memory->data = _aligned_malloc(bytes, CB_HUGE_PAGE);
    memory->bytes = memory->mapped_bytes = bytes;
    return memory->data == NULL ? ENOMEM : 0;
}

int cb_memory_flush(cb_memory *memory) {
    (void)memory;
    return 0;
}

void cb_memory_unmap(cb_memory *memory) {
    _aligned_free(memory->base);
    memset(memory, 0, sizeof *memory);
}

#else

#include <sys/mman.h>

int cb_memory_map(cb_memory *memory, size_t bytes, cb_pages pages, int file) {
    const int is_file = pages == CB_PAGES_FILE;
    const size_t slack = is_file ? 0 : CB_HUGE_PAGE;
    memset(memory, 0, sizeof *memory);
    if (bytes > SIZE_MAX - slack) {
        return ENOMEM;
    }
    void *base = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE,
                      is_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, is_file ? file : -1, 0);
    if (base == MAP_FAILED) {
        return errno;
    }
    memory->base = base;
    memory->mapped_bytes = bytes + slack;
    memory->bytes = bytes;
    memory->data = (void *)(((uintptr_t)base + slack) / CB_HUGE_PAGE * CB_HUGE_PAGE);
    if (is_file) {
        memory->data = base;
    }
    /* Advice only: what was obtained is read from the system afterwards. */
#if defined(MADV_NOHUGEPAGE)
    if (pages == CB_PAGES_4K) {
        (void)madvise(base, memory->mapped_bytes, MADV_NOHUGEPAGE);
    }
#endif
#if defined(MADV_HUGEPAGE)
    if (pages == CB_PAGES_HUGE) {
        (void)madvise(base, memory->mapped_bytes, MADV_HUGEPAGE);
    }
#endif
    return 0;
}

int cb_memory_flush(cb_memory *memory) {
    return msync(memory->base, memory->mapped_bytes, MS_SYNC) == 0 ? 0 : errno;
}

void cb_memory_unmap(cb_memory *memory) {
    if (memory->base != NULL) {
        munmap(memory->base, memory->mapped_bytes);
    }
    memset(memory, 0, sizeof *memory);
}

#endif
