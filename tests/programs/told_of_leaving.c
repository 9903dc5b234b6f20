/* Whoever makes a child in his own memory is told when it has left that: the kernel
 * empties the word that was named (CLONE_CHILD_CLEARTID), and wakes who waits for it. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
enum { VARIABLES = 300, EXECUTES = 0, EXECUTES_IN_VAIN, FILTERED, FILTERED_EXECUTES, KINDS };
static char *words[] = { "again", "again", NULL }, *variables[VARIABLES + 1], names[VARIABLES][16];
static char stack[128 << 10] __attribute__((aligned(64)));
static int word, kind;
static int child(void *unused)
{
	(void)unused;
	if (kind >= FILTERED) {
		struct sock_filter all = BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW);
		struct sock_fprog program = { 1, &all };
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
			_exit(41);
	}
	if (kind == EXECUTES_IN_VAIN)
		execve("data", words, variables);
	if (kind == EXECUTES || kind == FILTERED_EXECUTES)
		execve("/proc/self/exe", words, variables);
	_exit(6);
}
int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return ahead(5) ? 3 : 40;
	for (int i = 0; i < VARIABLES; i++) {
		snprintf(names[i], sizeof names[i], "V%d=%d", i, i);
		variables[i] = names[i];
	}
	printf("%u\n", ahead(5));
	/* What has a filter is not hindered, but its parent may be left alone from then on. */
	for (int round = 0; round < 2 * KINDS; round++) {
		const struct timespec limit = { 5, 0 };
		int status;
		kind = round / 2;
		word = 1;
		pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD,
				  NULL, NULL, NULL, &word);
		while (__atomic_load_n(&word, __ATOMIC_ACQUIRE)) {
			const int FUTEX_WAIT = 0;
			if (syscall(SYS_futex, &word, FUTEX_WAIT, 1, &limit, NULL, 0) < 0 && errno == ETIMEDOUT)
				break;
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		printf("%d: %s, %s\n", kind, word ? "not told" : "told", ended(status));
		printf("%u\n", work());
	}
	return 0;
}
