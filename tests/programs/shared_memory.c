/* Memory shared in every way: what a copy stores there never arrives. The
 * program counts in each kind while its copies count, too. */
#include "common.h"
#include <sys/ipc.h>
#include <sys/shm.h>
static volatile unsigned *kinds[5];
int main(void)
{
	int file = open("shared", O_RDWR | O_CREAT, 0644), memory = memfd_create("m", 0);
	CHECK(ftruncate(file, 8192) == 0 && ftruncate(memory, 8192) == 0);
	int both = PROT_READ | PROT_WRITE;
	int key = shmget(IPC_PRIVATE, 8192, 0600);
	kinds[0] = mmap(NULL, 8192, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	kinds[1] = mmap(NULL, 8192, both, MAP_SHARED, file, 0);
	kinds[2] = mmap(NULL, 8192, both, MAP_SHARED, memory, 0);
	kinds[3] = shmat(key, NULL, 0);
	kinds[4] = mmap(NULL, 8192, both, MAP_SHARED_VALIDATE, file, 0);
	shmctl(key, IPC_RMID, NULL);
	for (int round = 0; round < 400; round++) {
		ahead(1);
		for (int k = 0; k < 5; k++) {
			kinds[k][0]++;
			kinds[k][1024 + round % 1024] += round;
			/* The kernel writes there, too. */
			int fd = open(file_name(round), O_RDONLY);
			CHECK(read(fd, (void *)&kinds[k][512], 64) == 64);
			close(fd);
		}
	}
	for (int k = 0; k < 5; k++) {
		unsigned sum = 0;
		for (int i = 0; i < 2048; i++)
			sum = sum * 31 + kinds[k][i];
		printf("%u %u\n", kinds[k][0], sum);
	}
	if (fork() == 0) {
		ahead(5);
		for (int k = 0; k < 5; k++)
			kinds[k][0] += 1000;
		_exit(0);
	}
	wait(NULL);
	for (int k = 0; k < 5; k++)
		printf("%u\n", kinds[k][0]);
}
