/* Large mapped files gone through in order, where prefetches come in windows:
 * pages in memory among those that are not, pages written to (which come one by
 * one), a mapping longer than its file, the kernel as reader, and a file
 * that grows. */
#include "common.h"
#define LEN (20 << 20)
#define PAGE 4096
#define PAGES (LEN / PAGE)

static int written(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	unsigned *words = malloc(LEN);
	for (unsigned i = 0; i < LEN / 4; i++)
		words[i] = i * 2654435761u;
	CHECK(write(fd, words, LEN) == LEN);
	free(words);
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return fd;
}

static void islands(int fd)
{
	char byte;
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (int page = 5; page < PAGES; page += 37)
		CHECK(pread(fd, &byte, 1, (off_t)page * PAGE) == 1);
}

/* Reads each page, and writes to some as it comes to them and to some ahead. */
static uint64_t written_in_order(volatile unsigned *map, uint64_t sum)
{
	for (int page = 0; page < PAGES; page++) {
		volatile unsigned *words = map + page * (PAGE / 4);
		sum = sum * 31 + words[0];
		if (page % 7 == 3)
			words[1] = (unsigned)sum;
		if (page % 50 == 9 && page + 20 < PAGES)
			words[18 * (PAGE / 4)] += (unsigned)page;
	}
	return sum;
}

int main(void)
{
	uint64_t sum = 0;
	int fd = written("order");
	islands(fd);
	volatile unsigned *map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	for (int i = 0; i < LEN / 4; i += PAGE / 8)
		sum = sum * 31 + map[i];
	printf("in order %llx\n", (unsigned long long)sum);
	munmap((void *)map, LEN);

	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	sum = written_in_order(map, sum);
	for (int page = 0; page < PAGES; page++)
		sum = sum * 31 + map[page * (PAGE / 4)] + map[page * (PAGE / 4) + 1];
	printf("written %llx\n", (unsigned long long)sum);
	munmap((void *)map, LEN);

	/* Written through to the file. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	sum = written_in_order(map, sum);
	munmap((void *)map, LEN);
	fsync(fd);
	printf("through %llx\n", (unsigned long long)sum);

	/* Its end lies inside a window, and moves away. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	CHECK(ftruncate(fd, LEN / 2 + 100) == 0);
	map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	for (int page = 0; page <= PAGES / 2; page++)
		sum = sum * 31 + map[page * (PAGE / 4)];
	CHECK(ftruncate(fd, LEN) == 0);
	for (int page = PAGES / 2; page < PAGES; page++)
		sum = sum * 31 + map[page * (PAGE / 4)];
	printf("beyond %llx\n", (unsigned long long)sum);

	/* The kernel goes through it, and half of it is gone. */
	munmap((void *)map, LEN);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	int copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
	map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	for (int i = 0; i < 64; i++)
		CHECK(pwrite(copy, (char *)map + i * 65536, 65536, 0) == 65536);
	unsigned last;
	CHECK(pread(copy, &last, sizeof last, 65532) == sizeof last);
	for (int page = 1024; page < 1024 + 100; page++)
		sum = sum * 31 + map[page * (PAGE / 4)];
	munmap((char *)map + (1024 + 101) * PAGE, LEN / 2);
	for (int page = 1024 + 100; page < 1024 + 101; page++)
		sum = sum * 31 + map[page * (PAGE / 4)];
	printf("by the kernel %x, %llx\n", last, (unsigned long long)sum);
	unlink("order"), unlink("copy");
}
