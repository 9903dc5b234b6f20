/* Another thread reads, so that copies are made all the time, also between
 * the moment when one is ended before a call and the call itself: waits for
 * children of every kind find none, POSIX locks are kept across execve. */
#include "common.h"
static volatile int over;
static void *reader(void *unused)
{
	while (!over)
		ahead(3);
	return NULL;
}
static int held_by_other(const char *name)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open(name, O_RDWR);
	fcntl(fd, F_GETLK, &lock);
	close(fd);
	return lock.l_type != F_UNLCK;
}
int main(int argc, char **argv)
{
	pthread_t thread;
	int kept = 0, found = 0, status;
	if (argc > 1)
		return pause_ms(10000), 0; /* It is killed. */
	for (int round = 0; round < 40; round++) {
		int ends[2];
		char byte = 0, name[16];
		snprintf(name, sizeof name, "lock%d", round);
		pipe(ends);
		pid_t child = fork();
		if (child == 0) {
			struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
			int fd = open(name, O_RDWR | O_CREAT, 0644);
			CHECK(fcntl(fd, F_SETLK, &lock) == 0);
			write(ends[1], "l", 1);
			pthread_create(&thread, NULL, reader, NULL);
			pause_ms(round % 4);
			execl("/proc/self/exe", argv[0], "held", NULL);
		}
		read(ends[0], &byte, 1);
		pause_ms(8);
		kept += held_by_other(name);
		close(ends[0]);
		close(ends[1]);
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	}
	printf("kept %d\n", kept);
	pthread_create(&thread, NULL, reader, NULL);
	for (int round = 0; round < 3000; round++)
		found += waitpid(-1, &status, __WALL | WNOHANG) != -1 || errno != ECHILD;
	over = 1;
	pthread_join(thread, NULL);
	printf("found %d\n", found);
}
