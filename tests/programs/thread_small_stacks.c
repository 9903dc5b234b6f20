/* Threads on the smallest stacks there are. */
#include "common.h"
static void *thread(void *number)
{
	char byte;
	unsigned sum = 0;
	int fd = open("data/big", O_RDONLY);
	for (int i = 0; i < 50; i++)
		if (pread(fd, &byte, 1, i * 9973) == 1)
			sum = sum * 31 + byte;
	close(fd);
	return (void *)(uintptr_t)sum;
}
int main(void)
{
	for (int round = 0; round < 20; round++) {
		pthread_attr_t attr;
		pthread_t id;
		void *sum;
		pthread_attr_init(&attr);
		CHECK(pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN) == 0);
		CHECK(pthread_create(&id, &attr, thread, NULL) == 0);
		pthread_join(id, &sum);
		printf("%u\n", (unsigned)(uintptr_t)sum);
	}
}
