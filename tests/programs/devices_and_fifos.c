/* Devices, FIFOs and files of /proc: opened and read by the program only. */
#include "common.h"
int main(void)
{
	char buffer[100] = { 0 };
	CHECK(mkfifo("fifo", 0644) == 0);
	for (int round = 0; round < 10; round++) {
		ahead(2);
		int null = open("/dev/null", O_RDWR), full = open("/dev/full", O_RDWR), zero = open("/dev/zero", O_RDONLY);
		errno = 0;
		printf("%zd %zd ", read(null, buffer, 10), write(null, buffer, 10));
		printf("%zd %d ", write(full, buffer, 10), errno);
		printf("%zd %zd %d\n", read(full, buffer, 10), read(zero, buffer, 10), buffer[3]);
		close(null), close(full), close(zero);
		errno = 0;
		printf("%d %d ", open("fifo", O_WRONLY | O_NONBLOCK), errno);
		if (fork() == 0) {
			int fd = open("fifo", O_WRONLY);
			ahead(2);
			write(fd, "hello", 5);
			ahead(2);
			_exit(0);
		}
		int fd = open("fifo", O_RDONLY);
		ahead(2);
		printf("%zd ", read(fd, buffer, 5));
		wait(NULL);
		printf("%zd\n", read(fd, buffer, 5));
		close(fd);
		fd = open("/proc/self/comm", O_RDONLY);
		ssize_t got = read(fd, buffer, sizeof buffer);
		printf("%.*s", (int)got, buffer);
		close(fd);
		fd = open("/dev/tty", O_RDWR);
		printf("%d\n", fd);
	}
}
