/* Memory of one page kind, aligned to a huge page, not yet touched. */
#ifndef CB_MEMORY_H
#define CB_MEMORY_H

#include <stddef.h>

typedef enum cb_pages {
    CB_PAGES_ANY,  /* whatever the system gives */
    CB_PAGES_4K,   /* huge pages refused */
    CB_PAGES_HUGE, /* huge pages asked for */
    CB_PAGES_FILE  /* a shared mapping of an open file */
} cb_pages;

typedef struct cb_memory {
    void *data;   /* 2 MiB-aligned (a file: page-aligned); NULL if refused */
    size_t bytes; /* as asked for */
    void *base;   /* what was mapped, and how much of it */
    size_t mapped_bytes;
} cb_memory;

/* Map `bytes` (more than zero); `file` is a file descriptor for CB_PAGES_FILE only.
 * Return 0 or the system's error number. */
int cb_memory_map(cb_memory *memory, size_t bytes, cb_pages pages, int file);

/* Write a file mapping back to its file, so that no write-back runs beside a measurement. */
int cb_memory_flush(cb_memory *memory);

void cb_memory_unmap(cb_memory *memory);

#endif
