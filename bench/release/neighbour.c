/* neighbour FILE REPORT: reads pages of FILE here and there, one after the
 * other with a pause between, once it has read all of it and said so, until
 * SIGTERM. The report has how many it read, how many of these waited, and the
 * mean and the 99th percentile of their times, in us. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define READS_MAX (1l << 20)
/* A page that is there takes a few. */
#define WAIT_US 50
#define PAUSE_US 200

static volatile sig_atomic_t over;
static double took_us[READS_MAX];
static unsigned char page[4096];

static void stop(int number)
{
	(void)number;
	over = 1;
}

static double now_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int order(const void *first, const void *second)
{
	double one = *(const double *)first, other = *(const double *)second;
	return (one > other) - (one < other);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	signal(SIGTERM, stop);
	int fd = open(argv[1], O_RDONLY);
	long pages = lseek(fd, 0, SEEK_END) / 4096, count = 0, waited = 0;
	unsigned long state = 1;
	double sum = 0;
	for (int round = 0; round < 2; round++)
		for (long at = 0; at < pages; at++)
			if (pread(fd, page, sizeof page, at * 4096) != sizeof page)
				return 3;
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	puts("ready");
	fflush(stdout);
	while (!over && count < READS_MAX) {
		state = state * 6364136223846793005ul + 1442695040888963407ul;
		double began = now_us();
		if (pread(fd, page, sizeof page, (long)((state >> 33) % (unsigned long)pages) * 4096) != sizeof page)
			return 3;
		double us = now_us() - began;
		took_us[count++] = us;
		sum += us;
		waited += us > WAIT_US;
		usleep(PAUSE_US);
	}
	qsort(took_us, (size_t)count, sizeof *took_us, order);
	double p99 = count ? took_us[count * 99 / 100] : 0;
	FILE *report = fopen(argv[2], "w");
	return !report || fprintf(report, "%ld %ld %.2f %.2f\n", count, waited, sum / (double)(count ? count : 1), p99) < 0 || fclose(report);
}
