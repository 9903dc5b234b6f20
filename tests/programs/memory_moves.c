/* Large anonymous memory that comes, moves and goes between stalls, by the C
 * library's calls and behind its back, while children are forked that must
 * have all of it. */
#include "common.h"
#define PAGE 4096ul
#define LEN (6ul << 20)

static int big;

static unsigned sum_of(const unsigned char *memory, size_t len)
{
	unsigned sum = 0;
	for (size_t i = 0; i < len; i += 997)
		sum = sum * 31 + memory[i];
	return sum;
}

static void fill(unsigned char *memory, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i += 61)
		memory[i] = (unsigned char)(i / 61 + seed);
}

/* A stall, a child that looks at the memory, and a look of our own. */
static void look(const char *what, unsigned char *memory, size_t len)
{
	static unsigned char page[PAGE];
	static off_t at;
	CHECK(pread(big, page, PAGE, at += 3 * PAGE) == (ssize_t)PAGE);
	unsigned expected = sum_of(memory, len);
	pid_t child = fork();
	if (child == 0)
		_exit(sum_of(memory, len) == expected ? 5 : 6);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(pread(big, memory + 2 * PAGE, PAGE, at + PAGE) == (ssize_t)PAGE);
	printf("%s %x %x %x\n", what, expected, sum_of(memory, len), status);
	fflush(stdout);
}

static void *raw_map(void *at, size_t len, int protection, int flags, int fd)
{
	void *memory = (void *)syscall(SYS_mmap, at, len, protection, flags, fd, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

int main(void)
{
	const int both = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;
	big = open(BIG, O_RDONLY);
	CHECK(big >= 0);
	unsigned char *memory = mmap(NULL, LEN, both, own, -1, 0);
	CHECK(memory != MAP_FAILED);
	fill(memory, LEN, 1);
	look("mapped", memory, LEN);
	/* A hole in the middle, then a file in it, then memory again. */
	for (int raw = 0; raw < 2; raw++) {
		unsigned char *hole = memory + LEN / 2;
		CHECK((raw ? (int)syscall(SYS_munmap, hole, 64 * PAGE) : munmap(hole, 64 * PAGE)) == 0);
		look("hole", memory, LEN / 2);
		raw_map(hole, 64 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, big);
		look("file", memory, LEN / 2);
		CHECK(sum_of(hole, 64 * PAGE) == sum_of(hole, 64 * PAGE));
		raw_map(hole, 64 * PAGE, both, own | MAP_FIXED, -1);
		fill(hole, 64 * PAGE, 2);
		look("again", memory, LEN);
	}
	/* Moved and grown. */
	for (int round = 0; round < 4; round++) {
		size_t len = LEN + (size_t)round * (1ul << 20);
		memory = mremap(memory, len, len + (1ul << 20), MREMAP_MAYMOVE);
		CHECK(memory != MAP_FAILED);
		fill(memory + len, 1ul << 20, (unsigned)round);
		look("moved", memory, len + (1ul << 20));
	}
	/* Read-only for a while. */
	CHECK(mprotect(memory + LEN / 2, LEN / 4, PROT_READ) == 0);
	look("protected", memory, LEN / 2);
	CHECK(mprotect(memory + LEN / 2, LEN / 4, both) == 0);
	look("open", memory, LEN);
	/* The heap, which grows, shrinks and grows. */
	unsigned char *heap = sbrk(0);
	for (int round = 0; round < 6; round++) {
		intptr_t step = round % 3 == 2 ? -(intptr_t)(3ul << 20) : (intptr_t)(4ul << 20);
		CHECK(sbrk(step) != (void *)-1);
		size_t len = (size_t)((unsigned char *)sbrk(0) - heap);
		fill(heap, len, (unsigned)round);
		look("heap", heap, len);
	}
	/* Gone, and other memory in its place, behind the C library's back. */
	CHECK(syscall(SYS_munmap, memory, LEN) == 0);
	unsigned char *other = raw_map(memory, LEN, both, own | MAP_FIXED, -1);
	fill(other, LEN, 9);
	look("other", other, LEN);
	return 4;
}
