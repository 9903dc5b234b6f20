/* What a synchronisation costs the program that makes it: reads at random
 * places, which no copy can predict, timed by the program itself, between
 * them stores to its memory, whose faults are counted.
 *
 * usage: sync FILE MEGABYTES READS REPORT [missing]
 *
 * missing: what is read is not in memory, so that the read waits
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Faults are counted from read WARM on: what the program waits for is known
 * then. */
enum { PAGE = 4096, STORES = 64, PAUSE_US = 12000, WARM = 32 };

static uint64_t clock_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static long minor_faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

int main(int argc, char **argv)
{
	if (argc != 5 && argc != 6) {
		fprintf(stderr, "usage: %s FILE MEGABYTES READS REPORT [missing]\n", argv[0]);
		return 2;
	}
	size_t bytes = (size_t)atol(argv[2]) << 20, pages = bytes / PAGE;
	int reads = atoi(argv[3]), fd = open(argv[1], O_RDONLY);
	FILE *report = fopen(argv[4], "w");
	uint64_t *took_ns = calloc((size_t)reads, sizeof *took_ns);
	struct stat status;
	if (fd < 0 || !report || !took_ns || fstat(fd, &status) || status.st_size < PAGE) {
		perror(argv[1]);
		return 2;
	}
	unsigned char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	memset(memory, 1, bytes);
	static unsigned char page[PAGE];
	if (argc == 6)
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	else
		for (off_t at = 0; at + PAGE <= status.st_size; at += PAGE)
			if (pread(fd, page, PAGE, at) != PAGE)
				return 2;
	long faults = minor_faults();
	for (int i = 0; i < reads; i++) {
		uint64_t random[1 + STORES];
		if (i == WARM)
			faults = minor_faults();
		/* Long enough for the copy to run past the next read. */
		usleep(PAUSE_US);
		if (getrandom(random, sizeof random, 0) != sizeof random)
			return 2;
		off_t at = (off_t)(random[0] % (uint64_t)(status.st_size / PAGE)) * PAGE;
		if (argc == 6)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		uint64_t begun_ns = clock_ns();
		if (pread(fd, page, PAGE, at) != PAGE)
			return 2;
		took_ns[i] = clock_ns() - begun_ns;
		for (int store = 1; store <= STORES; store++)
			memory[random[store] % pages * PAGE]++;
	}
	fprintf(report, "%ld\n", minor_faults() - faults);
	for (int i = 0; i < reads; i++)
		fprintf(report, "%llu\n", (unsigned long long)took_ns[i]);
	return fclose(report) != 0;
}
