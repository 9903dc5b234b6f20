/* Eight threads read the same and different files, some with locks held. */
#include "common.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static unsigned total;
static void *thread(void *number)
{
	unsigned sum = 0;
	for (int round = 0; round < 6; round++) {
		sum = sum * 31 + sum_file(file_name((long)number)) + sum_file(file_name(0));
		pthread_mutex_lock(&lock);
		total += sum_file(file_name(round));
		pthread_mutex_unlock(&lock);
		pthread_rwlock_rdlock(&shared);
		sum += ahead(5);
		pthread_rwlock_unlock(&shared);
		free(malloc(100000));
	}
	return (void *)(uintptr_t)sum;
}
int main(void)
{
	pthread_t ids[8];
	for (long i = 0; i < 8; i++)
		pthread_create(&ids[i], NULL, thread, (void *)i);
	for (int i = 0; i < 8; i++) {
		void *sum;
		pthread_join(ids[i], &sum);
		printf("%u\n", (unsigned)(uintptr_t)sum);
	}
	printf("%u\n", total);
}
