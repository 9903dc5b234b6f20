/* Effects by system call instructions of its own, which no hook sees: only
 * the program has them, its copies do not. */
#include "common.h"
static long raw(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}
static int hits;
static void handler(int s) { hits++; }
int main(void)
{
	signal(SIGUSR1, handler);
	int pid = getpid();
	for (int round = 0; round < 100; round++) {
		char a[32], b[32];
		snprintf(a, sizeof a, "dir%d", round);
		snprintf(b, sizeof b, "moved%d", round);
		ahead(1);
		printf("%ld ", raw(SYS_mkdir, (long)a, 0755, 0));
		printf("%ld ", raw(SYS_rename, (long)a, (long)b, 0));
		long fd = raw(SYS_open, (long)a, O_RDWR | O_CREAT | O_EXCL, 0644);
		printf("%ld %ld ", fd, raw(SYS_write, fd, (long)b, 5));
		raw(SYS_close, fd, 0, 0);
		raw(SYS_kill, pid, SIGUSR1, 0);
		printf("%d %ld\n", hits, round % 2 ? raw(SYS_unlink, (long)a, 0, 0) : 0);
	}
}
