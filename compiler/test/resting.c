/* The helper of a program that has no loops to run rests: it looks and sweeps seldom, until
 * there is a hint. Each sweep has small nests call again that have called in vain. On a clock
 * that goes on only while it waits. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long pretend_syscall(long number, ...);
static int pretend_clock(clockid_t clock, struct timespec *time);
#define syscall pretend_syscall
#define clock_gettime pretend_clock
#define now_ns pretend_now
#define storage_reads pretend_reads
#define look_at_maps pretend_look
#define sweep pretend_sweep
#define can_see_end pretend_see
#define start_thread pretend_start
#define is_alone pretend_alone
#include "../runtime/helper.c"
#undef now_ns

#include "check.h"

enum { TOOK_NS = 100000 }; /* each sweep, of processor time */
static const uint64_t SECOND_NS = 1000000000ull, REST_S = 10;

static uint64_t clock_ns = 3600 * 1000000000ull, began_ns, waits, sweeps, looks;
static uint64_t processor_ns, sweeps_at_hint, waits_since_hint;
static bool has_hinted;
static jmp_buf over;

uint64_t pretend_now(void) { return clock_ns; }
uint64_t pretend_reads(void) { return 0; }
void pretend_look(void) { ++looks; }
void pretend_sweep(uint64_t pages_max) { sweeps += pages_max > 0; }
bool pretend_see(void) { return true; }
bool pretend_start(void *(*body)(void *), size_t bytes) { return body && bytes; }
bool pretend_alone(void) { return false; }

static int pretend_clock(clockid_t clock, struct timespec *time) {
    CHECK(clock == CLOCK_THREAD_CPUTIME_ID);
    processor_ns += TOOK_NS;
    *time = (struct timespec){.tv_nsec = (long)processor_ns};
    return 0;
}

/* Waits as it is told; the program gives a hint when it has given none for long. */
static long pretend_syscall(long number, ...) {
    if (number != SYS_futex)
        return 0;
    va_list arguments;
    va_start(arguments, number);
    CHECK(va_arg(arguments, _Atomic uint32_t *) == &ra.asleep);
    CHECK(va_arg(arguments, int) == FUTEX_WAIT_PRIVATE && va_arg(arguments, int) == 1);
    const uint64_t wait = (uint64_t)va_arg(arguments, struct timespec *)->tv_nsec;
    va_end(arguments);
    if (has_hinted) {
        CHECK(wait <= WAIT_NS_MAX);
        if (!atomic_load(&ra.active) || sweeps > sweeps_at_hint)
            longjmp(over, 1);
        CHECK(++waits_since_hint <= 2);
    }
    ++waits;
    clock_ns += wait;
    if (!has_hinted && clock_ns - began_ns >= (1 + REST_S) * SECOND_NS) {
        has_hinted = true;
        sweeps_at_hint = sweeps;
        count(&ra.count.hinted, 1);
    }
    return 0;
}

/* Of a small nest that has called in vain, and of a walk. */
static struct ra_site jumps, walk = {.steps = 2};

static void rest(bool is_active) {
    jumps.span = walk.span = 1 << 30;
    waits = sweeps = looks = waits_since_hint = 0;
    has_hinted = false;
    began_ns = clock_ns;
    atomic_store(&ra.active, is_active);
    count(&ra.count.hinted, 1);
    if (setjmp(over) == 0)
        helper(NULL);
    const uint64_t busy = SECOND_NS / (is_active ? QUIET_NS_MIN : WAIT_NS_MAX);
    CHECK(waits >= busy && waits <= busy + REST_S * SECOND_NS / RESTING_WAIT_NS + 4);
    const uint64_t seldom = REST_S * SECOND_NS / (TOOK_NS * (RESTING_SWEEP_SHARE - 1));
    CHECK(sweeps <= (is_active ? SECOND_NS / SWEEP_NS + seldom + 4 : 0));
    CHECK(!is_active || sweeps_at_hint >= SECOND_NS / SWEEP_NS / 2 + seldom / 2);
    CHECK(looks == sweeps);
    CHECK(jumps.span == (is_active ? 0 : 1 << 30) && walk.span == 1 << 30);
}

int main(void) {
    ra.ring = calloc(RING_ENTRIES, sizeof(struct entry));
    CHECK(ra.ring);
    ra.memory = 64 << 20;
    CHECK(list_site(&jumps) && list_site(&walk));
    rest(true);
    rest(false);
    puts("the helper of an idle program rests");
    return 0;
}
