/* A stack overflow is handled on the alternate stack, and the handler reads
 * a file there. */
#include "common.h"
static sigjmp_buf back;
static char stack[64 * 1024];
static unsigned sum;
static void handler(int s)
{
	sum = sum_file(file_name(1));
	siglongjmp(back, 1);
}
__attribute__((noinline)) static int deep(volatile char *above)
{
	volatile char room[4096];
	room[0] = above[0];
	return deep(room) + room[0];
}
int main(void)
{
	struct rlimit limit = { 256 * 1024, 256 * 1024 };
	setrlimit(RLIMIT_STACK, &limit);
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
	sigaltstack(&alternate, NULL);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	sigaction(SIGSEGV, &action, NULL);
	for (volatile int round = 0; round < 5; round++) {
		printf("%u ", ahead(3));
		char c = 0;
		if (sigsetjmp(back, 1) == 0)
			printf("%d", deep(&c));
		printf("%u\n", sum);
	}
	stack_t now;
	sigaltstack(NULL, &now);
	printf("%d %d\n", now.ss_sp == stack, now.ss_flags);
}
