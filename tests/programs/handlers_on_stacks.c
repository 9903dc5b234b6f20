/* A timer's handler runs on an alternate stack, again and again, also in the
 * middle of a synchronisation, and reads files there, where copies are made
 * as well; the stack's frame, mask and flags are what they should be. */
#include "common.h"
#define STACK_LEN (64 * 1024)
static char *stack;
static volatile sig_atomic_t hits, wrong;
static volatile unsigned inner;
static void handler(int signal, siginfo_t *info, void *context)
{
	char here;
	ucontext_t *interrupted = context;
	stack_t now;
	sigaltstack(NULL, &now);
	wrong += &here < stack || &here > stack + STACK_LEN;
	wrong += !(now.ss_flags & SS_ONSTACK) || now.ss_sp != (void *)stack;
	wrong += interrupted->uc_stack.ss_sp != (void *)stack;
	sigset_t mask;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	wrong += !sigismember(&mask, SIGALRM) || sigismember(&mask, SIGUSR1);
	int saved = errno;
	if (++hits % 8 == 0)
		inner = ahead(2);
	errno = saved;
}
static void *reader(void *sum)
{
	/* Threads have alternate stacks of their own: this one has none. */
	stack_t now;
	CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_DISABLE);
	*(unsigned *)sum = ahead(40);
	return NULL;
}
int main(void)
{
	stack = mmap(NULL, STACK_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t mine = { .ss_sp = stack, .ss_size = STACK_LEN };
	CHECK(sigaltstack(&mine, NULL) == 0);
	sigset_t blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO | SA_RESTART };
	sigaction(SIGALRM, &action, NULL);
	struct itimerval every = { { 0, 150 }, { 0, 150 } }, never = { { 0, 0 }, { 0, 0 } };
	for (int round = 0; round < 6; round++) {
		setitimer(ITIMER_REAL, &every, NULL);
		unsigned sum = work() + ahead(60), theirs = 0;
		if (round % 2) {
			/* The timer stays this thread's. */
			pthread_t thread;
			pthread_sigmask(SIG_BLOCK, &blocked, NULL);
			pthread_create(&thread, NULL, reader, &theirs);
			pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
			sum += ahead(30);
			pthread_join(thread, NULL);
		}
		int before = hits;
		while (hits < before + 10)
			ahead(1);
		setitimer(ITIMER_REAL, &never, NULL);
		printf("%u %u %d\n", sum, theirs, (int)wrong);
	}
	printf("%u\n", inner);
}
