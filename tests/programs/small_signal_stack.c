/* A handler on the smallest alternate stack reads a file. */
#include "common.h"
#include <sys/auxv.h>
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
static unsigned sum;
static void handler(int s)
{
	char byte;
	int fd = open("data/big", O_RDONLY);
	for (int i = 0; i < 10; i++)
		if (pread(fd, &byte, 1, i * 9973) == 1)
			sum = sum * 31 + byte;
	close(fd);
}
int main(void)
{
	size_t size = getauxval(AT_MINSIGSTKSZ) + 1536, page = 4096;
	/* A guard page below shows an overflow. */
	char *place = mmap(NULL, 16 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size = (size + page - 1) / page * page;
	mprotect(place + page, size, PROT_READ | PROT_WRITE);
	stack_t stack = { .ss_sp = place + page, .ss_size = size };
	CHECK(sigaltstack(&stack, NULL) == 0);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	sigaction(SIGUSR1, &action, NULL);
	for (int round = 0; round < 20; round++) {
		raise(SIGUSR1);
		printf("%u %u\n", sum, ahead(2));
	}
}
