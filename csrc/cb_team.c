#define _DEFAULT_SOURCE /* clock_gettime with -std=c11 */

#include "cb_team.h"

#include <stdlib.h>

#include "cb_atomic.h"
#include "cb_target.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <sched.h>
#include <time.h>
#endif

#define CB_LINE 128    /* Apple's cache line; two of everyone else's */
#define CB_SPINS 10000 /* some tens of microseconds: then let another thread run */

struct cb_team {
    char before[CB_LINE];
    cb_atomic arrived;
    char between[CB_LINE - sizeof(cb_atomic)];
    cb_atomic generation;
    char after[CB_LINE - sizeof(cb_atomic)];
    cb_atomic stop;
    int threads;
};

static int64_t read_clock_ns(void) {
#if defined(_WIN32)
    LARGE_INTEGER frequency, ticks;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&ticks);
    return ticks.QuadPart / frequency.QuadPart * INT64_C(1000000000) +
           ticks.QuadPart % frequency.QuadPart * INT64_C(1000000000) / frequency.QuadPart;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
#endif
}

static void relax(int spins) {
    if (spins < CB_SPINS) {
#if defined(CB_X86)
        _mm_pause();
#elif defined(CB_ARM64) && defined(_MSC_VER)
        __yield();
#elif defined(CB_ARM64)
        __asm__ volatile("yield");
#endif
        return;
    }
#if defined(_WIN32)
    SwitchToThread();
#else
    sched_yield();
#endif
}

cb_team *cb_team_create(int threads) {
    cb_team *team = calloc(1, sizeof *team);
    if (team != NULL) {
        team->threads = threads;
    }
    return team;
}

void cb_team_destroy(cb_team *team) { free(team); }

void cb_team_stop(cb_team *team) { cb_store(&team->stop, 1); }

int cb_team_stopped(cb_team *team) { return cb_load(&team->stop) != 0; }

int cb_team_wait(cb_team *team) {
    const long generation = cb_load(&team->generation);
    if (cb_fetch_add(&team->arrived, 1) + 1 == team->threads) {
        cb_store(&team->arrived, 0);
        cb_store(&team->generation, generation + 1);
        return CB_OK;
    }
    for (int spins = 0; cb_load(&team->generation) == generation;) {
        if (cb_team_stopped(team)) {
            return CB_STOPPED;
        }
        relax(spins);
        spins += spins < CB_SPINS;
    }
    return CB_OK;
}

/* The written array goes to the back, so that results evolve from pass to pass and a
 * pass that was skipped shows in them. */
static void rotate_arrays(cb_args *args, int count) {
    void *first = args->array[0];
    for (int i = 1; i < count; ++i) {
        args->array[i - 1] = args->array[i];
    }
    args->array[count - 1] = first;
}

int cb_team_run(cb_team *team, const cb_kernel *kernel, const cb_args *args, size_t begin,
                size_t end, size_t passes, cb_run *run) {
    cb_args own = *args;
    own.team = team;
    run->checksum = 0;
    if (cb_team_wait(team) != CB_OK) {
        return CB_STOPPED;
    }
    run->start_ns = read_clock_ns();
    for (size_t pass = 0; pass < passes; ++pass) {
        if (cb_team_stopped(team)) {
            return CB_STOPPED;
        }
        run->checksum = run->checksum * 31 + kernel->pass(&own, begin, end) + 1;
        rotate_arrays(&own, kernel->rotate);
    }
    run->end_ns = read_clock_ns();
    return cb_team_wait(team);
}

cb_clock cb_measure_clock(void) {
    enum { READS = 20000 };
    cb_clock clock = {INT64_MAX, 0};
    const int64_t first = read_clock_ns();
    int64_t last = first;
    for (int i = 0; i < READS; ++i) {
        const int64_t now = read_clock_ns();
        if (now > last && now - last < clock.step_ns) {
            clock.step_ns = now - last;
        }
        last = now;
    }
    clock.read_ns = (double)(last - first) / READS;
    return clock;
}

/* barrier: what it costs to wait for each other once; nothing is moved */

static uint64_t pass_barrier(const cb_args *args, size_t begin, size_t end) {
    (void)begin;
    (void)end;
    return (uint64_t)cb_team_wait(args->team);
}

static void fill_nothing(const cb_args *args, size_t begin, size_t end) {
    (void)args;
    (void)begin;
    (void)end;
}

const cb_kernel cb_team_kernels[] = {
    {"barrier", "", CB_ISA_PORTABLE, "none", 0, 0, 1, {0, 0, 0, 0}, pass_barrier, fill_nothing, NULL},
};

const size_t cb_team_kernel_count = sizeof cb_team_kernels / sizeof *cb_team_kernels;
