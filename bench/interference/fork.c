/* fork and wait, between reads that stall. Children that are not the
 * program's own would show in its waits.
 * usage: fork FILE READS SAMPLES */
#include "common.h"

enum { MEMORY = 16 << 20 };

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	struct reader r = reader_open(argv[1]);
	long reads = atol(argv[2]), strange = 0, failed = 0;
	struct samples s = samples_new((size_t)reads);
	int schedstat = schedstat_open();
	char *memory = malloc(MEMORY);
	if (!memory)
		fail("memory");
	for (size_t at = 0; at < MEMORY; at += PAGE)
		memory[at] = 1;
	for (long i = 0; i < reads; i++) {
		int status;
		reader_read(&r);
		memory[(size_t)i * PAGE % MEMORY]++;
		if (i % 4 != 0)
			continue;
		struct mark start = mark_now(schedstat);
		pid_t child = fork();
		if (child == 0)
			_exit(memory[(size_t)i * PAGE % MEMORY] > 1 ? 7 : 1);
		be_late(i, reads / 8 * 4);
		samples_add(&s, sample_since(&start, schedstat));
		if (child < 0)
			fail("fork");
		if (waitpid(-1, &status, __WALL) != child)
			strange++;
		else if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
			failed++;
		if (waitpid(-1, &status, WNOHANG | __WALL) != -1 || errno != ECHILD)
			strange++;
	}
	samples_write(&s, argv[3]);
	printf("read %016llx\nstrange %ld\nlost %ld\n", (unsigned long long)r.sum, strange, failed);
	return 0;
}
