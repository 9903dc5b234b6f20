/* A handler that interrupts a read sees the program's own frames below it. */
#include "common.h"
#include <execinfo.h>
static int pair[2];
static void *place[2];
static int seen[2];
static void handler(int s)
{
	void *frames[64];
	int count = backtrace(frames, 64);
	for (int i = 0; i < count; i++)
		for (int k = 0; k < 2; k++)
			if (frames[i] >= place[k] && frames[i] < place[k] + 200)
				seen[k] = 1;
}
__attribute__((noinline)) void deeper(void)
{
	char byte;
	read(pair[0], &byte, 1);
	__asm__ volatile("");
}
__attribute__((noinline)) void waits(void)
{
	deeper();
	__asm__ volatile("");
}
int main(void)
{
	void *warm[4];
	backtrace(warm, 4);
	CHECK(pipe(pair) == 0);
	struct sigaction action = { .sa_handler = handler };
	sigaction(SIGALRM, &action, NULL);
	place[0] = deeper, place[1] = waits;
	for (int round = 0; round < 3; round++) {
		/* Again and again: one that came before the wait would leave it alone. */
		struct itimerval soon = { { 0, 5000 }, { 0, 5000 } }, none = { { 0, 0 }, { 0, 0 } };
		ahead(2);
		setitimer(ITIMER_REAL, &soon, NULL);
		waits();
		setitimer(ITIMER_REAL, &none, NULL);
		printf("%d %d\n", seen[0], seen[1]);
	}
}
