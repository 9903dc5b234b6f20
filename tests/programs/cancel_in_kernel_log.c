// needs: root
/* A thread is cancelled while it reads the kernel's log: a regular file, of
 * which a read waits until there is something new. */
#include "common.h"
static void *reads(void *fd)
{
	char line[1024];
	for (;;)
		read((int)(long)fd, line, sizeof line);
}
int main(void)
{
	int fd = open("/proc/kmsg", O_RDONLY);
	for (int round = 0; fd >= 0 && round < 3; round++) {
		pthread_t id;
		void *result;
		ahead(2);
		CHECK(pthread_create(&id, NULL, reads, (void *)(long)fd) == 0);
		pause_ms(30);
		pthread_cancel(id);
		pthread_join(id, &result);
		printf("%d\n", result == PTHREAD_CANCELED);
	}
}
