/* One peak kernel; included once for each by cb_peak.c.
 *
 * The including file defines CB_NAME; CB_SETUP, which declares the operands; CB_VECTOR of
 * lanes CB_LANE with CB_ZERO and CB_STORE(lanes, vector); CB_STEP(sum), which does CB_MACS
 * multiply-adds in each lane; CB_SUMS(DO), DO for as many sums as hide the latency of a
 * step; and CB_UNIT, multiply-adds per unit, for every instruction set alike.
 */

#define CB_DECLARE(k) CB_VECTOR sum##k = CB_ZERO;
#define CB_ADVANCE(k) CB_STEP(sum##k);
#define CB_COLLECT(k) \
    CB_STORE(lanes, sum##k); \
    for (int lane = 0; lane < LANES; ++lane) { \
        total += (uint64_t)lanes[lane]; \
    }
#define CB_COUNT(k) +1

static uint64_t CB_NAME(const cb_args *args, size_t begin, size_t end) {
    enum { LANES = sizeof(CB_VECTOR) / sizeof(CB_LANE), STEPS = CB_UNIT / (LANES * CB_MACS) };
    enum { ROUNDS = STEPS / (CB_SUMS(CB_COUNT)) };
    CB_LANE lanes[LANES];
    uint64_t total = 0;
    (void)args;
    CB_SETUP
    CB_SUMS(CB_DECLARE)
    for (size_t i = begin * ROUNDS; i < end * ROUNDS; ++i) {
        CB_SUMS(CB_ADVANCE)
    }
    CB_SUMS(CB_COLLECT)
    return total;
}

#undef CB_DECLARE
#undef CB_ADVANCE
#undef CB_COLLECT
#undef CB_COUNT
#undef CB_NAME
#undef CB_SETUP
#undef CB_VECTOR
#undef CB_LANE
#undef CB_ZERO
#undef CB_STORE
#undef CB_STEP
#undef CB_MACS
#undef CB_SUMS
#undef CB_UNIT
