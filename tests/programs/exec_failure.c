/* An exec that fails says why, and the program goes on as it was. */
#include "common.h"
#define TRY(call) (errno = 0, result = (call), printf("%d %d\n", result, errno))
static int result;
/* In a child, as it may succeed. */
static void try_in_child(char **argv, char **envp)
{
	int status;
	if (fork() == 0) {
		TRY(execve("/bin/true", argv, envp));
		_exit(1);
	}
	wait(&status);
	printf("%s\n", ended(status));
}
/* Arrays and strings that lie at the end of what can be read, or nowhere. */
static void at_the_edge(void)
{
	char *argv[] = { "x", NULL }, *envp[] = { "A=1", NULL };
	char *end = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	end += 4096;
	munmap(end, 4096);
	try_in_child(NULL, envp);
	try_in_child(argv, NULL);
	for (long address = 1; address < 8; address++) {
		char *wild[] = { (char *)address, NULL };
		TRY(execve("/bin/true", (char **)address, envp));
		TRY(execve("/bin/true", argv, (char **)address));
		TRY(execve("/bin/true", wild, envp));
		TRY(execve("/bin/true", argv, wild));
		/* A word that lies across the end, alone and behind one that does not. */
		TRY(execve("/bin/true", (char **)(end - address), envp));
		TRY(execve("/bin/true", argv, (char **)(end - address)));
		memcpy(end - address - 8, envp, 8);
		TRY(execve("/bin/true", (char **)(end - address - 8), envp));
		TRY(execve("/bin/true", argv, (char **)(end - address - 8)));
		memcpy(end - address - 16, envp, 16);
		try_in_child((char **)(end - address - 16), (char **)(end - address - 16));
	}
	const char *strings[] = { "A", "LD_PRE", "RUNAHEAD", "LD_PRELOAD=", "LD_PRELOAD=/x" };
	for (int i = 0; i < 5; i++) {
		char *at = end - strlen(strings[i]), *cut[] = { at, NULL };
		memcpy(at, strings[i], strlen(strings[i]));
		TRY(execve("/bin/true", cut, envp));
		TRY(execve("/bin/true", argv, cut));
	}
}
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
			result = execve(names[i], argv, envp);
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
	at_the_edge();
	printf("%u\n", work());
}
