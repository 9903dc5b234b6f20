/* The first thing that could be speculated about is a large file that is mapped,
 * and no copy may be made: few processes are allowed. Nobody may be left who would
 * be found by a wait, be in the way of a fork, or outlive an exec. */
#include "common.h"

#define HEAP (32 << 20)
#define FILE_LEN (20 << 20)

static void wait_for_nobody(void)
{
	int status, found = waitpid(-1, &status, __WALL | WNOHANG);
	printf("%d %d\n", found, found < 0 ? errno : 0);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		wait_for_nobody();
		return 0;
	}
	struct rlimit few;
	CHECK(getrlimit(RLIMIT_NPROC, &few) == 0);
	few.rlim_cur = few.rlim_max < 1000 ? few.rlim_max : 1000;
	CHECK(setrlimit(RLIMIT_NPROC, &few) == 0);
	char *heap = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(heap != MAP_FAILED);
	memset(heap, 1, HEAP);
	int fd = open("data/mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (size_t at = 0; at < FILE_LEN; at += 1 << 20)
		CHECK(write(fd, heap, 1 << 20) == 1 << 20);
	CHECK(fsync(fd) == 0);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	char *map = mmap(NULL, FILE_LEN, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(map != MAP_FAILED);
	wait_for_nobody();
	unsigned long sum = 0;
	for (size_t at = 0; at < FILE_LEN; at += 4096)
		sum += (unsigned char)map[at];
	printf("%lu\n", sum);
	execl("/proc/self/exe", argv[0], "again", (char *)NULL);
	CHECK(!"executed");
	return 1;
}
