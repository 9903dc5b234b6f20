// not: refused (tier T0 does not see that a process is made)
/* Writes a program through a mapping and executes it at once: nobody has the file
 * open for writing any more. */
#include "common.h"
#include <spawn.h>
extern char **environ;
int main(int argc, char **argv)
{
	if (argc > 1)
		return 7;
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
		char *arguments[] = { "./written", "again", NULL };
		pid_t child;
		int error = posix_spawn(&child, "./written", NULL, NULL, arguments, environ), status = 0;
		CHECK(error || waitpid(child, &status, 0) == child);
		printf("%d %s\n", error, ended(status));
		CHECK(unlink("written") == 0);
	}
	return 0;
}
