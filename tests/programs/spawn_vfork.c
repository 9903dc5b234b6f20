/* vfork and posix_spawn share the parent's memory until the exec: neither
 * side disturbs the other. */
#include "common.h"
#include <spawn.h>
extern char **environ;
int main(int argc, char **argv)
{
	if (argc > 1) {
		printf("child %u\n", ahead(10));
		return atoi(argv[1]);
	}
	for (volatile int round = 0; round < 10; round++) {
		ahead(3);
		char number[8];
		snprintf(number, sizeof number, "%d", round);
		char *args[] = { argv[0], number, NULL };
		int status;
		pid_t child = vfork();
		if (child == 0) {
			char byte;
			int fd = open(BIG, O_RDONLY);
			for (int i = 0; i < 20; i++)
				pread(fd, &byte, 1, i * 5000);
			close(fd);
			if (round % 3 == 0)
				_exit(40);
			execve(round % 3 == 1 ? "/nonexistent" : "/proc/self/exe", args, environ);
			_exit(41);
		}
		unsigned sum = ahead(3);
		waitpid(child, &status, 0);
		printf("%u %s\n", sum, ended(status));
		/* No copy has been forgotten meanwhile. */
		errno = 0;
		printf("%d %d\n", (int)waitpid(-1, &status, __WALL), errno == ECHILD);
		posix_spawn_file_actions_t actions;
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_addopen(&actions, 9, BIG, O_RDONLY, 0);
		posix_spawn_file_actions_adddup2(&actions, 9, 10);
		posix_spawn_file_actions_addclose(&actions, 9);
		int error = posix_spawn(&child, round % 2 ? "/nonexistent" : "/proc/self/exe", &actions, NULL, args, environ);
		sum = ahead(3);
		if (error == 0)
			waitpid(child, &status, 0);
		printf("%d %u %s\n", error, sum, error ? "" : ended(status));
	}
}
