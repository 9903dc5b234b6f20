/* What was written is read back, by every way of reading, and in order with
 * the writes. */
#include "common.h"
int main(void)
{
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
	for (int round = 0; round < 200; round++) {
		char buffer[1000], back[1000];
		memset(buffer, 'a' + round % 26, sizeof buffer);
		CHECK(pwrite(fd, buffer, sizeof buffer, round * 700) == sizeof buffer);
		CHECK(pread(fd, back, sizeof back, round * 700) == sizeof back);
		CHECK(memcmp(buffer, back, sizeof back) == 0);
		CHECK(lseek(fd, round * 350, SEEK_SET) == round * 350);
		CHECK(read(fd, back, 10) == 10);
		printf("%.10s %ld\n", back, (long)lseek(fd, 0, SEEK_CUR));
	}
	struct stat stat;
	fstat(fd, &stat);
	printf("%ld %u\n", (long)stat.st_size, sum_file("file"));
}
