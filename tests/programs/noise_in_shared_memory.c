/* A rogue: the program finds shared memory that it was not told of and fills
 * it with noise, in itself and where it runs ahead. It goes on as it would
 * alone, and in time. */
#include "common.h"
#define RANGES 16
static struct { unsigned *start, *end; } ranges[RANGES];
static int found;
static unsigned state = 12345;
static void find(void)
{
	char line[300], mode[8];
	unsigned long start, end;
	FILE *maps = fopen("/proc/self/maps", "r");
	found = 0;
	while (found < RANGES && fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) == 3 && !strcmp(mode, "rw-s")) {
			ranges[found].start = (unsigned *)start;
			ranges[found++].end = (unsigned *)end;
		}
	fclose(maps);
}
static void scribble(int round)
{
	for (int i = 0; i < found; i++)
		for (unsigned *at = ranges[i].start; at < ranges[i].end; at++) {
			state ^= state << 13, state ^= state >> 17, state ^= state << 5;
			/* Lives and reasons are small numbers: those hit hardest. */
			*at = round % 4 == 0 ? state : round % 4 == 1 ? state % 5 : round % 4 == 2 ? 1 : 0xffffffffu;
			if (at - ranges[i].start > 512)
				at += 127;
		}
}
int main(void)
{
	for (int round = 0; round < 64; round++) {
		unsigned sum = ahead(3);
		if (round % 8 == 0)
			find();
		scribble(round);
		printf("%u ", sum * 31 + ahead(20));
		scribble(round + 1);
		int status;
		pid_t child = fork();
		if (child == 0)
			_exit(ahead(9) % 7);
		waitpid(child, &status, 0);
		printf("%s\n", ended(status));
	}
}
