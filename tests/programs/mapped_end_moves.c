/* The end of a large mapped file moves while it is touched: SIGBUS beyond it,
 * zeros in its last page, bytes again where it has grown. */
#include "common.h"
#define LEN (4 << 20)
static sigjmp_buf back;
static volatile int buses;
static void handler(int s) { buses += s == SIGBUS; siglongjmp(back, 1); }
int main(void)
{
	signal(SIGBUS, handler);
	int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
	char page[4096];
	for (int i = 0; i < LEN / 4096; i++) {
		memset(page, 'a' + i % 26, sizeof page);
		CHECK(write(fd, page, sizeof page) == sizeof page);
	}
	volatile char *map = mmap(NULL, LEN + (1 << 20), PROT_READ, MAP_SHARED, fd, 0);
	for (volatile int round = 0; round < 6; round++) {
		off_t end = LEN - (off_t)(round * 7 + 1) * 50000;
		volatile unsigned sum = 0;
		CHECK(ftruncate(fd, end) == 0);
		for (volatile int i = 0; i < (LEN + (1 << 20)) / 4096; i += 3)
			if (sigsetjmp(back, 1) == 0)
				sum = sum * 31 + (unsigned char)map[i * 4096];
			else
				sum = sum * 31 + 1000;
		printf("%lld: %d past the end, %x, last %d\n", (long long)end, buses, sum, map[end - 1]);
		CHECK(map[(end | 4095)] == 0 || end % 4096 == 0);
		CHECK(ftruncate(fd, LEN) == 0);
		printf("grown: %d\n", map[LEN - 1]);
		CHECK(pwrite(fd, "z", 1, LEN - 1) == 1);
		CHECK(map[LEN - 1] == 'z');
		buses = 0;
	}
	unlink("large");
}
