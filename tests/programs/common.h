/* What the programs share. Each prints what it sees; the runner compares that
 * with the same program run without Runahead. CHECK does not stop, so that a
 * difference shows where it is. */
#ifndef COMMON_H
#define COMMON_H
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) \
	do { \
		if (!(x)) \
			printf("line %d: not %s (errno %d)\n", __LINE__, #x, errno); \
	} while (0)

/* Every line goes out at once: nothing is buffered twice across a fork. */
__attribute__((constructor)) static void unbuffered(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
}

/* The runner puts small files f00 to f15 and a larger one, "big" (512 KiB),
 * into data/. */
#define FILES 16
#define BIG "data/big"
#define BIG_LEN (512 * 1024)

static const char *file_name(int i)
{
	static __thread char name[32];
	snprintf(name, sizeof name, "data/f%02d", i % FILES);
	return name;
}

/* Reads a file to its end with read(2) and sums it up. */
static unsigned sum_file(const char *name)
{
	char buffer[4096];
	unsigned sum = 2166136261u;
	ssize_t got;
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	while ((got = read(fd, buffer, sizeof buffer)) > 0)
		for (ssize_t i = 0; i < got; i++)
			sum = (sum ^ (unsigned char)buffer[i]) * 16777619u;
	close(fd);
	return sum;
}

/* Reads all small files: what speculation is for. */
static unsigned work(void)
{
	unsigned sum = 0;
	for (int i = 0; i < FILES; i++)
		sum = sum * 31 + sum_file(file_name(i));
	return sum;
}

/* Reads at scattered places, so that a copy lives beside what comes next: it
 * is made at one of the first of these reads and runs ahead into it. */
static unsigned ahead(int reads)
{
	unsigned sum = 0;
	unsigned char byte;
	int fd = open(BIG, O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < reads; i++)
		if (pread(fd, &byte, 1, (off_t)i * 7919 % BIG_LEN) == 1)
			sum = sum * 31 + byte;
	close(fd);
	return sum;
}

/* The byte at 100 of BIG: a copy that computes on garbage finds another. */
static unsigned char at_100(void)
{
	unsigned char byte = 0;
	int fd = open(BIG, O_RDONLY);
	pread(fd, &byte, 1, 100);
	close(fd);
	return byte;
}

/* A speculative process that computes on what is not there stays in here, so
 * that what one that lives could do is done. */
static void linger_if(int wrong)
{
	for (volatile long i = 0; wrong && i < 200000000; i++)
		;
}

static void pause_ms(int ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
	while (nanosleep(&time, &time) < 0 && errno == EINTR)
		;
}

/* How a child ended, in words. */
static const char *ended(int status)
{
	static char text[32];
	if (WIFEXITED(status))
		snprintf(text, sizeof text, "exit %d", WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		snprintf(text, sizeof text, "signal %d", WTERMSIG(status));
	else if (WIFSTOPPED(status))
		snprintf(text, sizeof text, "stopped %d", WSTOPSIG(status));
	else
		snprintf(text, sizeof text, "continued");
	return text;
}
/* A file of 4 MiB, mapped: large enough for notices of its page faults. */
#define LARGE_LEN (4 << 20)
static unsigned char *map_large(void)
{
	int fd = open("large", O_RDWR | O_CREAT, 0600);
	CHECK(ftruncate(fd, LARGE_LEN) == 0);
	return (unsigned char *)mmap(NULL, LARGE_LEN, PROT_READ, MAP_SHARED, fd, 0);
}

static unsigned touch_large(const unsigned char *map)
{
	unsigned sum = 0;
	for (long at = 0; at < LARGE_LEN; at += 4096)
		sum += map[at];
	return sum;
}

/* Ignores a signal, one that libc lets nobody handle among them. */
static void ignore_signal(long signal)
{
	struct { void (*handler)(int); unsigned long flags, restorer, mask; } action = { SIG_IGN, 0, 0, 0 };
	CHECK(syscall(SYS_rt_sigaction, signal, &action, NULL, 8) == 0);
}

#endif
