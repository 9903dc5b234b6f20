/* A timer's handler forks, moves memory and says what children get of it, while
 * reads are under way and a copy of the process may be being made: each child
 * has all of the memory, and of what is kept from children nothing. */
#include "common.h"
#include <sys/random.h>
#define PAGE 4096ul
#define LEN (4ul << 20)
#define FORKS 160

static unsigned char *stays, *moves, *kept;
static size_t moves_len = LEN;
static volatile sig_atomic_t forks, failures;

static unsigned char *map(size_t len, int value)
{
	unsigned char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, value, len);
	return memory;
}

/* In a child: whether it has what it should. */
static int is_whole(void)
{
	for (size_t at = 0; at < LEN; at += 64 * PAGE)
		if (stays[at] != 1 || moves[at] != 2)
			return 0;
	for (size_t at = LEN; at < moves_len; at += 64 * PAGE)
		if (moves[at])
			return 0;
	unsigned char there[LEN / PAGE];
	return !kept || (mincore(kept, LEN, there) == -1 && errno == ENOMEM);
}

/* Some time after a read has begun, never the same. */
static void arm(void)
{
	struct itimerval once = {{0, 0}, {0, 20 + forks * 37 % 400}};
	setitimer(ITIMER_REAL, &once, NULL);
}

static void handler(int signal)
{
	int number = forks++;
	if (number % 2) {
		size_t len = moves_len == LEN ? 2 * LEN : LEN;
		moves = mremap(moves, moves_len, len, MREMAP_MAYMOVE);
		moves_len = len;
	}
	if (number == FORKS * 3 / 4) {
		kept = map(LEN, 3);
		madvise(kept, LEN, MADV_DONTFORK);
	}
	pid_t child = number % 2 ? fork() : (pid_t)syscall(SYS_fork);
	if (child == 0)
		_exit(is_whole() ? 0 : 1);
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		failures++;
}

int main(void)
{
	static char buffer[BIG_LEN];
	stays = map(LEN, 1);
	moves = map(LEN, 2);
	int fd = open(BIG, O_RDONLY);
	CHECK(fd >= 0);
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	while (forks < FORKS) {
		/* What no copy foresees: each read is a new one's. */
		unsigned short at;
		CHECK(getrandom(&at, sizeof at, 0) == sizeof at);
		int before = forks;
		arm();
		while (forks == before)
			CHECK(pread(fd, buffer, 65536, at) == 65536);
	}
	printf("%d forks, %d failures\n", forks, failures);
	return failures != 0;
}
