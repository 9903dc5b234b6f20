/* A child by vfork, which has its parent's memory, restricts its own calls: those
 * that it does not make itself are made neither for it nor for what it makes, and
 * its parent goes on as before. */
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
extern char **environ;
static char *argv0;
static int filter(int how, unsigned action)
{
	/* Calls that the program does not make, or not like that. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_preadv2, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_getpid, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_setfsuid, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_rt_sigprocmask, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JGT, SIG_SETMASK, 1, 0),
		BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET, action),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return how ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
static int reads(void)
{
	char byte;
	int fd = open(BIG, O_RDONLY), good = 0;
	for (int i = 0; i < 20; i++)
		good += pread(fd, &byte, 1, i * 5000) == 1;
	close(fd);
	return good == 20;
}
/* What the child does, after which it is gone. */
static void __attribute__((noinline)) child(int kind)
{
	struct sock_fprog none = { 0, NULL };
	char *args[] = { argv0, "again", NULL };
	if (!reads())
		_exit(40);
	if (kind & 8) {
		/* A filter that is refused. */
		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &none) == 0)
			_exit(41);
	} else if (filter(kind & 1, kind & 2 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM)) {
		_exit(42);
	}
	if (!reads())
		_exit(43);
	int status, grandchild = syscall(SYS_fork);
	if (grandchild == 0)
		_exit(reads() ? 5 : 6);
	if (waitpid(grandchild, &status, 0) != grandchild || status != 5 << 8)
		_exit(44);
	execve("/nonexistent", args, environ);
	if (kind & 4)
		_exit(reads() ? 4 : 45);
	execve("/proc/self/exe", args, environ);
	_exit(46);
}
static const char *round_of(int kind)
{
	int status;
	pid_t pid = vfork();
	if (pid == 0)
		child(kind);
	CHECK(waitpid(pid, &status, 0) == pid);
	return ended(status);
}
static void *rounds(void *first)
{
	for (int round = 0; round < 8; round++) {
		int status;
		pid_t pid = vfork();
		if (pid == 0)
			child((long)first + round & 7);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (round + (long)first & 4 ? 4 : 3));
		ahead(3);
	}
	return NULL;
}
int main(int argc, char **argv)
{
	if (argc > 1)
		return ahead(5) ? 3 : 47;
	argv0 = argv[0];
	for (int kind = 0; kind < 16; kind++) {
		int status;
		printf("%u ", ahead(5));
		printf("%d %s ", kind, round_of(kind));
		printf("%u ", ahead(5));
		/* No copy has been forgotten meanwhile. */
		errno = 0;
		printf("%d ", (int)waitpid(-1, &status, __WALL));
		printf("%d\n", errno);
	}
	pthread_t threads[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, rounds, (void *)i);
	for (int i = 0; i < 10; i++)
		printf("%u\n", ahead(5));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("%u\n", work());
}
