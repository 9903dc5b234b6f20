/* close_range(2) may give a process a descriptor table of its own; alone it has one
 * already, and its POSIX locks stay. */
#include "common.h"
static int held_by_other(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	fcntl(open("lock", O_RDWR), F_GETLK, &lock);
	return lock.l_type != F_UNLCK;
}
int main(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open("lock", O_RDWR | O_CREAT, 0644), data = open(BIG, O_RDONLY), held = 0;
	char byte;
	CHECK(fcntl(fd, F_SETLK, &lock) == 0);
	for (int round = 0; round < 60; round++) {
		/* No close in between. */
		CHECK(pread(data, &byte, 1, round * 4096) == 1);
		CHECK(syscall(SYS_close_range, 1000, 1001, 2) == 0);
		pid_t child = fork();
		if (child == 0)
			_exit(held_by_other());
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		held += WEXITSTATUS(status);
	}
	printf("%d\n", held);
	return 0;
}
