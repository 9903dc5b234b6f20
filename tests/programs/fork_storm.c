/* Many children, each reading, some nested; every one of them comes back
 * with the right sum. */
#include "common.h"
int main(void)
{
	unsigned expect = work();
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 12; i++) {
			ahead(1);
			if (fork() == 0) {
				if (i % 4 == 0 && fork() == 0)
					_exit(work() != expect);
				int status = 0;
				if (i % 4 == 0)
					wait(&status);
				_exit(work() == expect && status == 0 ? i : 99);
			}
		}
		int total = 0, status, children = 0;
		while (wait(&status) > 0) {
			total += WEXITSTATUS(status);
			children++;
		}
		printf("%d %d %d\n", children, total, errno);
	}
}
