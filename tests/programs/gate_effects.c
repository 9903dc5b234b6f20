/* A copy that computes on garbage jumps to the system call instructions of
 * the agent, the only ones that let it into the kernel: what it asks for there
 * has no effect either, be it by number or by argument. */
#include "common.h"
#define GATES 8
static unsigned long gates[GATES];
static void find(void)
{
	char line[400], mode[8];
	unsigned long start, end;
	FILE *maps = fopen("/proc/self/maps", "r");
	int found = 0;
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) == 3 && !strcmp(mode, "r-xp") && strstr(line, "agent"))
			for (unsigned long at = start; at + 3 <= end && found < GATES; at++)
				if (!memcmp((char *)at, "\x0f\x05\xc3", 3))
					gates[found++] = at;
	fclose(maps);
}
static long enter(unsigned long gate, long number, long a, long b, long c, long d)
{
	long result;
	register long fourth __asm__("r10") = d;
	__asm__ volatile("sub $256, %%rsp\n call *%[gate]\n add $256, %%rsp" : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), [gate] "r"(gate) : "rcx", "r11", "memory");
	return result;
}
int main(void)
{
	find();
	unsigned char known = at_100();
	for (int round = 0; round < 64; round++) {
		/* Only a copy finds another byte. */
		if (at_100() != known)
			for (int i = 0; i < GATES; i++) {
				unsigned long gate = gates[(i + round / 3) % GATES];
				if (gate && round % 3 == 0)
					enter(gate, SYS_mkdir, (long)"made", 0755, 0, 0);
				else if (gate && round % 3 == 1)
					enter(gate, SYS_openat, AT_FDCWD, (long)"created", O_WRONLY | O_CREAT, 0644);
				else if (gate)
					enter(gate, SYS_openat, AT_FDCWD, (long)"data/f15", O_WRONLY | O_TRUNC, 0);
			}
		pause_ms(2);
	}
	printf("%u\n", work());
}
