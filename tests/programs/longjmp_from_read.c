/* A handler leaves a blocking read for good by siglongjmp; later reads and
 * copies work as before. */
#include "common.h"
static sigjmp_buf back;
static void handler(int s) { siglongjmp(back, 1); }
int main(void)
{
	int pair[2];
	CHECK(pipe(pair) == 0);
	signal(SIGALRM, handler);
	for (volatile int round = 0; round < 20; round++) {
		struct itimerval soon = { { 0, 0 }, { 0, 3000 } };
		char byte;
		printf("%u ", ahead(3));
		if (sigsetjmp(back, 1) == 0) {
			setitimer(ITIMER_REAL, &soon, NULL);
			read(pair[0], &byte, 1);
			printf("not reached\n");
		}
		printf("%u\n", work());
	}
	/* Out of reads of files, at any instruction. */
	for (volatile int round = 0; round < 100; round++) {
		struct itimerval soon = { { 0, 0 }, { 0, 100 + round * 7 } };
		if (sigsetjmp(back, 1) == 0) {
			setitimer(ITIMER_REAL, &soon, NULL);
			for (;;) {
				int fd = open(BIG, O_RDONLY);
				char buffer[512];
				while (pread(fd, buffer, sizeof buffer, 0) > 0)
					;
			}
		}
		for (int fd = 5; fd < 64; fd++)
			close(fd);
	}
	printf("%u\n", work());
}
