// needs: root
// not: refused (LD_PRELOAD stays in sight, and what another user executes cannot read the agent)
/* Executes set-user-ID and set-group-ID programs, as root and as a user who
 * may do less: their rights, what the kernel says of them, what they read. */
#include "common.h"
#include <sys/auxv.h>
#include <spawn.h>
extern char **environ;
static int child_main(const char *what)
{
	printf("%s %d %d %d %d secure %d dumpable %d ", what, (int)getuid(), (int)geteuid(), (int)getgid(), (int)getegid(),
	       (int)getauxval(AT_SECURE), prctl(PR_GET_DUMPABLE));
	int fd = open("data/f03", O_RDONLY);
	printf("open %d, none of Runahead's libraries: ", fd >= 0);
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	int seen = 0;
	while (maps && fgets(line, sizeof line, maps))
		seen += strstr(line, "runahead") != NULL && strstr(line, "set-") == NULL;
	printf("%d; %u %u %s\n", getauxval(AT_SECURE) ? seen : 0, ahead(20), work(), getenv("RUNAHEAD_SESSION") ? "session" : "-");
	return 7;
}
static void copy_program(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
	char buffer[65536];
	ssize_t got;
	int from = open("/proc/self/exe", O_RDONLY), to = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0700);
	while ((got = read(from, buffer, sizeof buffer)) > 0)
		CHECK(write(to, buffer, got) == got);
	CHECK(fchown(to, uid, gid) == 0 && fchmod(to, mode) == 0);
	close(from), close(to);
}
static void run_it(const char *name)
{
	char path[64];
	snprintf(path, sizeof path, "./%s", name);
	char *arguments[] = { path, (char *)name, NULL };
	int status;
	pid_t child;
	ahead(3);
	if ((child = fork()) == 0) {
		ahead(3);
		execv(path, arguments);
		_exit(errno);
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s\n", ended(status));
	ahead(3);
	if ((child = vfork()) == 0) {
		execve(path, arguments, environ);
		_exit(errno);
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s\n", ended(status));
	CHECK(posix_spawn(&child, path, NULL, NULL, arguments, environ) == 0);
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s\n", ended(status));
}
int main(int argc, char **argv)
{
	if (argc > 1)
		return child_main(argv[1]);
	static const char *names[] = { "set-user", "set-group", "set-both", "set-root", "not-set" };
	copy_program(names[0], 65534, 0, 04755);
	copy_program(names[1], 0, 65534, 02755);
	copy_program(names[2], 65534, 65534, 06755);
	copy_program(names[3], 0, 0, 04755);
	copy_program(names[4], 65534, 65534, 0755);
	for (int i = 0; i < 5; i++)
		run_it(names[i]);
	int status;
	pid_t child = fork();
	if (child == 0) {
		CHECK(setgid(65533) == 0 && setuid(65533) == 0);
		for (int i = 0; i < 5; i++)
			run_it(names[i]);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	child = fork();
	if (child == 0) {
		/* What is executed then has another's rights, whatever its file says. */
		CHECK(setegid(65534) == 0);
		run_it(names[4]);
		CHECK(setegid(0) == 0 && setresuid(65534, 0, 0) == 0);
		run_it(names[4]);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	for (int i = 0; i < 5; i++)
		unlink(names[i]);
	printf("%s %u\n", ended(status), ahead(20));
}
