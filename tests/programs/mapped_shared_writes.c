/* A large file written through a shared mapping: what a speculative process
 * writes there must reach nobody. */
#include "common.h"
#define LEN (2 << 20)
int main(void)
{
	int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(ftruncate(fd, LEN) == 0);
	volatile unsigned char *a = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	volatile unsigned char *b = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	unsigned x = 1, sum = 0;
	for (int i = 0; i < 400; i++) {
		x = x * 1103515245 + 12345;
		unsigned at = (x >> 4) % LEN;
		unsigned char byte, before = b[at];
		a[at] = (unsigned char)(before + i);
		CHECK(pread(fd, &byte, 1, at) == 1 && byte == (unsigned char)(before + i));
		CHECK(b[at] == byte);
		sum = sum * 31 + byte;
	}
	printf("%x\n", sum);
	/* A counter that only ever this process raises. */
	volatile unsigned *counter = (volatile unsigned *)(a + 4096 * 100);
	*counter = 0;
	for (unsigned i = 0; i < 300; i++) {
		CHECK(*counter == i);
		*counter = i + 1;
		sum = sum * 31 + b[(i * 7919u * 4096u) % LEN];
	}
	CHECK(msync((void *)a, LEN, MS_SYNC) == 0);
	printf("%u %x\n", *counter, sum);
	munmap((void *)a, LEN), munmap((void *)b, LEN);
	close(fd);
}
