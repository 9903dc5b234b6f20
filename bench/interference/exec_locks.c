/* exec while holding a POSIX lock and a flock, which both outlive it. Between
 * execs the program makes reads that stall; a contender tries to take the
 * locks all the time and counts when it can. The call measured is execve,
 * until main is reached.
 * usage: exec_locks FILE READS SAMPLES [ROUND POSIX FLOCK CONTENDER NOW COMPUTED QUEUED SLEEPS] */
#define _GNU_SOURCE
#include <sys/file.h>
#include <sys/prctl.h>

#include "common.h"

enum { READS_PER_ROUND = 8 };

static struct flock write_lock(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
	return lock;
}

static int open_lock(const char *samples, const char *suffix, int flags)
{
	char path[4096];
	snprintf(path, sizeof path, "%s.%s", samples, suffix);
	int fd = open(path, O_RDWR | O_CREAT | flags, 0600);
	if (fd < 0)
		fail(path);
	return fd;
}

/* Takes the locks whenever they are free; says how often on a pipe of a
 * kind: the length of a file. Ends with its parent. */
static void contend(const char *samples)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int posix = open_lock(samples, "posix", 0), whole = open_lock(samples, "flock", 0);
	int lost = open_lock(samples, "lost", O_APPEND);
	for (;;) {
		struct flock lock = write_lock();
		int taken = 0;
		if (fcntl(posix, F_SETLK, &lock) == 0) {
			taken = 1;
			lock.l_type = F_UNLCK;
			fcntl(posix, F_SETLK, &lock);
		}
		if (flock(whole, LOCK_EX | LOCK_NB) == 0) {
			taken = 1;
			flock(whole, LOCK_UN);
		}
		if (taken && write(lost, "x", 1) != 1)
			_exit(1);
		pause_us(200);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4 && argc != 12)
		return 2;
	struct samples one = samples_new(1);
	int schedstat = schedstat_open();
	long rounds = atol(argv[2]) / READS_PER_ROUND, round = 0;
	int posix, whole;
	pid_t contender;
	if (argc == 4) {
		struct flock lock = write_lock();
		posix = open_lock(argv[3], "posix", 0);
		whole = open_lock(argv[3], "flock", 0);
		if (fcntl(posix, F_SETLK, &lock) != 0 || flock(whole, LOCK_EX | LOCK_NB) != 0)
			fail("take the locks");
		contender = fork();
		if (contender < 0)
			fail("fork");
		if (contender == 0)
			contend(argv[3]);
	} else {
		struct mark start = { strtoull(argv[8], NULL, 10), strtoull(argv[9], NULL, 10),
				      strtoull(argv[10], NULL, 10), atol(argv[11]) };
		round = atol(argv[4]);
		be_late(round, rounds / 2);
		samples_add(&one, sample_since(&start, schedstat));
		samples_write(&one, argv[3]);
		posix = atoi(argv[5]);
		whole = atoi(argv[6]);
		contender = atoi(argv[7]);
	}
	struct reader r = reader_open(argv[1]);
	r.next = (uint64_t)(round * READS_PER_ROUND);
	for (int i = 0; i < READS_PER_ROUND; i++)
		reader_read(&r);
	printf("%ld %016llx\n", round, (unsigned long long)r.sum);
	fflush(stdout);
	if (round + 1 < rounds) {
		char text[8][32];
		snprintf(text[0], 32, "%ld", round + 1);
		snprintf(text[1], 32, "%d", posix);
		snprintf(text[2], 32, "%d", whole);
		snprintf(text[3], 32, "%d", (int)contender);
		struct mark start = mark_now(schedstat);
		snprintf(text[4], 32, "%llu", (unsigned long long)start.now);
		snprintf(text[5], 32, "%llu", (unsigned long long)start.computed);
		snprintf(text[6], 32, "%llu", (unsigned long long)start.queued);
		snprintf(text[7], 32, "%ld", start.sleeps);
		execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], text[0], text[1],
		      text[2], text[3], text[4], text[5], text[6], text[7], (char *)NULL);
		fail("exec");
	}
	kill(contender, SIGKILL);
	waitpid(contender, NULL, 0);
	printf("lost %lld\n", (long long)lseek(open_lock(argv[3], "lost", 0), 0, SEEK_END));
	return 0;
}
