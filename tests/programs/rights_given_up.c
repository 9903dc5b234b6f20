// needs: root
/* A change of user while a copy lives, by libc and by a system call of its
 * own: the copy must not outlive the program, nor make it wait. */
#include "common.h"
static long raw(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}
/* Processes of which this one is the parent, looked at in a way that makes
 * no copy. */
static int children(void)
{
	char name[64], text[256];
	snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
	int fd = raw(SYS_open, (long)name, O_RDONLY, 0), count = 0;
	ssize_t got = raw(SYS_read, fd, (long)text, sizeof text);
	raw(SYS_close, fd, 0, 0);
	for (ssize_t i = 0; i < got; i++)
		count += text[i] == ' ';
	return count;
}
int main(void)
{
	for (int round = 0; round < 12; round++) {
		pid_t child = fork();
		if (child == 0) {
			ahead(3);
			if (round % 3 == 0) {
				/* Its copy could not be killed any more: it is gone. */
				CHECK(setgid(65534) == 0 && setuid(65534) == 0);
				printf("%d ", children());
			} else if (round % 3 == 1) {
				CHECK(seteuid(65534) == 0);
				printf("%d ", children());
			} else {
				CHECK(raw(SYS_setuid, 65534, 0, 0) == 0);
			}
			printf("%u %u\n", ahead(3), (unsigned)geteuid());
			_exit(round);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s\n", ended(status));
	}
}
