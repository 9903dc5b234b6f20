/* A shared mapping made by a system call instruction of its own, which no
 * hook sees: a copy's stores do not arrive there either. */
#include "common.h"
static long raw_mmap(size_t len, int flags, int fd)
{
	register long r10 __asm__("r10") = flags, r8 __asm__("r8") = fd, r9 __asm__("r9") = 0;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(SYS_mmap), "D"(0), "S"(len), "d"(PROT_READ | PROT_WRITE), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return result;
}
int main(void)
{
	int fd = open("shared", O_RDWR | O_CREAT, 0644);
	CHECK(ftruncate(fd, 4096) == 0);
	volatile unsigned *file = (unsigned *)raw_mmap(4096, MAP_SHARED, fd);
	volatile unsigned *memory = (unsigned *)raw_mmap(4096, MAP_SHARED | MAP_ANONYMOUS, -1);
	for (int round = 0; round < 500; round++) {
		ahead(1);
		file[round % 1024] += round;
		file[0]++, memory[0]++;
	}
	printf("%u %u\n", file[0], memory[0]);
}
