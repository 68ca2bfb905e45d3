/* The stream kernels for one instruction set; included once for each by cb_stream.c.
 *
 * The including file defines CB_NAME(kernel), the vector of doubles CB_V with CB_LANES,
 * CB_LOAD, CB_STORE, CB_STORE_NT with CB_FENCE_NT after the last one, CB_SET1, CB_ADD,
 * CB_MUL, CB_AHEAD (fetch the lines of one step of the loop ahead of their use, or nothing),
 * and the vector of 64-bit integers CB_I with CB_ILOAD, CB_IADD, CB_IZERO, CB_ISUM. No fused multiply-add: results are the same
 * to the bit on every instruction set.
 */

#define CB_STEP (4 * CB_LANES)

static uint64_t CB_NAME(read)(const cb_args *args, size_t begin, size_t end) {
    const uint64_t *x = args->array[0];
    CB_I a0 = CB_IZERO, a1 = CB_IZERO, a2 = CB_IZERO, a3 = CB_IZERO;
    CB_I a4 = CB_IZERO, a5 = CB_IZERO, a6 = CB_IZERO, a7 = CB_IZERO;
    size_t i = begin;
    for (; i + 8 * CB_LANES <= end; i += 8 * CB_LANES) {
        a0 = CB_IADD(a0, CB_ILOAD(x + i));
        a1 = CB_IADD(a1, CB_ILOAD(x + i + 1 * CB_LANES));
        a2 = CB_IADD(a2, CB_ILOAD(x + i + 2 * CB_LANES));
        a3 = CB_IADD(a3, CB_ILOAD(x + i + 3 * CB_LANES));
        a4 = CB_IADD(a4, CB_ILOAD(x + i + 4 * CB_LANES));
        a5 = CB_IADD(a5, CB_ILOAD(x + i + 5 * CB_LANES));
        a6 = CB_IADD(a6, CB_ILOAD(x + i + 6 * CB_LANES));
        a7 = CB_IADD(a7, CB_ILOAD(x + i + 7 * CB_LANES));
    }
    a0 = CB_IADD(CB_IADD(CB_IADD(a0, a1), CB_IADD(a2, a3)),
                 CB_IADD(CB_IADD(a4, a5), CB_IADD(a6, a7)));
    uint64_t sum = CB_ISUM(a0);
    for (; i < end; ++i) {
        sum += x[i];
    }
    return sum;
}

/* read as four streams, a quarter each: more requests under way where one stream's prefetcher
 * stops at the end of each page. */
static uint64_t CB_NAME(read_streams)(const cb_args *args, size_t begin, size_t end) {
    const size_t quarter = (end - begin) / 4 / (2 * CB_LANES) * (2 * CB_LANES);
    const uint64_t *x = (const uint64_t *)args->array[0] + begin;
    CB_I a0 = CB_IZERO, a1 = CB_IZERO, a2 = CB_IZERO, a3 = CB_IZERO;
    CB_I a4 = CB_IZERO, a5 = CB_IZERO, a6 = CB_IZERO, a7 = CB_IZERO;
    for (size_t i = 0; i < quarter; i += 2 * CB_LANES) {
        a0 = CB_IADD(a0, CB_ILOAD(x + i));
        a1 = CB_IADD(a1, CB_ILOAD(x + i + CB_LANES));
        a2 = CB_IADD(a2, CB_ILOAD(x + i + quarter));
        a3 = CB_IADD(a3, CB_ILOAD(x + i + quarter + CB_LANES));
        a4 = CB_IADD(a4, CB_ILOAD(x + i + 2 * quarter));
        a5 = CB_IADD(a5, CB_ILOAD(x + i + 2 * quarter + CB_LANES));
        a6 = CB_IADD(a6, CB_ILOAD(x + i + 3 * quarter));
        a7 = CB_IADD(a7, CB_ILOAD(x + i + 3 * quarter + CB_LANES));
    }
    a0 = CB_IADD(CB_IADD(CB_IADD(a0, a1), CB_IADD(a2, a3)),
                 CB_IADD(CB_IADD(a4, a5), CB_IADD(a6, a7)));
    uint64_t sum = CB_ISUM(a0);
    for (size_t i = 4 * quarter; i < end - begin; ++i) {
        sum += x[i];
    }
    return sum;
}

/* A kernel that writes: a[i] = ELEMENT(i), and CB_LANES at once as VECTOR(i). Scalar steps
 * lead to an address that is a multiple of ALIGNMENT, as non-temporal stores want it. */
#define CB_WRITING(kernel, STORE, ALIGNMENT, FENCE, AHEAD, VECTOR, ELEMENT) \
    static uint64_t CB_NAME(kernel)(const cb_args *args, size_t begin, size_t end) { \
        double *a = args->array[0]; \
        const double *b = args->array[1], *c = args->array[2]; \
        const double s = args->scalar; \
        const CB_V v = CB_SET1(s); \
        size_t i = begin; \
        (void)b, (void)c, (void)s, (void)v; \
        for (; i < end && (uintptr_t)(a + i) % (ALIGNMENT) != 0; ++i) { \
            a[i] = ELEMENT(i); \
        } \
        for (; i + CB_STEP <= end; i += CB_STEP) { \
            AHEAD(i); \
            STORE(a + i, VECTOR(i)); \
            STORE(a + i + 1 * CB_LANES, VECTOR(i + 1 * CB_LANES)); \
            STORE(a + i + 2 * CB_LANES, VECTOR(i + 2 * CB_LANES)); \
            STORE(a + i + 3 * CB_LANES, VECTOR(i + 3 * CB_LANES)); \
        } \
        for (; i < end; ++i) { \
            a[i] = ELEMENT(i); \
        } \
        FENCE(); \
        return checksum_of_ends(a, begin, end); \
    }

#define CB_NOTHING(...)
#define CB_AHEAD_B(i) CB_AHEAD(b + (i))
#define CB_AHEAD_BC(i) CB_AHEAD(b + (i)); CB_AHEAD(c + (i))

#define CB_WRITE(i) v
#define CB_COPY(i) CB_LOAD(b + (i))
#define CB_SCALE(i) CB_MUL(v, CB_LOAD(b + (i)))
#define CB_SUM(i) CB_ADD(CB_LOAD(b + (i)), CB_LOAD(c + (i)))
#define CB_TRIAD(i) CB_ADD(CB_LOAD(b + (i)), CB_MUL(v, CB_LOAD(c + (i))))
#define CB_WRITE_1(i) s
#define CB_COPY_1(i) b[i]
#define CB_SCALE_1(i) s * b[i]
#define CB_SUM_1(i) b[i] + c[i]
#define CB_TRIAD_1(i) b[i] + s * c[i]

#define CB_FIVE(nt, ...) \
    CB_WRITING(write##nt, __VA_ARGS__, CB_NOTHING, CB_WRITE, CB_WRITE_1) \
    CB_WRITING(copy##nt, __VA_ARGS__, CB_AHEAD_B, CB_COPY, CB_COPY_1) \
    CB_WRITING(scale##nt, __VA_ARGS__, CB_AHEAD_B, CB_SCALE, CB_SCALE_1) \
    CB_WRITING(add##nt, __VA_ARGS__, CB_AHEAD_BC, CB_SUM, CB_SUM_1) \
    CB_WRITING(triad##nt, __VA_ARGS__, CB_AHEAD_BC, CB_TRIAD, CB_TRIAD_1)

CB_FIVE(, CB_STORE, 1, CB_NOTHING)
CB_FIVE(_nt, CB_STORE_NT, 64, CB_FENCE_NT)

#undef CB_WRITING
#undef CB_NOTHING
#undef CB_AHEAD_B
#undef CB_AHEAD_BC
#undef CB_WRITE
#undef CB_COPY
#undef CB_SCALE
#undef CB_SUM
#undef CB_WRITE_1
#undef CB_COPY_1
#undef CB_SCALE_1
#undef CB_SUM_1
#undef CB_TRIAD_1
#undef CB_FIVE
#undef CB_TRIAD
#undef CB_STEP
#undef CB_NAME
#undef CB_V
#undef CB_LANES
#undef CB_AHEAD
#undef CB_LOAD
#undef CB_STORE
#undef CB_STORE_NT
#undef CB_FENCE_NT
#undef CB_SET1
#undef CB_ADD
#undef CB_MUL
#undef CB_I
#undef CB_ILOAD
#undef CB_IADD
#undef CB_IZERO
#undef CB_ISUM
