/* A call that executes a program and fails is left by a handler: what was opened
 * meanwhile is closed. */
#include "common.h"
static sigjmp_buf out;
static volatile sig_atomic_t armed;
static void leave(int signal)
{
	(void)signal;
	if (armed) {
		armed = 0;
		siglongjmp(out, 1);
	}
}
static int open_descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}
static void arm(int us)
{
	struct itimerval soon = { { 0, 0 }, { 0, us } };
	armed = 1;
	setitimer(ITIMER_REAL, &soon, NULL);
}
int main(void)
{
	char *argv[] = { "x", NULL }, *envp[] = { "A=b", NULL };
	const char *names[] = { "data/f00", "garbage" };
	signal(SIGALRM, leave);
	int fd = open("garbage", O_WRONLY | O_CREAT, 0755);
	write(fd, "\x7f" "ELFgarbage", 11), close(fd);
	printf("%u\n", work());
	int before = open_descriptors();
	for (volatile int i = 0; i < 3000; i++)
		if (sigsetjmp(out, 1) == 0) {
			arm(1 + i % 60);
			for (int times = 0; times < 8 && armed; times++)
				execve(names[i % 2], argv, envp);
			armed = 0;
		}
	printf("%d descriptors left\n", open_descriptors() - before);
	printf("%u\n", work());
	return 0;
}
