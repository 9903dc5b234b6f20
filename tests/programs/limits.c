/* Low limits on processes, address space, files, file sizes and stack: what
 * the program may do is what it could do alone. */
#include "common.h"
static void limit(int what, rlim_t soft)
{
	struct rlimit limit;
	getrlimit(what, &limit);
	limit.rlim_cur = soft;
	setrlimit(what, &limit);
}
int main(void)
{
	pid_t child = fork();
	if (child == 0) {
		limit(RLIMIT_NOFILE, 6);
		for (int round = 0; round < 5; round++) {
			ahead(3);
			int a = open(BIG, O_RDONLY), b = open(BIG, O_RDONLY), c = open(BIG, O_RDONLY), d = open(BIG, O_RDONLY);
			printf("%d %d %d %d\n", a, b, c, d);
			close(a), close(b), close(c);
		}
		signal(SIGXFSZ, SIG_IGN);
		limit(RLIMIT_FSIZE, 10000);
		int fd = open("small", O_WRONLY | O_CREAT, 0644);
		char buffer[8000] = { 0 };
		errno = 0;
		printf("%zd ", write(fd, buffer, 8000));
		ahead(3);
		printf("%zd ", write(fd, buffer, 8000));
		printf("%zd %d\n", write(fd, buffer, 8000), errno);
		limit(RLIMIT_CPU, 100);
		printf("%u\n", work());
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	printf("%s\n", ended(status));
	child = fork();
	if (child == 0) {
		/* Room for what is there and 64 MiB more. */
		FILE *statm = fopen("/proc/self/statm", "r");
		long pages;
		fscanf(statm, "%ld", &pages);
		fclose(statm);
		ahead(5);
		limit(RLIMIT_AS, (pages << 12) + (64 << 20));
		void *fits = malloc(48 << 20), *more = malloc(48 << 20);
		printf("%d %d %u\n", fits != NULL, more != NULL, ahead(5));
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("%s\n", ended(status));
}
