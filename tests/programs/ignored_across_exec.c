/* A signal that is ignored stays so in what the program executes, the ones
 * that no libc lets through among them: 32 is the agent's for notices of page
 * faults, 33 nobody's. */
#include "common.h"
#define BYTES (4 << 20)
static void ignored(void)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, status))
		if (!strncmp(line, "SigIgn:", 7))
			printf("%s", line);
	fclose(status);
}
static void ignore(long signal)
{
	struct { void (*handler)(int); unsigned long flags, restorer, mask; } action = { SIG_IGN, 0, 0, 0 };
	CHECK(syscall(SYS_rt_sigaction, signal, &action, NULL, 8) == 0);
}
int main(int argc, char **argv)
{
	if (argc == 2) {
		ignored();
		return 0;
	}
	ignore(32), ignore(33);
	int fd = open("large", O_RDWR | O_CREAT, 0600);
	CHECK(ftruncate(fd, BYTES) == 0);
	unsigned char *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	unsigned sum = ahead(3);
	for (long at = 0; at < BYTES; at += 4096)
		sum += map[at];
	printf("%u\n", sum), fflush(stdout);
	if (argc == 1) {
		/* One exec that fails, and then one that does not. */
		execl("/nonexistent", argv[0], NULL);
		for (long at = 0; at < BYTES; at += 4096)
			sum += map[at];
		execl("/proc/self/exe", argv[0], "again", NULL);
	}
	perror("execute");
}
