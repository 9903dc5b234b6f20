// not: refused (tier T0 does not see munmap(2))
/* Writes a program through a mapping, lets it go, and another process executes it at
 * once: nobody has the file open for writing any more. */
#include "common.h"
#include <spawn.h>
extern char **environ;
/* Executes the program each time it is told to, and tells how that went. */
static void execute(int go, int done)
{
	char byte, *arguments[] = { "./written", "again", NULL };
	while (read(go, &byte, 1) == 1) {
		pid_t child;
		int status = 0, error = posix_spawn(&child, "./written", NULL, NULL, arguments, environ);
		CHECK(error || waitpid(child, &status, 0) == child);
		char result[2] = { (char)error, (char)WEXITSTATUS(status) };
		CHECK(write(done, result, 2) == 2);
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
		execute(go[0], done[1]);
	}
	struct stat stat;
	int self = open("/proc/self/exe", O_RDONLY);
	CHECK(fstat(self, &stat) == 0);
	size_t len = (size_t)stat.st_size;
	char *text = mmap(NULL, len, PROT_READ, MAP_PRIVATE, self, 0);
	for (int round = 0; round < 8; round++) {
		unsigned char known = at_100();
		int out = open("written", O_RDWR | O_CREAT | O_TRUNC, 0755);
		CHECK(ftruncate(out, (off_t)len) == 0);
		char *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
		memcpy(map, text, len);
		linger_if(at_100() != known);
		ahead(1);
		CHECK(munmap(map, len) == 0 && close(out) == 0);
		char result[2];
		CHECK(write(go[1], "x", 1) == 1 && read(done[0], result, 2) == 2);
		printf("%d %d\n", result[0], result[1]);
		CHECK(unlink("written") == 0);
	}
	close(go[1]);
	CHECK(wait(NULL) > 0);
	return 0;
}
