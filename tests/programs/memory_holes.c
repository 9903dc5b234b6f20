/* Holes that the program has made in its address space, before the first stall, and
 * takes for its own later: it maps over them, or unmaps a range with a hole in it.
 * Nothing may have come there meanwhile that is not the program's, nor go with it. */
#include "common.h"
#define PAGE 4096ul
#define LEN (20ul << 20)
#define HOLE_AT (8ul << 20)
#define HOLE_LEN (8ul << 20)
#define VARIABLES 2000

/* Behind the library's back: the child of a fork that has made no call yet. */
static long raw_map(long len, long flags)
{
	register long r10 __asm__("r10") = flags, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(SYS_mmap), "D"(0), "S"(len), "d"(PROT_READ | PROT_WRITE), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* All that a program may do for which something is mapped: it reads what a copy is made
 * at, touches a mapped file, executes programs with many variables, makes threads and
 * children that do the same. */
static unsigned reads_and_touches(unsigned char *map)
{
	unsigned sum = work() * 31 + ahead(40);
	return sum * 31 + touch_large(map) + work();
}

static void *in_a_thread(void *map)
{
	return (void *)(uintptr_t)reads_and_touches(map);
}

static int executes(int by_vfork, char *program)
{
	static char *variables[VARIABLES + 1];
	char *arguments[] = { program, NULL };
	for (int i = 0; i < VARIABLES; i++)
		variables[i] = "A=B";
	int status;
	pid_t child = by_vfork ? vfork() : fork();
	if (child == 0) {
		execve(program, arguments, variables);
		_exit(9);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

static void all(const char *what, unsigned char *map)
{
	static char stack[1 << 20] __attribute__((aligned(4096)));
	pthread_attr_t attributes;
	pthread_t thread;
	void *sum;
	/* The library would map a stack, which may lie in the hole. */
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
	CHECK(pthread_create(&thread, &attributes, in_a_thread, map) == 0);
	CHECK(pthread_join(thread, &sum) == 0);
	printf("%s: %x %x", what, reads_and_touches(map), (unsigned)(uintptr_t)sum);
	printf(" %d %d", executes(1, "/bin/true"), executes(0, "/bin/false"));
	printf(" %d\n", executes(1, "/bin/no such program"));
}

static unsigned char *with_a_hole(void)
{
	unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(munmap(memory + HOLE_AT, HOLE_LEN) == 0);
	return memory;
}

/* What is in the hole that was not put there. */
static void look(const unsigned char *hole, unsigned char filled)
{
	unsigned long others = 0;
	for (unsigned long at = 0; at < HOLE_LEN; at++)
		others += hole[at] != filled;
	printf("%lu of the hole's bytes are somebody's\n", others);
}

/* A child that maps something before anybody has looked at it, wherever the kernel
 * puts it: where its parent's rings were, too. */
static void child_maps(unsigned char *map)
{
	pid_t child = fork();
	int status;
	if (child == 0) {
		unsigned char *pieces[64];
		for (int i = 0; i < 64; i++) {
			pieces[i] = (unsigned char *)raw_map(2 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS);
			memset(pieces[i], i, 2 * PAGE);
		}
		all("child", map);
		for (int i = 0; i < 64; i++)
			for (unsigned long at = 0; at < 2 * PAGE; at++)
				if (pieces[i][at] != i)
					_exit(7);
		for (int i = 0; i < 64; i++)
			CHECK(munmap(pieces[i], 2 * PAGE) == 0);
		all("child after", map);
		_exit(5);
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s\n", ended(status));
}

int main(void)
{
	unsigned char *map = map_large();
	unsigned char *memory = with_a_hole();
	all("hole", map);
	unsigned char *hole = mmap(memory + HOLE_AT, HOLE_LEN, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(hole == memory + HOLE_AT);
	look(hole, 0);
	memset(hole, 0xa5, HOLE_LEN);
	for (int round = 0; round < 2; round++)
		all("filled", map);
	look(hole, 0xa5);
	child_maps(map);
	look(hole, 0xa5);
	CHECK(munmap(hole, HOLE_LEN) == 0);
	all("hole again", map);
	CHECK(munmap(memory, LEN) == 0);
	all("unmapped", map);
	child_maps(map);
	return 3;
}
