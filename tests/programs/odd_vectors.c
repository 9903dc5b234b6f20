/* readv, preadv, preadv2 with vectors of every shape, also such as are read over. */
#include "common.h"
static unsigned sum(void *at, size_t len)
{
	unsigned sum = 0;
	for (size_t i = 0; i < len; i++)
		sum = sum * 31 + ((unsigned char *)at)[i];
	return sum;
}
int main(void)
{
	static char buffer[65536];
	static struct iovec many[1024];
	int fd = open(BIG, O_RDONLY);
	for (int round = 0; round < 30; round++) {
		memset(buffer, 0, sizeof buffer);
		struct iovec odd[5] = { { buffer, 0 }, { buffer + 100, 1 }, { buffer, 0 }, { buffer + 7000, 5000 }, { buffer + 200, round } };
		printf("%zd ", readv(fd, odd, 5));
		printf("%zd ", preadv(fd, odd, 5, round * 7777));
		printf("%zd ", preadv2(fd, odd, 5, -1, 0));
		printf("%zd ", preadv2(fd, odd, 5, round * 3333, RWF_HIPRI));
		for (int i = 0; i < 1024; i++)
			many[i] = (struct iovec){ buffer + i * 60, i % 61 };
		printf("%zd ", readv(fd, many, 1024));
		struct iovec twice[2] = { { buffer, 3000 }, { buffer + 1000, 3000 } };
		printf("%zd ", preadv(fd, twice, 2, round * 1234));
		struct iovec over[4] = { { buffer, 100 }, { &over[2], 2 * sizeof *over }, { buffer + 500, 200 }, { buffer + 900, 70 } };
		printf("%zd ", preadv(fd, over, 4, round * 4567));
		printf("%u ", sum(over + 2, 2 * sizeof *over));
		printf("%ld %u\n", (long)lseek(fd, 0, SEEK_CUR), sum(buffer, sizeof buffer));
	}
	errno = 0;
	printf("%zd %d\n", readv(fd, many, 1025), errno);
}
