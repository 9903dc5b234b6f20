/* Deaths by signals that dump core, with limits on them: status, and no file
 * but the program's own. */
#include "common.h"
int main(void)
{
	/* A speculative process that computes on other bytes dies, too, where
	 * core files are welcome: it leaves none. */
	struct rlimit any = { RLIM_INFINITY, RLIM_INFINITY };
	setrlimit(RLIMIT_CORE, &any);
	unsigned char known = at_100();
	for (int i = 0; i < 5; i++)
		if (at_100() != known)
			*(volatile int *)1 = 0;
	pause_ms(20);
	static const int signals[] = { SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGQUIT, SIGTRAP, SIGSYS };
	for (int round = 0; round < 16; round++) {
		pid_t child = fork();
		if (child == 0) {
			struct rlimit limit = { 0, 0 };
			setrlimit(RLIMIT_CORE, &limit);
			prctl(PR_SET_DUMPABLE, round % 2);
			ahead(4);
			if (round == 0)
				*(volatile int *)1 = 0;
			if (round == 4)
				__builtin_trap();
			raise(signals[round % 8]);
		}
		int status;
		siginfo_t info = { 0 };
		CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
		waitpid(child, &status, 0);
		printf("%s %d %d\n", ended(status), WCOREDUMP(status) != 0, info.si_code);
	}
}
