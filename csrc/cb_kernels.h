/* The kernel table: every kernel, for every instruction set, with its traffic.
 *
 * A kernel works on units begin … end-1: elements of its arrays (stream kernels), cache lines
 * (latency), rows of a matrix (GEMV) or turns of a loop (peak). One call over a thread's units
 * is that thread's part of a pass.
 * Kernels are called only through this table, so that no compiler can see through a
 * repetition of passes.
 */
#ifndef CB_KERNELS_H
#define CB_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "cb_cpu.h"

#define CB_MAX_ARRAYS 3

struct cb_team;

typedef struct cb_args {
    void *array[CB_MAX_ARRAYS]; /* stream: the written array first; GEMV: weights, activations, y */
    double scalar;              /* scale, triad */
    size_t columns;             /* GEMV: weights per row, a multiple of the block */
    struct cb_team *team;       /* set by the driver */
} cb_args;

/* Run the units once; return a checksum of what was read or written. */
typedef uint64_t (*cb_pass_fn)(const cb_args *args, size_t begin, size_t end);

/* Write the data that the units read (for GEMV the weights only). */
typedef void (*cb_fill_fn)(const cb_args *args, size_t begin, size_t end);

/* What a pass moves per element, as the code asks for it. A weight is an element. */
typedef struct cb_traffic {
    double read_bytes;
    double write_bytes;
    double write_allocate_bytes; /* read by the hardware before a temporal store */
    double flops;                /* operations; a multiply-add is two, in integers too */
} cb_traffic;

/* How a matrix and the vector it is multiplied with are stored. */
typedef struct cb_format {
    size_t block_elements;
    size_t block_bytes;
    size_t activation_elements;
    size_t activation_bytes;
    /* Store n activations (n a multiple of activation_elements) from x. */
    void (*quantize)(const float *x, void *activations, size_t n);
} cb_format;

typedef struct cb_kernel {
    const char *name;
    const char *variant; /* "" or what sets it apart from its namesake */
    cb_isa isa;
    const char *dtype;
    int arrays;        /* how many of args->array it uses */
    size_t unit_bytes; /* of each array; 0: without arrays, or the format says */
    int rotate;        /* after a pass the written array becomes the last of this many */
    cb_traffic traffic;
    cb_pass_fn pass;
    cb_fill_fn fill;
    const cb_format *format; /* GEMV only, else NULL */
} cb_kernel;

size_t cb_kernel_count(void);
const cb_kernel *cb_kernel_at(size_t index);

/* Bytes of args->array[array] that a run over units 0 … units-1 touches. */
size_t cb_array_bytes(const cb_kernel *kernel, int array, size_t units, size_t columns);

/* The family tables, each at the end of its file. */
extern const cb_kernel cb_stream_kernels[];
extern const size_t cb_stream_kernel_count;
extern const cb_kernel cb_latency_kernels[];
extern const size_t cb_latency_kernel_count;
extern const cb_kernel cb_peak_kernels[];
extern const size_t cb_peak_kernel_count;
extern const cb_kernel cb_gemv_float_kernels[];
extern const size_t cb_gemv_float_kernel_count;
extern const cb_kernel cb_gemv_quant_kernels[];
extern const size_t cb_gemv_quant_kernel_count;
extern const cb_kernel cb_team_kernels[];
extern const size_t cb_team_kernel_count;

#endif
