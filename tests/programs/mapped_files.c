/* Mapped files: private and shared, truncated under the mapping (SIGBUS),
 * grown, remapped. */
#include "common.h"
static sigjmp_buf back;
static void handler(int s) { siglongjmp(back, s); }
int main(void)
{
	signal(SIGBUS, handler), signal(SIGSEGV, handler);
	for (volatile int round = 0; round < 10; round++) {
		int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
		char buffer[16384];
		memset(buffer, 'a' + round, sizeof buffer);
		CHECK(write(fd, buffer, sizeof buffer) == sizeof buffer);
		volatile char *shared = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		volatile char *private = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
		ahead(2);
		shared[5] = 'S', private[5] = 'P', shared[9000] = 'T';
		CHECK(pread(fd, buffer, 10, 0) == 10);
		printf("%.10s %c %c ", buffer, private[9000], private[5]);
		ahead(2);
		CHECK(ftruncate(fd, 5000) == 0);
		int s = sigsetjmp(back, 1);
		if (s == 0)
			printf("%c", shared[12000]);
		else
			printf("signal %d", s);
		ahead(2);
		CHECK(ftruncate(fd, 16384) == 0);
		printf(" %d ", shared[12000]);
		shared = mremap((void *)shared, 16384, 32768, MREMAP_MAYMOVE);
		printf("%d\n", shared != MAP_FAILED && shared[5] == 'S');
		munmap((void *)shared, 32768), munmap((void *)private, 16384);
		close(fd);
	}
}
