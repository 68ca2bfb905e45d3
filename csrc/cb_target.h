/* Code for one instruction set inside a file compiled for the baseline.
 *
 * Functions between CB_TARGET_BEGIN("avx2,fma") and CB_TARGET_END may use those
 * instructions; they are reached only through the kernel table, after detection.
 * MSVC compiles intrinsics of any set without a switch.
 */
#ifndef CB_TARGET_H
#define CB_TARGET_H

#if defined(__x86_64__) || defined(_M_X64)
#define CB_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) || defined(_M_ARM64)
#define CB_ARM64 1
#include <arm_neon.h>
#endif

#define CB_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define CB_TARGET_BEGIN(features) \
    CB_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define CB_TARGET_END CB_PRAGMA(clang attribute pop)
#elif defined(__GNUC__)
#define CB_TARGET_BEGIN(features) \
    CB_PRAGMA(GCC push_options) CB_PRAGMA(GCC target(features))
#define CB_TARGET_END CB_PRAGMA(GCC pop_options)
#else
#define CB_TARGET_BEGIN(features)
#define CB_TARGET_END
#endif

#if defined(CB_X86)
/* Fetch the line that lies some pages ahead into the second-level cache. Hardware prefetchers
 * stop at the end of a 4 KiB page; one page and a half ahead was best where it was tried. */
#define CB_FETCH_AHEAD(p) _mm_prefetch((const char *)(p) + 6144, _MM_HINT_T1)
#endif

#define CB_FEATURES_AVX2 "avx2,fma,f16c"
#if !defined(__GNUC__) || defined(__clang__) || __GNUC__ >= 11 /* GCC 10 does not know it */
#define CB_FEATURES_AVXVNNI "avx2,fma,f16c,avxvnni"
#endif
#define CB_FEATURES_AVX512 "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"
#if defined(__clang__)
#define CB_FEATURES_DOTPROD "dotprod"
#else
#define CB_FEATURES_DOTPROD "arch=armv8.2-a+dotprod"
#endif
#define CB_FEATURES_AVX512VNNI "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define CB_FEATURES_AVX512BF16 "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"

#endif
