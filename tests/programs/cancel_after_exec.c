/* The signal by which glibc cancels threads is taken for notices of page faults; it
 * is glibc's from the first pthread_cancel(3) on, whatever was ignored before, and
 * an exec that fails changes nothing. */
#include "common.h"
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
	ignore_signal(32);
	CHECK(pipe(pipes) == 0);
	unsigned char *map = map_large();
	unsigned sum = ahead(3) + touch_large(map);
	printf("%u\n", sum);
	cancel();
	execl("/nonexistent", argv[argc - 1], NULL);
	sum += touch_large(map);
	cancel();
	printf("%u\n", sum);
	return 0;
}
