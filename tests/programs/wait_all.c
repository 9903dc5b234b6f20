/* Waits that ask for children of every kind (__WALL, __WCLONE) find the
 * program's own only. */
#include "common.h"
int main(void)
{
	for (int round = 0; round < 20; round++) {
		ahead(3);
		int status;
		errno = 0;
		printf("%d %d ", (int)waitpid(-1, &status, __WALL | WNOHANG), errno);
		ahead(3);
		errno = 0;
		printf("%d %d ", (int)waitpid(-1, &status, __WCLONE | WNOHANG), errno);
		ahead(3);
		siginfo_t info = { 0 };
		errno = 0;
		printf("%d %d\n", waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WALL), errno);
	}
	ahead(3);
	pid_t child = fork();
	if (child == 0)
		_exit(7);
	ahead(3);
	int status;
	printf("%d ", waitpid(-1, &status, __WALL) == child);
	printf("%s\n", ended(status));
}
