/* A descriptor of a file is closed where no symbol is hooked, and a pipe or a socket gets
 * its number: a thread that waits in a read of that is cancelled all the same. */
#include "common.h"
#include <dlfcn.h>
static int fd;
static void *thread(void *none)
{
	char byte;
	ssize_t got = read(fd, &byte, 1);
	printf("read %zd\n", got);
	return none;
}
int main(void)
{
	int (*own)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "close");
	for (int round = 0; round < 4; round++) {
		char bytes[16];
		int pair[2];
		pthread_t id;
		void *result;
		fd = open(BIG, O_RDONLY);
		CHECK(read(fd, bytes, sizeof bytes) == sizeof bytes);
		CHECK((round % 2 ? syscall(SYS_close, fd) : own(fd)) == 0);
		CHECK((round < 2 ? pipe(pair) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) == 0);
		CHECK(pair[0] == fd);
		pthread_create(&id, NULL, thread, NULL);
		pause_ms(50);
		pthread_cancel(id);
		pthread_join(id, &result);
		printf("%d\n", result == PTHREAD_CANCELED);
		close(pair[0]);
		close(pair[1]);
	}
}
