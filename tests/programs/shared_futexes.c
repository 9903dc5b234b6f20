/* Mutexes, conditions and semaphores shared between processes: no wake-up is
 * lost to a copy, none is made by one. */
#include "common.h"
#include <semaphore.h>
struct shared {
	pthread_mutex_t mutex, robust;
	pthread_cond_t turned;
	sem_t posts;
	int turn, sum;
};
int main(void)
{
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t of;
	pthread_condattr_t condition;
	pthread_mutexattr_init(&of), pthread_condattr_init(&condition);
	pthread_mutexattr_setpshared(&of, PTHREAD_PROCESS_SHARED), pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &of), pthread_cond_init(&shared->turned, &condition);
	pthread_mutexattr_setrobust(&of, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&shared->robust, &of);
	sem_init(&shared->posts, 1, 0);
	pid_t children[3];
	for (int i = 0; i < 3; i++)
		if ((children[i] = fork()) == 0) {
			for (int round = 0; round < 15; round++) {
				pthread_mutex_lock(&shared->mutex);
				while (shared->turn % 3 != i)
					pthread_cond_wait(&shared->turned, &shared->mutex);
				shared->sum = shared->sum * 31 + i + ahead(3);
				shared->turn++;
				pthread_cond_broadcast(&shared->turned);
				pthread_mutex_unlock(&shared->mutex);
				ahead(1);
				sem_post(&shared->posts);
			}
			_exit(0);
		}
	for (int i = 0; i < 45; i++) {
		ahead(1);
		CHECK(sem_wait(&shared->posts) == 0);
	}
	int status, value;
	for (int i = 0; i < 3; i++)
		waitpid(children[i], &status, 0), printf("%s ", ended(status));
	sem_getvalue(&shared->posts, &value);
	printf("%d %d %d\n", shared->turn, shared->sum, value);
	for (int round = 0; round < 10; round++) {
		/* One dies with the lock, the next is told. */
		pid_t child = fork();
		if (child == 0) {
			pthread_mutex_lock(&shared->robust);
			ahead(3);
			_exit(0);
		}
		waitpid(child, &status, 0);
		ahead(1);
		printf("%d ", pthread_mutex_lock(&shared->robust) == EOWNERDEAD);
		pthread_mutex_consistent(&shared->robust), pthread_mutex_unlock(&shared->robust);
	}
	puts("");
}
