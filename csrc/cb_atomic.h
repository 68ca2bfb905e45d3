/* The few atomic operations a barrier needs, on C11 atomics or on MSVC's intrinsics. */
#ifndef CB_ATOMIC_H
#define CB_ATOMIC_H

#if defined(_MSC_VER) && !defined(__clang__)

#include <intrin.h>

typedef volatile long cb_atomic;

static inline long cb_load(cb_atomic *a) { return _InterlockedOr(a, 0); }
static inline void cb_store(cb_atomic *a, long value) { _InterlockedExchange(a, value); }
static inline long cb_fetch_add(cb_atomic *a, long n) { return _InterlockedExchangeAdd(a, n); }

#else

#include <stdatomic.h>

typedef atomic_long cb_atomic;

static inline long cb_load(cb_atomic *a) {
    return atomic_load_explicit(a, memory_order_acquire);
}

static inline void cb_store(cb_atomic *a, long value) {
    atomic_store_explicit(a, value, memory_order_release);
}

static inline long cb_fetch_add(cb_atomic *a, long n) {
    return atomic_fetch_add_explicit(a, n, memory_order_acq_rel);
}

#endif

#endif
