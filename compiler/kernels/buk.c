/* BUK (NAS IS): bucket sort of size integer keys of at most 2^19, ranked ten
 * times, as in the specification; then the keys are put in order by their ranks. */
#include "kernel.h"

enum { KEYS_MAX = 1 << 19, ROUNDS = 10 };

static size_t kernel_bytes(long n) { return 3 * ((size_t)n * 4 + 4096) + KEYS_MAX * 4 + 4096; }

static int *key, *rank, *sorted, *density;

static void arrays(long n) {
    key = kernel_array((size_t)n * 4);
    rank = kernel_array((size_t)n * 4);
    sorted = kernel_array((size_t)n * 4);
    density = kernel_array((size_t)KEYS_MAX * 4);
}

static void kernel_init(long n) {
    uint64_t seed = KERNEL_SEED;
    arrays(n);
    for (long i = 0; i < n; ++i) {
        double x = kernel_random(&seed, KERNEL_A);
        x += kernel_random(&seed, KERNEL_A);
        x += kernel_random(&seed, KERNEL_A);
        x += kernel_random(&seed, KERNEL_A);
        key[i] = (int)(KEYS_MAX / 4 * x);
        rank[i] = sorted[i] = 0;
    }
}

static void rank_keys(const int *restrict k, int *restrict r, int *restrict d, long n) {
    for (long i = 0; i < KEYS_MAX; ++i)
        d[i] = 0;
    for (long i = 0; i < n; ++i)
        d[k[i]]++;
    int before = 0;
    for (long i = 0; i < KEYS_MAX; ++i) {
        int own = d[i];
        d[i] = before;
        before += own;
    }
    for (long i = 0; i < n; ++i)
        r[i] = d[k[i]]++;
}

static void kernel_run(long n) {
    arrays(n);
    for (int round = 0; round < ROUNDS; ++round) {
        key[round] = round;
        key[round + ROUNDS] = KEYS_MAX - 1 - round;
        rank_keys(key, rank, density, n);
        printf("ranks %d %d %d\n", rank[round], rank[n / 2], rank[n - 1]);
    }
    /* The sequence is put in order, and looked at: full verification. */
    for (long i = 0; i < n; ++i)
        sorted[rank[i]] = key[i];
    long wrong = 0;
    for (long i = 1; i < n; ++i)
        wrong += sorted[i - 1] > sorted[i];
    printf("%s\n", wrong == 0 ? "VERIFIED" : "WRONG");
}
