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

static uint64_t now_ns(void)
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

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* What a worker has done, and when counting begins and ends. */
struct worker {
	pthread_t thread;
	uint64_t random;
	_Atomic uint64_t bytes;
	uint64_t requests, latency_ns, wrong;
	int number;
};

static _Atomic int counting, stopping;

/* Lets the workers run: `warm_s` uncounted, then `run_s`; prints what they
 * did. Requests that are under way at the end are not waited for beyond
 * their next block. */
static int measure(struct worker *workers, int count, double warm_s, double run_s,
		   void *(*work)(void *), uint64_t seed)
{
	for (int i = 0; i < count; i++) {
		workers[i].number = i;
		workers[i].random = mix(seed * 1000003 + (uint64_t)i);
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("pthread_create");
	}
	usleep((useconds_t)(warm_s * 1e6));
	uint64_t before = 0, after = 0, total = 0, requests = 0, latency = 0, wrong = 0;
	for (int i = 0; i < count; i++)
		before += workers[i].bytes;
	counting = 1;
	uint64_t start = now_ns();
	usleep((useconds_t)(run_s * 1e6));
	for (int i = 0; i < count; i++)
		after += workers[i].bytes;
	uint64_t end = now_ns();
	counting = 0;
	stopping = 1;
	for (int i = 0; i < count; i++)
		pthread_join(workers[i].thread, NULL);
	for (int i = 0; i < count; i++) {
		total += workers[i].bytes;
		requests += workers[i].requests;
		latency += workers[i].latency_ns;
		wrong += workers[i].wrong;
	}
	printf("total %llu\nbytes %llu\nns %llu\nrequests %llu\nlatency_ns %llu\nwrong %llu\n",
	       (unsigned long long)total, (unsigned long long)(after - before), (unsigned long long)(end - start),
	       (unsigned long long)requests,
	       (unsigned long long)(requests ? latency / requests : 0), (unsigned long long)wrong);
	return wrong ? 2 : 0;
}

/* A request has been answered. */
static void answered(struct worker *me, uint64_t began)
{
	if (counting) {
		me->requests++;
		me->latency_ns += now_ns() - began;
	}
}
