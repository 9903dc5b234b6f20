/* Files replaced, removed and made anew while they are read. */
#include "common.h"
static void put(const char *name, char what, int len)
{
	char buffer[9000];
	memset(buffer, what, sizeof buffer);
	int fd = open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(write(fd, buffer, len) == len);
	close(fd);
	CHECK(rename("new", name) == 0);
}
int main(void)
{
	char buffer[5000];
	put("file", 'a', 9000);
	for (int round = 0; round < 30; round++) {
		int fd = open("file", O_RDONLY);
		CHECK(read(fd, buffer, 5000) == 5000);
		printf("%c", buffer[0]);
		put("file", 'b' + round % 20, 8000 + round);
		ssize_t got = read(fd, buffer, 5000);
		printf("%c%zd ", buffer[0], got);
		int other = open("file", O_RDONLY);
		got = read(other, buffer, 5000);
		printf("%c ", buffer[0]);
		if (round % 3 == 0) {
			unlink("file");
			printf("%d", open("file", O_RDONLY));
			printf("%zd ", pread(other, buffer, 5000, 5000));
			put("file", 'x', 9000);
		}
		close(fd), close(other);
		printf("%u\n", ahead(1));
	}
}
