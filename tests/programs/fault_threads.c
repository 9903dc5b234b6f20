/* Threads that touch a large mapped file: made before and after it was
 * mapped, on small stacks, cancelled, and beside forks. */
#include "common.h"
#define LEN (4 << 20)
static volatile unsigned char *map;
static pthread_barrier_t mapped;
static unsigned touch(unsigned seed)
{
	unsigned sum = 0;
	for (int i = 0; i < 150; i++) {
		seed = seed * 1103515245 + 12345;
		sum = sum * 31 + map[(seed >> 3) % LEN];
	}
	return sum;
}
static void *early(void *seed)
{
	pthread_barrier_wait(&mapped);
	return (void *)(uintptr_t)touch((unsigned)(uintptr_t)seed);
}
static void *late(void *seed) { return (void *)(uintptr_t)touch((unsigned)(uintptr_t)seed); }
static void *deep(void *seed)
{
	/* Leaves less stack than a signal's frame may need. */
	volatile char most[12 * 1024];
	most[0] = 1, most[sizeof most - 1] = 1;
	return (void *)(uintptr_t)touch((unsigned)(uintptr_t)seed + most[0]);
}
static void *forever(void *unused)
{
	for (unsigned i = 0;; i++)
		touch(i), pthread_testcancel();
	return unused;
}
int main(void)
{
	pthread_t threads[12];
	pthread_attr_t tiny;
	pthread_attr_init(&tiny);
	CHECK(pthread_attr_setstacksize(&tiny, 20 * 1024) == 0);
	pthread_barrier_init(&mapped, NULL, 4);
	for (uintptr_t i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, early, (void *)i) == 0);
	int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0644);
	unsigned char *bytes = malloc(LEN);
	for (unsigned i = 0; i < LEN; i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	CHECK(write(fd, bytes, LEN) == LEN);
	free(bytes);
	map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	pthread_barrier_wait(&mapped);
	for (uintptr_t i = 3; i < 6; i++)
		CHECK(pthread_create(&threads[i], NULL, late, (void *)i) == 0);
	for (uintptr_t i = 6; i < 9; i++)
		CHECK(pthread_create(&threads[i], &tiny, deep, (void *)i) == 0);
	for (int i = 0; i < 9; i++) {
		void *sum;
		CHECK(pthread_join(threads[i], &sum) == 0);
		printf("%d: %lx\n", i, (unsigned long)(uintptr_t)sum);
	}
	for (int i = 9; i < 12; i++)
		CHECK(pthread_create(&threads[i], NULL, forever, NULL) == 0);
	for (int round = 0; round < 3; round++) {
		int child = fork(), status;
		if (child == 0) {
			printf("child %x\n", touch((unsigned)round + 77));
			_exit(round);
		}
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s\n", ended(status));
	}
	for (int i = 9; i < 12; i++) {
		void *how;
		CHECK(pthread_cancel(threads[i]) == 0);
		CHECK(pthread_join(threads[i], &how) == 0 && how == PTHREAD_CANCELED);
	}
	printf("%x\n", touch(5));
	CHECK(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
	unlink("large");
}
