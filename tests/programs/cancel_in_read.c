/* Threads cancelled while they wait in a read: cleanup by handlers and by the
 * unwinder (as C++ destructors are run) both happen, innermost first. */
#include "common.h"
static int pair[2], fd;
static void say(void *word) { printf("%s\n", (char *)word); }
static void leave(char **word) { printf("left %s\n", *word); }
__attribute__((noinline)) static void inner(void)
{
	__attribute__((cleanup(leave))) char *word = "inner";
	char byte;
	pread(fd, &byte, 1, 0);
	while (read(pair[0], &byte, 1) < 0 || 1)
		;
}
static void *thread(void *none)
{
	pthread_cleanup_push(say, "handler");
	__attribute__((cleanup(leave))) char *word = "outer";
	inner();
	pthread_cleanup_pop(0);
	return NULL;
}
int main(void)
{
	CHECK(pipe(pair) == 0);
	fd = open(BIG, O_RDONLY);
	for (int round = 0; round < 5; round++) {
		pthread_t id;
		void *result;
		ahead(2);
		pthread_create(&id, NULL, thread, NULL);
		pause_ms(10);
		pthread_cancel(id);
		pthread_join(id, &result);
		printf("%d\n", result == PTHREAD_CANCELED);
	}
}
