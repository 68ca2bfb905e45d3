/* A team of threads that run timed passes of one kernel together.
 *
 * Threads come from the caller; each calls cb_team_run once per sample. Nothing here
 * blocks for good: a thread that waits leaves when the team is stopped.
 */
#ifndef CB_TEAM_H
#define CB_TEAM_H

#include "cb_kernels.h"

typedef struct cb_team cb_team;

enum { CB_OK = 0, CB_STOPPED = 1 };

/* When one thread ran its passes, on a clock all threads share. */
typedef struct cb_run {
    int64_t start_ns;
    int64_t end_ns;
    uint64_t checksum; /* folds the checksum of every pass, in order */
} cb_run;

/* A team of `threads` (at least one), or NULL without memory. */
cb_team *cb_team_create(int threads);
void cb_team_destroy(cb_team *team);

/* Make every wait and every run end with CB_STOPPED, now and from now on. */
void cb_team_stop(cb_team *team);
int cb_team_stopped(cb_team *team);

/* Wait until all threads of the team have come here. */
int cb_team_wait(cb_team *team);

/* Barrier, clock, `passes` passes over units begin … end-1, clock, barrier. */
int cb_team_run(cb_team *team, const cb_kernel *kernel, const cb_args *args, size_t begin,
                size_t end, size_t passes, cb_run *run);

/* The clock that runs are timed with. */
typedef struct cb_clock {
    int64_t step_ns; /* smallest step seen between two readings */
    double read_ns;  /* what a reading costs */
} cb_clock;

cb_clock cb_measure_clock(void);

#endif
