// not: refused (tier T0 sees neither munmap(2) nor that a process is made)
/* Writes a program through a mapping, lets it go, and it is executed at once: nobody has
 * the file open for writing any more. By another process where it is unmapped; by this one
 * where something else is mapped in its place. */
#include "common.h"
#include <spawn.h>
extern char **environ;
/* How executing it went: the error, and the status it ended with. */
struct went {
	int error, status;
};
static struct went execute(void)
{
	char *arguments[] = { "./written", "again", NULL };
	pid_t child;
	struct went went = { 0, 0 };
	went.error = posix_spawn(&child, "./written", NULL, NULL, arguments, environ);
	CHECK(went.error || waitpid(child, &went.status, 0) == child);
	return went;
}
/* The other process: executes it each time that it is told to. */
static void serve(int go, int done)
{
	char byte;
	while (read(go, &byte, 1) == 1) {
		struct went went = execute();
		CHECK(write(done, &went, sizeof went) == sizeof went);
	}
	_exit(0);
}
int main(int argc, char **argv)
{
	if (argc > 1)
		return 7;
	int go[2], done[2];
	CHECK(pipe(go) == 0 && pipe(done) == 0);
	if (fork() == 0) {
		close(go[1]), close(done[0]);
		serve(go[0], done[1]);
	}
	struct stat stat;
	int self = open("/proc/self/exe", O_RDONLY);
	CHECK(fstat(self, &stat) == 0);
	size_t len = (size_t)stat.st_size;
	char *text = mmap(NULL, len, PROT_READ, MAP_PRIVATE, self, 0);
	for (int round = 0; round < 16; round++) {
		unsigned char known = at_100();
		int out = open("written", O_RDWR | O_CREAT | O_TRUNC, 0755);
		CHECK(ftruncate(out, (off_t)len) == 0);
		char *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
		memcpy(map, text, len);
		linger_if(at_100() != known);
		ahead(1);
		struct went went;
		if (round & 1) {
			int over = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
			CHECK(mmap(map, len, PROT_NONE, over, -1, 0) == map && close(out) == 0);
			went = execute();
		} else {
			CHECK(munmap(map, len) == 0 && close(out) == 0);
			CHECK(write(go[1], "x", 1) == 1 && read(done[0], &went, sizeof went) == sizeof went);
		}
		printf("%d %s\n", went.error, ended(went.status));
		CHECK(unlink("written") == 0);
	}
	close(go[1]);
	CHECK(wait(NULL) > 0);
	return 0;
}
