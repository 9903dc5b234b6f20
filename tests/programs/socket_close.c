/* The peer of a socket sees it closed at once. */
#include "common.h"
int main(void)
{
	for (int round = 0; round < 60; round++) {
		int pair[2];
		char byte;
		CHECK(socketpair(AF_UNIX, round % 2 ? SOCK_STREAM : SOCK_SEQPACKET, 0, pair) == 0);
		int fd = open(file_name(round), O_RDONLY);
		CHECK(read(fd, &byte, 1) == 1);
		CHECK(write(pair[0], "ab", 2) == 2);
		CHECK(read(fd, &byte, 1) == 1);
		close(pair[0]);
		char text[4];
		printf("%d ", (int)recv(pair[1], text, 4, MSG_DONTWAIT));
		printf("%d %d\n", (int)recv(pair[1], text, 4, MSG_DONTWAIT), errno);
		close(pair[1]);
		close(fd);
	}
}
