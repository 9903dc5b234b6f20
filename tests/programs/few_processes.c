// needs: root
/* RLIMIT_NPROC just reached: as many children as there would be alone, with
 * copies alive, and one that reads while the limit is used up. */
#include "common.h"
#define CHILDREN 5
int main(void)
{
	/* A user that runs nothing else. */
	int uid = 61000 + getpid() % 1000, status;
	pid_t first = fork();
	if (first == 0) {
		struct rlimit limit = { CHILDREN + 1, CHILDREN + 1 };
		CHECK(setgid(uid) == 0 && setuid(uid) == 0);
		CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
		for (int round = 0; round < 6; round++) {
			pid_t children[CHILDREN + 2];
			int made = 0, failed = 0, hold[2];
			pipe(hold);
			for (int i = 0; i < CHILDREN + 2; i++) {
				ahead(2);
				pid_t child = fork();
				if (child == 0) {
					char byte;
					close(hold[1]);
					ahead(2);
					read(hold[0], &byte, 1);
					_exit(0);
				}
				if (child > 0)
					children[made++] = child;
				else
					failed += errno == EAGAIN;
			}
			printf("%d %d %u\n", made, failed, ahead(3));
			close(hold[0]), close(hold[1]);
			for (int i = 0; i < made; i++)
				CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
		}
		_exit(0);
	}
	waitpid(first, &status, 0);
	printf("%s\n", ended(status));
}
