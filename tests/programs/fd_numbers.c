/* Descriptor numbers are what they would be, while copies are made. */
#include "common.h"
int main(void)
{
	for (int round = 0; round < 40; round++) {
		int a = open(file_name(round), O_RDONLY);
		char byte;
		CHECK(pread(a, &byte, 1, round) == 1);
		int b = dup(a), c = open(file_name(round + 1), O_RDONLY);
		int pair[2];
		CHECK(pipe(pair) == 0);
		CHECK(read(c, &byte, 1) == 1);
		int d = fcntl(a, F_DUPFD, 20), e = dup2(c, 30);
		CHECK(read(d, &byte, 1) == 1);
		printf("%d %d %d %d %d %d %d %d\n", a, b, c, pair[0], pair[1], d, e, byte);
		close(b);
		CHECK(pread(a, &byte, 1, 3) == 1);
		int again = open("data", O_RDONLY | O_DIRECTORY);
		printf("%d\n", again);
		close(again), close(a), close(c), close(d), close(e), close(pair[0]), close(pair[1]);
	}
	errno = 0;
	printf("%d %d\n", (int)read(3, &(char){ 0 }, 1), errno);
}
