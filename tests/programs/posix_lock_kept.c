/* POSIX locks belong to the process and are kept across execve; a copy that
 * closes or shares descriptors must not drop them. */
#include "common.h"
static int held_by_other(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	fcntl(fd, F_GETLK, &lock);
	return lock.l_type != F_UNLCK;
}
int main(int argc, char **argv)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	if (argc > 1) {
		/* After the exec: is it still held, as a child sees it? */
		printf("%u\n", ahead(20));
		pid_t child = fork();
		if (child == 0)
			_exit(held_by_other(open("lock", O_RDWR)));
		int status;
		waitpid(child, &status, 0);
		printf("after exec: %s\n", ended(status));
		return 0;
	}
	int fd = open("lock", O_RDWR | O_CREAT, 0644);
	CHECK(fcntl(fd, F_SETLK, &lock) == 0);
	for (int round = 0; round < 20; round++) {
		ahead(2);
		pid_t child = fork();
		if (child == 0)
			_exit(held_by_other(open("lock", O_RDWR)));
		int status;
		waitpid(child, &status, 0);
		printf("%s\n", ended(status));
	}
	ahead(1);
	execl("/proc/self/exe", argv[0], "again", NULL);
}
