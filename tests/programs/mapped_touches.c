/* Large mapped files touched in every order, through private and shared
 * mappings, and as buffers of system calls. */
#include "common.h"
#define LEN (4 << 20)
int main(void)
{
	int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
	unsigned *words = malloc(LEN);
	for (unsigned i = 0; i < LEN / 4; i++)
		words[i] = i * 2654435761u;
	CHECK(write(fd, words, LEN) == LEN);
	free(words);
	volatile unsigned *shared = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	volatile unsigned *private = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	int random = open("large", O_RDONLY);
	volatile unsigned *third = mmap(NULL, LEN - 65536, PROT_READ, MAP_PRIVATE, random, 65536);
	madvise((void *)third, LEN - 65536, MADV_RANDOM);
	close(fd), close(random);
	uint64_t x = 88172645463325252ull, sum = 0;
	for (int i = 0; i < 600; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		sum = sum * 31 + shared[x % (LEN / 4)];
		sum = sum * 31 + third[(x >> 8) % ((LEN - 65536) / 4)];
		if (i % 4 == 0)
			private[(x >> 16) % (LEN / 4)] += (unsigned)sum;
	}
	printf("random %llx\n", (unsigned long long)sum);
	for (int i = 0; i < LEN / 4; i += 512)
		sum = sum * 31 + private[i];
	printf("forward %llx\n", (unsigned long long)sum);
	for (int i = LEN / 4 - 1; i > 0; i -= 1024)
		sum = sum * 31 + shared[i];
	printf("backward %llx\n", (unsigned long long)sum);
	/* The kernel reads from and writes to such memory. */
	fd = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(pwrite(fd, (void *)shared, 300000, 0) == 300000);
	int big = open(BIG, O_RDONLY);
	CHECK(pread(big, (void *)(private + 50000), 100000, 1234) == 100000);
	struct iovec vector[2] = { { (void *)(private + 200000), 70000 }, { (void *)(private + 300000), 5000 } };
	CHECK(preadv(big, vector, 2, 99) == 75000);
	CHECK(pread(fd, (void *)shared, 10, 0) == -1 && errno == EFAULT);
	for (int i = 0; i < LEN / 4; i += 97)
		sum = sum * 31 + private[i];
	printf("buffers %llx\n", (unsigned long long)sum);
	unlink("large");
}
