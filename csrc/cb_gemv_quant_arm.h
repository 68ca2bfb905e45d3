/* Dot products of quantised rows for one Arm instruction set; included once for each.
 *
 * The including file defines CB_NAME(kernel) and CB_DOT(acc, a, b): acc + products of
 * signed bytes, in four 32-bit lanes.
 */

static float CB_NAME(dot_q8_0)(const cb_block_q8_0 *w, const cb_activations_32 *x, size_t n) {
    float32x4_t sum = vdupq_n_f32(0);
    for (size_t b = 0; b < n / 32; ++b) {
        int32x4_t dot = CB_DOT(vdupq_n_s32(0), vld1q_s8(w[b].qs), vld1q_s8(x[b].qs));
        dot = CB_DOT(dot, vld1q_s8(w[b].qs + 16), vld1q_s8(x[b].qs + 16));
        sum = vfmaq_n_f32(sum, vcvtq_f32_s32(dot), cb_half_to_float(w[b].d) * x[b].d);
    }
    return vaddvq_f32(sum);
}

static float CB_NAME(dot_q4_0)(const cb_block_q4_0 *w, const cb_activations_32 *x, size_t n) {
    float32x4_t sum = vdupq_n_f32(0);
    for (size_t b = 0; b < n / 32; ++b) {
        const uint8x16_t q = vld1q_u8(w[b].qs);
        const int8x16_t q0 = vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15)));
        const int8x16_t q1 = vreinterpretq_s8_u8(vshrq_n_u8(q, 4));
        /* Σ (q - 8)·a = Σ q·a - 8 Σ a */
        int32x4_t dot = vaddq_s32(vld1q_s32(x[b].offsets), vld1q_s32(x[b].offsets + 4));
        dot = CB_DOT(dot, q0, vld1q_s8(x[b].qs));
        dot = CB_DOT(dot, q1, vld1q_s8(x[b].qs + 16));
        sum = vfmaq_n_f32(sum, vcvtq_f32_s32(dot), cb_half_to_float(w[b].d) * x[b].d);
    }
    return vaddvq_f32(sum);
}

static float CB_NAME(dot_q4_k)(const cb_block_q4_k *w, const cb_activations_256 *x, size_t n) {
    float total = 0;
    for (size_t b = 0; b < n / 256; ++b) {
        uint8_t scales[8], minimums[8];
        int32x4_t dot = vdupq_n_s32(0);
        int32_t minimum = 0;
        unpack_scales(&w[b], scales, minimums);
        for (int pair = 0; pair < 4; ++pair) {
            const int8_t *a = x[b].qs + 64 * pair;
            int32x4_t d0 = vdupq_n_s32(0), d1 = d0;
            for (int part = 0; part < 2; ++part) {
                const uint8x16_t q = vld1q_u8(w[b].qs + 32 * pair + 16 * part);
                const int8x16_t q0 = vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15)));
                const int8x16_t q1 = vreinterpretq_s8_u8(vshrq_n_u8(q, 4));
                d0 = CB_DOT(d0, q0, vld1q_s8(a + 16 * part));
                d1 = CB_DOT(d1, q1, vld1q_s8(a + 32 + 16 * part));
            }
            dot = vmlaq_n_s32(dot, d0, scales[2 * pair]);
            dot = vmlaq_n_s32(dot, d1, scales[2 * pair + 1]);
        }
        for (int group = 0; group < 8; ++group) {
            minimum += minimums[group] * x[b].group_sums[8 + group];
        }
        total += x[b].d * (cb_half_to_float(w[b].d) * (float)vaddvq_s32(dot) -
                           cb_half_to_float(w[b].dmin) * (float)minimum);
    }
    return total;
}

static float CB_NAME(dot_q6_k)(const cb_block_q6_k *w, const cb_activations_256 *x, size_t n) {
    const uint8x16_t low = vdupq_n_u8(15), two = vdupq_n_u8(3);
    float total = 0;
    for (size_t b = 0; b < n / 256; ++b) {
        int32x4_t dot = vdupq_n_s32(0);
        int32_t offset = 0;
        for (int half = 0; half < 2; ++half) {
            for (int part = 0; part < 2; ++part) {
                const uint8x16_t l0 = vld1q_u8(w[b].ql + 64 * half + 16 * part);
                const uint8x16_t l1 = vld1q_u8(w[b].ql + 64 * half + 32 + 16 * part);
                const uint8x16_t h = vld1q_u8(w[b].qh + 32 * half + 16 * part);
                const uint8x16_t q[4] = {
                    vorrq_u8(vandq_u8(l0, low), vshlq_n_u8(vandq_u8(h, two), 4)),
                    vorrq_u8(vandq_u8(l1, low), vshlq_n_u8(vandq_u8(vshrq_n_u8(h, 2), two), 4)),
                    vorrq_u8(vshrq_n_u8(l0, 4), vshlq_n_u8(vandq_u8(vshrq_n_u8(h, 4), two), 4)),
                    vorrq_u8(vshrq_n_u8(l1, 4), vshlq_n_u8(vshrq_n_u8(h, 6), 4)),
                };
                for (int g = 0; g < 4; ++g) {
                    const int8_t *a = x[b].qs + 128 * half + 32 * g + 16 * part;
                    const int32x4_t d =
                        CB_DOT(vdupq_n_s32(0), vreinterpretq_s8_u8(q[g]), vld1q_s8(a));
                    dot = vmlaq_n_s32(dot, d, w[b].scales[8 * half + 2 * g + part]);
                }
            }
        }
        for (int group = 0; group < 16; ++group) {
            offset += w[b].scales[group] * x[b].sums[group];
        }
        total += cb_half_to_float(w[b].d) * x[b].d * (float)(vaddvq_s32(dot) - 32 * offset);
    }
    return total;
}

#undef CB_NAME
#undef CB_DOT
