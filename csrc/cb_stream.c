/* Stream kernels over arrays of 8-byte elements.
 *
 *   read   sum += x[i]           x as 64-bit integers: exact, so any order of adding agrees
 *   write  a[i] = s
 *   copy   a[i] = b[i]
 *   scale  a[i] = s · b[i]
 *   add    a[i] = b[i] + c[i]
 *   triad  a[i] = b[i] + s · c[i]
 *
 * The last four are those of J. D. McCalpin's STREAM. Each that writes exists twice: with
 * temporal stores, before which the hardware reads the line that is written, declared apart
 * as write_allocate_bytes; and as NAME_nt with non-temporal ones, which go past the caches
 * and need no such read. Plain C has no non-temporal stores: its NAME_nt stores as NAME.
 * On Arm they are a hint that a core may ignore.
 */
#include <string.h>

#include "cb_kernels.h"
#include "cb_target.h"

static uint64_t checksum_of_ends(const double *a, size_t begin, size_t end) {
    uint64_t first, last;
    if (begin >= end) {
        return 0;
    }
    memcpy(&first, &a[begin], sizeof first);
    memcpy(&last, &a[end - 1], sizeof last);
    return first + 3 * last;
}

static void fill_read(const cb_args *args, size_t begin, size_t end) {
    uint64_t *x = args->array[0];
    for (size_t i = begin; i < end; ++i) {
        x[i] = (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15);
    }
}

static void fill_one(const cb_args *args, size_t begin, size_t end) {
    double *a = args->array[0];
    for (size_t i = begin; i < end; ++i) {
        a[i] = 1.0;
    }
}

static void fill_pair(const cb_args *args, size_t begin, size_t end) {
    double *a = args->array[0], *b = args->array[1];
    for (size_t i = begin; i < end; ++i) {
        a[i] = b[i] = 1.0;
    }
}

static void fill_three(const cb_args *args, size_t begin, size_t end) {
    double *c = args->array[2];
    fill_pair(args, begin, end);
    for (size_t i = begin; i < end; ++i) {
        c[i] = 1.0;
    }
}

/* portable */

#define CB_NAME(kernel) kernel##_portable
#define CB_LANES 1
#define CB_AHEAD(p)
#define CB_V double
#define CB_LOAD(p) (*(p))
#define CB_STORE(p, v) (*(p) = (v))
#define CB_STORE_NT(p, v) (*(p) = (v))
#define CB_FENCE_NT()
#define CB_SET1(s) (s)
#define CB_ADD(x, y) ((x) + (y))
#define CB_MUL(x, y) ((x) * (y))
#define CB_I uint64_t
#define CB_ILOAD(p) (*(p))
#define CB_IADD(x, y) ((x) + (y))
#define CB_IZERO 0
#define CB_ISUM(x) (x)
#include "cb_stream_body.h"

#if defined(CB_X86)

CB_TARGET_BEGIN(CB_FEATURES_AVX2)

static uint64_t sum_of_lanes_avx2(__m256i x) {
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return (uint64_t)_mm_cvtsi128_si64(two) +
           (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(two, two));
}

/* read, fetching ahead */
static uint64_t read_ahead_avx2(const cb_args *args, size_t begin, size_t end) {
    const uint64_t *x = args->array[0];
    __m256i sum[8];
    for (int k = 0; k < 8; ++k) {
        sum[k] = _mm256_setzero_si256();
    }
    size_t i = begin;
    for (; i + 32 <= end; i += 32) {
        for (int k = 0; k < 4; ++k) {
            CB_FETCH_AHEAD(x + i + 8 * k);
        }
        for (int k = 0; k < 8; ++k) {
            sum[k] = _mm256_add_epi64(sum[k], _mm256_loadu_si256((const void *)(x + i + 4 * k)));
        }
    }
    for (int k = 1; k < 8; ++k) {
        sum[0] = _mm256_add_epi64(sum[0], sum[k]);
    }
    uint64_t total = sum_of_lanes_avx2(sum[0]);
    for (; i < end; ++i) {
        total += x[i];
    }
    return total;
}

#define CB_NAME(kernel) kernel##_avx2
#define CB_LANES 4
#define CB_AHEAD(p) (CB_FETCH_AHEAD(p), CB_FETCH_AHEAD((p) + 8))
#define CB_V __m256d
#define CB_LOAD(p) _mm256_loadu_pd(p)
#define CB_STORE(p, v) _mm256_storeu_pd(p, v)
#define CB_STORE_NT(p, v) _mm256_stream_pd(p, v)
#define CB_FENCE_NT() _mm_sfence()
#define CB_SET1(s) _mm256_set1_pd(s)
#define CB_ADD(x, y) _mm256_add_pd(x, y)
#define CB_MUL(x, y) _mm256_mul_pd(x, y)
#define CB_I __m256i
#define CB_ILOAD(p) _mm256_loadu_si256((const void *)(p))
#define CB_IADD(x, y) _mm256_add_epi64(x, y)
#define CB_IZERO _mm256_setzero_si256()
#define CB_ISUM(x) sum_of_lanes_avx2(x)
#include "cb_stream_body.h"

CB_TARGET_END

CB_TARGET_BEGIN(CB_FEATURES_AVX512)

static uint64_t sum_of_lanes_avx512(__m512i x) {
    return sum_of_lanes_avx2(
        _mm256_add_epi64(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)));
}

#define CB_NAME(kernel) kernel##_avx512
#define CB_LANES 8
#define CB_AHEAD(p) \
    (CB_FETCH_AHEAD(p), CB_FETCH_AHEAD((p) + 8), CB_FETCH_AHEAD((p) + 16), \
     CB_FETCH_AHEAD((p) + 24))
#define CB_V __m512d
#define CB_LOAD(p) _mm512_loadu_pd(p)
#define CB_STORE(p, v) _mm512_storeu_pd(p, v)
#define CB_STORE_NT(p, v) _mm512_stream_pd(p, v)
#define CB_FENCE_NT() _mm_sfence()
#define CB_SET1(s) _mm512_set1_pd(s)
#define CB_ADD(x, y) _mm512_add_pd(x, y)
#define CB_MUL(x, y) _mm512_mul_pd(x, y)
#define CB_I __m512i
#define CB_ILOAD(p) _mm512_loadu_si512((const void *)(p))
#define CB_IADD(x, y) _mm512_add_epi64(x, y)
#define CB_IZERO _mm512_setzero_si512()
#define CB_ISUM(x) sum_of_lanes_avx512(x)
#include "cb_stream_body.h"

CB_TARGET_END

#elif defined(CB_ARM64)

static inline void store_nt_neon(double *p, float64x2_t v) {
#if defined(__GNUC__)
    __asm__ volatile("stnp %d0, %d1, [%2]"
                     :
                     : "w"(vget_low_f64(v)), "w"(vget_high_f64(v)), "r"(p)
                     : "memory");
#else
    vst1q_f64(p, v);
#endif
}

#define CB_NAME(kernel) kernel##_neon
#define CB_LANES 2
#define CB_AHEAD(p)
#define CB_V float64x2_t
#define CB_LOAD(p) vld1q_f64(p)
#define CB_STORE(p, v) vst1q_f64(p, v)
#define CB_STORE_NT(p, v) store_nt_neon(p, v)
#define CB_FENCE_NT()
#define CB_SET1(s) vdupq_n_f64(s)
#define CB_ADD(x, y) vaddq_f64(x, y)
#define CB_MUL(x, y) vmulq_f64(x, y)
#define CB_I uint64x2_t
#define CB_ILOAD(p) vld1q_u64(p)
#define CB_IADD(x, y) vaddq_u64(x, y)
#define CB_IZERO vdupq_n_u64(0)
#define CB_ISUM(x) vaddvq_u64(x)
#include "cb_stream_body.h"

#endif

/* Per element: bytes read, written and write-allocated, flops. */
#define CB_ROW(NAME, VARIANT, ISA, FUNCTION, DTYPE, ARRAYS, FILL, ...) \
    {NAME, VARIANT, ISA, DTYPE, ARRAYS, 8, ARRAYS, {__VA_ARGS__}, FUNCTION, FILL, NULL}

/* ALLOCATE: what a store of an element makes the hardware read. */
#define CB_WRITING_ROWS(ISA, SUFFIX, NT, ALLOCATE) \
    CB_ROW("write" NT, "", ISA, write_##SUFFIX, "f64", 1, fill_one, 0, 8, ALLOCATE, 0), \
    CB_ROW("copy" NT, "", ISA, copy_##SUFFIX, "f64", 2, fill_pair, 8, 8, ALLOCATE, 0), \
    CB_ROW("scale" NT, "", ISA, scale_##SUFFIX, "f64", 2, fill_pair, 8, 8, ALLOCATE, 1), \
    CB_ROW("add" NT, "", ISA, add_##SUFFIX, "f64", 3, fill_three, 16, 8, ALLOCATE, 1), \
    CB_ROW("triad" NT, "", ISA, triad_##SUFFIX, "f64", 3, fill_three, 16, 8, ALLOCATE, 2)

#define CB_ROWS(ISA, SUFFIX, ALLOCATE_NT) \
    CB_ROW("read", "", ISA, read_##SUFFIX, "u64", 1, fill_read, 8, 0, 0, 0), \
    CB_ROW("read", "streams", ISA, read_streams_##SUFFIX, "u64", 1, fill_read, 8, 0, 0, 0), \
    CB_WRITING_ROWS(ISA, SUFFIX, "", 8), \
    CB_WRITING_ROWS(ISA, nt_##SUFFIX, "_nt", ALLOCATE_NT)

const cb_kernel cb_stream_kernels[] = {
    CB_ROWS(CB_ISA_PORTABLE, portable, 8),
#if defined(CB_X86)
    CB_ROWS(CB_ISA_AVX2, avx2, 0),
    CB_ROW("read", "ahead", CB_ISA_AVX2, read_ahead_avx2, "u64", 1, fill_read, 8, 0, 0, 0),
    CB_ROWS(CB_ISA_AVX512, avx512, 0),
#elif defined(CB_ARM64)
    CB_ROWS(CB_ISA_NEON, neon, 0),
#endif
};

const size_t cb_stream_kernel_count = sizeof cb_stream_kernels / sizeof *cb_stream_kernels;
