/* The program is a debugger: it traces a child call by call, and sees the
 * calls, stops and children that are the child's. */
#include "common.h"
#include <sys/ptrace.h>
#include <sys/user.h>
int main(void)
{
	for (int round = 0; round < 5; round++) {
		ahead(3);
		pid_t child = fork();
		if (child == 0) {
			ptrace(PTRACE_TRACEME, 0, 0, 0);
			raise(SIGSTOP);
			int fd = open(BIG, O_RDONLY);
			char byte;
			for (int i = 0; i < 20; i++)
				pread(fd, &byte, 1, i * 9999);
			raise(SIGUSR1);
			_exit(byte % 7);
		}
		int status, stops = 0, writes = 0, others = 0;
		waitpid(child, &status, 0);
		ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
		while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
			int signal = WSTOPSIG(status);
			if (signal == (SIGTRAP | 0x80)) {
				struct user_regs_struct registers;
				ptrace(PTRACE_GETREGS, child, 0, &registers);
				writes += registers.orig_rax == SYS_pread64;
				signal = 0;
			} else if (status >> 16)
				others++, signal = 0;
			else if (signal == SIGSTOP || signal == SIGUSR1)
				stops += signal, signal = 0;
			ahead(1);
			ptrace(PTRACE_SYSCALL, child, 0, signal);
			CHECK(waitpid(child, &status, 0) == child);
		}
		printf("%s %d %d %d\n", ended(status), stops, writes >= 40, others);
		errno = 0;
		printf("%d %d\n", waitpid(-1, &status, __WALL), errno == ECHILD);
	}
}
