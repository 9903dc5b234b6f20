/* OFD locks and leases: held as long as the program holds them, broken by
 * others only. */
#include "common.h"
static volatile int broken;
static void breaks(int signal) { broken++; }
static int free_for_others(const char *name)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		int fd = open(name, O_RDWR);
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		_exit(fcntl(fd, F_OFD_SETLK, &lock) == 0);
	}
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}
int main(void)
{
	signal(SIGIO, breaks);
	close(open("locked", O_WRONLY | O_CREAT, 0644));
	close(open("leased", O_WRONLY | O_CREAT, 0644));
	for (int round = 0; round < 20; round++) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10 };
		int fd = open("locked", O_RDWR);
		CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
		ahead(3);
		printf("%d ", free_for_others("locked"));
		ahead(2);
		close(fd);
		printf("%d ", free_for_others("locked"));
	}
	puts("");
	/* One for writing is broken by whoever opens the file. */
	for (int round = 0; round < 10; round++) {
		int fd = open("written", O_RDWR | O_CREAT, 0644);
		char byte = 'x';
		CHECK(write(fd, &byte, 1) == 1);
		CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
		ahead(2);
		pread(fd, &byte, 1, 0);
		ahead(2);
		pause_ms(2);
		printf("%d %d ", broken, fcntl(fd, F_GETLEASE) == F_WRLCK);
		fcntl(fd, F_SETLEASE, F_UNLCK);
		close(fd);
	}
	puts("");
	broken = 0;
	for (int round = 0; round < 10; round++) {
		int fd = open("leased", O_RDONLY), status;
		char byte;
		ahead(2);
		CHECK(fcntl(fd, F_SETLEASE, F_RDLCK) == 0);
		pread(fd, &byte, 1, 0);
		ahead(3);
		work();
		printf("%d %d ", broken, fcntl(fd, F_GETLEASE) == F_RDLCK);
		pid_t child = fork();
		if (child == 0)
			_exit(open("leased", O_WRONLY | O_NONBLOCK) < 0 && errno == EWOULDBLOCK);
		waitpid(child, &status, 0);
		while (broken == round)
			pause_ms(1);
		fcntl(fd, F_SETLEASE, F_UNLCK);
		printf("%d %d\n", WEXITSTATUS(status), broken);
		close(fd);
	}
}
