// needs: resident
/* O_DIRECT, aligned and not, set and cleared on the way. */
#include "common.h"
int main(void)
{
	char *buffer = aligned_alloc(4096, 65536);
	int fd = open(BIG, O_RDONLY | O_DIRECT);
	if (fd < 0)
		return printf("%d\n", errno), 0;
	for (int round = 0; round < 10; round++) {
		errno = 0;
		printf("%zd ", pread(fd, buffer, 8192, round * 8192));
		printf("%d ", buffer[round]);
		printf("%zd\n", read(fd, buffer, 4096));
	}
	CHECK(fcntl(fd, F_SETFL, 0) == 0);
	printf("%zd %d\n", pread(fd, buffer, 1000, 13), buffer[3]);
	CHECK(fcntl(fd, F_SETFL, O_DIRECT) == 0);
	printf("%zd %d %u\n", pread(fd, buffer, 4096, 4096), buffer[3], ahead(5));
}
