// not: refused (tier T0 leaves LD_PRELOAD in sight)
/* Program after program in one process, each with the same identity,
 * descriptors and environment. */
#include "common.h"
extern char **environ;
int main(int argc, char **argv)
{
	int left = argc > 1 ? atoi(argv[1]) : 20;
	unsigned sum = 0;
	/* Nobody came along. */
	errno = 0;
	printf("%d %d\n", (int)waitpid(-1, NULL, __WALL | WNOHANG), errno);
	for (char **e = environ; *e; e++)
		for (char *c = *e; *c; c++)
			sum = sum * 31 + *c;
	printf("%d %u %u\n", left, sum, ahead(5));
	if (argc > 2)
		printf("%d\n", atoi(argv[2]) == getpid());
	int fd = open(BIG, O_RDONLY);
	printf("%d\n", fd);
	if (left % 2)
		close(fd);
	if (left == 0)
		return 5;
	char next[16], pid[16];
	snprintf(next, sizeof next, "%d", left - 1);
	snprintf(pid, sizeof pid, "%d", getpid());
	execl("/proc/self/exe", argv[0], next, pid, NULL);
}
