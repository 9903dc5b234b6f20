/* splice(2) from files into pipes and out of them again: what arrives, where the
 * offsets are afterwards, and what is refused. */
#define _GNU_SOURCE
#include "common.h"

static char buffer[1 << 20];

static unsigned sum(size_t len)
{
	unsigned sum = 0;
	for (size_t i = 0; i < len; i++)
		sum = sum * 31 + (unsigned char)buffer[i];
	return sum;
}

static size_t drain(int from, size_t len)
{
	size_t got = 0;
	ssize_t n = 1;
	while (got < len && (n = read(from, buffer + got, len - got)) > 0)
		got += (size_t)n;
	CHECK(n > 0 || got == len);
	return got;
}

/* A file through a pipe into another one, `piece` bytes at a time. */
static void copy(const char *from, const char *to, size_t piece, off_t *at)
{
	int pipes[2], in = open(from, O_RDONLY), out = open(to, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(pipe(pipes) == 0);
	size_t all = 0;
	for (;;) {
		ssize_t moved = splice(in, at, pipes[1], NULL, piece, SPLICE_F_MOVE);
		if (moved <= 0) {
			CHECK(moved == 0);
			break;
		}
		for (ssize_t left = moved, n; left > 0; left -= n)
			if ((n = splice(pipes[0], NULL, out, NULL, (size_t)left, SPLICE_F_MORE)) <= 0) {
				CHECK(n > 0);
				return;
			}
		all += (size_t)moved;
	}
	CHECK(lseek(out, 0, SEEK_SET) == 0);
	ssize_t len = read(out, buffer, sizeof buffer);
	printf("%zu %zd %u %ld %ld\n", all, len, sum((size_t)len), (long)lseek(in, 0, SEEK_CUR), at ? (long)*at : -1L);
	close(in), close(out), close(pipes[0]), close(pipes[1]);
}

int main(void)
{
	int pipes[2], pair[2], fd = open(BIG, O_RDONLY);
	CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);

	/* Read from the pipe: pieces, unaligned places, what is asked for beyond what a pipe holds. */
	for (int round = 0; round < 12; round++) {
		off_t at = round * 40009;
		ssize_t moved = splice(fd, &at, pipes[1], NULL, round % 2 ? 1 << 20 : 3000, 0);
		printf("%zd %ld ", moved, (long)at);
		if (moved > 0)
			printf("%zu %u ", drain(pipes[0], (size_t)moved), sum((size_t)moved));
		printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
	}
	/* By the description's own offset, into a socket. */
	for (int round = 0; round < 8; round++) {
		ssize_t moved = splice(fd, NULL, pipes[1], NULL, 20000, 0);
		ssize_t sent = splice(pipes[0], NULL, pair[0], NULL, 20000, 0);
		printf("%zd %zd %zu %u\n", moved, sent, drain(pair[1], (size_t)sent), sum((size_t)sent));
	}
	/* A pipe is filled in several steps, and holds more than usual. */
	CHECK(fcntl(pipes[1], F_SETPIPE_SZ, 1 << 18) > 0);
	CHECK(lseek(fd, 4096, SEEK_SET) == 4096);
	size_t held = 0;
	for (int round = 0; round < 5; round++) {
		ssize_t moved = splice(fd, NULL, pipes[1], NULL, 40960, SPLICE_F_NONBLOCK);
		printf("%zd ", moved);
		held += moved > 0 ? (size_t)moved : 0;
	}
	printf("%zu %u\n", drain(pipes[0], held), sum(held));

	/* What is refused. */
	off_t zero = 0;
	int tail = open("data/spliced", O_WRONLY | O_CREAT | O_APPEND, 0600);
#define REFUSED(...) \
	do { \
		errno = 0; \
		ssize_t result = splice(__VA_ARGS__); \
		printf("%zd %d\n", result, errno); \
	} while (0)
	REFUSED(fd, NULL, tail, NULL, 10, 0);
	REFUSED(fd, NULL, pipes[1], &zero, 10, 0);
	REFUSED(pipes[0], &zero, pair[0], NULL, 10, 0);
	REFUSED(fd, NULL, 999, NULL, 10, 0);
	REFUSED(999, NULL, pipes[1], NULL, 10, 0);
	REFUSED(fd, NULL, pipes[1], NULL, 0, 0);
	REFUSED(999, NULL, 999, NULL, 0, 0x100);
	REFUSED(fd, NULL, pipes[1], NULL, 10, 0x100);
	REFUSED(fd, NULL, pipes[0], NULL, 10, 0);
	REFUSED(pipes[0], NULL, pipes[1], NULL, 10, SPLICE_F_NONBLOCK);
	REFUSED(fd, (off_t *)8, pipes[1], NULL, 10, 0);
	CHECK(write(pipes[1], "tail", 4) == 4);
	REFUSED(pipes[0], NULL, tail, NULL, 4, 0);
	zero = BIG_LEN;
	REFUSED(fd, &zero, pipes[1], NULL, 10, SPLICE_F_NONBLOCK);

	for (int i = 0; i < 6; i++)
		copy(file_name(i), "data/copied", i % 2 ? 1000 : 1 << 20, NULL);
	off_t at = 12345;
	copy(BIG, "data/copied", 1 << 20, &at);
	copy(BIG, "data/copied", 50000, NULL);
	return 0;
}
