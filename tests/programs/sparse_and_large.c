/* Offsets beyond 2 and 4 GiB, holes, growing and truncated files, short
 * reads at the end. */
#include "common.h"
int main(void)
{
	int fd = open("sparse", O_RDWR | O_CREAT, 0644);
	char buffer[8192];
	off_t places[] = { 0, (1LL << 31) - 5, 1LL << 31, (1LL << 32) - 3, 1LL << 32, 5LL << 30 };
	for (int i = 0; i < 6; i++)
		CHECK(pwrite(fd, "0123456789", 10, places[i]) == 10);
	for (int i = 0; i < 6; i++) {
		ssize_t got = pread(fd, buffer, sizeof buffer, places[i] - (i ? 4 : 0));
		printf("%zd %.10s\n", got, buffer + (i ? 4 : 0));
		CHECK(lseek(fd, places[i], SEEK_SET) == places[i]);
		got = read(fd, buffer, 7);
		printf("%zd %.7s %lld\n", got, buffer, (long long)lseek(fd, 0, SEEK_CUR));
	}
	printf("%zd\n", pread(fd, buffer, 10, 6LL << 30));
	for (int round = 0; round < 30; round++) {
		int grow = open("grow", O_RDWR | O_CREAT | O_APPEND, 0644), reader = open("grow", O_RDONLY);
		memset(buffer, 'a' + round % 26, 3000);
		lseek(reader, round * 3000, SEEK_SET);
		printf("%zd ", read(reader, buffer + 4000, 4000));
		CHECK(write(grow, buffer, 3000) == 3000);
		printf("%zd ", read(reader, buffer + 4000, 4000));
		printf("%zd\n", read(reader, buffer + 4000, 4000));
		close(grow), close(reader);
	}
	fd = open("grow", O_RDWR);
	for (int size = 90000; size >= 0; size -= 7001) {
		CHECK(ftruncate(fd, size) == 0);
		printf("%zd %zd\n", pread(fd, buffer, 8192, size > 100 ? size - 100 : 0), pread(fd, buffer, 10, size + 10));
	}
}
