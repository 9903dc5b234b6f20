/* Threads are cancelled and handlers leave by longjmp in the middle of reads:
 * later reads of all threads are as before, and so are locks. */
#include "common.h"
static void *endless(void *unused)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		ahead(3);
}
static sigjmp_buf back;
static void leave(int signal) { siglongjmp(back, 1); }
int main(void)
{
	signal(SIGALRM, leave);
	for (int round = 0; round < 60; round++) {
		pthread_t thread;
		void *result;
		pthread_create(&thread, NULL, endless, NULL);
		struct timespec moment = { 0, 100000 + round * 37000 };
		nanosleep(&moment, NULL);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		CHECK(result == PTHREAD_CANCELED);
		struct itimerval time = { { 0 }, { 0, 300 + round * 17 } };
		if (sigsetjmp(back, 1) == 0) {
			setitimer(ITIMER_REAL, &time, NULL);
			for (;;)
				ahead(3);
		}
		printf("%u\n", ahead(3));
	}
}
