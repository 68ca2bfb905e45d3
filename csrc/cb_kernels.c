#include "cb_kernels.h"

typedef struct family {
    const cb_kernel *kernels;
    const size_t *count;
} family;

static const family families[] = {
    {cb_stream_kernels, &cb_stream_kernel_count},
    {cb_latency_kernels, &cb_latency_kernel_count},
    {cb_peak_kernels, &cb_peak_kernel_count},
    {cb_gemv_float_kernels, &cb_gemv_float_kernel_count},
    {cb_gemv_quant_kernels, &cb_gemv_quant_kernel_count},
    {cb_team_kernels, &cb_team_kernel_count},
};

enum { FAMILIES = sizeof families / sizeof *families };

size_t cb_kernel_count(void) {
    size_t count = 0;
    for (int i = 0; i < FAMILIES; ++i) {
        count += *families[i].count;
    }
    return count;
}

const cb_kernel *cb_kernel_at(size_t index) {
    for (int i = 0; i < FAMILIES; ++i) {
        if (index < *families[i].count) {
            return &families[i].kernels[index];
        }
        index -= *families[i].count;
    }
    return NULL;
}

size_t cb_array_bytes(const cb_kernel *kernel, int array, size_t units, size_t columns) {
    const cb_format *format = kernel->format;
    if (array >= kernel->arrays) {
        return 0;
    }
    if (format == NULL) {
        return units * kernel->unit_bytes;
    }
    switch (array) {
    case 0:
        return units * (columns / format->block_elements * format->block_bytes);
    case 1:
        return columns / format->activation_elements * format->activation_bytes;
    default:
        return units * sizeof(float);
    }
}
