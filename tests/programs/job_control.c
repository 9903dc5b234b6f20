/* Process groups, sessions, stop and continue: signals to the group reach
 * the program and its children, once. */
#include "common.h"
static volatile sig_atomic_t hits;
static void handler(int s) { hits++; }
int main(void)
{
	signal(SIGUSR1, handler);
	CHECK(setpgid(0, 0) == 0);
	for (int round = 0; round < 10; round++) {
		ahead(3);
		kill(0, SIGUSR1);
		ahead(1);
		killpg(getpgrp(), SIGUSR1);
		printf("%d %d\n", (int)hits, getpgrp() == getpid());
	}
	for (int round = 0; round < 5; round++) {
		pid_t child = fork();
		if (child == 0) {
			CHECK(setsid() == getpid());
			ahead(5);
			CHECK(getsid(0) == getpid() && getpgrp() == getpid());
			ahead(5);
			raise(SIGSTOP);
			_exit(ahead(5) % 7);
		}
		int status;
		CHECK(waitpid(child, &status, WUNTRACED) == child);
		printf("%s ", ended(status));
		ahead(2);
		kill(child, SIGCONT);
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s\n", ended(status));
	}
	/* Nobody else is in the group. */
	pid_t child = fork();
	if (child == 0) {
		setpgid(0, 0);
		ahead(50);
		signal(SIGTERM, SIG_IGN);
		kill(0, SIGTERM);
		ahead(5);
		kill(0, SIGKILL);
	}
	int status;
	waitpid(child, &status, 0);
	printf("%s\n", ended(status));
}
