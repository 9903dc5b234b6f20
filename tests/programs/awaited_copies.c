/* A program that shares memory with others waits for the first predictions of
 * its copies. Meanwhile that memory changes, signals arrive whose handlers
 * read, fork and leave by a jump, and another thread forks: nothing of a copy
 * arrives, no read is lost, none is made twice. */
#include "common.h"
#include <stdatomic.h>
#define BLOCKS 240
#define WORKERS 3
static struct shared {
	atomic_int next;
	atomic_uint counts[BLOCKS];
	unsigned sums[BLOCKS], steps;
	unsigned char buffers[WORKERS][512];
} *shared;
static int fd;

static unsigned block(int i, unsigned char *buffer)
{
	unsigned sum = 1;
	CHECK(pread(fd, buffer, 512, (off_t)i * 37 % 1000 * 512) == 512);
	for (int at = 0; at < 512; at++)
		sum = sum * 31 + buffer[at];
	return sum;
}

/* Takes blocks from a list that others take from, too. */
static int work_on_list(int worker)
{
	for (int i; (i = atomic_fetch_add(&shared->next, 1)) < BLOCKS;) {
		shared->sums[i] = block(i, shared->buffers[worker]);
		atomic_fetch_add(&shared->counts[i], 1);
	}
	return 0;
}

static sigjmp_buf back;
static volatile sig_atomic_t ticks, jumps, may_jump, wrong;
static void tick(int signal)
{
	int before = errno, status;
	unsigned char own[512];
	if (++ticks % 8 == 0) {
		unsigned here = block(ticks, own);
		pid_t child = fork();
		if (child == 0)
			_exit(block(ticks, own) == here ? 5 : 6);
		if (waitpid(child, &status, 0) != child || status != 5 << 8)
			wrong++;
	}
	errno = before;
	if (may_jump && ticks % 5 == 0) {
		jumps++;
		siglongjmp(back, 1);
	}
}

static atomic_int forked;
static void *forks(void *unused)
{
	for (int i = 0; i < 24; i++) {
		int status;
		pid_t child = fork();
		if (child == 0)
			_exit(3);
		CHECK(waitpid(child, &status, 0) == child && status == 3 << 8);
	}
	forked = 1;
	return NULL;
}

int main(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fd = open(BIG, O_RDONLY);
	pid_t children[WORKERS];
	int status;
	for (int i = 0; i < WORKERS; i++)
		if ((children[i] = fork()) == 0)
			_exit(work_on_list(i));
	for (int i = 0; i < WORKERS; i++)
		CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
	unsigned sum = 0;
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(shared->counts[i] == 1);
		sum = sum * 31 + shared->sums[i];
	}
	printf("%u\n", sum);

	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 700 }, { 0, 700 } }, never = { 0 };
	sigaction(SIGALRM, &action, NULL);
	for (int jumping = 0; jumping < 2; jumping++) {
		volatile int done = 0;
		volatile unsigned total = 0;
		shared->steps = 0;
		setitimer(ITIMER_REAL, &often, NULL);
		/* Until signals have come often enough for the rare ones, too. */
		for (ticks = 0; done < 150 || ticks < 40; done++) {
			while (sigsetjmp(back, 1))
				;
			may_jump = jumping;
			unsigned found = block(done, shared->buffers[0]);
			may_jump = 0;
			CHECK(found == block(done, shared->buffers[1]));
			if (done < 150)
				total = total * 31 + found;
			shared->steps++;
		}
		setitimer(ITIMER_REAL, &never, NULL);
		CHECK(shared->steps == done && wrong == 0);
		printf("%u\n", total);
	}

	pthread_t thread;
	unsigned steps = shared->steps = 0;
	CHECK(pthread_create(&thread, NULL, forks, NULL) == 0);
	for (sum = 0; steps < 150 || !forked; steps++) {
		unsigned found = block(steps, shared->buffers[2]);
		if (steps < 150)
			sum = sum * 31 + found;
		shared->steps++;
	}
	pthread_join(thread, NULL);
	CHECK(shared->steps == steps);
	printf("%u\n", sum);
}
