// not: observe speculate wrong importing dying refused nobody cold (a signal needs a stack)
/* Touches that wait where the stack pointer points nowhere: what notices them
 * without a signal needs no stack, and leaves every register as it was. */
#include "common.h"
#define PAGES 512
int main(void)
{
	int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
	static unsigned char page[4096];
	for (int i = 0; i < PAGES; i++) {
		memset(page, i * 7 + 1, sizeof page);
		CHECK(pwrite(fd, page, sizeof page, (off_t)i * 4096) == sizeof page);
	}
	fsync(fd);
	volatile unsigned char *map = mmap(NULL, PAGES * 4096, PROT_READ, MAP_SHARED, fd, 0);
	madvise((void *)map, PAGES * 4096, MADV_RANDOM);
	unsigned sum = 0, wrong = 0;
	for (int i = 0; i < 4 * PAGES; i++) {
		if (i % PAGES == 0) {
			madvise((void *)map, PAGES * 4096, MADV_DONTNEED);
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		}
		const volatile unsigned char *at = map + (size_t)(i * 101 % PAGES) * 4096;
		static uint64_t in[16];
		const uint64_t *found, *from = in;
		for (int j = 0; j < 16; j++)
			in[j] = (uint64_t)i * 0x9e3779b97f4a7c15ull + j * 0x123456789ull;
		__asm__ volatile(
			"push %%rbp\n\tpush %%rbx\n\t"
			"movq %%rsp, %%mm0\n\t" /* The only register that is left. */
			"movdqu (%[in]), %%xmm3\n\tmovdqu 16(%[in]), %%xmm14\n\t"
			"mov %[at], %%r15\n\t"
			"mov (%[in]), %%rax\n\tmov 8(%[in]), %%rbx\n\tmov 16(%[in]), %%rcx\n\t"
			"mov 24(%[in]), %%rdx\n\tmov 32(%[in]), %%rdi\n\tmov 40(%[in]), %%rbp\n\t"
			"mov 48(%[in]), %%r8\n\tmov 56(%[in]), %%r9\n\tmov 64(%[in]), %%r10\n\t"
			"mov 72(%[in]), %%r11\n\tmov 80(%[in]), %%r12\n\tmov 88(%[in]), %%r13\n\t"
			"mov 96(%[in]), %%r14\n\tmov 104(%[in]), %%rsp\n\t"
			"stc\n\tstd\n\t"
			"movzbl (%%r15), %%esi\n\t"
			"mov %%rsp, 104+out%=(%%rip)\n\tmovq %%mm0, %%rsp\n\t"
			"mov %%rax, out%=(%%rip)\n\tlahf\n\tcld\n\t"
			"mov %%rax, 128+out%=(%%rip)\n\tmov %%rsi, 136+out%=(%%rip)\n\t"
			"mov %%rbx, 8+out%=(%%rip)\n\tmov %%rcx, 16+out%=(%%rip)\n\t"
			"mov %%rdx, 24+out%=(%%rip)\n\tmov %%rdi, 32+out%=(%%rip)\n\t"
			"mov %%rbp, 40+out%=(%%rip)\n\tmov %%r8, 48+out%=(%%rip)\n\t"
			"mov %%r9, 56+out%=(%%rip)\n\tmov %%r10, 64+out%=(%%rip)\n\t"
			"mov %%r11, 72+out%=(%%rip)\n\tmov %%r12, 80+out%=(%%rip)\n\t"
			"mov %%r13, 88+out%=(%%rip)\n\tmov %%r14, 96+out%=(%%rip)\n\t"
			"movdqu %%xmm3, 112+out%=(%%rip)\n\t"
			"pop %%rbx\n\tpop %%rbp\n\temms\n\t"
			".pushsection .bss\n\t.balign 16\nout%=: .zero 144\n\t.popsection\n\t"
			"lea out%=(%%rip), %%rax\n\t"
			: "=&a"(found), [in] "+S"(from), [at] "+D"(at)
			:
			: "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm3",
			  "xmm14", "memory", "cc");
		wrong += memcmp(found, in, 14 * 8) != 0 || memcmp(found + 14, in, 16) != 0;
		wrong += (found[16] >> 8 & 1) != 1;
		sum = sum * 31 + (unsigned)found[17];
	}
	printf("%x, %u wrong\n", sum, wrong);
	unlink("large");
}
