/* scan STREAM HOT BYTES REPORT: reads STREAM once, and all of HOT again after
 * each BYTES of it. Prints a sum; the report has the time that it took, and the
 * part of that for HOT, in s. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* As often is each byte looked at: the program computes about as long as the
 * device takes to read ahead. */
#define ROUNDS 6

static unsigned char piece[16384];
static unsigned long sum;

static void add(long len)
{
	for (int round = 0; round < ROUNDS; round++)
		for (long at = 0; at < len; at++)
			sum = sum * 31 + piece[at];
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double hot(int fd)
{
	double began = now();
	long len;
	for (long at = 0; (len = pread(fd, piece, sizeof piece, at)) > 0; at += len)
		add(len);
	return now() - began;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	int stream = open(argv[1], O_RDONLY), again = open(argv[2], O_RDONLY);
	long every = atol(argv[3]), since = 0, len;
	if (stream < 0 || again < 0)
		return 3;
	double began = now(), in_hot = hot(again);
	while ((len = read(stream, piece, sizeof piece)) > 0) {
		add(len);
		if ((since += len) >= every) {
			since = 0;
			in_hot += hot(again);
		}
	}
	double took = now() - began;
	printf("%lx\n", sum);
	FILE *report = fopen(argv[4], "w");
	return !report || fprintf(report, "%.6f %.6f\n", took, in_hot) < 0 || fclose(report);
}
