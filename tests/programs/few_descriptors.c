/* One thread reads; another uses the last descriptor that is free, all the time, and makes
 * children, which have no descriptor but its own. */
#include "common.h"
static volatile int stop;
static void *read_on(void *unused)
{
	unsigned char byte;
	(void)unused;
	while (!stop) {
		for (int i = 0; i < 64; i++)
			pread(3, &byte, 1, (off_t)i * 7919 % BIG_LEN);
		sched_yield();
	}
	return NULL;
}
int main(void)
{
	pthread_t reader;
	int failed = 0, strays = 0, status;
	printf("%u\n", work());
	CHECK(dup2(open(BIG, O_RDONLY), 3) == 3);
	for (int fd = 4; fd < 64; fd++)
		close(fd);
	struct rlimit few = { 5, 5 };
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	CHECK(pthread_create(&reader, NULL, read_on, NULL) == 0);
	for (int i = 0; i < 20000; i++) {
		int fd = open(file_name(0), O_RDONLY);
		failed += fd < 0;
		if (fd >= 0)
			close(fd);
	}
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(fcntl(4, F_GETFD) >= 0);
		waitpid(child, &status, 0);
		strays += WIFEXITED(status) && WEXITSTATUS(status) == 1;
	}
	stop = 1;
	pthread_join(reader, NULL);
	printf("%d not opened, %d children with another descriptor\n", failed, strays);
	return 0;
}
