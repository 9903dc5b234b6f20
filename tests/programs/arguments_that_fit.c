/* As many arguments and variables as there may be: what can be executed alone can
 * be under Runahead, which adds variables. */
#include "common.h"
static char text[128 * 1024];
static char *argv0;
/* Whether a program can be executed with an argument of so many bytes. */
static int fits(int len, char **envp)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		char *args[] = { argv0, "again", text, NULL };
		memset(text, 'x', len);
		text[len] = 0;
		execve("/proc/self/exe", args, envp);
		_exit(errno);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == E2BIG));
	return WEXITSTATUS(status) == 0;
}
int main(int argc, char **argv)
{
	/* 128 KiB, the least that is allowed. */
	struct rlimit stack = { 256 << 10, 256 << 10 };
	if (argc > 1)
		return ahead(3) == 0;
	argv0 = argv[0];
	ahead(3);
	CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
	char *environments[][3] = { { NULL }, { "A=1", "B=2", NULL }, { "LD_PRELOAD=libm.so.6", NULL } };
	for (int i = 0; i < 3; i++) {
		int low = 0, high = sizeof text - 1;
		while (high - low > 1) {
			int middle = (low + high) / 2;
			if (fits(middle, environments[i]))
				low = middle;
			else
				high = middle;
		}
		printf("%d\n", low);
	}
}
