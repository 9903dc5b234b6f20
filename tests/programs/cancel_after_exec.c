/* The signal by which glibc cancels threads is taken for notices of page faults; it
 * is glibc's from the first pthread_cancel(3) on, whatever was ignored before, and
 * an exec that fails changes nothing. */
#include "common.h"
#define BYTES (4 << 20)
static int pipes[2];
static void *blocked(void *unused)
{
	char byte;
	CHECK(read(pipes[0], &byte, 1) < 0);
	return unused;
}
static void cancel(void)
{
	pthread_t thread;
	void *result;
	CHECK(pthread_create(&thread, NULL, blocked, NULL) == 0);
	pause_ms(20);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
	printf("%d\n", result == PTHREAD_CANCELED);
}
int main(int argc, char **argv)
{
	struct { void (*handler)(int); unsigned long flags, restorer, mask; } action = { SIG_IGN, 0, 0, 0 };
	CHECK(syscall(SYS_rt_sigaction, 32, &action, NULL, 8) == 0 && pipe(pipes) == 0);
	int fd = open("large", O_RDWR | O_CREAT, 0600);
	CHECK(ftruncate(fd, BYTES) == 0);
	unsigned char *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	unsigned sum = ahead(3);
	for (long at = 0; at < BYTES; at += 4096)
		sum += map[at];
	printf("%u\n", sum);
	cancel();
	execl("/nonexistent", argv[argc - 1], NULL);
	for (long at = 0; at < BYTES; at += 4096)
		sum += map[at];
	cancel();
	printf("%u\n", sum);
	return 0;
}
