// needs: root
/* The first child after unshare(CLONE_NEWPID) is process 1 of the new
 * namespace: it must be the program's. */
#include "common.h"
#include <sched.h>
int main(void)
{
	printf("%u\n", ahead(3));
	CHECK(unshare(CLONE_NEWPID) == 0);
	/* Is there seccomp? It changes nothing. */
	CHECK(prctl(PR_SET_SECCOMP, 2, NULL) == -1);
	printf("%u\n", ahead(30));
	for (int round = 0; round < 2; round++) {
		pid_t child = fork();
		if (child == 0) {
			printf("%d %u\n", (int)getpid(), work());
			if (fork() == 0) {
				/* Which number it gets is not promised: copies take some. */
				printf("%d %u\n", getpid() > 1, work());
				_exit(1);
			}
			int status;
			wait(&status);
			_exit(WEXITSTATUS(status) + 1);
		}
		int status = 0;
		CHECK(child < 0 || waitpid(child, &status, 0) == child);
		printf("%d %s\n", child > 0, ended(status));
	}
}
