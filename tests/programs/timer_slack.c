/* Who lets the kernel put its timers off, by hours here, waits for nothing of ours as
 * long, and finds the same afterwards; so do those that it makes. */
#include "common.h"
static unsigned long slack(void)
{
	unsigned long ns = 0;
	FILE *file = fopen("/proc/self/timerslack_ns", "r");
	if (file) {
		CHECK(fscanf(file, "%lu", &ns) == 1);
		fclose(file);
	}
	return ns;
}
int main(void)
{
	char byte;
	CHECK(prctl(PR_SET_TIMERSLACK, 3600000000000ul, 0, 0, 0) == 0);
	for (int round = 0; round < 10; round++) {
		int status;
		printf("%u\n", ahead(20));
		int fd = open(BIG, O_RDONLY);
		for (int i = 0; i < 4; i++)
			CHECK(pread(fd, &byte, 1, (off_t)(round * 977 + i * 331) % 120 * 4096) == 1);
		close(fd);
		pid_t pid = fork();
		if (pid == 0)
			_exit(syscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0) == 3600000000000 ? 3 : 4);
		CHECK(waitpid(pid, &status, 0) == pid);
		printf("%s %lu\n", ended(status), slack());
	}
	printf("%u\n", work());
	return 0;
}
