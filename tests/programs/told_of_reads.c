/* A program that is told of what is done to files (F_NOTIFY, inotify) is told of
 * its own doings: nobody asks whether its reads would wait, or what it maps is
 * there, which is an access, too. */
#include "common.h"
#include <sys/inotify.h>
static volatile sig_atomic_t times;
static void told(int number)
{
	times++;
}
int main(void)
{
	struct sigaction action = { .sa_handler = told, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
	int directory = open("data", O_RDONLY | O_DIRECTORY);
	CHECK(fcntl(directory, F_SETSIG, SIGRTMIN + 1) == 0);
	CHECK(fcntl(directory, F_NOTIFY, DN_ACCESS | DN_MULTISHOT) == 0);
	work();
	printf("told %d times\n", times);
	ahead(10);
	printf("told %d times\n", times);
	CHECK(fcntl(directory, F_NOTIFY, 0) == 0);
	char events[4096], page[4096];
	memset(page, 1, sizeof page);
	int fd = open("large", O_RDWR | O_CREAT, 0600), watch = inotify_init1(IN_NONBLOCK);
	for (int i = 0; i < LARGE_LEN / 4096; i++)
		CHECK(write(fd, page, sizeof page) == sizeof page);
	CHECK(inotify_add_watch(watch, "large", IN_ACCESS) > 0);
	for (int round = 0; round < 3; round++) {
		CHECK(mmap(NULL, LARGE_LEN, PROT_READ, round ? MAP_SHARED : MAP_PRIVATE, fd, 0) != MAP_FAILED);
		ssize_t got = read(watch, events, sizeof events);
		printf("%zd %d\n", got, got < 0 ? errno : 0);
	}
}
