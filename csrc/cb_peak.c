/* peak: multiply-adds on registers alone, so many at once that none waits for another.
 *
 *   peak_fp32  float32 multiply-add, fused where the instruction set can
 *   peak_bf16  bfloat16 dot product of two, added in float32
 *   peak_int8  8-bit dot product of four, added in 32-bit integers
 *
 * The last two exist only where the instruction set has something for them. All operands
 * are one: the checksum is the number of multiply-adds that were done.
 */
#include <string.h>

#include "cb_kernels.h"
#include "cb_target.h"

/* Multiply-adds per unit, for every instruction set alike. */
enum { UNIT_FP32 = 192, UNIT_BF16 = 384, UNIT_INT8 = 768 };

/* A compiler must not know the operands, nor that all sums are equal; where a part of a step
 * needs only what does not change, nor that it does not. */
static volatile float opaque_zero = 0.0f, opaque_one = 1.0f;
#if defined(CB_X86)
static volatile int opaque_bf16_ones = 0x3F803F80;
#endif
#if defined(CB_X86) || defined(CB_ARM64)
static volatile signed char opaque_byte_zero = 0, opaque_byte_one = 1;
#endif

#if defined(CB_X86) && defined(__GNUC__)
#define CB_CHANGED(v) __asm__ volatile("" : "+x"(v))
#elif defined(__GNUC__)
#define CB_CHANGED(v) __asm__ volatile("" : "+w"(v))
#endif

#define CB_8(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define CB_12(DO) CB_8(DO) DO(8) DO(9) DO(10) DO(11)
#define CB_16(DO) CB_12(DO) DO(12) DO(13) DO(14) DO(15)

/* portable */

typedef struct four_floats {
    float lane[4];
} four_floats;

#define CB_NAME peak_fp32_portable
#define CB_UNIT UNIT_FP32
#define CB_SETUP const float one = opaque_one;
#define CB_VECTOR four_floats
#define CB_LANE float
#define CB_MACS 1
#define CB_ZERO {{opaque_zero, opaque_zero, opaque_zero, opaque_zero}}
#define CB_STORE(lanes, v) memcpy(lanes, (v).lane, sizeof(v).lane)
#define CB_STEP(sum) \
    for (int j = 0; j < 4; ++j) { \
        (sum).lane[j] = (sum).lane[j] * one + one; \
    }
#define CB_SUMS CB_8
#include "cb_peak_body.h"

#if defined(CB_X86)

CB_TARGET_BEGIN(CB_FEATURES_AVX2)

#define CB_NAME peak_fp32_avx2
#define CB_UNIT UNIT_FP32
#define CB_SETUP const __m256 one = _mm256_set1_ps(opaque_one);
#define CB_VECTOR __m256
#define CB_LANE float
#define CB_MACS 1
#define CB_ZERO _mm256_set1_ps(opaque_zero)
#define CB_STORE(lanes, v) _mm256_storeu_ps(lanes, v)
#define CB_STEP(sum) (sum) = _mm256_fmadd_ps(sum, one, one)
#define CB_SUMS CB_12
#include "cb_peak_body.h"

#if defined(CB_CHANGED)
#define CB_NAME peak_int8_avx2
#define CB_UNIT UNIT_INT8
#define CB_SETUP \
    const __m256i ones = _mm256_set1_epi16(1); \
    __m256i byte_ones = _mm256_set1_epi8(opaque_byte_one);
#define CB_VECTOR __m256i
#define CB_LANE int32_t
#define CB_MACS 4
#define CB_ZERO _mm256_set1_epi8(opaque_byte_zero)
#define CB_STORE(lanes, v) _mm256_storeu_si256((void *)(lanes), v)
#define CB_STEP(sum) \
    CB_CHANGED(byte_ones); \
    (sum) = _mm256_add_epi32( \
        sum, _mm256_madd_epi16(_mm256_maddubs_epi16(byte_ones, byte_ones), ones))
#define CB_SUMS CB_12
#include "cb_peak_body.h"
#endif

CB_TARGET_END

#if defined(CB_FEATURES_AVXVNNI)

CB_TARGET_BEGIN(CB_FEATURES_AVXVNNI)

#define CB_NAME peak_int8_avxvnni
#define CB_UNIT UNIT_INT8
#define CB_SETUP const __m256i byte_ones = _mm256_set1_epi8(opaque_byte_one);
#define CB_VECTOR __m256i
#define CB_LANE int32_t
#define CB_MACS 4
#define CB_ZERO _mm256_set1_epi8(opaque_byte_zero)
#define CB_STORE(lanes, v) _mm256_storeu_si256((void *)(lanes), v)
#define CB_STEP(sum) (sum) = _mm256_dpbusd_avx_epi32(sum, byte_ones, byte_ones)
#define CB_SUMS CB_12
#include "cb_peak_body.h"

CB_TARGET_END

#endif

CB_TARGET_BEGIN(CB_FEATURES_AVX512)

#define CB_NAME peak_fp32_avx512
#define CB_UNIT UNIT_FP32
#define CB_SETUP const __m512 one = _mm512_set1_ps(opaque_one);
#define CB_VECTOR __m512
#define CB_LANE float
#define CB_MACS 1
#define CB_ZERO _mm512_set1_ps(opaque_zero)
#define CB_STORE(lanes, v) _mm512_storeu_ps(lanes, v)
#define CB_STEP(sum) (sum) = _mm512_fmadd_ps(sum, one, one)
#define CB_SUMS CB_12
#include "cb_peak_body.h"

CB_TARGET_END

CB_TARGET_BEGIN(CB_FEATURES_AVX512VNNI)

#define CB_NAME peak_int8_avx512vnni
#define CB_UNIT UNIT_INT8
#define CB_SETUP const __m512i byte_ones = _mm512_set1_epi8(opaque_byte_one);
#define CB_VECTOR __m512i
#define CB_LANE int32_t
#define CB_MACS 4
#define CB_ZERO _mm512_set1_epi8(opaque_byte_zero)
#define CB_STORE(lanes, v) _mm512_storeu_si512((void *)(lanes), v)
#define CB_STEP(sum) (sum) = _mm512_dpbusd_epi32(sum, byte_ones, byte_ones)
#define CB_SUMS CB_12
#include "cb_peak_body.h"

CB_TARGET_END

CB_TARGET_BEGIN(CB_FEATURES_AVX512BF16)

#define CB_NAME peak_bf16_avx512bf16
#define CB_UNIT UNIT_BF16
#define CB_SETUP const __m512bh ones = (__m512bh)_mm512_set1_epi32(opaque_bf16_ones);
#define CB_VECTOR __m512
#define CB_LANE float
#define CB_MACS 2
#define CB_ZERO _mm512_set1_ps(opaque_zero)
#define CB_STORE(lanes, v) _mm512_storeu_ps(lanes, v)
#define CB_STEP(sum) (sum) = _mm512_dpbf16_ps(sum, ones, ones)
#define CB_SUMS CB_12
#include "cb_peak_body.h"

CB_TARGET_END

#elif defined(CB_ARM64)

#define CB_NAME peak_fp32_neon
#define CB_UNIT UNIT_FP32
#define CB_SETUP const float32x4_t one = vdupq_n_f32(opaque_one);
#define CB_VECTOR float32x4_t
#define CB_LANE float
#define CB_MACS 1
#define CB_ZERO vdupq_n_f32(opaque_zero)
#define CB_STORE(lanes, v) vst1q_f32(lanes, v)
#define CB_STEP(sum) (sum) = vfmaq_f32(sum, one, one)
#define CB_SUMS CB_16
#include "cb_peak_body.h"

CB_TARGET_BEGIN(CB_FEATURES_DOTPROD)

#define CB_NAME peak_int8_dotprod
#define CB_UNIT UNIT_INT8
#define CB_SETUP const int8x16_t byte_ones = vdupq_n_s8(opaque_byte_one);
#define CB_VECTOR int32x4_t
#define CB_LANE int32_t
#define CB_MACS 4
#define CB_ZERO vdupq_n_s32(opaque_byte_zero)
#define CB_STORE(lanes, v) vst1q_s32(lanes, v)
#define CB_STEP(sum) (sum) = vdotq_s32(sum, byte_ones, byte_ones)
#define CB_SUMS CB_16
#include "cb_peak_body.h"

CB_TARGET_END

#endif

#define CB_ROW(name, isa, suffix, dtype, unit) \
    {#name, "", isa, dtype, 0, 0, 1, {0, 0, 0, 2.0 * (unit)}, name##_##suffix, fill_nothing, NULL}

static void fill_nothing(const cb_args *args, size_t begin, size_t end) {
    (void)args;
    (void)begin;
    (void)end;
}

const cb_kernel cb_peak_kernels[] = {
    CB_ROW(peak_fp32, CB_ISA_PORTABLE, portable, "f32", UNIT_FP32),
#if defined(CB_X86)
    CB_ROW(peak_fp32, CB_ISA_AVX2, avx2, "f32", UNIT_FP32),
#if defined(CB_CHANGED)
    CB_ROW(peak_int8, CB_ISA_AVX2, avx2, "i8", UNIT_INT8),
#endif
#if defined(CB_FEATURES_AVXVNNI)
    CB_ROW(peak_int8, CB_ISA_AVXVNNI, avxvnni, "i8", UNIT_INT8),
#endif
    CB_ROW(peak_fp32, CB_ISA_AVX512, avx512, "f32", UNIT_FP32),
    CB_ROW(peak_int8, CB_ISA_AVX512VNNI, avx512vnni, "i8", UNIT_INT8),
    CB_ROW(peak_bf16, CB_ISA_AVX512BF16, avx512bf16, "bf16", UNIT_BF16),
#elif defined(CB_ARM64)
    CB_ROW(peak_fp32, CB_ISA_NEON, neon, "f32", UNIT_FP32),
    CB_ROW(peak_int8, CB_ISA_DOTPROD, dotprod, "i8", UNIT_INT8),
#endif
};

const size_t cb_peak_kernel_count = sizeof cb_peak_kernels / sizeof *cb_peak_kernels;
