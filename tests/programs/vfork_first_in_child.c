/* A forked child that makes a child by vfork at once, or after it has executed
 * nothing: the state stays that of the forked one, whose lock on what it executes
 * next is kept. */
#include "common.h"
static int held_by(pid_t holder)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CHECK(fcntl(open("/proc/self/exe", O_RDONLY), F_GETLK, &lock) == 0);
	return lock.l_type != F_UNLCK && lock.l_pid == holder;
}
int main(int argc, char **argv)
{
	int status;
	if (argc > 1 && strcmp(argv[1], "first") == 0)
		return 3;
	if (argc > 1) {
		pid_t self = getpid(), child = fork();
		if (child == 0)
			_exit(held_by(self));
		waitpid(child, &status, 0);
		printf("after exec: %s\n", ended(status));
		return 0;
	}
	for (int round = 0; round < 4; round++) {
		ahead(2);
		pid_t child = round % 2 ? syscall(SYS_fork) : fork();
		if (child == 0) {
			/* As in a search along PATH. */
			if (round > 1)
				execl("/nonexistent/first", "first", NULL), execl("data/f00", "first", NULL);
			pid_t first = vfork();
			if (first == 0) {
				execl("/proc/self/exe", argv[0], "first", NULL);
				_exit(1);
			}
			waitpid(first, &status, 0);
			printf("first: %s\n", ended(status));
			if (round > 1)
				ahead(2);
			struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
			CHECK(fcntl(open("/proc/self/exe", O_RDONLY), F_SETLK, &lock) == 0);
			execl("/proc/self/exe", argv[0], "again", NULL);
			_exit(2);
		}
		waitpid(child, &status, 0);
		printf("%s\n", ended(status));
	}
}
