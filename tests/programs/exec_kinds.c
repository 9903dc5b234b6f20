/* Programs that nothing can be loaded into find the environment that they are given:
 * static ones, of this class and the other, as they are, as interpreters of scripts,
 * by a descriptor. And what is executed is not disturbed by a look at it: a lock of
 * the process's own stays, a watch tells of the exec alone, a FIFO waits for nobody. */
#include "common.h"
#include <spawn.h>
#include <sys/inotify.h>
/* Exits with the number of its variables. */
static const unsigned char static_64[] = {
	0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	2, 0, 62, 0, 1, 0, 0, 0, 0x78, 0, 0x40, 0, 0, 0, 0, 0,
	64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0,
	1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0,
	0x95, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0,
	0, 0x10, 0, 0, 0, 0, 0, 0,
	0x48, 0x8b, 0x04, 0x24,		/* mov rax, [rsp] */
	0x48, 0x8d, 0x74, 0xc4, 0x10,	/* lea rsi, [rsp + rax * 8 + 16] */
	0x31, 0xff,			/* xor edi, edi */
	0x48, 0x83, 0x3c, 0xfe, 0,	/* cmp qword ptr [rsi + rdi * 8], 0 */
	0x74, 4, 0xff, 0xc7, 0xeb, 0xf5,	/* je 1f; inc edi; jmp back */
	0xb8, 60, 0, 0, 0, 0x0f, 0x05,	/* 1: mov eax, 60; syscall */
};
static const unsigned char static_32[] = {
	0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	2, 0, 3, 0, 1, 0, 0, 0, 0x54, 0x80, 0x04, 0x08, 52, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 52, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0,
	1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x04, 0x08, 0, 0x80, 0x04, 0x08,
	0x6d, 0, 0, 0, 0x6d, 0, 0, 0, 5, 0, 0, 0, 0, 0x10, 0, 0,
	0x8b, 0x04, 0x24,		/* mov eax, [esp] */
	0x8d, 0x74, 0x84, 0x08,		/* lea esi, [esp + eax * 4 + 8] */
	0x31, 0xdb,			/* xor ebx, ebx */
	0x83, 0x3c, 0x9e, 0,		/* cmp dword ptr [esi + ebx * 4], 0 */
	0x74, 3, 0x43, 0xeb, 0xf7,	/* je 1f; inc ebx; jmp back */
	0xb8, 1, 0, 0, 0, 0xcd, 0x80,	/* 1: mov eax, 1; int 0x80 */
};
static char *variables[] = { "A=1", "B=2", "LD_PRELOAD=libm.so.6", NULL };
static char *arguments[] = { "name", "argument", NULL };
static void put(const char *name, const void *bytes, size_t len)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	CHECK(write(fd, bytes, len) == len);
	close(fd);
}
static void by_path(const char *path)
{
	execve(path, arguments, variables);
}
static void without_links(const char *path)
{
	syscall(SYS_execveat, AT_FDCWD, path, arguments, variables, AT_SYMLINK_NOFOLLOW);
}
static void by_descriptor(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	syscall(SYS_execveat, fd, "", arguments, variables, AT_EMPTY_PATH);
}
static void by_name_only(const char *path)
{
	int fd = open(path, O_PATH);
	syscall(SYS_execveat, fd, "", arguments, variables, AT_EMPTY_PATH);
}
static void by_proc(const char *path)
{
	char again[64];
	snprintf(again, sizeof again, "/proc/self/fd/%d", open(path, O_PATH));
	execve(again, arguments, variables);
}
static void from_memory(const char *path)
{
	int fd = syscall(SYS_memfd_create, "program", 0);
	CHECK(write(fd, static_64, sizeof static_64) == sizeof static_64);
	char again[64];
	snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
	int reader = open(again, O_RDONLY);
	close(fd);
	syscall(SYS_execveat, reader, "", arguments, variables, AT_EMPTY_PATH);
}
static void await(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	printf(" %s", ended(status));
}
/* How what `how` executes ends: with the number of its variables. */
static void run(const char *path, void (*how)(const char *))
{
	ahead(2);
	pid_t child = fork();
	if (child == 0) {
		how(path);
		_exit(100 + errno);
	}
	await(child);
}
static void kinds(void)
{
	static const char *paths[] = { "./static", "./32-bit", "./script", "./script-of-a-script", "./link", "./text",
		"./fifo", "./not-executable", "./nothing", ".", "./cut" };
	static const char script[] = "#!./static argument\n", again[] = "#! ./script\n", text[] = "exit 9\n";
	put("static", static_64, sizeof static_64);
	put("32-bit", static_32, sizeof static_32);
	put("script", script, strlen(script));
	put("script-of-a-script", again, strlen(again));
	put("text", text, strlen(text));
	put("cut", static_64, 60);
	put("not-executable", static_64, sizeof static_64);
	CHECK(chmod("not-executable", 0600) == 0 && symlink("static", "link") == 0 && mkfifo("fifo", 0700) == 0);
	for (int i = 0; i < sizeof paths / sizeof *paths; i++) {
		printf("%s:", paths[i]);
		run(paths[i], by_path);
		run(paths[i], without_links);
		run(paths[i], by_descriptor);
		run(paths[i], by_name_only);
		run(paths[i], by_proc);
		pid_t child;
		if ((child = vfork()) == 0) {
			execve(paths[i], arguments, variables);
			_exit(100 + errno);
		}
		await(child);
		int error = posix_spawn(&child, paths[i], NULL, NULL, arguments, variables);
		if (error == 0)
			await(child);
		printf(" %d\n", error);
	}
	run(NULL, from_memory), puts("");
}
static void copy_self(const char *name)
{
	char buffer[65536];
	ssize_t got;
	int from = open("/proc/self/exe", O_RDONLY), to = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0700);
	while ((got = read(from, buffer, sizeof buffer)) > 0)
		CHECK(write(to, buffer, got) == got);
	close(from), close(to);
}
/* Whether this process has locked a file, as a child sees it. */
static int is_locked(const char *name)
{
	pid_t child = fork();
	if (child == 0) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		fcntl(open(name, O_RDONLY), F_GETLK, &lock);
		_exit(lock.l_type != F_UNLCK);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	return WEXITSTATUS(status);
}
static void lock(const char *name)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	CHECK(fcntl(open(name, O_RDONLY), F_SETLK, &lock) == 0);
}
static void locked(const char *path)
{
	char *words[] = { "self", "locked", NULL };
	lock("self"), lock("of-self");
	ahead(2);
	execve(path, words, variables);
}
static void watched(void)
{
	int watch = inotify_init1(IN_NONBLOCK), opened = 0;
	CHECK(inotify_add_watch(watch, "static", IN_OPEN) > 0);
	char buffer[4096] __attribute__((aligned(8)));
	for (int i = 0; i < 3; i++) {
		run("./static", by_path);
		pause_ms(20);
		ssize_t got = read(watch, buffer, sizeof buffer);
		for (char *at = buffer; at < buffer + got; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len)
			opened++;
	}
	printf(": %d events\n", opened);
}
int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "locked") == 0) {
		printf(" %u %d%d", ahead(20), is_locked("self"), is_locked("of-self"));
		return 3;
	}
	static const char script[] = "#!./self locked\n";
	kinds();
	copy_self("self");
	put("of-self", script, strlen(script));
	run("./self", locked), run("./of-self", locked), puts("");
	watched();
	static const char *made[] = { "static", "32-bit", "script", "script-of-a-script", "link", "text", "fifo",
		"not-executable", "cut", "self", "of-self" };
	for (int i = 0; i < sizeof made / sizeof *made; i++)
		CHECK(unlink(made[i]) == 0);
}
