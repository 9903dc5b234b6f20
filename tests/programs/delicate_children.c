/* What a process watches its forked children watch: files that they read are opened
 * by them alone, as the parent's watch tells. */
#include "common.h"
#include <sys/inotify.h>
static int opened(int watch)
{
	char buffer[65536] __attribute__((aligned(8)));
	ssize_t got;
	int count = 0;
	pause_ms(20);
	while ((got = read(watch, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len)
			count += (((struct inotify_event *)at)->mask & IN_OPEN) != 0;
	return count;
}
int main(void)
{
	int watch = inotify_init1(IN_NONBLOCK);
	CHECK(inotify_add_watch(watch, "data", IN_OPEN) > 0);
	for (int generation = 0; generation < 3; generation++) {
		pid_t child = fork();
		if (child == 0) {
			printf("%u\n", ahead(5));
			for (int i = 0; i < FILES; i++)
				printf("%u\n", sum_file(file_name(i)) + ahead(2));
			if (generation == 2)
				_exit(7);
			continue;
		}
		int status;
		waitpid(child, &status, 0);
		printf("%d: %s, opened %d times\n", generation, ended(status), opened(watch));
		_exit(generation);
	}
}
