#include "cb_cpu.h"

#include "cb_target.h"

const char *cb_isa_name(cb_isa isa) {
    static const char *const names[CB_ISA_COUNT] = {
        "portable",   "avx2", "avxvnni", "avx512", "avx512vnni",
        "avx512bf16", "neon", "dotprod",
    };
    return names[isa];
}

#if defined(CB_X86)

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#else
#include <cpuid.h>
#endif

typedef struct {
    unsigned eax, ebx, ecx, edx;
} registers;

static registers read_cpuid(unsigned leaf, unsigned subleaf) {
    registers r = {0, 0, 0, 0};
#if defined(_MSC_VER) && !defined(__clang__)
    int values[4];
    __cpuid(values, 0);
    if ((unsigned)values[0] >= leaf) {
        __cpuidex(values, (int)leaf, (int)subleaf);
        r.eax = (unsigned)values[0];
        r.ebx = (unsigned)values[1];
        r.ecx = (unsigned)values[2];
        r.edx = (unsigned)values[3];
    }
#else
    __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
#endif
    return r;
}

/* Register state that the operating system saves: XCR0, low half. */
static unsigned read_saved_state(void) {
#if defined(_MSC_VER) && !defined(__clang__)
    return (unsigned)_xgetbv(0);
#else
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
#endif
}

static int has_bits(unsigned value, unsigned bits) { return (value & bits) == bits; }

int cb_isa_available(cb_isa isa) {
    /* Bit numbers: Intel SDM volume 2, CPUID, leaves 1 and 7. */
    const unsigned leaf1_avx2 = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29; /* FMA OSXSAVE AVX F16C */
    const unsigned leaf7_avx2 = 1u << 5;
    const unsigned leaf7_avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F DQ BW VL */
    const unsigned leaf7_vnni = 1u << 11;
    const unsigned leaf7_1_avxvnni = 1u << 4;
    const unsigned leaf7_1_bf16 = 1u << 5;
    const unsigned state_ymm = 1u << 1 | 1u << 2;
    const unsigned state_zmm = state_ymm | 1u << 5 | 1u << 6 | 1u << 7;

    if (isa == CB_ISA_PORTABLE) {
        return 1;
    }
    if (isa != CB_ISA_AVX2 && isa != CB_ISA_AVXVNNI && isa != CB_ISA_AVX512 &&
        isa != CB_ISA_AVX512VNNI && isa != CB_ISA_AVX512BF16) {
        return 0;
    }
    if (!has_bits(read_cpuid(1, 0).ecx, leaf1_avx2)) {
        return 0;
    }
    const unsigned state = read_saved_state();
    const registers leaf7 = read_cpuid(7, 0);
    if (!has_bits(state, state_ymm) || !has_bits(leaf7.ebx, leaf7_avx2)) {
        return 0;
    }
    if (isa == CB_ISA_AVX2) {
        return 1;
    }
    if (isa == CB_ISA_AVXVNNI) {
        return has_bits(read_cpuid(7, 1).eax, leaf7_1_avxvnni);
    }
    if (!has_bits(state, state_zmm) || !has_bits(leaf7.ebx, leaf7_avx512)) {
        return 0;
    }
    if (isa == CB_ISA_AVX512BF16) {
        return has_bits(read_cpuid(7, 1).eax, leaf7_1_bf16);
    }
    return isa == CB_ISA_AVX512 || has_bits(leaf7.ecx, leaf7_vnni);
}

#elif defined(CB_ARM64)

#if defined(__linux__)
#include <sys/auxv.h>

static int has_dotprod(void) {
    const unsigned long hwcap_asimddp = 1ul << 20; /* arch/arm64/include/uapi/asm/hwcap.h */
    return (getauxval(AT_HWCAP) & hwcap_asimddp) != 0;
}
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int has_dotprod(void) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &value, &size, 0, 0) == 0 && value;
}
#else
static int has_dotprod(void) { return 0; }
#endif

int cb_isa_available(cb_isa isa) {
    return isa == CB_ISA_PORTABLE || isa == CB_ISA_NEON ||
           (isa == CB_ISA_DOTPROD && has_dotprod());
}

#else

int cb_isa_available(cb_isa isa) { return isa == CB_ISA_PORTABLE; }

#endif
