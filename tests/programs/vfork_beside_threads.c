/* vfork children read, fail to execute and execute while other threads of
 * the parent, whose memory they share, read and are copied. */
#include "common.h"
#include <spawn.h>
extern char **environ;
static volatile int over;
static void *reads(void *sum)
{
	unsigned first = ahead(5);
	while (!over)
		if (ahead(5) != first)
			return NULL;
	*(unsigned *)sum = first;
	return sum;
}
int main(int argc, char **argv)
{
	if (argc > 1) {
		printf("executed %u\n", ahead(10));
		return 3;
	}
	pthread_t threads[2];
	unsigned sums[2] = { 0 };
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, reads, &sums[i]);
	for (volatile int round = 0; round < 15; round++) {
		char *arguments[] = { argv[0], "again", NULL };
		int status;
		pid_t child = vfork();
		if (child == 0) {
			char byte;
			int fd = open(BIG, O_RDONLY);
			for (int i = 0; i < 15; i++)
				pread(fd, &byte, 1, i * 7001);
			close(fd);
			if (round % 3 == 0)
				_exit(byte == 0 ? 41 : 42);
			execve(round % 3 == 1 ? "/nonexistent" : "/proc/self/exe", arguments, environ);
			_exit(errno);
		}
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s %u\n", ended(status), ahead(5));
	}
	over = 1;
	for (int i = 0; i < 2; i++) {
		void *result;
		pthread_join(threads[i], &result);
		CHECK(result == &sums[i]);
	}
	printf("%u %d\n", sums[0], sums[0] == sums[1]);
}
