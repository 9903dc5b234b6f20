/* flock, OFD and POSIX locks are free the moment that the program lets go of
 * them: another process can take them. */
#include "common.h"
static int take(int kind, int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	switch (kind) {
	case 0: return flock(fd, LOCK_EX | LOCK_NB);
	case 1: return fcntl(fd, F_OFD_SETLK, &lock);
	default: return fcntl(fd, F_SETLK, &lock);
	}
}
int main(void)
{
	int to[2], from[2];
	CHECK(pipe(to) == 0 && pipe(from) == 0);
	close(open("lock", O_RDWR | O_CREAT, 0644));
	pid_t peer = fork();
	if (peer == 0) {
		close(to[1]), close(from[0]);
		char kind;
		while (read(to[0], &kind, 1) == 1) {
			int fd = open("lock", O_RDWR);
			char got = take(kind, fd) == 0 ? 'y' : 'n';
			close(fd);
			write(from[1], &got, 1);
		}
		_exit(0);
	}
	close(to[0]), close(from[1]);
	for (int round = 0; round < 60; round++) {
		char kind = round % 3, answers[3] = { 0 }, byte;
		int fd = open("lock", O_RDWR);
		CHECK(take(kind, fd) == 0);
		int data = open(file_name(round), O_RDONLY);
		CHECK(read(data, &byte, 1) == 1);
		write(to[1], &kind, 1), read(from[0], &answers[0], 1);
		CHECK(read(data, &byte, 1) == 1);
		close(fd);
		write(to[1], &kind, 1), read(from[0], &answers[1], 1);
		close(data);
		printf("%d %s\n", kind, answers);
	}
	close(to[1]);
	int status;
	waitpid(peer, &status, 0);
	printf("%s\n", ended(status));
}
