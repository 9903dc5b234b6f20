/* Every register is as it was after a touch that faulted: general, vector,
 * floating-point control, flags. */
#include "common.h"
#define LEN (4 << 20)
int main(void)
{
	int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(ftruncate(fd, LEN) == 0);
	for (int i = 0; i < LEN; i += 4096)
		CHECK(pwrite(fd, &i, 4, i) == 4);
	volatile char *map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	unsigned sum = 0;
	for (int i = 0; i < LEN / 4096; i += 7) {
		const volatile char *at = map + (size_t)i * 4096;
		uint64_t in[16], out[16], general[6];
		uint32_t mxcsr = 0x1f80 | (i % 4) << 13, mxcsr_after;
		uint64_t flags;
		for (int j = 0; j < 16; j++)
			in[j] = (uint64_t)i * 0x9e3779b97f4a7c15ull + j;
		__asm__ volatile(
			"ldmxcsr %[mxcsr]\n\t"
			"movdqu (%[in]), %%xmm0\n\tmovdqu 16(%[in]), %%xmm5\n\t"
			"movdqu 32(%[in]), %%xmm10\n\tmovdqu 48(%[in]), %%xmm15\n\t"
			"mov 64(%[in]), %%r12\n\tmov 72(%[in]), %%r13\n\t"
			"mov 80(%[in]), %%r14\n\tmov 88(%[in]), %%rcx\n\t"
			"movq %%rcx, -64(%%rsp)\n\t" /* In the red zone. */
			"stc\n\tstd\n\t"
			"movzbl (%[at]), %%eax\n\t"
			"pushfq\n\tpopq %[flags]\n\tcld\n\t"
			"mov %%r12, (%[general])\n\tmov %%r13, 8(%[general])\n\t"
			"mov %%r14, 16(%[general])\n\tmov %%rcx, 24(%[general])\n\t"
			"movdqu %%xmm0, (%[out])\n\tmovdqu %%xmm5, 16(%[out])\n\t"
			"movdqu %%xmm10, 32(%[out])\n\tmovdqu %%xmm15, 48(%[out])\n\t"
			"stmxcsr %[after]\n\t"
			: [flags] "=&r"(flags), [after] "=m"(mxcsr_after)
			: [in] "r"(in), [out] "r"(out), [general] "r"(general), [at] "r"(at),
			  [mxcsr] "m"(mxcsr)
			: "rax", "rcx", "r12", "r13", "r14", "xmm0", "xmm5", "xmm10", "xmm15", "memory", "cc");
		CHECK(memcmp(in, out, 64) == 0 && memcmp(in + 8, general, 32) == 0);
		CHECK(mxcsr_after == mxcsr && (flags & 0x401) == 0x401);
		sum = sum * 31 + (unsigned)in[3];
	}
	printf("%x\n", sum);
	unlink("large");
}
