/* Trees walked, by names alone and with their files read, while what lies
 * ahead is renamed, removed, and replaced by what must not be opened. */
#include "common.h"
#include <dirent.h>

#define TOPS 5
#define SUBS 6
#define FILES_EACH 4

static const char *path(const char *form, int a, int b, int c)
{
	static char text[4][512];
	static int next;
	char *at = text[next++ % 4];
	snprintf(at, sizeof text[0], form, a, b, c);
	return at;
}

static void make(void)
{
	char name[260];
	CHECK(mkdir("tree", 0755) == 0);
	for (int a = 0; a < TOPS; a++) {
		CHECK(mkdir(path("tree/top%d", a, 0, 0), 0755) == 0);
		for (int b = 0; b < SUBS; b++) {
			CHECK(mkdir(path("tree/top%d/sub%d", a, b, 0), 0755) == 0);
			for (int c = 0; c < FILES_EACH; c++) {
				int fd = open(path("tree/top%d/sub%d/file%d", a, b, c), O_WRONLY | O_CREAT, 0644);
				CHECK(write(fd, "some text\n", 10 - c) == 10 - c && close(fd) == 0);
			}
		}
	}
	/* Names as long as they may be, one beyond a reader's room for them. */
	for (int len = 80; len <= 255; len += 7) {
		memset(name, 'a' + len % 26, len);
		name[len] = 0;
		char full[300];
		snprintf(full, sizeof full, "tree/top1/%s", name);
		CHECK(mkdir(full, 0700) == 0);
	}
	CHECK(symlink("..", "tree/top0/loop") == 0 && symlink("/proc", "tree/top2/proc") == 0);
	CHECK(mkfifo("tree/top2/fifo", 0600) == 0);
	CHECK(mkdir("tree/top3/closed", 0000) == 0);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct sums {
	unsigned entries, names, sizes, contents;
};

/* Walks below a directory in the order of names; `reads` files, too. */
static void walk(int at, const char *name, int depth, int reads, struct sums *sums)
{
	char *names[300];
	int count = 0, fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		printf("%s: errno %d\n", name, errno);
		return;
	}
	/* The numbers of descriptors are the program's own. */
	if (fd != 3 + depth)
		printf("descriptor %d at depth %d\n", fd, depth);
	DIR *dir = fdopendir(dup(fd));
	for (struct dirent *entry; (entry = readdir(dir));)
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && count < 300)
			names[count++] = strdup(entry->d_name);
	closedir(dir);
	qsort(names, count, sizeof *names, by_name);
	for (int i = 0; i < count; i++) {
		struct stat stat;
		sums->entries++;
		for (char *c = names[i]; *c; c++)
			sums->names = sums->names * 31 + *c;
		if (fstatat(fd, names[i], &stat, AT_SYMLINK_NOFOLLOW) != 0) {
			printf("%s: errno %d\n", names[i], errno);
		} else if (S_ISDIR(stat.st_mode)) {
			walk(fd, names[i], depth + 1, reads, sums);
		} else if (S_ISREG(stat.st_mode)) {
			sums->sizes += stat.st_size;
			char buffer[16] = "";
			int file = reads ? openat(fd, names[i], O_RDONLY) : -1;
			if (file >= 0) {
				sums->contents += read(file, buffer, 16) * buffer[0];
				close(file);
			}
		}
		free(names[i]);
	}
	close(fd);
}

static void report(const char *what, int reads)
{
	struct sums sums = { 0 };
	walk(AT_FDCWD, "tree", 0, reads, &sums);
	printf("%s: %u entries %u, %u bytes %u\n", what, sums.entries, sums.names, sums.sizes,
	       sums.contents);
}

static int count_entries(const char *name)
{
	int count = 0;
	DIR *dir = opendir(name);
	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

int main(void)
{
	char buffer[4096];
	make();
	for (int round = 0; round < 3; round++) {
		report("names", 0);
		report("files", 1);
	}
	printf("%d descriptors, %d threads\n", count_entries("/proc/self/fd"),
	       count_entries("/proc/self/task"));

	/* What lies ahead changes between one directory and the next. */
	int top = open("tree/top4", O_RDONLY | O_DIRECTORY);
	for (int b = 0; b < SUBS; b++) {
		int fd = openat(top, path("sub%d", b, 0, 0), O_RDONLY | O_DIRECTORY);
		CHECK(syscall(SYS_getdents64, fd, buffer, sizeof buffer) > 0);
		CHECK(syscall(SYS_getdents64, fd, buffer, sizeof buffer) == 0);
		CHECK(close(fd) == 0);
		if (b + 1 < SUBS) {
			CHECK(renameat(top, path("sub%d", b + 1, 0, 0), top, "elsewhere") == 0);
			CHECK(b % 2 ? mkfifoat(top, path("sub%d", b + 1, 0, 0), 0600) == 0 :
				      symlinkat("/proc", top, path("sub%d", b + 1, 0, 0)) == 0);
			CHECK(unlinkat(top, path("sub%d", b + 1, 0, 0), 0) == 0);
			CHECK(renameat(top, "elsewhere", top, path("sub%d", b + 1, 0, 0)) == 0);
		}
	}
	close(top);
	report("afterwards", 1);

	/* A process that walks and is killed, and one that walks to its end. */
	for (int child = 0; child < 2; child++) {
		pid_t pid = fork();
		if (pid == 0) {
			report(child ? "child" : "killed", 0);
			if (!child)
				raise(SIGKILL);
			_exit(7);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid);
		printf("status %x\n", status);
	}
	CHECK(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);

	/* Few descriptors: none of them is one of ours. */
	struct rlimit few = { 10, 10 };
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	report("few descriptors", 0);

	/* All of it removed on the way, the directories last. */
	CHECK(rmdir("tree/top3/closed") == 0);
	for (int a = 0; a < TOPS; a++) {
		DIR *dir = opendir(path("tree/top%d", a, 0, 0));
		for (struct dirent *entry; (entry = readdir(dir));) {
			if (strncmp(entry->d_name, "sub", 3)) {
				if (entry->d_name[0] != '.')
					CHECK(unlinkat(dirfd(dir), entry->d_name,
						       entry->d_type == DT_DIR ? AT_REMOVEDIR : 0) == 0);
				continue;
			}
			int sub = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY);
			CHECK(syscall(SYS_getdents64, sub, buffer, sizeof buffer) > 0);
			for (int c = 0; c < FILES_EACH; c++)
				CHECK(unlinkat(sub, path("file%d", c, 0, 0), 0) == 0);
			CHECK(close(sub) == 0);
			CHECK(unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0);
		}
		closedir(dir);
		CHECK(rmdir(path("tree/top%d", a, 0, 0)) == 0);
	}
	CHECK(rmdir("tree") == 0);
	puts("end");
}
