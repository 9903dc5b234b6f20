/* A number by which a copy looks for a file is a pipe's by then, which is closed while
 * it looks: the other end is told by the time close returns. */
#include "common.h"
#define ROUNDS 300
#define PIPES 60
static int told(int fd)
{
	struct pollfd asked = { .fd = fd, .events = POLLIN };
	return poll(&asked, 1, 0) == 1 && asked.revents & POLLHUP;
}
int main(void)
{
	int late = 0, random = open("/dev/urandom", O_RDONLY);
	unsigned char byte;
	for (int round = 0; round < ROUNDS; round++) {
		int fd = open(BIG, O_RDONLY);
		pread(fd, &byte, 1, (off_t)round * 7919 % BIG_LEN);
		close(fd);
		for (int i = 0; i < PIPES; i++) {
			int ends[2];
			pipe(ends);
			if (ends[0] == fd)
				ends[0] = dup(fd);
			dup2(ends[1], fd);
			close(ends[1]);
			close(fd);
			late += !told(ends[0]);
			close(ends[0]);
		}
		read(random, &byte, 1); /* no copy comes further */
	}
	printf("%d\n", late);
}
