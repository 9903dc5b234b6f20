/* Every way to end, with copies alive: exit with handlers, _exit, abort,
 * signals, falling off main, pthread_exit of main, a thread's exit. */
#include "common.h"
static void at_exit(void) { printf("at exit %u\n", ahead(3)); }
static void *late(void *none)
{
	pause_ms(5);
	ahead(3);
	printf("last thread\n");
	return NULL;
}
static void *exits(void *none) { ahead(3); exit(9); }
static int child(int way)
{
	pthread_t id;
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	atexit(at_exit);
	ahead(5);
	switch (way) {
	case 0: exit(3);
	case 1: _exit(4);
	case 2: abort();
	case 3: raise(SIGTERM); break;
	case 4: kill(getpid(), SIGKILL); pause_ms(1000); break;
	case 5: return 5;
	case 6: pthread_create(&id, NULL, late, NULL); pthread_exit(NULL);
	case 7: pthread_create(&id, NULL, exits, NULL); pause(); break;
	case 8: *(volatile int *)8 = 0; break;
	case 9: quick_exit(6);
	case 10: syscall(SYS_exit_group, 300); break;
	case 11: syscall(SYS_exit, 7); break;
	case 12: raise(SIGPIPE); break;
	case 13: signal(SIGABRT, SIG_IGN); abort();
	}
	return 99;
}
int main(void)
{
	for (int round = 0; round < 28; round++) {
		printf("%u ", ahead(2));
		pid_t pid = fork();
		if (pid == 0)
			exit(child(round % 14));
		int status;
		waitpid(pid, &status, 0);
		printf("%d: %s\n", round % 14, ended(status));
	}
	return 77;
}
