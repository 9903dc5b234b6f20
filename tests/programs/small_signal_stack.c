/* A handler on an alternate stack that is hardly larger than a signal's frame reads files,
 * in every way that is asked about. */
#include "common.h"
#include <sys/auxv.h>
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
enum {
	PAGE = 4096,
	/* What a call of the program's may take besides (docs/limitations.md), and what
	 * the handler and the C library take plainly. */
	LEFT = 2048,
	OWN = 512,
};
static unsigned sum;
static __attribute__((noinline)) void reads(int fd, int round)
{
	char bytes[2];
	struct iovec vectors[2] = { { bytes, 1 }, { bytes + 1, 1 } };
	for (int i = 0; i < 10; i++) {
		long at = (i * 9973 + round * 3001) % BIG_LEN;
		if (pread(fd, bytes, 1, at) == 1)
			sum = sum * 31 + bytes[0];
		if (preadv(fd, vectors, 2, at / 2) == 2)
			sum = sum * 31 + bytes[1];
		if (read(fd, bytes, 2) == 2)
			sum = sum * 31 + bytes[0];
		lseek(fd, at / 3, SEEK_SET);
		if (readv(fd, vectors, 2) == 2)
			sum = sum * 31 + bytes[1];
	}
}
static void handler(int round)
{
	int fd = open(BIG, O_RDONLY);
	reads(fd, round);
	close(fd);
}
int main(void)
{
	/* The stack ends where a page begins that nobody may touch. */
	size_t size = getauxval(AT_MINSIGSTKSZ) + LEFT + OWN;
	char *place = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(place + PAGE, 15 * PAGE, PROT_READ | PROT_WRITE);
	stack_t stack = { .ss_sp = place + PAGE, .ss_size = size };
	CHECK(sigaltstack(&stack, NULL) == 0);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	sigaction(SIGUSR1, &action, NULL);
	/* The dynamic linker takes more of a stack, once for each function. */
	handler(0);
	for (int round = 0; round < 20; round++) {
		raise(SIGUSR1);
		printf("%u %u\n", sum, ahead(2));
	}
}
