/* Descriptors that are not there, not readable, not files. */
#include "common.h"
#define TRY(call) (errno = 0, printf("%ld %d\n", (long)(call), errno))
int main(void)
{
	char byte;
	struct iovec one = { &byte, 1 };
	int writing = open("out", O_WRONLY | O_CREAT, 0644), dir = open("data", O_RDONLY);
	int path = open(BIG, O_PATH), odd[] = { -1, -100, 99, 1023, 1024, 5000, INT_MAX, INT_MIN, writing, dir, path };
	for (int i = 0; i < sizeof odd / sizeof *odd; i++) {
		ahead(2);
		TRY(read(odd[i], &byte, 1));
		TRY(pread(odd[i], &byte, 1, 0));
		TRY(readv(odd[i], &one, 1));
		TRY(preadv2(odd[i], &one, 1, 0, 0));
		TRY(lseek(odd[i], 0, SEEK_CUR));
		TRY(dup2(odd[i], 50));
		close(50);
		if (odd[i] != writing && odd[i] != dir && odd[i] != path)
			TRY(close(odd[i]));
	}
	TRY(syscall(SYS_read, 0x100000003L, &byte, 1));
	TRY(write(dir, "x", 1));
}
