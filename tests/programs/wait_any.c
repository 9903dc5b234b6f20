/* With only a copy alive the program has no children: wait says ECHILD, no
 * SIGCHLD comes, and the one real child is the only one ever reported. */
#include "common.h"
static volatile sig_atomic_t chld;
static void on_chld(int s) { chld++; }
int main(void)
{
	signal(SIGCHLD, on_chld);
	for (int round = 0; round < 40; round++) {
		printf("%u ", ahead(2));
		int status;
		errno = 0;
		printf("%d %d ", (int)waitpid(-1, &status, WNOHANG), errno);
		ahead(1);
		siginfo_t info = { 0 };
		errno = 0;
		printf("%d %d ", waitid(P_ALL, 0, &info, WEXITED | WNOHANG), errno);
		errno = 0;
		printf("%d %d %d\n", (int)wait(&status), errno, (int)chld);
	}
	for (int round = 0; round < 10; round++) {
		ahead(2);
		pid_t child = fork();
		if (child == 0)
			_exit(round);
		ahead(2);
		int status;
		pid_t got;
		while ((got = wait(&status)) < 0 && errno == EINTR)
			;
		printf("%d %s\n", got == child, ended(status));
		errno = 0;
		printf("%d %d\n", (int)wait(&status), errno);
	}
	printf("SIGCHLD %d\n", (int)chld);
}
