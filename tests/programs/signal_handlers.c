/* Handlers of the program run in the program, once each, in order, with the
 * mask that they were given; a copy runs none. */
#include "common.h"
static int counts[65];
static sigset_t inside;
static void handler(int s, siginfo_t *info, void *context)
{
	counts[s]++;
	pthread_sigmask(SIG_BLOCK, NULL, &inside);
}
int main(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaddset(&action.sa_mask, SIGUSR2);
	for (int s = 1; s < 65; s++)
		if (s != SIGKILL && s != SIGSTOP && s != 32 && s != 33)
			CHECK(sigaction(s, &action, NULL) == 0);
	for (int round = 0; round < 20; round++)
		for (int s = 1; s < 65; s++)
			if (s != SIGKILL && s != SIGSTOP && s != 32 && s != 33) {
				if (s % 16 == 0)
					ahead(1);
				kill(getpid(), s);
			}
	for (int s = 1; s < 65; s++)
		printf("%d:%d ", s, counts[s]);
	printf("\n%d %d\n", sigismember(&inside, SIGUSR2), sigismember(&inside, SIGUSR1));
	/* Actions read back as they were set, the agent's own notwithstanding. */
	for (int s = 1; s < 65; s++) {
		struct sigaction now;
		if (sigaction(s, NULL, &now) == 0)
			printf("%d%d ", now.sa_sigaction == handler, (now.sa_flags & SA_RESTART) != 0);
	}
	printf("\n");
}
