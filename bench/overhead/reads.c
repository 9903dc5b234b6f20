/* What a read of 4 KiB costs that waits for nothing: time of batches of calls.
 * usage: reads KIND FILE BATCHES SAMPLES
 *   read       read through the file from start to end, again and again
 *   pread      pread at random pages of the file through one descriptor
 *   same       pread of one page through one descriptor
 *   many       pread of random pages through 256 descriptors in turn
 * The file must be in memory. Samples are 64-bit words: nanoseconds of a batch
 * of 1000 calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 1000, DESCRIPTORS = 256 };

static uint64_t seed = 1;

static uint64_t next(void) /* xorshift64: a few cycles, the same on both sides */
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "reads: %s: %s\n", what, strerror(errno));
	exit(1);
}

int main(int argc, char **argv)
{
	static uint64_t page[PAGE / 8];
	static int fds[DESCRIPTORS];
	if (argc != 5)
		return 2;
	const char *kind = argv[1];
	int many = strcmp(kind, "many") == 0 ? DESCRIPTORS : 1;
	int sequential = strcmp(kind, "read") == 0, same = strcmp(kind, "same") == 0;
	long batches = atol(argv[3]);
	uint64_t *ns = calloc((size_t)batches, sizeof *ns), sum = 0;
	if (!ns)
		fail("memory");
	for (int i = 0; i < many; i++)
		if ((fds[i] = open(argv[2], O_RDONLY)) < 0)
			fail(argv[2]);
	off_t size = lseek(fds[0], 0, SEEK_END);
	uint64_t pages = (uint64_t)size / PAGE;
	lseek(fds[0], 0, SEEK_SET);
	for (long b = 0; b < batches; b++) {
		uint64_t start = now_ns();
		for (int i = 0; i < BATCH; i++) {
			ssize_t n;
			if (sequential) {
				n = read(fds[0], page, PAGE);
				if (n == 0) {
					lseek(fds[0], 0, SEEK_SET);
					n = read(fds[0], page, PAGE);
				}
			} else {
				uint64_t at = same ? 0 : next() % pages;
				n = pread(fds[i % many], page, PAGE, (off_t)at * PAGE);
			}
			if (n != PAGE)
				fail("short read");
			sum += page[0];
		}
		ns[b] = now_ns() - start;
	}
	FILE *out = fopen(argv[4], "w");
	if (!out || fwrite(ns, sizeof *ns, (size_t)batches, out) != (size_t)batches || fclose(out))
		fail(argv[4]);
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
