/* Filters of its own, by prctl and by seccomp(2), and strict mode: what they
 * forbid is forbidden to the program, and nothing else happens. */
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
static int filter(int how, unsigned action)
{
	/* preadv2, openat and futex are forbidden. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_preadv2, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_openat, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_clone, 1, 0),
		BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET, action),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return how ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
int main(void)
{
	for (int how = 0; how < 4; how++) {
		printf("%u ", ahead(5));
		pid_t child = fork();
		if (child == 0) {
			int fd = open(BIG, O_RDONLY);
			char buffer[1000];
			printf("%u ", ahead(5));
			CHECK(filter(how & 1, how & 2 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM) == 0);
			for (int i = 0; i < 20; i++)
				CHECK(read(fd, buffer, 1000) == 1000);
			printf("%d ", buffer[999]);
			/* A child has the filter, too; clone(2) is forbidden. */
			int status;
			pid_t inner = syscall(SYS_fork);
			if (inner == 0) {
				for (int i = 0; i < 20; i++)
					if (read(fd, buffer, 1000) != 1000)
						_exit(1);
				_exit(5);
			}
			CHECK(waitpid(inner, &status, 0) == inner);
			printf("%s ", ended(status));
			errno = 0;
			printf("%d %d\n", (int)syscall(SYS_openat, AT_FDCWD, BIG, O_RDONLY), errno);
			exit(4);
		}
		int status;
		waitpid(child, &status, 0);
		printf("%s\n", ended(status));
	}
	pid_t child = fork();
	if (child == 0) {
		int fd = open(BIG, O_RDONLY);
		char byte;
		ahead(5);
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
		for (int i = 0; i < 20; i++)
			read(fd, &byte, 1);
		write(1, "strict\n", 7);
		syscall(SYS_exit, 3);
	}
	int status;
	waitpid(child, &status, 0);
	printf("%s\n", ended(status));
}
