// needs: root resident
/* Files that grow, shrink and vanish while they are read, a full disk, and
 * offsets around 2 and 4 GiB. */
#include "common.h"
#include <sys/mount.h>
int main(void)
{
	char buffer[5000];
	int out = open("growing", O_WRONLY | O_CREAT | O_APPEND, 0644), in = open("growing", O_RDONLY);
	for (int round = 0; round < 60; round++) {
		memset(buffer, 'a' + round % 26, sizeof buffer);
		ssize_t wrote = write(out, buffer, round * 53 % 5000);
		ahead(1);
		ssize_t got = read(in, buffer, sizeof buffer);
		printf("%zd %zd %c ", wrote, got, got > 0 ? buffer[got - 1] : '-');
		if (round % 10 == 9) {
			CHECK(ftruncate(out, 100) == 0);
			printf("%zd ", read(in, buffer, sizeof buffer));
			lseek(in, 0, SEEK_SET);
		}
		if (round == 30)
			unlink("growing");
	}
	puts("");
	mkdir("small", 0755);
	CHECK(mount("none", "small", "tmpfs", 0, "size=64k") == 0);
	int full = open("small/file", O_RDWR | O_CREAT, 0644);
	for (int round = 0; round < 30; round++) {
		ahead(2);
		errno = 0;
		ssize_t wrote = write(full, buffer, 3000);
		printf("%zd %d ", wrote, errno == ENOSPC);
		printf("%zd ", pread(full, buffer, 100, round * 3000));
	}
	puts("");
	close(full);
	CHECK(umount("small") == 0);
	rmdir("small");
	int large = open("large", O_RDWR | O_CREAT, 0644);
	static const off_t at[] = { (1ll << 31) - 3, (1ll << 31), (1ll << 32) - 3, (1ll << 32), (1ll << 33) + 1 };
	for (int i = 0; i < 5; i++)
		CHECK(pwrite(large, "abcdef", 6, at[i]) == 6);
	for (int round = 0; round < 20; round++) {
		memset(buffer, '.', 20);
		off_t where = at[round % 5] - 2;
		ahead(1);
		ssize_t got = round % 2 ? pread(large, buffer, 12, where) : (lseek(large, where, SEEK_SET), read(large, buffer, 12));
		for (int i = 0; i < got; i++)
			putchar(buffer[i] ? buffer[i] : '0');
		printf(" %ld\n", (long)lseek(large, 0, SEEK_CUR));
	}
	close(large);
	unlink("large");
}
