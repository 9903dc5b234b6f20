/* Coroutines whose stacks are other memory than a child's own: shared with it, missing
 * there, or empty there. */
#include "common.h"
#include <ucontext.h>
enum { SIZE = 256 * 1024 };
static ucontext_t back, routine;
static unsigned sum;
static void body(void)
{
	for (int i = 0; i < 8; i++)
		sum = sum * 31 + work();
}
static void run(void *stack)
{
	sum = 0;
	getcontext(&routine);
	routine.uc_stack.ss_sp = stack;
	routine.uc_stack.ss_size = SIZE;
	routine.uc_link = &back;
	makecontext(&routine, body, 0);
	swapcontext(&back, &routine);
	printf("%u\n", sum);
}
static void *stack(int flags, int advice)
{
	char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	CHECK(stack != MAP_FAILED);
	CHECK(advice == 0 || madvise(stack, SIZE, advice) == 0);
	return stack;
}
static void *thread(void *unused)
{
	body();
	return unused;
}
int main(void)
{
	/* A copy that dies leaves no core file. */
	struct rlimit core = { RLIM_INFINITY, RLIM_INFINITY };
	getrlimit(RLIMIT_CORE, &core);
	core.rlim_cur = core.rlim_max;
	setrlimit(RLIMIT_CORE, &core);
	for (int round = 0; round < 4; round++) {
		run(stack(MAP_SHARED, 0));
		run(stack(MAP_PRIVATE, MADV_DONTFORK));
		run(stack(MAP_PRIVATE, MADV_WIPEONFORK));
	}
	pthread_attr_t attributes;
	pthread_t id;
	pthread_attr_init(&attributes);
	CHECK(pthread_attr_setstack(&attributes, stack(MAP_SHARED, 0), SIZE) == 0);
	sum = 0;
	CHECK(pthread_create(&id, &attributes, thread, NULL) == 0);
	pthread_join(id, NULL);
	printf("%u\n", sum);
	return 0;
}
