/* Files written, appended to, renamed, linked, removed; directories made and
 * removed; modes and times set: all of it once, by the program alone. */
#include "common.h"
int main(void)
{
	for (int round = 0; round < 20; round++) {
		char a[64], b[64], text[64];
		snprintf(a, sizeof a, "dir%d", round);
		CHECK(mkdir(a, 0750) == 0);
		snprintf(a, sizeof a, "dir%d/new", round);
		unsigned sum = sum_file(file_name(round));
		int fd = open(a, O_WRONLY | O_CREAT | O_EXCL, 0640);
		int len = snprintf(text, sizeof text, "%u\n", sum);
		CHECK(write(fd, text, len) == len);
		ahead(1);
		CHECK(write(fd, text, len) == len && close(fd) == 0);
		fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
		CHECK(write(fd, text, len) == len && close(fd) == 0);
		ahead(1);
		snprintf(b, sizeof b, "dir%d/final", round);
		CHECK(rename(a, b) == 0 && link(b, a) == 0);
		CHECK(sum_file(a) == sum_file(b));
		if (round % 2)
			CHECK(unlink(a) == 0);
		CHECK(symlink("final", a) == (round % 2 ? 0 : -1));
		CHECK(chmod(b, 0600 | round) == 0);
		struct timespec times[2] = { { 1000 + round, 5 }, { 2000 + round, 7 } };
		CHECK(utimensat(AT_FDCWD, b, times, 0) == 0);
		snprintf(b, sizeof b, "gone%d", round);
		CHECK(mkdir(b, 0700) == 0 && (ahead(1), rmdir(b)) == 0);
		CHECK(truncate("log", round * 10) == 0);
	}
	printf("%u\n", sum_file("log"));
}
