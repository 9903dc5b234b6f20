/* Waits in page faults that are noticed by watching: calls that wait are never
 * ended early, stopped or not; handlers that wait, too, and leave by longjmp;
 * children; sequences of the program's own (rseq). */
#include "common.h"
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#define PAGES 512
static int fd;
static volatile unsigned char *map;
static unsigned sum;
/* What is read next is on the disk again, where it is on one. */
static void forget(void)
{
	madvise((void *)map, PAGES * 4096, MADV_DONTNEED);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}
__attribute__((noinline)) static unsigned touch(int from, int count, int step)
{
	unsigned sum = 0;
	for (int i = 0; i < count; i++)
		sum = sum * 31 + map[(size_t)((from + i * step) % PAGES) * 4096];
	return sum;
}
static jmp_buf out;
static volatile int leave, hits;
static void handler(int s)
{
	(void)s;
	hits++;
	sum += touch(hits * 7, 1, 1) & 0;
	if (leave)
		siglongjmp(out, 1);
}
static void waits(int rounds)
{
	int pipes[2], epoll = epoll_create1(0), ends = 0;
	CHECK(pipe(pipes) == 0);
	struct epoll_event event = { .events = EPOLLIN };
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0);
	struct pollfd poll_one = { pipes[0], POLLIN, 0 };
	struct timespec ms = { 0, 1000000 };
	sigset_t none, one;
	sigemptyset(&none);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	sigprocmask(SIG_BLOCK, &one, NULL);
	int semaphores = semget(IPC_PRIVATE, 1, 0600), word = 0;
	struct sembuf take = { 0, -1, 0 };
	for (int i = 0; i < rounds; i++) {
		sum = sum * 31 + touch(i * 11, 3, 37);
		struct timespec before, after;
		clock_gettime(CLOCK_MONOTONIC, &before);
		int result = 0;
		errno = 0;
		switch (i % 7) {
		case 0: result = poll(&poll_one, 1, 2); break;
		case 1: result = epoll_wait(epoll, &event, 1, 2); break;
		case 2: result = nanosleep(&ms, NULL); break;
		case 3:
			result = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &ms, NULL, 0);
			result = result == -1 && errno == ETIMEDOUT ? 0 : -1;
			break;
		case 4:
			result = semtimedop(semaphores, &take, 1, &ms);
			result = result == -1 && errno == EAGAIN ? 0 : -1;
			break;
		case 5:
			result = sigtimedwait(&one, NULL, &ms);
			result = result == -1 && errno == EAGAIN ? 0 : -1;
			break;
		case 6: result = ppoll(&poll_one, 1, &ms, &none); break;
		}
		clock_gettime(CLOCK_MONOTONIC, &after);
		long ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
		ends += result != 0 || ns < 1000000;
	}
	printf("%d ended early\n", ends);
	semctl(semaphores, 0, IPC_RMID);
	close(epoll), close(pipes[0]), close(pipes[1]);
}
/* Waits that a stop alone does not end. */
static void stopped(void)
{
	int child = fork(), status, ends = 0;
	if (child == 0) {
		struct timespec ms = { 0, 1000000 };
		int word = 0;
		for (int i = 0; i < 300; i++) {
			if (i % 40 == 0)
				forget();
			touch(i * 13, 2, 101);
			ends += poll(NULL, 0, 1) != 0;
			ends += nanosleep(&ms, NULL) != 0;
			ends += syscall(SYS_futex, &word, FUTEX_WAIT, 0, &ms, NULL, 0) != -1 || errno != ETIMEDOUT;
		}
		_exit(ends);
	}
	while (waitpid(child, &status, WNOHANG) == 0) {
		usleep(700);
		kill(child, SIGSTOP);
		usleep(50);
		kill(child, SIGCONT);
	}
	printf("stopped: %s\n", ended(status));
}
/* A sequence of the program's own around a load that waits. */
extern ptrdiff_t __rseq_offset __attribute__((weak));
extern unsigned __rseq_size __attribute__((weak));
struct sequence {
	uint32_t version, flags;
	uint64_t start, length, abort;
} __attribute__((aligned(32)));
__attribute__((noinline)) static int own_sequence(const volatile unsigned char *at)
{
	static struct sequence own;
	int aborted = 0;
	uint64_t *word = (uint64_t *)((char *)__builtin_thread_pointer() + __rseq_offset + 8);
	__asm__ volatile(
		"lea 1f(%%rip), %%rax\n\tmov %%rax, 8(%[own])\n\t"
		"movq $2f - 1f, 16(%[own])\n\t"
		"lea 4f(%%rip), %%rax\n\tmov %%rax, 24(%[own])\n\t"
		"mov %[own], (%[word])\n\t"
		"1: movzbl (%[at]), %%eax\n\t"
		"mov $3000000, %%eax\n\t"
		"5: dec %%eax\n\tjnz 5b\n"
		"2: jmp 3f\n\t"
		".long 0x53053053\n"
		"4: mov $1, %[aborted]\n\t"
		"3: movq $0, (%[word])\n\t"
		: [aborted] "+r"(aborted)
		: [own] "r"(&own), [word] "r"(word), [at] "r"(at)
		: "rax", "memory", "cc");
	return aborted;
}
int main(int argc, char **argv)
{
	fd = open("large", O_RDWR | O_CREAT, 0644);
	CHECK(ftruncate(fd, PAGES * 4096) == 0);
	static unsigned char page[4096];
	for (int i = 0; argc == 1 && i < PAGES; i++) {
		memset(page, i * 7 + 1, sizeof page);
		CHECK(pwrite(fd, page, sizeof page, (off_t)i * 4096) == sizeof page);
	}
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	map = mmap(NULL, PAGES * 4096, PROT_READ, MAP_SHARED, fd, 0);
	madvise((void *)map, PAGES * 4096, MADV_RANDOM);
	printf("%x\n", touch(0, PAGES, 101));
	if (argc > 1)
		return 0;
	forget();
	waits(210);
	printf("%x\n", sum);
	stopped();
	/* Handlers that wait, on a stack of their own, and leave. */
	static char stack[65536];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
	CHECK(sigaltstack(&alternate, NULL) == 0);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	sigaction(SIGALRM, &action, NULL);
	struct itimerval often = { { 0, 3000 }, { 0, 3000 } }, never = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 30; i++) {
		forget();
		unsigned found = touch(i, 64, 7), again = touch(i, 64, 7);
		CHECK(found == again);
		if (sigsetjmp(out, 1) == 0) {
			leave = 1;
			for (;;)
				touch(i, 64, 5);
		}
		leave = 0;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK(hits >= 30);
	/* Children in the middle of it, and another program. */
	for (int i = 0; i < 6; i++) {
		int status;
		forget();
		touch(i, 8, 3);
		int child = i % 2 ? fork() : vfork();
		if (child == 0) {
			if (i % 2)
				printf("%x\n", touch(i, 100, 3));
			if (i > 3)
				_exit(touch(i, 3, 17) & 63);
			execl("/proc/self/exe", argv[0], "again", NULL);
			_exit(99);
		}
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s\n", ended(status));
	}
	if (&__rseq_offset && &__rseq_size && __rseq_size > 0) {
		for (int i = 0; i < 40; i++) {
			struct rusage before, after;
			forget();
			for (int j = 0; j < 3; j++)
				touch(i * 3 + j, 1, 1);
			getrusage(RUSAGE_THREAD, &before);
			int aborted = own_sequence(&map[(size_t)(i * 37 % PAGES) * 4096]);
			getrusage(RUSAGE_THREAD, &after);
			CHECK(aborted || after.ru_majflt == before.ru_majflt ||
			      after.ru_nvcsw == before.ru_nvcsw);
		}
	}
	unlink("large");
}
