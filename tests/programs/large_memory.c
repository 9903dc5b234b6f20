/* Large anonymous memory beside a copy that did not get it: forks of the
 * program's own, guard pages, huge and locked pages, mremap, unmapping and
 * mapping anew in the same place, buffers that the kernel fills there, memory
 * kept from children in the middle of it. */
#include "common.h"
#define PAGE 4096ul
#define LEN (8ul << 20)

static unsigned sum_of(const unsigned char *memory, size_t len)
{
	unsigned sum = 0;
	for (size_t i = 0; i < len; i += 509)
		sum = sum * 31 + memory[i];
	return sum;
}

static unsigned char *map(size_t len)
{
	unsigned char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

int main(void)
{
	unsigned char *plain = map(LEN), *huge = map(LEN), *games = map(LEN);
	madvise(huge, LEN, MADV_HUGEPAGE);
	for (size_t i = 0; i < LEN; i += 61)
		plain[i] = huge[i] = games[i] = (unsigned char)(i / 61);
	/* May be refused by RLIMIT_MEMLOCK, in every variant alike or not. */
	mlock(plain, 16 * PAGE);
	CHECK(mprotect(games + LEN / 2, PAGE, PROT_NONE) == 0);
	int fd = open(BIG, O_RDONLY);
	CHECK(fd >= 0);
	for (int round = 0; round < 8; round++) {
		size_t at = (size_t)round * 300 * PAGE;
		/* Straight into memory that the copy does not have. */
		CHECK(pread(fd, plain + at % (LEN / 2), 40000, round * 1000) == 40000);
		struct iovec two[2] = {{huge + at % (LEN / 2) + 100, 5000}, {plain + LEN / 2, 7000}};
		CHECK(preadv(fd, two, 2, 4096) == 12000);
		ahead(1);
		pid_t child = fork();
		if (child == 0)
			_exit((int)((sum_of(plain, LEN) ^ sum_of(huge, LEN)) & 127));
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
		printf("%d %u %u\n", WEXITSTATUS(status), sum_of(plain, LEN), sum_of(huge, LEN));
		unsigned char *moved = map(LEN / 4);
		memset(moved, round + 1, LEN / 4);
		CHECK(read(fd, moved + PAGE / 2, PAGE) == PAGE);
		moved = mremap(moved, LEN / 4, LEN / 2, MREMAP_MAYMOVE);
		CHECK(moved != MAP_FAILED && moved[LEN / 2 - 1] == 0 && moved[LEN / 8] == round + 1);
		CHECK(munmap(games, LEN / 4) == 0);
		CHECK(mmap(games, LEN / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == games);
		CHECK(pread(fd, games + 3 * PAGE, PAGE, 0) == PAGE && games[LEN / 8] == 0);
		printf("%u %u\n", sum_of(games, LEN / 2), sum_of(moved, LEN / 2));
		CHECK(munmap(moved, LEN / 2) == 0);
		CHECK(madvise(plain + LEN / 2, 64 * PAGE, MADV_DONTNEED) == 0);
	}
	/* From here on a region is kept from children, and stays so. */
	CHECK(madvise(huge + LEN / 4, PAGE, MADV_DONTFORK) == 0);
	for (int round = 0; round < 4; round++) {
		CHECK(pread(fd, plain, PAGE, round * 4096) == PAGE);
		ahead(1);
		pid_t child = fork();
		if (child == 0) {
			/* Nothing is mapped there in a child. */
			unsigned char there;
			int gone = mincore(huge + LEN / 4, PAGE, &there) == -1;
			_exit(gone ? 5 : 6);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
	}
	printf("%u %u\n", sum_of(plain, LEN), sum_of(huge + LEN / 2, LEN / 2));
	return 0;
}
