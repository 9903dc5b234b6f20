// not: refused (tier T0: what children execute has the agent by inheritance)
/* What a traced process executes makes the calls that it would make alone: its tracer
 * counts them, and would end it for others. */
#include "common.h"
#include <sys/ptrace.h>
#include <sys/user.h>
static int status;
static void executes(int how)
{
	char *argv[] = { "true", NULL }, *envp[] = { "PATH=/bin", NULL };
	if (how == 0)
		ptrace(PTRACE_TRACEME, 0, 0, 0);
	raise(SIGSTOP);
	execve("/bin/true", argv, envp);
	_exit(99);
}
static void judge(pid_t child)
{
	int calls = 0, executed = 0, unusual = 0;
	while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
		if (status >> 16 == PTRACE_EVENT_EXEC) {
			executed++;
		} else if (executed && WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			struct user_regs_struct registers;
			ptrace(PTRACE_GETREGS, child, 0, &registers);
			long number = registers.orig_rax;
			calls++;
			unusual += number == SYS_prctl || number == SYS_madvise || number == SYS_getpid || number == SYS_seccomp;
		}
		ptrace(PTRACE_SYSCALL, child, 0, 0);
		CHECK(waitpid(child, &status, 0) == child);
	}
	printf("%s: executed %d, %d calls, %d unusual\n", ended(status), executed, calls, unusual);
}
int main(void)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
	for (int round = 0; round < 6; round++) {
		int how = round % 2;
		ahead(3);
		pid_t child = fork();
		if (child == 0)
			executes(how);
		CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
		if (how == 0)
			CHECK(ptrace(PTRACE_SETOPTIONS, child, 0, options) == 0);
		else
			CHECK(ptrace(PTRACE_SEIZE, child, 0, options) == 0 && kill(child, SIGCONT) == 0);
		judge(child);
	}
	printf("%u\n", work());
	return 0;
}
