/* The loops of J. D. McCalpin's STREAM, a sum, and a walk along a chain of loads, as a C
 * compiler makes them: a standard to compare cpubound's kernels with. standards.py compiles
 * this at run time.
 *
 * Threads share nothing but a barrier: each touches its own part first, on small pages,
 * and is pinned to the CPU given.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

enum { READ, COPY, SCALE, ADD, TRIAD };

typedef struct {
    pthread_barrier_t barrier;
    double *a, *b, *c; /* (elements) each */
    size_t elements;
    int threads, kernel, passes;
} job;

typedef struct {
    job *job;
    int rank, cpu;
    double start_s, end_s;
} worker;

static volatile double sink;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((noinline)) static void run_pass(int kernel, double *restrict a,
                                               double *restrict b, double *restrict c,
                                               size_t n) {
    const double scalar = 3.0;
    double sum = 0;
    switch (kernel) {
    case READ:
        for (size_t i = 0; i < n; i++) sum += a[i];
        sink = sum;
        break;
    case COPY:
        for (size_t i = 0; i < n; i++) c[i] = a[i];
        break;
    case SCALE:
        for (size_t i = 0; i < n; i++) b[i] = scalar * c[i];
        break;
    case ADD:
        for (size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
        break;
    case TRIAD:
        for (size_t i = 0; i < n; i++) a[i] = b[i] + scalar * c[i];
        break;
    }
}

static void *work(void *argument) {
    worker *w = argument;
    job *j = w->job;
    const size_t begin = j->elements * (size_t)w->rank / (size_t)j->threads;
    const size_t n = j->elements * (size_t)(w->rank + 1) / (size_t)j->threads - begin;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(w->cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (size_t i = begin; i < begin + n; i++) {
        j->a[i] = 1.0;
        if (j->kernel == READ) continue;
        j->b[i] = 2.0;
        j->c[i] = 0.5;
    }
    run_pass(j->kernel, j->a + begin, j->b + begin, j->c + begin, n);
    pthread_barrier_wait(&j->barrier);
    w->start_s = now_s();
    for (int pass = 0; pass < j->passes; pass++) {
        run_pass(j->kernel, j->a + begin, j->b + begin, j->c + begin, n);
    }
    w->end_s = now_s();
    return NULL;
}

/* Seconds of one pass, from the first start to the last end; negative without memory.
 * `cpus` holds one CPU per thread, at most 1024. */
double stream_seconds(int kernel, int threads, const int *cpus, size_t elements, int passes) {
    static worker workers[1024];
    static pthread_t ids[1024];
    const size_t bytes = elements * sizeof(double) + 8192;
    job j = {.elements = elements, .threads = threads, .kernel = kernel, .passes = passes};
    char *memory =
        mmap(NULL, 3 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return -1;
    madvise(memory, 3 * bytes, MADV_NOHUGEPAGE);
    /* Arrays begin at different places in their pages. */
    j.a = (double *)memory;
    j.b = (double *)(memory + bytes / 4096 * 4096 + 1088);
    j.c = (double *)(memory + 2 * (bytes / 4096 * 4096 + 1088));
    pthread_barrier_init(&j.barrier, NULL, (unsigned)threads);
    for (int rank = 0; rank < threads; rank++) {
        workers[rank] = (worker){.job = &j, .rank = rank, .cpu = cpus[rank]};
        pthread_create(&ids[rank], NULL, work, &workers[rank]);
    }
    double first = 0, last = 0;
    for (int rank = 0; rank < threads; rank++) {
        pthread_join(ids[rank], NULL);
        if (rank == 0 || workers[rank].start_s < first) first = workers[rank].start_s;
        if (rank == 0 || workers[rank].end_s > last) last = workers[rank].end_s;
    }
    pthread_barrier_destroy(&j.barrier);
    munmap(memory, 3 * bytes);
    return (last - first) / passes;
}

/* Seconds of a load that needs the one before it; negative without memory. Each line holds
 * the place of the line after it in one random cycle (Sattolo's shuffle). */
double chase_seconds(int cpu, size_t bytes, size_t loads) {
    enum { WORDS = 8 };
    const size_t lines = bytes / (WORDS * sizeof(size_t));
    cpu_set_t old, set;
    size_t *next = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (next == MAP_FAILED) return -1;
    madvise(next, bytes, MADV_NOHUGEPAGE);
    sched_getaffinity(0, sizeof old, &old);
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    unsigned long long random = 1;
    for (size_t i = 0; i < lines; i++) next[WORDS * i] = WORDS * i;
    for (size_t i = lines - 1; i > 0; i--) {
        random = 6364136223846793005u * random + 1442695040888963407u;
        const size_t j = WORDS * ((random >> 33) % i), old_next = next[WORDS * i];
        next[WORDS * i] = next[j];
        next[j] = old_next;
    }
    size_t at = 0;
    for (size_t i = 0; i < lines && i < loads; i++) at = next[at];
    const double start_s = now_s();
    for (size_t i = 0; i < loads; i++) at = next[at];
    const double seconds = now_s() - start_s;
    sink = (double)at;
    sched_setaffinity(0, sizeof old, &old);
    munmap(next, bytes);
    return seconds / (double)loads;
}
