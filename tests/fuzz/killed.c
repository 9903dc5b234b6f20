/* Kills its own speculative processes at random points, and looks whether
 * anything that it does differs from what is right.
 *
 * usage: killed SEED KILLS SECONDS DIRECTORY: so many kills, or as many as
 * come in so many seconds */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned long state;
static volatile unsigned long kills;
static volatile int over;

static unsigned long noise(unsigned long *state)
{
	unsigned long z = *state += 0x9e3779b97f4a7c15ul;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ul;
	z = (z ^ z >> 27) * 0x94d049bb133111ebul;
	return z ^ z >> 31;
}
static long raw(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}
/* Seen by no hook: finds the children of the reading thread and kills one. */
static void *killer(void *of)
{
	unsigned long own = state ^ 0x1234567;
	char name[64], text[256];
	snprintf(name, sizeof name, "/proc/self/task/%d/children", *(int *)of);
	while (!over) {
		for (unsigned long spin = noise(&own) % 60000; spin--;)
			__asm__ volatile("");
		if (noise(&own) % 4 == 0) {
			struct timespec moment = { 0, noise(&own) % 300000 };
			raw(SYS_nanosleep, (long)&moment, 0, 0);
		}
		int fd = raw(SYS_open, (long)name, O_RDONLY, 0);
		long got = raw(SYS_read, fd, (long)text, sizeof text - 1);
		raw(SYS_close, fd, 0, 0);
		text[got > 0 ? got : 0] = 0;
		for (char *at = text; *at;) {
			int pid = strtol(at, &at, 10);
			while (*at == ' ')
				at++;
			/* Each counts once: it may be found again before it is reaped. */
			static int killed[64], next;
			int again = 0;
			for (int i = 0; i < 64; i++)
				again |= killed[i] == pid;
			if (pid > 0 && !again && raw(SYS_kill, pid, SIGKILL, 0) == 0) {
				/* Out of SCHED_IDLE, or it would not die on a busy machine. */
				int priority = 0;
				raw(SYS_sched_setscheduler, pid, 0, (long)&priority);
				killed[next++ % 64] = pid, kills++;
			}
		}
	}
	return NULL;
}
#define CHECK(x) do { if (!(x)) printf("line %d, round %lu: not %s (errno %d)\n", __LINE__, round, #x, errno); } while (0)
#define LEN (1 << 20)
static unsigned char right(unsigned long at) { return (at * 131) ^ (at >> 9); }
int main(int argc, char **argv)
{
	unsigned long wanted = strtoul(argv[2], 0, 0), seconds = strtoul(argv[3], 0, 0), began = time(NULL), round;
	unsigned char buffer[8192];
	static unsigned char all[LEN];
	int self = getpid();
	pthread_t thread;
	state = strtoul(argv[1], 0, 0);
	if (chdir(argv[4]))
		return 2;
	for (unsigned long i = 0; i < LEN; i++)
		all[i] = right(i);
	int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644);
	write(fd, all, LEN);
	unsigned char *shared = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_create(&thread, NULL, killer, &self);
	for (round = 0; kills < wanted && time(NULL) - began < seconds; round++) {
		unsigned long at = noise(&state) % LEN, len = noise(&state) % sizeof buffer;
		ssize_t got = pread(fd, buffer, len, at);
		CHECK(got == (ssize_t)(at + len > LEN ? LEN - at : len));
		for (ssize_t i = 0; i < got; i++)
			if (buffer[i] != right(at + i)) {
				CHECK(!"the right bytes");
				break;
			}
		shared[at % 65536] = round;
		CHECK(shared[at % 65536] == (unsigned char)round);
		switch (noise(&state) % 24) {
		case 0: {
			int ends[2];
			CHECK(pipe(ends) == 0 && ends[0] > fd && write(ends[1], &round, 8) == 8);
			unsigned long back = 0;
			close(ends[1]);
			CHECK(read(ends[0], &back, 8) == 8 && back == round && read(ends[0], &back, 8) == 0);
			close(ends[0]);
			break;
		}
		case 1: {
			int out = open("made", O_WRONLY | O_CREAT | O_EXCL, 0600);
			CHECK(out >= 0 && write(out, buffer, 100) == 100 && flock(out, LOCK_EX) == 0);
			close(out);
			struct stat about;
			CHECK(stat("made", &about) == 0 && about.st_size == 100 && about.st_nlink == 1);
			CHECK(rename("made", "moved") == 0 && unlink("moved") == 0 && access("made", F_OK) < 0);
			break;
		}
		case 2: {
			CHECK(lseek(fd, at, SEEK_SET) == (off_t)at && read(fd, buffer, 64) >= 0);
			CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)(at + 64 > LEN ? LEN : at + 64));
			break;
		}
		case 3:
			if (noise(&state) % 16 == 0) {
				int status = 0, expected = round % 100;
				pid_t child = vfork();
				if (child == 0)
					_exit(expected);
				CHECK(waitpid(child, &status, 0) == child);
				/* A kill may have hit it as it ended. */
				CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == expected : WTERMSIG(status) == SIGKILL);
				CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
			}
			break;
		}
	}
	over = 1;
	pthread_join(thread, NULL);
	fprintf(stderr, "kills %lu rounds %lu seconds %lu\n", kills, round, time(NULL) - began);
	printf("end\n");
}
