/* A large heap that is worked on all the time, and a page fault that waits for
 * storage once in a while: what copies cost where they can save hardly
 * anything.
 *
 * usage: heap FILE MEGABYTES FAULTS REPORT
 *
 * To REPORT goes how long the work takes with a fault, relative to the same work
 * without, in turn: from one run to the next, the memory that the heap happens
 * to get makes a difference of a factor of two, and machines change their speed
 * from one tenth of a second to the next. A copy that runs on slows both, so what
 * it takes of the memory's time is not seen here. After it, the seconds of all
 * steps. Prints a sum over what was found.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

/* A step, which begins with its fault, is some 4 ms. The first ones are not
 * measured: on some machines the first touches after the memory was filled take
 * half as long again. */
enum { PAGE = 4096, STORES = 100000, FIRST = 50 };

static uint64_t state = 88172645463325252u;

static uint64_t random_number(void)
{
	state ^= state << 13, state ^= state >> 7;
	return state ^= state << 17;
}

static double clock_s(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	struct stat stat;
	if (argc != 5)
		return 2;
	size_t bytes = (size_t)atol(argv[2]) << 20, pages = bytes / PAGE;
	int fd = open(argv[1], O_RDONLY);
	FILE *report = fopen(argv[4], "w");
	unsigned char *heap = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || !report || heap == MAP_FAILED || fstat(fd, &stat) != 0 || stat.st_size < PAGE) {
		perror(argv[1]);
		return 1;
	}
	madvise(heap, bytes, MADV_NOHUGEPAGE);
	memset(heap, 1, bytes);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	const unsigned char *map = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	madvise((void *)map, (size_t)stat.st_size, MADV_RANDOM);
	long faults = atol(argv[3]);
	uint64_t sum = 0;
	double took_s[2] = {0, 0};
	long steps[2] = {0, 0};
	for (long step = -FIRST; steps[1] < faults; step++) {
		int faulting = step >= 0 && step % 2;
		double begun_s = clock_s();
		size_t page = random_number() % (uint64_t)(stat.st_size / PAGE);
		if (faulting)
			sum = sum * 31 + map[page * PAGE];
		for (int store = 0; store < STORES; store++)
			sum += heap[random_number() % pages * PAGE]++;
		if (step < 0)
			continue;
		took_s[faulting] += clock_s() - begun_s;
		steps[faulting]++;
	}
	double ratio = took_s[1] / (double)steps[1] / (took_s[0] / (double)steps[0]);
	fprintf(report, "%.6f %.6f\n", ratio, took_s[0] + took_s[1]);
	printf("%016llx\n", (unsigned long long)sum);
	return fclose(report) != 0;
}
