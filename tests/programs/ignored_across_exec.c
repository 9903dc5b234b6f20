/* A signal that is ignored stays so in what the program executes, the ones
 * that no libc lets through among them: 32 is the agent's for notices of page
 * faults, 33 nobody's. */
#include "common.h"
static void ignored(void)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, status))
		if (!strncmp(line, "SigIgn:", 7))
			printf("%s", line);
	fclose(status);
}
int main(int argc, char **argv)
{
	if (argc == 2) {
		ignored();
		return 0;
	}
	ignore_signal(32), ignore_signal(33);
	unsigned char *map = map_large();
	unsigned sum = ahead(3) + touch_large(map);
	printf("%u\n", sum), fflush(stdout);
	if (argc == 1) {
		/* One exec that fails, and then one that does not. */
		execl("/nonexistent", argv[0], NULL);
		touch_large(map);
		execl("/proc/self/exe", argv[0], "again", NULL);
	}
	perror("execute");
}
