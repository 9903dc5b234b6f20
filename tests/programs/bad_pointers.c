/* Wild buffers and vectors give EFAULT and nothing else. */
#include "common.h"
#define TRY(call) (errno = 0, printf("%ld %d\n", (long)(call), errno))
int main(void)
{
	char byte = '?', *none = (char *)8, *readonly = (char *)main;
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	for (int round = 0; round < 5; round++) {
		int fd = open(file_name(round), O_RDONLY);
		struct iovec good = { &byte, 1 }, half[2] = { { page, 10 }, { none, 10 } },
			     most = { page, (size_t)-1 }, empty = { NULL, 0 };
		TRY(pread(fd, &byte, 1, 0));
		TRY(read(fd, none, 1));
		TRY(read(fd, readonly, 1));
		TRY(read(fd, page + 4000, 2000));
		TRY(lseek(fd, 0, SEEK_CUR));
		TRY(pread(fd, none, 1, 0));
		byte = '?';
		TRY(pread(fd, &byte, 1, -1));
		TRY(preadv(fd, &good, 1, -1));
		TRY(preadv2(fd, &good, 1, -2, 0));
		printf("%c\n", byte);
		TRY(pread(fd, &byte, 1, 1LL << 62));
		TRY(read(fd, none, 0));
		TRY(read(fd, (char *)-1, 10));
		TRY(readv(fd, (struct iovec *)8, 1));
		TRY(readv(fd, half, 2));
		TRY(readv(fd, &most, 1));
		TRY(readv(fd, &good, -1));
		TRY(readv(fd, &good, 0));
		TRY(readv(fd, &empty, 1));
		TRY(preadv(fd, half, 2, 5));
		TRY(preadv2(fd, &good, 1, -1, 0));
		TRY(preadv2(fd, &good, 1, 0, 0x7fff));
		TRY(open(none, O_RDONLY));
		TRY(syscall(SYS_openat, AT_FDCWD, none, O_RDONLY));
		TRY(write(1, none, 1));
		TRY(fstat(fd, (void *)none));
		TRY(syscall(SYS_rt_sigaction, SIGUSR1, none, NULL, 8));
		TRY(syscall(SYS_close, fd));
	}
}
