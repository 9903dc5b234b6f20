/* System V shared memory counts its attachments: a copy is none. */
#include "common.h"
#include <sys/ipc.h>
#include <sys/shm.h>
static unsigned long attached(int id)
{
	struct shmid_ds about;
	shmctl(id, IPC_STAT, &about);
	return about.shm_nattch;
}
int main(void)
{
	int small = shmget(IPC_PRIVATE, 100, IPC_CREAT | 0600);
	int large = shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600);
	char *one = shmat(small, NULL, 0), *two = shmat(large, NULL, 0), *three = shmat(small, NULL, SHM_RDONLY);
	strcpy(one, "begin");
	for (int round = 0; round < 60; round++) {
		one[6] = 'a' + round % 26, two[round * 4096] = round;
		unsigned sum = ahead(1);
		one[7]++;
		printf("%lu %lu %u %d %c\n", attached(small), attached(large), sum, three[7], one[6]);
		if (round == 40)
			shmdt(three), three = one;
	}
	shmdt(one), shmdt(two);
	printf("%lu %lu\n", attached(small), attached(large));
	shmctl(small, IPC_RMID, NULL), shmctl(large, IPC_RMID, NULL);
	printf("%d\n", shmctl(small, IPC_STAT, &(struct shmid_ds){ 0 }));
}
