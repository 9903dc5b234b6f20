/* Large file mappings protected, cut, moved, replaced and emptied while they
 * are in use; and a file exchanged under its name. */
#include "common.h"
#define LEN (4 << 20)
#define PAGES (LEN / 4096)
static sigjmp_buf back;
static void handler(int s) { (void)s; siglongjmp(back, 1); }
static unsigned walk(volatile unsigned char *map, int from, int to)
{
	unsigned sum = 0;
	for (int i = from; i < to; i++)
		sum = sum * 31 + map[(size_t)i * 4096 + i % 4096];
	return sum;
}
static int make(const char *name, int salt)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	unsigned char page[4096];
	for (int i = 0; i < PAGES; i++) {
		for (int j = 0; j < 4096; j++)
			page[j] = (unsigned char)(i * 7 + j * 3 + salt);
		CHECK(write(fd, page, sizeof page) == sizeof page);
	}
	return fd;
}
int main(void)
{
	signal(SIGSEGV, handler);
	int fd = make("large", 1);
	volatile unsigned char *map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	printf("%x\n", walk(map, 0, 64));
	map[4096 * 10] = 200, map[4096 * 11] = 201;
	CHECK(mprotect((void *)(map + 4096 * 10), 4096, PROT_READ) == 0);
	for (volatile int i = 8; i < 14; i++)
		if (sigsetjmp(back, 1) == 0)
			map[4096 * i + 1] = 7;
		else
			printf("page %d is read-only\n", i);
	printf("%x\n", walk(map, 0, 64));
	CHECK(mprotect((void *)(map + 4096 * 10), 4096, PROT_READ | PROT_WRITE) == 0);
	CHECK(munmap((void *)(map + 4096 * 100), 4096 * 100) == 0);
	if (sigsetjmp(back, 1) == 0)
		printf("%d\n", map[4096 * 150]);
	else
		printf("page 150 is gone\n");
	void *there = mmap((void *)(map + 4096 * 100), 4096 * 50, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(there == (void *)(map + 4096 * 100));
	printf("%x %x\n", walk(map, 90, 150), walk(map, 200, 300));
	CHECK(madvise((void *)map, 4096 * 100, MADV_DONTNEED) == 0);
	printf("%x\n", walk(map, 0, 100));
	map[4096 * 300] = 9;
	void *moved = mremap((void *)(map + 4096 * 250), 4096 * 200, 4096 * 300, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED);
	printf("%x %d\n", walk(moved, 0, 200), ((volatile unsigned char *)moved)[4096 * 50]);
	/* Another file under the same name: the mapping keeps showing the old. */
	volatile unsigned char *old = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	CHECK(rename("large", "old") == 0);
	close(make("large", 99));
	printf("%x\n", walk(old, 0, PAGES));
	CHECK(unlink("old") == 0);
	printf("%x\n", walk(old, 0, PAGES));
	/* A FIFO under that name: nobody may open it. */
	CHECK(unlink("large") == 0 && mkfifo("large", 0600) == 0);
	fd = open("large", O_RDONLY | O_NONBLOCK);
	munmap((void *)old, LEN);
	CHECK(open("large", O_WRONLY | O_NONBLOCK) >= 0);
	unlink("large");
}
