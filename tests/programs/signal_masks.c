/* The mask and what is pending are the program's own, also where everything
 * is blocked, SIGSYS and SIGSEGV with it. */
#include "common.h"
static void show(void)
{
	sigset_t set;
	sigprocmask(SIG_SETMASK, NULL, &set);
	for (int s = 1; s < 65; s++)
		putchar('0' + sigismember(&set, s));
	sigpending(&set);
	putchar(' ');
	for (int s = 1; s < 65; s++)
		putchar('0' + sigismember(&set, s));
	putchar('\n');
}
int main(void)
{
	sigset_t set;
	ahead(2), show();
	sigfillset(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	ahead(2), show();
	kill(getpid(), SIGUSR1), kill(getpid(), SIGRTMIN), kill(getpid(), SIGSYS);
	printf("%u\n", work()), show();
	signal(SIGUSR1, SIG_IGN), signal(SIGRTMIN, SIG_IGN), signal(SIGSYS, SIG_IGN);
	show();
	sigemptyset(&set), sigaddset(&set, SIGSYS);
	sigprocmask(SIG_SETMASK, &set, NULL);
	printf("%u\n", work()), show();
}
