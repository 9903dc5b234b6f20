/* A handler that recovers from a wild access by siglongjmp, again and again,
 * while copies of the program meet the same accesses. */
#include "common.h"
static sigjmp_buf back;
static volatile int caught;
static void handler(int s, siginfo_t *info, void *context)
{
	caught++;
	siglongjmp(back, s);
}
int main(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &action, NULL), sigaction(SIGBUS, &action, NULL);
	sigaction(SIGFPE, &action, NULL), sigaction(SIGILL, &action, NULL);
	sigaction(SIGTRAP, &action, NULL);
	volatile int zero = 0;
	for (int round = 0; round < 50; round++) {
		unsigned sum = ahead(2);
		int s = sigsetjmp(back, 1);
		if (s == 0)
			switch (round % 5) {
			case 0: *(volatile int *)(uintptr_t)(8 + zero) = 1; break;
			case 1: printf("%d\n", 1 / zero); break;
			case 2: __asm__ volatile("ud2"); break;
			case 3: __asm__ volatile("int3"); break;
			case 4: *(volatile int *)main = 1; break;
			}
		printf("%u %d\n", sum, s);
	}
	printf("%d\n", caught);
}
