/* brk, mremap, mprotect, regions kept from children (MADV_DONTFORK) or
 * wiped in them, huge malloc and free. */
#include "common.h"
int main(void)
{
	size_t len = 64 * 4096;
	unsigned char *kept = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *wiped = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(madvise(kept, len, MADV_DONTFORK) == 0 && madvise(wiped, len, MADV_WIPEONFORK) == 0);
	for (int round = 0; round < 20; round++) {
		int fd = open(BIG, O_RDONLY);
		CHECK(read(fd, kept, len) == len);
		CHECK(read(fd, wiped, len) == len);
		unsigned sum = 0;
		for (size_t i = 0; i < len; i++)
			sum = sum * 31 + kept[i] + wiped[i];
		char *old = sbrk(0);
		CHECK(sbrk(100000) == old);
		memset(old, round, 100000);
		ahead(1);
		CHECK(old[99999] == round && sbrk(-100000) == old + 100000);
		char *moved = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		moved[0] = 'm';
		CHECK(mprotect(moved, 4096, PROT_READ) == 0 && (ahead(1), 1));
		CHECK(mprotect(moved, 4096, PROT_READ | PROT_WRITE) == 0);
		moved = mremap(moved, 8192, 1 << 20, MREMAP_MAYMOVE);
		CHECK(pread(fd, moved + 4096, 100000, 0) == 100000);
		printf("%u %c %d\n", sum, moved[0], moved[50000]);
		munmap(moved, 1 << 20);
		char *big = malloc(32 << 20);
		memset(big, 1, 32 << 20);
		ahead(1);
		free(big);
		close(fd);
	}
	pid_t child = fork();
	if (child == 0)
		_exit(wiped[5000] + (madvise(kept, len, MADV_DOFORK) == -1 ? 10 : 20));
	int status;
	waitpid(child, &status, 0);
	printf("%s\n", ended(status));
}
