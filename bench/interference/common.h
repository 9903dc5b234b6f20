/* What the interference programs share: a clock, samples of call latencies,
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

/* Latencies of the measured calls. The memory is touched in advance, so that
 * recording one causes no fault. */
struct samples {
	uint64_t *ns;
	size_t count, max;
};

static inline struct samples samples_new(size_t max)
{
	struct samples s = { NULL, 0, max };
	s.ns = mmap(NULL, max * sizeof *s.ns, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (s.ns == MAP_FAILED)
		fail("memory for samples");
	return s;
}

static inline void samples_add(struct samples *s, uint64_t ns)
{
	if (s->count < s->max)
		s->ns[s->count++] = ns;
}

/* Appends the samples to a file, as 64-bit words. */
static inline void samples_write(const struct samples *s, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	const char *from = (const char *)s->ns;
	size_t len = s->count * sizeof *s->ns;
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
