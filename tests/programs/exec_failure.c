/* An exec that fails says why, and the program goes on as it was. */
#include "common.h"
int main(void)
{
	char *argv[] = { "x", NULL }, *envp[] = { "A=1", NULL };
	close(open("noexec", O_WRONLY | O_CREAT, 0644));
	int fd = open("garbage", O_WRONLY | O_CREAT, 0755);
	write(fd, "\x7f" "ELFgarbage", 11), close(fd);
	const char *names[] = { "/nonexistent", "data", "noexec", "garbage", "data/f00/x", "" };
	for (int round = 0; round < 4; round++)
		for (int i = 0; i < 6; i++) {
			ahead(2);
			errno = 0;
			int result = execve(names[i], argv, envp);
			printf("%s: %d %d\n", names[i], result, errno);
		}
	errno = 0;
	printf("%d ", execve("/bin/true", (char **)8, envp));
	printf("%d\n", errno);
	errno = 0;
	printf("%d ", execve("/bin/true", argv, (char **)8));
	printf("%d\n", errno);
	char *wild[] = { "A=1", (char *)16, NULL };
	errno = 0;
	printf("%d ", execve("/bin/true", argv, wild));
	printf("%d\n", errno);
	printf("%u\n", work());
}
