/* Shared by the programs of `runahead bench streams`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 65536

__attribute__((unused)) static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* SplitMix64. */
static uint64_t mix(uint64_t z)
{
	z += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static uint64_t next(uint64_t *state)
{
	return mix((*state)++ * 0x2545F4914F6CDD1Du + 0x1234567);
}

__attribute__((unused)) static uint64_t below(uint64_t *state, uint64_t bound)
{
	return (uint64_t)(((__uint128_t)next(state) * bound) >> 64);
}

__attribute__((unused)) static double unit(uint64_t *state)
{
	return (double)(next(state) >> 11) / 9007199254740992.0;
}

__attribute__((unused)) static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* What a worker has done. */
struct worker {
	pthread_t thread;
	uint64_t random;
	_Atomic uint64_t bytes;
	uint64_t requests, latency_ns, wrong;
	int number;
};
