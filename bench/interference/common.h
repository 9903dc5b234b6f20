/* What the interference programs share: a clock, samples of what calls took,
 * and reads of a cold file of records, which stall.
 *
 * The record file: record i is RECORD_BYTES long and its 64-bit word j is
 * mix(i) + j, so that a record put together from two is noticed.
 */
#ifndef COMMON_H
#define COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_BYTES = 16384, WORDS = RECORD_BYTES / 8, PAGE = 4096 };

static inline void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void pause_us(long us)
{
	struct timespec t = { 0, us * 1000 };
	nanosleep(&t, NULL);
}

static inline uint64_t mix(uint64_t z) /* SplitMix64's output function */
{
	z += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

/* A system call that no library sees, so that nobody who hooks a library's
 * calls has a part in the measuring. */
static inline long raw(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return number;
}

/* One call: how long it took and of what that consists. What is left was taken
 * by the machine below (a virtual machine's host), or by interrupts. */
struct sample {
	uint64_t whole_ns;
	uint64_t computed_ns; /* on a processor */
	uint64_t queued_ns; /* runnable, while others had the processors */
	uint64_t slept_ns; /* waiting for something else */
};

/* A thread at one moment. */
struct mark {
	uint64_t now, computed, queued;
	long sleeps;
};

/* /proc/thread-self/schedstat of the thread that opens it. Without it (-1) what
 * a thread that slept was then queued for counts as slept. */
static inline int schedstat_open(void)
{
	return open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

/* All of a mark but its moment. */
static inline struct mark mark_of(int schedstat)
{
	struct mark m = { 0, 0, 0, 0 };
	struct timespec t = { 0, 0 };
	struct rusage usage;
	char text[128];
	long len = raw(SYS_pread64, schedstat, (long)text, sizeof text - 1, 0);
	if (len > 0) {
		char *second;
		text[len] = 0;
		strtoull(text, &second, 10);
		m.queued = strtoull(second, NULL, 10);
	}
	raw(SYS_getrusage, RUSAGE_THREAD, (long)&usage, 0, 0);
	m.sleeps = usage.ru_nvcsw;
	raw(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&t, 0, 0);
	m.computed = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	return m;
}

/* Before a call. */
static inline struct mark mark_now(int schedstat)
{
	struct mark m = mark_of(schedstat);
	m.now = now_ns();
	return m;
}

static inline uint64_t at_most(uint64_t value, uint64_t most)
{
	return value < most ? value : most;
}

/* After it. What is neither computed nor queued was slept if the thread gave
 * its processor away by itself. */
static inline struct sample sample_since(const struct mark *from, int schedstat)
{
	struct sample s = { now_ns() - from->now, 0, 0, 0 };
	struct mark to = mark_of(schedstat);
	s.computed_ns = at_most(to.computed - from->computed, s.whole_ns);
	s.queued_ns = at_most(to.queued - from->queued, s.whole_ns - s.computed_ns);
	if (to.sleeps > from->sleeps)
		s.slept_ns = s.whole_ns - s.computed_ns - s.queued_ns;
	return s;
}

/* A test of the benchmark: one call in the middle of a run sleeps. */
static inline void be_late(long call, long middle)
{
	if (call != middle)
		return;
	const char *us = getenv("INTERFERENCE_LATE_US");
	if (us)
		pause_us(atol(us));
}

/* The measured calls. The memory is touched in advance, so that recording one
 * causes no fault. */
struct samples {
	struct sample *of;
	size_t count, max;
};

static inline struct samples samples_new(size_t max)
{
	struct samples s = { NULL, 0, max };
	s.of = mmap(NULL, max * sizeof *s.of, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (s.of == MAP_FAILED)
		fail("memory for samples");
	return s;
}

static inline void samples_add(struct samples *s, struct sample one)
{
	if (s->count < s->max)
		s->of[s->count++] = one;
}

/* Appends the samples to a file, four 64-bit words each. */
static inline void samples_write(const struct samples *s, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	const char *from = (const char *)s->of;
	size_t len = s->count * sizeof *s->of;
	if (fd < 0)
		fail(path);
	while (len > 0) {
		ssize_t n = write(fd, from, len);
		if (n <= 0)
			fail(path);
		from += n;
		len -= (size_t)n;
	}
	close(fd);
}

/* Reads of one page each at places that only the program knows. */
struct reader {
	int fd;
	uint64_t pages, next, sum;
};

static inline struct reader reader_open(const char *path)
{
	struct reader r = { open(path, O_RDONLY | O_CLOEXEC), 0, 0, 0 };
	off_t size = r.fd < 0 ? -1 : lseek(r.fd, 0, SEEK_END);
	if (size < PAGE)
		fail(path);
	r.pages = (uint64_t)size / PAGE;
	return r;
}

static inline void reader_read(struct reader *r)
{
	static _Thread_local uint64_t page[PAGE / 8];
	off_t at = (off_t)(mix(r->next++) % r->pages) * PAGE;
	if (pread(r->fd, page, PAGE, at) != PAGE)
		fail("read");
	for (int i = 0; i < PAGE / 8; i++)
		r->sum = r->sum * 31 + page[i];
}

#endif
