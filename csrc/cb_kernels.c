#include "cb_kernels.h"

size_t cb_kernel_count(void) {
    return cb_stream_kernel_count + cb_gemv_kernel_count + cb_team_kernel_count;
}

const cb_kernel *cb_kernel_at(size_t index) {
    if (index < cb_stream_kernel_count) {
        return &cb_stream_kernels[index];
    }
    index -= cb_stream_kernel_count;
    if (index < cb_gemv_kernel_count) {
        return &cb_gemv_kernels[index];
    }
    index -= cb_gemv_kernel_count;
    return index < cb_team_kernel_count ? &cb_team_kernels[index] : NULL;
}

size_t cb_array_bytes(const cb_kernel *kernel, int array, size_t units, size_t columns) {
    const cb_format *format = kernel->format;
    if (array >= kernel->arrays) {
        return 0;
    }
    if (format == NULL) {
        return units * sizeof(double);
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
