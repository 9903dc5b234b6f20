/* A signal interrupts a read from a pipe with EINTR, or restarts it. */
#include "common.h"
static void handler(int s) {}
int main(void)
{
	int pair[2];
	CHECK(pipe(pair) == 0);
	struct sigaction action = { .sa_handler = handler };
	sigaction(SIGALRM, &action, NULL);
	for (int round = 0; round < 5; round++) {
		printf("%u ", ahead(3));
		/* Again and again: one that came before the read would leave it alone. */
		struct itimerval soon = { { 0, 20000 }, { 0, 20000 } }, none = { { 0, 0 }, { 0, 0 } };
		setitimer(ITIMER_REAL, &soon, NULL);
		char byte;
		errno = 0;
		ssize_t got = read(pair[0], &byte, 1);
		int why = errno;
		setitimer(ITIMER_REAL, &none, NULL);
		printf("%zd %d\n", got, why);
	}
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	if (fork() == 0) {
		pause_ms(60);
		write(pair[1], "x", 1);
		_exit(0);
	}
	struct itimerval soon = { { 0, 0 }, { 0, 20000 } };
	setitimer(ITIMER_REAL, &soon, NULL);
	char byte = 0;
	ssize_t got = read(pair[0], &byte, 1);
	printf("%zd %c\n", got, byte);
	wait(NULL);
}
