/* Products of quantised rows for one x86 instruction set; included once for each.
 *
 * The including file defines CB_NAME(kernel) and, on 32 bytes or 16 16-bit integers,
 *   CB_DOT_U8(acc, u, a)      acc + Σ of four u·a in each 32-bit lane; u below 128
 *   CB_DOT_S8(offsets, w, a)  Σ of four w·a in each lane; a above -128; offsets: -8 Σ a
 *   CB_MADD(acc, a, b)        acc + Σ of two a·b in each lane
 *
 * add_FORMAT adds the product of one block to a sum of eight lanes.
 */

static inline __m256 CB_NAME(add_q8_0)(__m256 sum, const cb_block_q8_0 *w,
                                       const cb_activations_32 *x) {
    const __m256i dot = CB_DOT_S8(_mm256_loadu_si256((const void *)x->offsets),
                                  _mm256_loadu_si256((const void *)w->qs),
                                  _mm256_loadu_si256((const void *)x->qs));
    const __m256 scale = _mm256_mul_ps(CB_NAME(scale)(w->d), _mm256_set1_ps(x->d));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

static inline __m256 CB_NAME(add_q4_0)(__m256 sum, const cb_block_q4_0 *w,
                                       const cb_activations_32 *x) {
    const __m256i shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)w->qs));
    const __m256i q = _mm256_and_si256(_mm256_srlv_epi32(twice, shift), _mm256_set1_epi8(15));
    /* Σ (q - 8)·a = Σ q·a - 8 Σ a */
    const __m256i offsets = _mm256_loadu_si256((const void *)x->offsets);
    const __m256i dot = CB_DOT_U8(offsets, q, _mm256_loadu_si256((const void *)x->qs));
    const __m256 scale = _mm256_mul_ps(CB_NAME(scale)(w->d), _mm256_set1_ps(x->d));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

/* The 16-bit integer at `place` of each 128-bit lane, in all places of its lane. */
#define CB_SPREAD(words, place) \
    _mm256_shuffle_epi8(words, _mm256_set1_epi16((short)((2 * (place) + 1) << 8 | 2 * (place))))

static inline __m256 CB_NAME(add_q4_k)(__m256 sum, const cb_block_q4_k *w,
                                       const cb_activations_256 *x) {
    const __m256i low = _mm256_set1_epi8(15);
    /* Eight scales and eight minimums of 6 bits, as 16-bit integers, scales first; their bytes
     * are put together in general registers, of which nothing else here makes use. */
    uint64_t first;
    uint32_t last;
    memcpy(&first, w->scales, sizeof first);
    memcpy(&last, w->scales + sizeof first, sizeof last);
    const uint64_t from0 = first & 0x3F3F3F3F3F3F3F3F;
    const uint64_t from4 = (last & 0x0F0F0F0F) | (uint64_t)(last >> 4 & 0x0F0F0F0F) << 32 |
                           (first >> 2 & 0x3030303030303030);
    const __m256i both = _mm256_cvtepu8_epi16(_mm_unpacklo_epi32(
        _mm_cvtsi64_si128((int64_t)from0), _mm_cvtsi64_si128((int64_t)from4)));
    const __m256i scales = _mm256_permute2x128_si256(both, both, 0x00);
    const __m256i minimum =
        _mm256_madd_epi16(both, _mm256_loadu_si256((const void *)x->group_sums));
    __m256i even = _mm256_setzero_si256(), odd = even;
#define CB_TWO_GROUPS(pair) \
    { \
        const __m256i q = _mm256_loadu_si256((const void *)(w->qs + 32 * (pair))); \
        const __m256i *a = (const __m256i *)(const void *)(x->qs + 64 * (pair)); \
        const __m256i p0 = \
            _mm256_maddubs_epi16(_mm256_and_si256(q, low), _mm256_loadu_si256(a)); \
        const __m256i p1 = _mm256_maddubs_epi16( \
            _mm256_and_si256(_mm256_srli_epi16(q, 4), low), _mm256_loadu_si256(a + 1)); \
        even = CB_MADD(even, p0, CB_SPREAD(scales, 2 * (pair))); \
        odd = CB_MADD(odd, p1, CB_SPREAD(scales, 2 * (pair) + 1)); \
    }
    CB_TWO_GROUPS(0)
    CB_TWO_GROUPS(1)
    CB_TWO_GROUPS(2)
    CB_TWO_GROUPS(3)
#undef CB_TWO_GROUPS
    const __m256i dot = _mm256_add_epi32(even, odd);
    const __m256 d = _mm256_set1_ps(x->d);
    sum = _mm256_fmadd_ps(_mm256_mul_ps(CB_NAME(scale)(w->d), d), _mm256_cvtepi32_ps(dot), sum);
    return _mm256_fnmadd_ps(_mm256_mul_ps(CB_NAME(scale)(w->dmin), d),
                            _mm256_cvtepi32_ps(minimum), sum);
}

static inline __m256 CB_NAME(add_q6_k)(__m256 sum, const cb_block_q6_k *w,
                                       const cb_activations_256 *x) {
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(0x30);
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)w->scales));
    /* Σ (q - 32)·a: the second part from the sums of 16 activations. */
    const __m256i offset = _mm256_madd_epi16(words, _mm256_loadu_si256((const void *)x->sums));
    __m256i dot = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(offset, 5));
    for (int half = 0; half < 2; ++half) {
        const uint8_t *ql = w->ql + 64 * half, *qh = w->qh + 32 * half;
        const __m256i *a = (const __m256i *)(const void *)(x->qs + 128 * half);
        const __m256i l0 = _mm256_loadu_si256((const void *)ql);
        const __m256i l1 = _mm256_loadu_si256((const void *)(ql + 32));
        const __m256i h = _mm256_loadu_si256((const void *)qh);
        /* Scale 2g of this half in the low lane, 2g + 1 in the high lane, next to it. */
        const __m256i scales = half ? _mm256_permute2x128_si256(words, words, 0x11)
                                    : _mm256_permute2x128_si256(words, words, 0x00);
        const __m256i paired = _mm256_blend_epi32(scales, _mm256_srli_epi32(scales, 16), 0xF0);
#define CB_GROUP(g, lows, highs) \
    dot = CB_MADD(dot, \
                  _mm256_maddubs_epi16(_mm256_or_si256(_mm256_and_si256(lows, low), \
                                                       _mm256_and_si256(highs, high)), \
                                       _mm256_loadu_si256(a + (g))), \
                  CB_SPREAD(paired, 2 * (g)));
        CB_GROUP(0, l0, _mm256_slli_epi16(h, 4))
        CB_GROUP(1, l1, _mm256_slli_epi16(h, 2))
        CB_GROUP(2, _mm256_srli_epi16(l0, 4), h)
        CB_GROUP(3, _mm256_srli_epi16(l1, 4), _mm256_srli_epi16(h, 2))
#undef CB_GROUP
    }
    const __m256 scale = _mm256_mul_ps(CB_NAME(scale)(w->d), _mm256_set1_ps(x->d));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

#undef CB_SPREAD

/* One row: two sums, so that one block's addition does not wait for the other's. */
#define CB_GEMV_ROWS(format, add, elements, block, activations) \
    static inline float CB_NAME(dot_##format)(const block *w, const cb_args *args) { \
        const size_t blocks = args->columns / (elements); \
        const activations *x = args->array[1]; \
        __m256 even = _mm256_setzero_ps(), odd = even; \
        size_t b = 0; \
        for (; b + 2 <= blocks; b += 2) { \
            for (size_t byte = 0; byte < 2 * sizeof *w; byte += 64) { \
                CB_FETCH_AHEAD((const char *)(w + b) + byte); \
            } \
            even = add(even, w + b, x + b); \
            odd = add(odd, w + b + 1, x + b + 1); \
        } \
        if (b < blocks) { \
            even = add(even, w + b, x + b); \
        } \
        return CB_NAME(sum_of_lanes)(_mm256_add_ps(even, odd)); \
    } \
    static uint64_t CB_NAME(gemv_##format)(const cb_args *args, size_t begin, size_t end) { \
        const block *w = args->array[0]; \
        float *y = args->array[2]; \
        for (size_t row = begin; row < end; ++row) { \
            y[row] = CB_NAME(dot_##format)(w + row * (args->columns / (elements)), args); \
        } \
        return cb_checksum_of_rows(y, begin, end); \
    } \
    CB_GEMV_STREAMS(format, add, elements, block, activations)

/* Four rows at a time, a quarter of the rows apart: they share the activations and are four
 * streams, which memory often, but not on all pages, serves faster than one. */
#define CB_GEMV_STREAMS(format, add, elements, block, activations) \
    static uint64_t CB_NAME(gemv_##format##_streams)(const cb_args *args, size_t begin, \
                                                     size_t end) { \
        const size_t blocks = args->columns / (elements), quarter = (end - begin) / 4; \
        const block *w = args->array[0]; \
        const activations *x = args->array[1]; \
        float *y = args->array[2]; \
        for (size_t row = begin; row < begin + quarter; ++row) { \
            __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), \
                             _mm256_setzero_ps()}; \
            for (size_t b = 0; b < blocks; ++b) { \
                for (size_t k = 0; k < 4; ++k) { \
                    sum[k] = add(sum[k], w + (row + k * quarter) * blocks + b, x + b); \
                } \
            } \
            for (size_t k = 0; k < 4; ++k) { \
                y[row + k * quarter] = CB_NAME(sum_of_lanes)(sum[k]); \
            } \
        } \
        for (size_t row = begin + 4 * quarter; row < end; ++row) { \
            y[row] = CB_NAME(dot_##format)(w + row * blocks, args); \
        } \
        return cb_checksum_of_rows(y, begin, end); \
    }

CB_GEMV_ROWS(q8_0, CB_NAME(add_q8_0), 32, cb_block_q8_0, cb_activations_32)
CB_GEMV_ROWS(q4_0, CB_NAME(add_q4_0), 32, cb_block_q4_0, cb_activations_32)
CB_GEMV_ROWS(q4_k, CB_NAME(add_q4_k), 256, cb_block_q4_k, cb_activations_256)
CB_GEMV_ROWS(q6_k, CB_NAME(add_q6_k), 256, cb_block_q6_k, cb_activations_256)

#undef CB_GEMV_STREAMS
#undef CB_GEMV_ROWS
#undef CB_NAME
#undef CB_DOT_U8
#undef CB_DOT_S8
#undef CB_MADD
