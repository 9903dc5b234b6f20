/* A pipe's reader sees the end of file the moment that the program closes the
 * writing end, whatever copies are alive. */
#include "common.h"
int main(void)
{
	for (int round = 0; round < 60; round++) {
		int pair[2];
		char byte;
		CHECK(pipe(pair) == 0);
		int fd = open(file_name(round), O_RDONLY);
		CHECK(read(fd, &byte, 1) == 1);
		close(pair[1]);
		struct pollfd ask = { pair[0], POLLIN, 0 };
		int ready = poll(&ask, 1, 0);
		printf("%d %x ", ready, ask.revents);
		printf("%d\n", (int)read(pair[0], &byte, 1));
		close(pair[0]);
		close(fd);
	}
	/* The other way round: writing to a pipe that nobody reads. */
	signal(SIGPIPE, SIG_IGN);
	for (int round = 0; round < 60; round++) {
		int pair[2];
		char byte;
		CHECK(pipe(pair) == 0);
		int fd = open(file_name(round), O_RDONLY);
		CHECK(read(fd, &byte, 1) == 1);
		close(pair[0]);
		printf("%d %d\n", (int)write(pair[1], "x", 1), errno);
		close(pair[1]);
		close(fd);
	}
}
