/* A handler interrupts a wait for children of every kind, reads there (on the
 * same stack, or one of its own), and leaves it by siglongjmp or lets it go on:
 * no wait finds any but the program's own children. */
// not: refused (by symbol a wait ends the copy, but bars none that a handler makes)
#include "common.h"
static sigjmp_buf back;
static volatile int leaves;
static void handler(int s)
{
	ahead(3);
	if (leaves)
		siglongjmp(back, 1);
}
static void *cancelled(void *unused)
{
	int status;
	waitpid(-1, &status, __WALL);
	return unused;
}
int main(void)
{
	char room[64 * 1024];
	stack_t stack = { .ss_sp = room, .ss_size = sizeof room };
	struct itimerval often = { { 0, 3000 }, { 0, 3000 } }, never = { { 0, 0 }, { 0, 0 } };
	CHECK(sigaltstack(&stack, NULL) == 0);
	for (volatile int round = 0; round < 16; round++) {
		struct sigaction action = { .sa_handler = handler };
		action.sa_flags = SA_RESTART | (round & 1 ? SA_ONSTACK : 0);
		sigaction(SIGALRM, &action, NULL);
		leaves = round & 2;
		volatile pid_t child = fork();
		int status;
		if (child == 0) {
			pause_ms(leaves ? 10000 : 30);
			_exit(round);
		}
		if (sigsetjmp(back, 1) == 0) {
			setitimer(ITIMER_REAL, &often, NULL);
			printf("%d ", waitpid(-1, &status, __WALL) == child);
			setitimer(ITIMER_REAL, &never, NULL);
		} else {
			setitimer(ITIMER_REAL, &never, NULL);
			ahead(5);
			kill(child, SIGKILL);
			printf("%d ", waitpid(-1, &status, __WALL) == child);
		}
		printf("%s %u\n", ended(status), ahead(3));
		errno = 0;
		printf("%d %d\n", (int)waitpid(-1, &status, __WALL | WNOHANG), errno);
	}
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	for (int round = 0; round < 3; round++) {
		pthread_t thread;
		void *how;
		CHECK(pthread_create(&thread, NULL, cancelled, NULL) == 0);
		pause_ms(5);
		CHECK(pthread_cancel(thread) == 0);
		CHECK(pthread_join(thread, &how) == 0 && how == PTHREAD_CANCELED);
		ahead(5);
	}
	kill(child, SIGKILL);
	int status;
	printf("%d %s\n", waitpid(-1, &status, __WALL) == child, ended(status));
}
