// needs: gate
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
/* The flags of the threads that a copy may make. At its end, the kernel clears
 * the word that the last argument names and wakes who waits there. */
#define THREAD 0xa50f00L
static unsigned long entered __attribute__((used));
static long thread_stack[512] __attribute__((aligned(16)));
__asm__("leave_by_gate:\n mov $60, %eax\n xor %edi, %edi\n jmp *entered(%rip)\n");
extern char leave_by_gate[];
static void thread(unsigned long gate, unsigned *word)
{
	entered = gate;
	thread_stack[510] = (long)leave_by_gate;
	enter(gate, SYS_clone, THREAD, (long)&thread_stack[510], 0, (long)word);
}
/* A process that waits on a word of shared memory: how often it is woken. */
static pid_t waits_on(volatile unsigned *word)
{
	pid_t child = fork();
	if (child == 0) {
		int woken = 0;
		while (*word == 0) {
			struct timespec time = { 0, 20000000 };
			woken += syscall(SYS_futex, word, 0, 0, &time, NULL, 0) == 0;
		}
		_exit(woken ? 1 : 0);
	}
	return child;
}
int main(void)
{
	unsigned *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t waiter = waits_on(word);
	int status;
	find();
	unsigned char known = at_100();
	for (int round = 0; round < 64; round++) {
		/* Only a copy finds another byte. */
		if (at_100() != known)
			for (int i = 0; i < GATES; i++) {
				unsigned long gate = gates[(i + round / 4) % GATES];
				if (gate && round % 4 == 0)
					enter(gate, SYS_mkdir, (long)"made", 0755, 0, 0);
				else if (gate && round % 4 == 1)
					enter(gate, SYS_openat, AT_FDCWD, (long)"created", O_WRONLY | O_CREAT, 0644);
				else if (gate && round % 4 == 2)
					thread(gate, word);
				else if (gate)
					enter(gate, SYS_openat, AT_FDCWD, (long)"data/f15", O_WRONLY | O_TRUNC, 0);
			}
		pause_ms(2);
	}
	printf("%u\n", work());
	*word = 1;
	CHECK(waitpid(waiter, &status, 0) == waiter);
	printf("waiter: %s\n", ended(status));
}
