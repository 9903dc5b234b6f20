/* A copy that reads missing files in one piece is told their end at once. A
 * program that takes an empty file for the end of its work then does in the
 * copy all that it does at the end, and nothing of that is seen before it is
 * true. */
#include "common.h"
#define ROUNDS 12
#define WAYS 7
static char buffer[32768];
static pid_t helper;
static volatile sig_atomic_t told;

static void tell(int signal)
{
	told++;
}

/* So that it is missing when it is read next. */
static void forget(const char *name)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void farewell(void)
{
	put("ended", "in order\n");
}

static void end_of_work(const char *name, int way)
{
	char line[64];
	snprintf(line, sizeof line, "%s is empty: way %d\n", name, way);
	put("ended", line);
	printf("%s", line);
	unlink("work");
	rename("kept", "lost");
	truncate("counted", 0);
	kill(helper, SIGTERM);
	switch (way) {
	case 0:
		_exit(3);
	case 1:
		atexit(farewell);
		exit(4);
	case 2:
		kill(getpid(), SIGKILL);
	case 3:
		execl("/bin/echo", "echo", "executed", NULL);
	case 4:
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		abort();
	case 5:
		if (fork() == 0) {
			put("ended", "a child's\n");
			_exit(0);
		}
		wait(NULL);
		_exit(5);
	default:
		kill(0, SIGUSR1);
		_exit(6);
	}
}

static unsigned read_whole(const char *name, int way)
{
	unsigned sum = 1;
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t got = read(fd, buffer, sizeof buffer);
	if (got == 0)
		end_of_work(name, way);
	for (ssize_t i = 0; i < got; i++)
		sum = sum * 31 + (unsigned char)buffer[i];
	CHECK(got > 0 && read(fd, buffer, sizeof buffer) == 0);
	close(fd);
	return sum;
}

int main(void)
{
	int status;
	struct sigaction action = { .sa_handler = tell, .sa_flags = SA_RESTART };
	setpgid(0, 0);
	sigaction(SIGUSR1, &action, NULL);
	for (int way = 0; way < WAYS; way++) {
		put("work", "w"), put("kept", "k"), put("counted", "c");
		if ((helper = fork()) == 0)
			for (alarm(100);;)
				pause();
		pid_t child = fork();
		if (child == 0) {
			unsigned sum = 0;
			for (int round = 0; round < ROUNDS; round++) {
				for (int i = 0; i < FILES; i++)
					forget(file_name(i));
				for (int i = 0; i < FILES; i++)
					sum = sum * 31 + read_whole(file_name(i), way);
				put("counted", ".");
			}
			struct stat work, kept, counted;
			CHECK(stat("work", &work) == 0 && stat("kept", &kept) == 0);
			CHECK(stat("counted", &counted) == 0 && counted.st_size == ROUNDS + 1);
			CHECK(access("ended", F_OK) == (way ? 0 : -1));
			CHECK(kill(helper, 0) == 0 && waitpid(helper, &status, WNOHANG) == -1);
			printf("%u\n", sum);
			close(open("empty", O_RDONLY | O_CREAT, 0644));
			read_whole("empty", way);
			_exit(7);
		}
		/* The helper lives until the child has come to the empty file. */
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s\n", ended(status));
		CHECK(waitpid(helper, &status, 0) == helper);
		printf("%s, told %d\n", ended(status), told);
		unlink("lost");
	}
}
