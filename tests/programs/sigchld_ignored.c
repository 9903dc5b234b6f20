/* With SIGCHLD ignored children vanish by themselves and wait ends with
 * ECHILD once they have. */
#include "common.h"
int main(void)
{
	signal(SIGCHLD, SIG_IGN);
	for (int round = 0; round < 20; round++) {
		ahead(2);
		if (fork() == 0) {
			work();
			_exit(3);
		}
		ahead(2);
		int status;
		errno = 0;
		printf("%d %d\n", (int)wait(&status), errno);
	}
}
