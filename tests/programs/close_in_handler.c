/* A handler closes while this thread's copy has only just been made, and the
 * same by other ways than close(2): the other end of a pipe is told by the
 * time the call returns. */
#include "common.h"
static int late, closed;
static int told(int fd)
{
	struct pollfd asked = { .fd = fd, .events = POLLIN };
	return poll(&asked, 1, 0) == 1 && asked.revents & POLLHUP;
}
static void one(int way)
{
	int ends[2];
	if (pipe(ends))
		return;
	if (way == 0)
		close(ends[1]);
	else if (way == 1)
		dup2(0, ends[1]);
	else
		close_range(ends[1], ends[1], 0);
	late += !told(ends[0]);
	closed++;
	close(ends[0]);
	if (way == 1)
		close(ends[1]);
}
static void handler(int number)
{
	int kept = errno;
	one(closed % 3);
	errno = kept;
}
int main(void)
{
	struct sigaction action = { .sa_handler = handler };
	struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while (closed < 300)
		ahead(3);
	setitimer(ITIMER_REAL, &never, NULL);
	printf("late %d\n", late);
}
