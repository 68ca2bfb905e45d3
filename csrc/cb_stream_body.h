/* The stream kernels for one instruction set; included once for each by cb_stream.c.
 *
 * The including file defines CB_NAME(kernel), the vector of doubles CB_V with CB_LANES,
 * CB_LOAD, CB_STORE, CB_SET1, CB_ADD, CB_MUL, CB_AHEAD (fetch the lines of one step of the
 * loop ahead of their use, or nothing), and the vector of 64-bit integers CB_I with
 * CB_ILOAD, CB_IADD, CB_IZERO, CB_ISUM. No fused multiply-add: results are the same
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

static uint64_t CB_NAME(copy)(const cb_args *args, size_t begin, size_t end) {
    double *a = args->array[0];
    const double *b = args->array[1];
    size_t i = begin;
    for (; i + CB_STEP <= end; i += CB_STEP) {
        CB_AHEAD(b + i);
        CB_STORE(a + i, CB_LOAD(b + i));
        CB_STORE(a + i + 1 * CB_LANES, CB_LOAD(b + i + 1 * CB_LANES));
        CB_STORE(a + i + 2 * CB_LANES, CB_LOAD(b + i + 2 * CB_LANES));
        CB_STORE(a + i + 3 * CB_LANES, CB_LOAD(b + i + 3 * CB_LANES));
    }
    for (; i < end; ++i) {
        a[i] = b[i];
    }
    return checksum_of_ends(a, begin, end);
}

static uint64_t CB_NAME(scale)(const cb_args *args, size_t begin, size_t end) {
    double *a = args->array[0];
    const double *b = args->array[1];
    const CB_V s = CB_SET1(args->scalar);
    size_t i = begin;
    for (; i + CB_STEP <= end; i += CB_STEP) {
        CB_AHEAD(b + i);
        CB_STORE(a + i, CB_MUL(s, CB_LOAD(b + i)));
        CB_STORE(a + i + 1 * CB_LANES, CB_MUL(s, CB_LOAD(b + i + 1 * CB_LANES)));
        CB_STORE(a + i + 2 * CB_LANES, CB_MUL(s, CB_LOAD(b + i + 2 * CB_LANES)));
        CB_STORE(a + i + 3 * CB_LANES, CB_MUL(s, CB_LOAD(b + i + 3 * CB_LANES)));
    }
    for (; i < end; ++i) {
        a[i] = args->scalar * b[i];
    }
    return checksum_of_ends(a, begin, end);
}

static uint64_t CB_NAME(add)(const cb_args *args, size_t begin, size_t end) {
    double *a = args->array[0];
    const double *b = args->array[1], *c = args->array[2];
    size_t i = begin;
    for (; i + CB_STEP <= end; i += CB_STEP) {
        CB_AHEAD(b + i);
        CB_AHEAD(c + i);
        CB_STORE(a + i, CB_ADD(CB_LOAD(b + i), CB_LOAD(c + i)));
        CB_STORE(a + i + 1 * CB_LANES,
                 CB_ADD(CB_LOAD(b + i + 1 * CB_LANES), CB_LOAD(c + i + 1 * CB_LANES)));
        CB_STORE(a + i + 2 * CB_LANES,
                 CB_ADD(CB_LOAD(b + i + 2 * CB_LANES), CB_LOAD(c + i + 2 * CB_LANES)));
        CB_STORE(a + i + 3 * CB_LANES,
                 CB_ADD(CB_LOAD(b + i + 3 * CB_LANES), CB_LOAD(c + i + 3 * CB_LANES)));
    }
    for (; i < end; ++i) {
        a[i] = b[i] + c[i];
    }
    return checksum_of_ends(a, begin, end);
}

#define CB_TRIAD(i) CB_ADD(CB_LOAD(b + (i)), CB_MUL(s, CB_LOAD(c + (i))))

static uint64_t CB_NAME(triad)(const cb_args *args, size_t begin, size_t end) {
    double *a = args->array[0];
    const double *b = args->array[1], *c = args->array[2];
    const CB_V s = CB_SET1(args->scalar);
    size_t i = begin;
    for (; i + CB_STEP <= end; i += CB_STEP) {
        CB_AHEAD(b + i);
        CB_AHEAD(c + i);
        CB_STORE(a + i, CB_TRIAD(i));
        CB_STORE(a + i + 1 * CB_LANES, CB_TRIAD(i + 1 * CB_LANES));
        CB_STORE(a + i + 2 * CB_LANES, CB_TRIAD(i + 2 * CB_LANES));
        CB_STORE(a + i + 3 * CB_LANES, CB_TRIAD(i + 3 * CB_LANES));
    }
    for (; i < end; ++i) {
        a[i] = b[i] + args->scalar * c[i];
    }
    return checksum_of_ends(a, begin, end);
}

#undef CB_TRIAD
#undef CB_STEP
#undef CB_NAME
#undef CB_V
#undef CB_LANES
#undef CB_AHEAD
#undef CB_LOAD
#undef CB_STORE
#undef CB_SET1
#undef CB_ADD
#undef CB_MUL
#undef CB_I
#undef CB_ILOAD
#undef CB_IADD
#undef CB_IZERO
#undef CB_ISUM
