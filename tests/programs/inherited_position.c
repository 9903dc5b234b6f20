/* Reads by a description's position wait for each other. A child that reads
 * what its parent opened asks nowhere else for the position: that would wait
 * once more, behind every other reader. Nor does one that has tried to execute a
 * program before. */
#include "common.h"
#include <sys/ptrace.h>
#include <sys/user.h>
static void trace(int fd, int tries)
{
	pid_t child = fork();
	if (child == 0) {
		char bytes[4096];
		unsigned sum = 0;
		if (tries)
			execl("/nonexistent", "first", NULL);
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		while (read(fd, bytes, sizeof bytes) > 0)
			sum += (unsigned char)bytes[0];
		_exit(sum % 7);
	}
	int status, questions = 0, reads = 0;
	waitpid(child, &status, 0);
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
		int signal = WSTOPSIG(status);
		if (signal == (SIGTRAP | 0x80)) {
			struct user_regs_struct registers;
			ptrace(PTRACE_GETREGS, child, 0, &registers);
			questions += registers.orig_rax == SYS_lseek && registers.rdi == (unsigned)fd;
			reads += registers.orig_rax == SYS_read && registers.rdi == (unsigned)fd;
			signal = 0;
		} else if (signal == SIGSTOP)
			signal = 0;
		ptrace(PTRACE_SYSCALL, child, 0, signal);
		CHECK(waitpid(child, &status, 0) == child);
	}
	printf("%s, %d reads, the position asked for %d times\n", ended(status), reads / 2, questions);
	printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
}
int main(void)
{
	trace(open(BIG, O_RDONLY), 0);
	trace(open(BIG, O_RDONLY), 1);
}
