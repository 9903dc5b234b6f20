/* Execs that fail while other threads touch pages of a large mapped file: what
 * tells of their faults stays theirs, and the process goes on. */
#include "common.h"
#define LEN (4 << 20)
static volatile unsigned char *map;
static volatile int over;
static void *touch(void *seed)
{
	unsigned at = (unsigned)(uintptr_t)seed, sum = 0;
	while (!over) {
		for (int i = 0; i < 64; i++) {
			at = at * 1103515245 + 12345;
			sum += map[(at >> 3) % LEN];
		}
		madvise((void *)map, LEN, MADV_DONTNEED);
	}
	return (void *)(uintptr_t)(sum == 77);
}
int main(void)
{
	pthread_t threads[2];
	char *argv[] = { "x", NULL }, *envp[] = { NULL };
	struct timespec now, end;
	int all = 1, fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(ftruncate(fd, LEN) == 0);
	map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	for (uintptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, touch, (void *)i) == 0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec++;
	do {
		all &= execve("/nonexistent", argv, envp) == -1 && errno == ENOENT;
		all &= execve("data", argv, envp) == -1 && errno == EACCES;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || now.tv_nsec < end.tv_nsec);
	over = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	printf("all failed: %d, %u\n", all, work());
	unlink("large");
}
