/* Which instruction sets this CPU and operating system can run. */
#ifndef CB_CPU_H
#define CB_CPU_H

typedef enum cb_isa {
    CB_ISA_PORTABLE,   /* plain C for the platform's baseline */
    CB_ISA_AVX2,       /* AVX2, FMA, F16C */
    CB_ISA_AVXVNNI,    /* AVX2 with the 8-bit dot product */
    CB_ISA_AVX512,     /* AVX-512 F, BW, DQ, VL */
    CB_ISA_AVX512VNNI, /* AVX-512 with the 8-bit dot product */
    CB_ISA_AVX512BF16, /* AVX-512 with the bfloat16 dot product */
    CB_ISA_NEON,       /* aarch64's baseline */
    CB_ISA_DOTPROD,    /* NEON with the 8-bit dot product */
    CB_ISA_COUNT
} cb_isa;

/* Name as it stands in measurements and in CPUBOUND_ISA. */
const char *cb_isa_name(cb_isa isa);

/* 1 if code for `isa` can run here, else 0. */
int cb_isa_available(cb_isa isa);

#endif
