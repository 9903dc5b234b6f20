/* RUSAGE_CHILDREN, to the second, and the children that /proc lists. */
#include "common.h"
int main(void)
{
	for (int round = 0; round < 20; round++)
		ahead(50);
	struct rusage usage;
	getrusage(RUSAGE_CHILDREN, &usage);
	printf("%ld %ld\n", usage.ru_utime.tv_sec, usage.ru_stime.tv_sec);
	struct sigaction action;
	sigaction(SIGCHLD, NULL, &action);
	printf("%d\n", action.sa_handler == SIG_DFL);
}
