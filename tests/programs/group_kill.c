/* A signal to the whole group, from another member, stops and continues the
 * program, and a process group that is counted has no member too many. */
#include "common.h"
/* Members of the group, by /proc. */
#include <dirent.h>
static int members(pid_t group)
{
	int count = 0;
	DIR *all = opendir("/proc");
	for (struct dirent *entry; (entry = readdir(all));) {
		char name[300], text[512], *rest;
		snprintf(name, sizeof name, "/proc/%s/stat", entry->d_name);
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		FILE *stat = fopen(name, "r");
		if (!stat)
			continue;
		size_t got = fread(text, 1, sizeof text - 1, stat);
		fclose(stat);
		text[got] = 0;
		int ppid, pgrp;
		char state;
		if ((rest = strrchr(text, ')')) && sscanf(rest + 1, " %c %d %d", &state, &ppid, &pgrp) == 3)
			count += pgrp == group && state != 'Z';
	}
	closedir(all);
	return count;
}
int main(void)
{
	/* A copy is made before the groups change, and lives on in its own. */
	int fd = open(BIG, O_RDONLY);
	char byte;
	unsigned right = ahead(2);
	for (int round = 0; round < 10; round++) {
		int go[2], done[2];
		pipe(go), pipe(done);
		pid_t child = fork();
		if (child == 0) {
			setpgid(0, 0);
			close(go[1]), close(done[0]);
			ahead(2);
			write(done[1], "x", 1);
			/* A pipe's data: the copy is parked or behind by now, but
			 * one that lives is in a group of its own. */
			read(go[0], &byte, 1);
			linger_if(ahead(2) != right);
			/* One that is about to leave the group is given time to. */
			for (int i = 0; i < 500 && (i < 1 || members(getpid()) != 1); i++)
				pause_ms(20);
			write(done[1], "x", 1);
			read(go[0], &byte, 1);
			_exit(ahead(2) % 5);
		}
		setpgid(child, child);
		close(go[0]), close(done[1]);
		read(done[0], &byte, 1);
		CHECK(kill(-child, SIGSTOP) == 0);
		int status;
		CHECK(waitpid(child, &status, WUNTRACED) == child);
		printf("%s ", ended(status));
		CHECK(kill(-child, SIGCONT) == 0);
		CHECK(waitpid(child, &status, WCONTINUED) == child);
		printf("%s ", ended(status));
		write(go[1], "x", 1);
		read(done[0], &byte, 1);
		printf("%d ", members(child));
		write(go[1], "x", 1);
		waitpid(child, &status, 0);
		printf("%s ", ended(status));
		errno = 0;
		/* Nobody is left in it. */
		printf("%d %d\n", kill(-child, 0), errno == ESRCH);
		close(go[1]), close(done[0]);
	}
	close(fd);
}
