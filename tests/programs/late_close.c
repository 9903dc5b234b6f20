/* A thread closes while another one's copy is being made: the other end of a
 * pipe or a socket is told by the time close returns. */
#include "common.h"
static volatile int over;
static void *reader(void *unused)
{
	while (!over)
		ahead(3);
	return NULL;
}
static int told(int fd)
{
	struct pollfd asked = { .fd = fd, .events = POLLIN };
	return poll(&asked, 1, 0) == 1 && asked.revents & (POLLHUP | POLLIN);
}
int main(void)
{
	pthread_t thread;
	int late[4] = { 0 };
	pthread_create(&thread, NULL, reader, NULL);
	for (int round = 0; round < 6000; round++) {
		int ends[2];
		if (round % 4 < 2)
			pipe(ends);
		else
			socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
		if (round % 2)
			dup2(0, ends[1]); /* closes, too */
		else if (round % 8 < 4)
			close(ends[1]);
		else
			syscall(SYS_close, ends[1]); /* which no symbol tells of */
		late[round % 4] += !told(ends[0]);
		close(ends[0]);
		if (round % 2)
			close(ends[1]);
	}
	over = 1;
	pthread_join(thread, NULL);
	printf("%d %d %d %d\n", late[0], late[1], late[2], late[3]);
}
