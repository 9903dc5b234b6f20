/* Code written at run time, and changed, that reads and writes by its own
 * system call instructions. */
#include "common.h"
int main(void)
{
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* mov rax, imm32 (number); mov r10, rcx; syscall; ret */
	unsigned char bytes[] = { 0x48, 0xc7, 0xc0, 0, 0, 0, 0, 0x49, 0x89, 0xca, 0x0f, 0x05, 0xc3 };
	memcpy(code, bytes, sizeof bytes);
	long (*call)(long, long, long, long) = (void *)code;
	int fd = open(BIG, O_RDONLY);
	unsigned char buffer[100];
	for (int round = 0; round < 100; round++) {
		ahead(1);
		code[3] = round % 2 ? SYS_pread64 : SYS_read;
		long got = call(fd, (long)buffer, 100, round * 77);
		printf("%ld %d\n", got, buffer[50]);
	}
	/* What a copy writes there arrives nowhere. */
	for (int round = 0; round < 20; round++) {
		ahead(1);
		code[3] = SYS_open;
		int made = call((long)"made", O_WRONLY | O_CREAT | O_APPEND, 0644, 0);
		code[3] = SYS_write;
		CHECK(call(made, (long)"x", 1, 0) == 1);
		code[3] = SYS_close;
		CHECK(call(made, 0, 0, 0) == 0);
	}
	struct stat stat;
	lstat("made", &stat);
	printf("%ld bytes\n", (long)stat.st_size);
	code[3] = SYS_getppid;
	printf("%d\n", call(0, 0, 0, 0) == getppid());
}
