/* How weights and activations are stored: ggml's block layouts, to the byte.
 *
 * Layouts and formulas: ggml/src/ggml-common.h and ggml-quants.c of llama.cpp at commit
 * 0c1e57098bba.
 */
#ifndef CB_FORMATS_H
#define CB_FORMATS_H

#include "cb_kernels.h"

/* Weights. d, dmin: binary16. */

typedef struct cb_block_q4_0 {
    uint16_t d;
    uint8_t qs[16]; /* weight j: d · (low nibble of qs[j] - 8); weight j + 16: high nibble */
} cb_block_q4_0;

typedef struct cb_block_q8_0 {
    uint16_t d;
    int8_t qs[32]; /* d · qs[j] */
} cb_block_q8_0;

typedef struct cb_block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12]; /* a 6-bit scale and a 6-bit minimum for each of 8 groups of 32 */
    uint8_t qs[128];    /* 32 bytes hold group 2i in low nibbles, group 2i + 1 in high ones */
} cb_block_q4_k;        /* weight: d · scale · q - dmin · minimum */

typedef struct cb_block_q6_k {
    uint8_t ql[128];   /* low 4 bits; for each half of 128 weights 64 bytes */
    uint8_t qh[64];    /* high 2 bits; for each half 32 bytes, bits 2g for group g of 32 */
    int8_t scales[16]; /* one for 16 weights */
    uint16_t d;
} cb_block_q6_k; /* weight: d · scale · (q - 32) */

/* Activations, as ggml quantises them; with what is summed once here and not per row. */

typedef struct cb_activations_32 { /* Q8_0 */
    float d;                       /* a binary16 value */
    int8_t qs[32];
    int32_t offsets[8]; /* -8 times the sum of four qs each */
} cb_activations_32;

typedef struct cb_activations_256 { /* Q8_K */
    float d;
    int8_t qs[256];
    int16_t sums[16];       /* of 16 qs each */
    int16_t group_sums[16]; /* eight zeros, then sums of 32 qs each */
} cb_activations_256;

extern const cb_format cb_format_f32;
extern const cb_format cb_format_f16; /* activations: binary16 values kept as float32 */
extern const cb_format cb_format_q8_0;
extern const cb_format cb_format_q4_0;
extern const cb_format cb_format_q4_k;
extern const cb_format cb_format_q6_k;

void cb_fill_f32(const cb_args *args, size_t begin, size_t end);
void cb_fill_f16(const cb_args *args, size_t begin, size_t end);
void cb_fill_q8_0(const cb_args *args, size_t begin, size_t end);
void cb_fill_q4_0(const cb_args *args, size_t begin, size_t end);
void cb_fill_q4_k(const cb_args *args, size_t begin, size_t end);
void cb_fill_q6_k(const cb_args *args, size_t begin, size_t end);

#endif
