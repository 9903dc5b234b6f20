/* What a notice of a page fault could disturb: masks, handlers, alternate
 * stacks, waits for signals, the limit of queued signals, and exec with
 * signals blocked. */
#include "common.h"
#define LEN (4 << 20)
static volatile unsigned char *map;
static unsigned touch(int from, int step)
{
	unsigned sum = 0;
	madvise((void *)map, LEN, MADV_DONTNEED);
	for (int i = from; i < LEN / 4096; i += step)
		sum = sum * 31 + map[(size_t)i * 4096];
	return sum;
}
static volatile int hits[65];
static void count(int s) { hits[s]++; }
static void mask_raw(int how, uint64_t set)
{
	CHECK(syscall(SYS_rt_sigprocmask, how, &set, NULL, 8) == 0);
}
int main(int argc, char **argv)
{
	int fd = open("large", O_RDWR | O_CREAT, 0644);
	CHECK(ftruncate(fd, LEN) == 0);
	for (int i = 0; i < LEN / 4096; i++)
		CHECK(pwrite(fd, &i, 4, (off_t)i * 4096) == 4);
	map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	printf("%x\n", touch(0, 5));
	if (argc > 1)
		return 0;
	/* The first touch of the vDSO's data: a fault that the kernel begins anew. */
	struct timespec time;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	/* Handlers for all that can have one. */
	for (int s = 1; s < 65; s++)
		signal(s, count);
	printf("%x\n", touch(1, 5));
	/* Everything blocked that can be; waits in between. */
	sigset_t all, old, pending;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	printf("%x\n", touch(2, 5));
	struct timespec none = { 0, 1000 };
	CHECK(sigtimedwait(&all, NULL, &none) == -1 && errno == EAGAIN);
	sigpending(&pending);
	for (int s = 1; s < 65; s++)
		CHECK(sigismember(&pending, s) <= 0);
	sigprocmask(SIG_SETMASK, &old, NULL);
	/* Even the signals that the C library keeps, behind its back, for more
	 * faults than the agent asks for at a time. */
	mask_raw(SIG_BLOCK, ~0ull);
	for (int i = 0; i < 8; i++)
		touch(i, 3);
	mask_raw(SIG_UNBLOCK, ~0ull);
	printf("%x\n", touch(3, 5));
	/* A small alternate stack, and faults on it. */
	static char small[8192];
	stack_t stack = { .ss_sp = small, .ss_size = sizeof small };
	CHECK(sigaltstack(&stack, NULL) == 0);
	printf("%x\n", touch(4, 5));
	CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_sp == small && stack.ss_flags == 0);
	/* A timer that interrupts all along. */
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_REAL, &often, NULL);
	unsigned sum = 0;
	for (int i = 0; i < 10; i++)
		sum = sum * 31 + touch(i, 2);
	setitimer(ITIMER_REAL, &never, NULL);
	printf("%x\n", sum);
	/* No room for queued signals. */
	struct rlimit limit;
	getrlimit(RLIMIT_SIGPENDING, &limit);
	limit.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	printf("%x\n", touch(0, 2));
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_SIGPENDING, &limit);
	hits[SIGALRM] = 0;
	for (int s = 1; s < 65; s++)
		if (hits[s])
			printf("signal %d came %d times\n", s, hits[s]);
	/* Into another program with everything blocked. */
	int child = fork(), status;
	if (child == 0) {
		mask_raw(SIG_BLOCK, ~0ull);
		touch(0, 3);
		execl("/proc/self/exe", argv[0], "again", NULL);
		_exit(99);
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s\n", ended(status));
	unlink("large");
}
