/* What a garbage collector does: reads all that the loaded images may write to, in
 * children, too, whose parent has had notices of page faults. */
#define _GNU_SOURCE
#include "common.h"
#include <link.h>
#define LEN (4 << 20)
static unsigned touched(volatile unsigned char *map)
{
	unsigned sum = 0;
	madvise((void *)map, LEN, MADV_DONTNEED);
	for (int i = 0; i < LEN / 4096; i += 3)
		sum = sum * 31 + map[(size_t)i * 4096];
	return sum;
}
static int scan(struct dl_phdr_info *info, size_t len, void *sum)
{
	(void)len;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_W))
			continue;
		for (size_t at = 0; at < part->p_memsz; at += 64)
			*(volatile unsigned *)sum += *(volatile unsigned char *)(info->dlpi_addr + part->p_vaddr + at);
	}
	return 0;
}
int main(void)
{
	int fd = open("large", O_RDWR | O_CREAT, 0644);
	CHECK(ftruncate(fd, LEN) == 0);
	for (int i = 0; i < LEN / 4096; i++)
		CHECK(pwrite(fd, &i, 4, (off_t)i * 4096) == 4);
	volatile unsigned char *map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	for (int round = 0; round < 3; round++) {
		printf("%x ", touched(map));
		unsigned sum = 0;
		pid_t child = fork();
		if (child == 0) {
			dl_iterate_phdr(scan, &sum);
			_exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		dl_iterate_phdr(scan, &sum);
		printf("%s\n", ended(status));
	}
	unlink("large");
}
