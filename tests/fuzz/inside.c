/* Fuzzing from inside: the program's speculative processes, and only they,
 * make system calls with every number and hostile arguments, by every way
 * into the kernel. What this process sees of itself is printed before and
 * after; the world outside is compared by the test.
 *
 * usage: inside SEED CALLS SECONDS FILE: so many calls, or as many as come in
 * so many seconds */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long word;
typedef long (*entry)(word, word, word, word, word, word, word);

/* 1 in this process, 0 in its copies (MADV_WIPEONFORK). */
static volatile unsigned char *original;
static word seed, calls_wanted;
/* The end of the agent's log is the one place that a copy can tell us by: the
 * last page of each log has room behind it. The logs lie side by side in one
 * mapping, of which a copy keeps its own. */
enum { LOGS = 4 };
struct note { volatile word calls, number, way, over; };
static struct note *notes[LOGS];
static word state;
static unsigned char pool[1 << 16] __attribute__((aligned(4096)));
static entry ways[8];
static int ways_count;
/* How often a call has ended a copy: by a trap, through the gate. */
static unsigned short parks[2][1024];

static word noise(void)
{
	state += 0x9e3779b97f4a7c15ul;
	word z = state;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ul;
	z = (z ^ z >> 27) * 0x94d049bb133111ebul;
	return z ^ z >> 31;
}

/* (number, a0..a5) by a system call instruction of our own; also copied to a
 * page of its own (JIT) and, with the instruction replaced, through the
 * agent's gate. */
__attribute__((naked)) static long own(word n, word a, word b, word c, word d, word e, word f)
{
	__asm__("mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
		"mov %r8, %r10\n mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\n ret\n");
}
static long libc(word n, word a, word b, word c, word d, word e, word f)
{
	return syscall(n, a, b, c, d, e, f);
}
static word gate;
__attribute__((naked)) static long through_gate(word n, word a, word b, word c, word d, word e, word f)
{
	__asm__("mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
		"mov %r8, %r10\n mov %r9, %r8\n mov 8(%rsp), %r9\n mov gate(%rip), %r11\n jmp *%r11\n");
}
/* 32-bit numbers by int 0x80. */
static long old(word n, word a, word b, word c, word d, word e, word f)
{
	long result;
	__asm__ volatile("int $0x80" : "=a"(result) : "0"(n), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory", "r8", "r9", "r10", "r11");
	return result;
}
/* The three calls of the vsyscall page. */
static long virtual(word n, word a, word b, word c, word d, word e, word f)
{
	long (*page)(word, word, word) = (void *)(0xffffffffff600000ul + n % 3 * 1024);
	return page(a, b, c);
}

static word argument(void)
{
	static const word edges[] = { 0, 1, 2, 3, -1ul, -2ul, -100ul, 0x7fffffff, 0x80000000, 0xffffffff,
		0x7ffffffffffffffful, 0x8000000000000000ul, 4096, 4095, 8, 16, 64, 128, 0x40000000, 0x100000000ul,
		0x7ffffffff000ul, 0xffffffffff600000ul, 0xffff800000000000ul, 02000000, 0102, 01101, 0777 };
	static const char *const names[] = { "world/file", "world/fifo", "world/new", "world", "world/link", "/", "/dev/null",
		"/proc/self/mem", "/dev/tty", "/proc/sysrq-trigger", "/dev/shm/new", "..", "", "world/dir/x" };
	word choice = noise(), at = (word)pool + noise() % (sizeof pool - 256);
	switch (choice % 12) {
	case 0: case 1: return noise() % 12;
	case 2: return edges[noise() % (sizeof edges / sizeof *edges)];
	case 3: return noise() >> noise() % 64;
	case 4: return (word)names[noise() % (sizeof names / sizeof *names)];
	case 5: return 1ul << noise() % 64;
	case 6: return getpid() * (noise() % 2 ? 1 : -1);
	case 7: return (word)&choice + noise() % 4096 - 2048;
	case 8: return gate & ~4095ul;
	case 9: { /* an array of pointers and lengths: iovec, msghdr, argv */
		at &= ~7ul;
		for (int i = 0; i < 8; i++)
			((word *)at)[i] = i % 2 ? noise() % 5000 : (word)pool + noise() % 60000;
		return at;
	}
	case 10: { /* numbers: sockaddr, timespec, flock, structures with sizes */
		at &= ~7ul;
		for (int i = 0; i < 16; i++)
			((word *)at)[i] = noise() >> noise() % 64;
		return at;
	}
	default: strcpy((char *)at, names[noise() % (sizeof names / sizeof *names)]); return at;
	}
}
static word number(int gated)
{
	word choice = noise() % 64;
	if (choice == 0 && noise() % 2)
		return noise() >> noise() % 64; /* huge, negative */
	if (choice == 1 && noise() % 4 == 0)
		return 0x40000000 | noise() % 600; /* x32 */
	if (choice == 2 && noise() % 2)
		return noise() % 1001;
	for (int tries = 0;; tries++) {
		word n = noise() % 462;
		/* Those that end the copy are met again, more rarely. */
		if (parks[gated][n] < 2 || noise() % 1024 == 0 || tries > 300)
			return n;
	}
}
/* In a copy: calls until it parks. */
static void fuzz(struct note *note)
{
	for (int i = 0; i < 3000; i++) {
		word way = noise() % 32, a[6];
		for (int j = 0; j < 6; j++)
			a[j] = argument();
		way = way < 14 ? 0 : way < 22 ? 1 : way < 27 ? 2 : way < 30 ? 3 : way < 31 ? 4 : 5;
		word n = number(way == 3);
		note->number = n, note->way = way;
		note->calls++;
		ways[way](n, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
	note->over = 1;
	for (;;)
		own(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

static void cat(const char *name)
{
	char line[600];
	FILE *file = fopen(name, "r");
	printf("-- %s\n", name);
	while (file && fgets(line, sizeof line, file)) {
		/* Memory, switches and the signals queued for all of the user change by
		 * themselves; so do processor sets
		 * where somebody else sets them. */
		static const char *const moving[] = { "Vm", "Rss", "voluntary", "nonvoluntary", "Threads", "Hugetlb", "SigQ" };
		int moves = 0;
		for (unsigned i = 0; i < sizeof moving / sizeof *moving; i++)
			moves |= !strncmp(line, moving[i], strlen(moving[i]));
		if (!moves)
			fputs(line, stdout);
	}
	if (file)
		fclose(file);
}
static void myself(void)
{
	static const char *const files[] = { "status", "limits", "mountinfo", "timers", "oom_score_adj", "timerslack_ns",
		"personality", "loginuid", "coredump_filter", "cgroup", "comm", "cmdline" };
	for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
		char name[64];
		snprintf(name, sizeof name, "/proc/self/%s", files[i]);
		cat(name);
	}
	for (int fd = 0; fd < 64; fd++) {
		char name[64], to[256];
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		ssize_t len = readlink(name, to, sizeof to - 1);
		if (len > 0)
			printf("fd %d %.*s at %ld flags %x\n", fd, strncmp(to, "pipe:", 5) ? (int)len : 5, to, (long)lseek(fd, 0, SEEK_CUR), fcntl(fd, F_GETFL));
	}
	char where[256];
	printf("%s %d %d %d %d %d\n", getcwd(where, sizeof where), getpgrp() == getpid(), (int)getsid(0) == (int)getppid(), sched_getscheduler(0), (int)alarm(0), nice(0));
	for (int i = 1; i < 65; i++) {
		struct sigaction action;
		if (sigaction(i, NULL, &action) == 0)
			printf("%d:%lx ", i, (word)action.sa_handler);
	}
	puts("");
	fflush(stdout);
}
/* What the agent has mapped: its gate and its logs. */
static void find(void)
{
	char line[400];
	FILE *maps = fopen("/proc/self/maps", "r");
	memset(notes, 0, sizeof notes);
	while (fgets(line, sizeof line, maps)) {
		word start, end;
		char mode[8];
		if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) != 3)
			continue;
		if (!strcmp(mode, "r-xp") && strstr(line, "agent") && !gate)
			for (word at = start; at + 3 <= end; at++)
				if (!memcmp((char *)at, "\x0f\x05\xc3", 3)) {
					gate = at;
					break;
				}
		if (!strcmp(mode, "rw-s") && strstr(line, "/dev/zero") && end - start > 100000 * LOGS && !notes[0])
			for (word i = 0, log = (end - start) / LOGS; i < LOGS; i++)
				notes[i] = (struct note *)(start + (i + 1) * log - 512);
	}
	fclose(maps);
}
/* Calls that the copies have made so far. */
static word calls(void)
{
	word sum = 0;
	for (int i = 0; i < LOGS; i++)
		sum += notes[i]->calls;
	return sum;
}
int main(int argc, char **argv)
{
	seed = strtoul(argv[1], 0, 0), calls_wanted = strtoul(argv[2], 0, 0);
	int data = open(argv[4], O_RDONLY), sockets[2], pipes[2];
	unsigned char byte;
	unsigned char *jit = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(jit, (void *)own, 64);
	volatile unsigned char *flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (madvise((void *)flag, 4096, MADV_WIPEONFORK))
		return 2;
	*flag = 1;
	original = flag;
	unsigned char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(shared, 7, 8192);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets), pipe(pipes);
	write(pipes[1], "kept", 4), send(sockets[0], "kept", 4, 0);
	myself();
	/* The first copies make the agent map its logs. */
	for (int i = 0; i < 500 && !notes[0]; i++) {
		struct timespec moment = { 0, 3000000 };
		pread(data, &byte, 1, i * 7 % 99 * 4096);
		if (!*original)
			own(SYS_exit_group, 0, 0, 0, 0, 0, 0);
		nanosleep(&moment, NULL);
		if (i % 8 == 7)
			find();
	}
	if (!gate || !notes[0]) {
		fprintf(stderr, "not under the agent: gate %lx, logs %p\n", gate, (void *)notes[0]);
		return 3;
	}
	ways[0] = own, ways[1] = libc, ways[2] = (entry)jit, ways[3] = through_gate, ways[4] = old, ways[5] = virtual;
	word copies = 0, last = 0, began = time(NULL);
	for (word round = 0;; round++) {
		word before[LOGS], made = calls();
		for (int i = 0; i < LOGS; i++)
			before[i] = notes[i]->calls;
		if (made >= calls_wanted || time(NULL) - began >= strtoul(argv[3], 0, 0))
			break;
		/* The copy goes on from here, with a sequence of its own. */
		state = seed * 0x2545f4914f6cdd1dul + round * 0x9e3779b97f4a7c15ul;
		pread(data, &byte, 1, round * 4099 % 500000);
		if (!*original)
			for (int i = 0; i < LOGS; i++) {
				/* The other logs are not mapped here: mincore tells. */
				unsigned char in;
				word page = (word)notes[i] & ~4095ul;
				if (through_gate(SYS_mincore, page, 4096, (word)&in, 0, 0, 0) == 0)
					fuzz(notes[i]);
			}
		/* Until it is over, or does not move any more. */
		struct timespec moment = { 0, 100000 };
		for (int still = 0, turns = 0; still < 5 && turns < 3000; turns++) {
			nanosleep(&moment, NULL);
			word now = calls();
			still = now == last && now != made ? still + 1 : turns > 20 ? still + 1 : 0;
			last = now;
		}
		if (last != made) {
			copies++;
			int own_log = 0;
			while (own_log < LOGS - 1 && notes[own_log]->calls == before[own_log])
				own_log++;
			struct note *used = notes[own_log];
			if (used->number < 1024 && !used->over && used->way < 4)
				parks[used->way == 3][used->number]++;
		}
		for (int i = 0; i < LOGS; i++)
			notes[i]->over = 0;
		if (shared[4096] != 7 || shared[0] != 7)
			puts("shared memory changed");
	}
	word made = calls();
	myself();
	char kept[8] = { 0 };
	read(pipes[0], kept, 8), printf("%s ", kept);
	recv(sockets[1], kept, 8, 0), printf("%s\n", kept);
	for (int i = 0; i < 8192; i++)
		if (shared[i] != 7)
			printf("shared[%d] = %d\n", i, shared[i]);
	fprintf(stderr, "calls %lu copies %lu seconds %lu\n", made, copies, time(NULL) - began);
	return 0;
}
