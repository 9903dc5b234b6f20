// needs: root
/* The first child of a program that was executed after unshare(CLONE_NEWPID) is
 * process 1 of the new namespace, too. */
#include "common.h"
#include <sched.h>
int main(int argc, char **argv)
{
	if (argc == 1) {
		printf("%u\n", ahead(3));
		CHECK(unshare(CLONE_NEWPID) == 0);
		execl("/proc/self/exe", argv[0], "again", NULL);
		return 1;
	}
	printf("%u\n", ahead(10));
	for (int round = 0; round < 2; round++) {
		pid_t child = fork();
		if (child == 0) {
			printf("%d %u\n", (int)getpid(), ahead(3));
			_exit(5);
		}
		int status = 0;
		CHECK(child < 0 || waitpid(child, &status, 0) == child);
		printf("%d %s\n", child > 0, ended(status));
	}
	return 0;
}
