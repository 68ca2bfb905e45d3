/* latency: how long a load takes whose address the load before it gives.
 *
 * A unit is a cache line. The lines of a part form one cycle in random order, so that no
 * prefetcher knows the next; a pass goes round it once. Traffic counts whole lines.
 */
#include "cb_kernels.h"

#if defined(__APPLE__) && defined(__aarch64__)
#define CB_LINE_BYTES 128
#else
#define CB_LINE_BYTES 64
#endif

typedef struct line {
    struct line *next;
    struct line *start; /* in a part's first line: where the next pass starts */
    char rest[CB_LINE_BYTES - 2 * sizeof(struct line *)];
} line;

static uint64_t next_random(uint64_t *state) { /* xorshift64 of G. Marsaglia */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* S. Sattolo's shuffle: a random permutation that is one cycle. */
static void fill_latency(const cb_args *args, size_t begin, size_t end) {
    line *lines = args->array[0];
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15) + begin;
    for (size_t i = begin; i < end; ++i) {
        lines[i].next = lines[i].start = &lines[i];
    }
    for (size_t i = end; i-- > begin + 1;) {
        line *other = &lines[begin + next_random(&state) % (i - begin)];
        line *next = lines[i].next;
        lines[i].next = other->next;
        other->next = next;
    }
}

/* Where a pass ends is stored and read again by the next, which so cannot start early. */
static uint64_t pass_latency(const cb_args *args, size_t begin, size_t end) {
    line *lines = args->array[0];
    if (begin >= end) {
        return 0;
    }
    const line *at = lines[begin].start;
    size_t i = begin;
    for (; i + 4 <= end; i += 4) {
        at = at->next->next->next->next;
    }
    for (; i < end; ++i) {
        at = at->next;
    }
    lines[begin].start = (line *)at;
    return (uint64_t)(at - lines);
}

const cb_kernel cb_latency_kernels[] = {
    {"latency", "", CB_ISA_PORTABLE, "pointer", 1, CB_LINE_BYTES, 1, {CB_LINE_BYTES, 0, 0, 0},
     pass_latency, fill_latency, NULL},
};

const size_t cb_latency_kernel_count = sizeof cb_latency_kernels / sizeof *cb_latency_kernels;
