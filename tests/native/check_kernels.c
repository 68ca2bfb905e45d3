/* Hold every kernel that can run here against the portable one of the same name, and run
 * a team of threads. Needs neither Python nor an operating system's files, so that it also
 * runs under an emulator and under sanitizers. Prints one line per kernel; exits 1 if one
 * is wrong.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cb_kernels.h"
#include "cb_team.h"

enum { UNITS = 301, COLUMNS = 1280, THREADS = 3, PASSES = 20 };

typedef struct {
    cb_args args;
    void *raw[CB_MAX_ARRAYS];
    size_t bytes[CB_MAX_ARRAYS];
} operands;

/* Arrays filled as the kernel says, at addresses that no vector register is aligned to. */
static operands make_operands(const cb_kernel *kernel) {
    operands o;
    float x[COLUMNS];
    memset(&o, 0, sizeof o);
    o.args.columns = COLUMNS;
    o.args.scalar = 3.0;
    for (int k = 0; k < kernel->arrays; ++k) {
        o.bytes[k] = cb_array_bytes(kernel, k, UNITS, COLUMNS);
        o.raw[k] = calloc(1, o.bytes[k] + 8);
        o.args.array[k] = (char *)o.raw[k] + 8;
    }
    kernel->fill(&o.args, 0, UNITS);
    if (kernel->format != NULL) {
        for (int i = 0; i < COLUMNS; ++i) {
            x[i] = (float)(i * 37 % 101) / 50.0f - 1.0f;
        }
        kernel->format->quantize(x, o.args.array[1], COLUMNS);
    } else if (kernel->unit_bytes == sizeof(double) && strcmp(kernel->name, "read") != 0) {
        for (int k = 0; k < kernel->arrays; ++k) {
            double *values = o.args.array[k];
            for (int i = 0; i < UNITS; ++i) {
                values[i] = (i * 31 + k * 17) % 97 / 7.0;
            }
        }
    }
    return o;
}

static void free_operands(operands *o) {
    for (int k = 0; k < CB_MAX_ARRAYS; ++k) {
        free(o->raw[k]);
    }
}

static const cb_kernel *portable_twin(const cb_kernel *kernel) {
    for (size_t i = 0; i < cb_kernel_count(); ++i) {
        const cb_kernel *other = cb_kernel_at(i);
        if (other->isa == CB_ISA_PORTABLE && strcmp(other->name, kernel->name) == 0) {
            return other;
        }
    }
    return NULL;
}

/* Sums in float32 may differ in their last bits; all else agrees to the bit. */
static int rows_agree(const operands *a, const operands *b) {
    const float *x = a->args.array[2], *y = b->args.array[2];
    for (int row = 0; row < UNITS; ++row) {
        if (!(fabsf(x[row] - y[row]) <= 1e-4f * (fabsf(y[row]) + 1.0f))) {
            printf("  row %d: %g, portable %g\n", row, x[row], y[row]);
            return 0;
        }
    }
    return 1;
}

static int agrees_with_portable(const cb_kernel *kernel) {
    static const size_t bounds[][2] = {{0, 0},  {0, 1},   {1, 4},    {3, 12},
                                       {1, 66}, {5, 300}, {0, UNITS}};
    const cb_kernel *twin = portable_twin(kernel);
    operands own = make_operands(kernel), reference = make_operands(twin);
    int good = 1;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; ++i) {
        const uint64_t a = kernel->pass(&own.args, bounds[i][0], bounds[i][1]);
        const uint64_t b = twin->pass(&reference.args, bounds[i][0], bounds[i][1]);
        good = good && (kernel->format != NULL || a == b);
    }
    if (kernel->format != NULL) {
        good = good && rows_agree(&own, &reference);
    } else {
        for (int k = 0; k < kernel->arrays; ++k) {
            good = good && memcmp(own.args.array[k], reference.args.array[k], own.bytes[k]) == 0;
        }
    }
    free_operands(&own);
    free_operands(&reference);
    return good;
}

/* A peak kernel's checksum is the number of multiply-adds it did. */
static int does_its_work(const cb_kernel *kernel) {
    cb_args args;
    memset(&args, 0, sizeof args);
    return kernel->traffic.flops == 0 ||
           (double)kernel->pass(&args, 0, UNITS) == UNITS * kernel->traffic.flops / 2;
}

/* Lines go round: every pass ends where it began. */
static int goes_round(const cb_kernel *kernel) {
    operands o = make_operands(kernel);
    const uint64_t ends = kernel->pass(&o.args, 0, UNITS) + kernel->pass(&o.args, 0, UNITS);
    free_operands(&o);
    return ends == 0;
}

static int gives_the_right_result(const cb_kernel *kernel) {
    if (kernel->arrays == 0) {
        return does_its_work(kernel);
    }
    return strcmp(kernel->name, "latency") == 0 ? goes_round(kernel)
                                                : agrees_with_portable(kernel);
}

typedef struct {
    cb_team *team;
    const cb_kernel *kernel;
    const cb_args *args;
    size_t begin, end;
    cb_run run;
    int status;
} member;

static void *run_member(void *argument) {
    member *m = argument;
    m->status = cb_team_run(m->team, m->kernel, m->args, m->begin, m->end, PASSES, &m->run);
    return NULL;
}

static int team_runs(const cb_kernel *kernel) {
    operands o = make_operands(kernel);
    cb_team *team = cb_team_create(THREADS);
    pthread_t threads[THREADS];
    member members[THREADS];
    int good = 1;
    for (int rank = 0; rank < THREADS; ++rank) {
        members[rank] = (member){.team = team,
                                 .kernel = kernel,
                                 .args = &o.args,
                                 .begin = (size_t)(UNITS * rank / THREADS),
                                 .end = (size_t)(UNITS * (rank + 1) / THREADS)};
        pthread_create(&threads[rank], NULL, run_member, &members[rank]);
    }
    for (int rank = 0; rank < THREADS; ++rank) {
        pthread_join(threads[rank], NULL);
        good = good && members[rank].status == CB_OK;
        good = good && members[rank].run.end_ns >= members[rank].run.start_ns;
    }
    cb_team_destroy(team);
    free_operands(&o);
    return good;
}

static int stop_frees_a_waiting_thread(void) {
    const cb_kernel *barrier = &cb_team_kernels[0];
    cb_args args = {{NULL, NULL, NULL}, 0, 0, NULL};
    cb_team *team = cb_team_create(2);
    member alone = {.team = team, .kernel = barrier, .args = &args};
    pthread_t thread;
    pthread_create(&thread, NULL, run_member, &alone);
    cb_team_stop(team);
    pthread_join(thread, NULL);
    cb_team_destroy(team);
    return alone.status == CB_STOPPED;
}

int main(void) {
    int failures = 0;
    for (size_t i = 0; i < cb_kernel_count(); ++i) {
        const cb_kernel *kernel = cb_kernel_at(i);
        if (!cb_isa_available(kernel->isa)) {
            continue;
        }
        const int good = gives_the_right_result(kernel) && team_runs(kernel);
        printf("%s %s %s %s\n", good ? "good" : "WRONG", kernel->name, cb_isa_name(kernel->isa),
               kernel->variant);
        failures += !good;
    }
    const int freed = stop_frees_a_waiting_thread();
    printf("%s stop\n", freed ? "good" : "WRONG");
    return failures || !freed;
}
