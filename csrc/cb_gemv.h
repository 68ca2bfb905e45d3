/* What the matrix-vector kernels share.
 *
 * y = W x is decode's own pattern: the weights are read once, x stays in cache. A unit is a
 * row; traffic is per weight; reading x and writing y stays in cache and is not counted.
 */
#ifndef CB_GEMV_H
#define CB_GEMV_H

#include <string.h>

#include "cb_formats.h"

/* Fold y into a checksum. */
static inline uint64_t cb_checksum_of_rows(const float *y, size_t begin, size_t end) {
    uint64_t sum = 0;
    for (size_t row = begin; row < end; ++row) {
        uint32_t bits;
        memcpy(&bits, &y[row], sizeof bits);
        sum = 31 * sum + bits;
    }
    return sum;
}

/* gemv_FORMAT_ISA from dot_FORMAT_ISA(weights, activations, columns). */
#define CB_GEMV(format, isa) \
    static uint64_t gemv_##format##_##isa(const cb_args *args, size_t begin, size_t end) { \
        const size_t row_bytes = args->columns / cb_format_##format.block_elements * \
                                 cb_format_##format.block_bytes; \
        const char *w = args->array[0]; \
        float *y = args->array[2]; \
        for (size_t row = begin; row < end; ++row) { \
            y[row] = dot_##format##_##isa((const void *)(w + row * row_bytes), args->array[1], \
                                          args->columns); \
        } \
        return cb_checksum_of_rows(y, begin, end); \
    }

/* Table row; the traffic is the format's bytes per weight and a multiplication and an
 * addition. */
#define CB_GEMV_ROW(format, variant, isa, suffix, bytes_per_weight) \
    {"gemv_" #format, variant, isa, #format, 3, 0, 1, {bytes_per_weight, 0, 0, 2}, \
     gemv_##format##_##suffix, cb_fill_##format, &cb_format_##format}

#endif
