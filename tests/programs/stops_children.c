/* Stops a child that the kernel says it has, the first or all of them, as a
 * debugger or a freezer might, then reads and forks: it goes on, and the children
 * that it makes itself have all of its memory. */
#include "common.h"
#include <sys/random.h>
#define PAGE 4096ul
#define LEN (4ul << 20)

static void stop(int all)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	FILE *file = fopen(path, "r");
	if (file && fgets(text, sizeof text, file))
		for (char *word = strtok(text, " "); word; word = all ? strtok(NULL, " ") : NULL)
			kill(atoi(word), SIGSTOP);
	if (file)
		fclose(file);
}

int main(void)
{
	static char buffer[65536];
	unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, 5, LEN);
	int fd = open(BIG, O_RDONLY), failures = 0;
	CHECK(fd >= 0);
	for (int round = 0; round < 8; round++) {
		unsigned short at;
		/* Which no copy foresees. */
		CHECK(getrandom(&at, sizeof at, 0) == sizeof at);
		usleep(3000);
		if (round >= 5)
			stop(round == 7);
		CHECK(pread(fd, buffer, sizeof buffer, at) == sizeof buffer);
		pid_t child = fork();
		if (child == 0) {
			for (size_t place = 0; place < LEN; place += 16 * PAGE)
				if (memory[place] != 5)
					_exit(1);
			_exit(0);
		}
		int status;
		failures += waitpid(child, &status, 0) != child || status != 0;
	}
	printf("%d failures\n", failures);
	return failures != 0;
}
