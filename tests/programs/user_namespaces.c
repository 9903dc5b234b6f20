// needs: resident
/* A user namespace of the program's own, by unshare and by clone: what it is
 * and may do there, and its children, with reads before and after. */
#include "common.h"
#include <sched.h>
#include <sys/mount.h>
static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		printf("%s: %d ", name, errno);
	close(fd);
}
static void inside(int round, int uid, int gid)
{
	char line[64];
	/* Which id an unmapped one is seen as. */
	printf("%d %d %u ", (int)getuid(), (int)getgid(), ahead(3));
	put("/proc/self/setgroups", "deny");
	snprintf(line, sizeof line, "%d %d 1", round, uid);
	put("/proc/self/uid_map", line);
	snprintf(line, sizeof line, "%d %d 1", round, gid);
	put("/proc/self/gid_map", line);
	printf("%d %d %u ", (int)getuid(), (int)getgid(), ahead(3));
	CHECK(unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0);
	CHECK(sethostname("inside", 6) == 0);
	CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	CHECK(mount("none", "data", "tmpfs", 0, NULL) == 0);
	printf("%u ", ahead(3));
	CHECK(umount("data") == 0);
	printf("%u ", ahead(3));
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(ahead(3) % 100);
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s\n", ended(status));
	_exit(round);
}
static int cloned(void *argument)
{
	inside(*(int *)argument, geteuid(), getegid());
}
int main(void)
{
	static char stack[256 * 1024] __attribute__((aligned(16)));
	int uid = getuid(), gid = getgid();
	for (int round = 0; round < 4; round++) {
		int status;
		ahead(3);
		pid_t child = fork();
		if (child == 0) {
			ahead(3);
			CHECK(unshare(CLONE_NEWUSER) == 0);
			inside(round, uid, gid);
		}
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s\n", ended(status));
		/* clone(2): it begins inside. The parent writes no map. */
		ahead(3);
		child = fork();
		if (child == 0) {
			pid_t deep = clone(cloned, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, &round);
			CHECK(waitpid(deep, &status, 0) == deep);
			printf("%s %u\n", ended(status), ahead(3));
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
	}
	printf("%u\n", ahead(20));
}
