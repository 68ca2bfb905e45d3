/* IEEE 754 binary16 without hardware support. */
#ifndef CB_HALF_H
#define CB_HALF_H

#include <stdint.h>
#include <string.h>

static inline float cb_half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1Fu, fraction = half & 0x3FFu;
    uint32_t bits;
    float value;
    if (exponent == 0) {
        /* Zero and subnormals: the fraction in units of 2^-24. */
        value = (float)fraction * (1.0f / 16777216.0f);
        memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7F800000u | fraction << 13;
    } else {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Round to nearest, ties to even; too large becomes infinite. */
static inline uint16_t cb_float_to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
        return sign | 0x7E00u;
    }
    if (magnitude >= 0x477FF000u) {
        return sign | 0x7C00u;
    }
    if (magnitude < 0x38800000u) {
        /* Below 2^-14: adding 0.5 rounds to units of 2^-24 in float arithmetic. */
        float shifted;
        uint32_t rounded;
        memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        memcpy(&rounded, &shifted, sizeof rounded);
        return (uint16_t)(sign | (rounded - 0x3F000000u));
    }
    const uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

#endif
