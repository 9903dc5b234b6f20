/* Descriptors beyond 1024, and close_range over them. */
#include "common.h"
int main(void)
{
	struct rlimit limit = { 5000, 5000 };
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 5000 ? limit.rlim_max : 5000;
	setrlimit(RLIMIT_NOFILE, &limit);
	int fd = open(BIG, O_RDONLY);
	for (int number = 900; number < 2100 && number < limit.rlim_cur; number += 50) {
		char byte = 0;
		CHECK(dup2(fd, number) == number);
		CHECK(pread(number, &byte, 1, number * 7) == 1);
		printf("%d ", byte);
		CHECK(read(number, &byte, 1) == 1);
		printf("%d %ld\n", byte, (long)lseek(fd, 0, SEEK_CUR));
	}
	printf("%u\n", work());
	CHECK(syscall(SYS_close_range, 1000, ~0U, 0) == 0);
	printf("%d %d %d\n", fcntl(950, F_GETFD), fcntl(1050, F_GETFD), errno);
	CHECK(syscall(SYS_close_range, 4, 100, 4) == 0);
	printf("%u %d\n", ahead(20), open(BIG, O_RDONLY));
	closefrom(3);
	printf("%u %d\n", ahead(20), open(BIG, O_RDONLY));
}
