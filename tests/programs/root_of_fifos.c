// needs: root
/* Below another root directory the paths of /proc and /sys lead to anything: to FIFOs
 * here, on which whoever opens them waits for ever. */
#include "common.h"
static int fd;
static unsigned scattered(void)
{
	unsigned sum = 0;
	unsigned char byte;
	for (int i = 0; i < 40; i++)
		if (pread(fd, &byte, 1, (off_t)i * 7919 % BIG_LEN) == 1)
			sum = sum * 31 + byte;
	return sum;
}
static void *thread(void *none)
{
	(void)none;
	printf("%u\n", scattered());
	return NULL;
}
static void child(int round)
{
	pthread_t id;
	int status;
	if (round % 2)
		printf("%u ", scattered());
	CHECK(chroot("jail") == 0 && chdir("/") == 0);
	for (int i = 0; i < 3; i++) {
		printf("%u ", scattered());
		pause_ms(70);
	}
	pid_t grandchild = fork();
	if (grandchild == 0) {
		printf("%u ", scattered());
		_exit(7);
	}
	waitpid(grandchild, &status, 0);
	printf("%s ", ended(status));
	grandchild = vfork();
	if (grandchild == 0) {
		execl("/proc/stat", "stat", NULL);
		_exit(errno);
	}
	waitpid(grandchild, &status, 0);
	printf("%s ", ended(status));
	CHECK(pthread_create(&id, NULL, thread, NULL) == 0 && pthread_join(id, NULL) == 0);
	CHECK(execl("/proc/stat", "stat", NULL) == -1 && errno == EACCES);
	CHECK(chroot("/missing") == -1 && errno == ENOENT);
	exit(round);
}
int main(void)
{
	static const char *const directories[] = { "jail", "jail/proc", "jail/proc/self",
		"jail/proc/sys", "jail/proc/self/fd", "jail/sys" };
	static const char *const fifos[] = { "stat", "loadavg", "meminfo", "vmstat", "self/maps",
		"self/status", "self/stat", "self/statm", "self/smaps", "self/pagemap", "self/cgroup",
		"self/mountinfo", "self/io", "self/exe", "self/auxv", "self/task", "self/limits" };
	for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
		CHECK(mkdir(directories[i], 0755) == 0);
	for (size_t i = 0; i < sizeof fifos / sizeof *fifos; i++) {
		char path[64];
		snprintf(path, sizeof path, "jail/proc/%s", fifos[i]);
		CHECK(mkfifo(path, 0666) == 0);
	}
	fd = open(BIG, O_RDONLY);
	for (int round = 0; round < 4; round++) {
		int status;
		pid_t pid = fork();
		if (pid == 0)
			child(round);
		waitpid(pid, &status, 0);
		printf("%s\n", ended(status));
	}
	/* Refused, as a missing one is: this process goes on below its own. */
	CHECK(chroot("missing") == -1 && errno == ENOENT);
	printf("%u\n", ahead(3));
}
