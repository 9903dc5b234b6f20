// needs: root
/* chroot, umask, changes of user: what may be opened afterwards is what the
 * program may open. */
#include "common.h"
#include <grp.h>
int main(void)
{
	close(open("secret", O_WRONLY | O_CREAT, 0600));
	chmod(".", 0755);
	for (int round = 0; round < 6; round++) {
		printf("%u ", ahead(3));
		pid_t child = fork();
		if (child == 0) {
			int before = open(BIG, O_RDONLY);
			char byte;
			umask(round * 011);
			int fd = open("made", O_WRONLY | O_CREAT, 0666);
			struct stat stat;
			fstat(fd, &stat);
			printf("%o ", stat.st_mode);
			unlink("made");
			ahead(3);
			if (round % 2)
				CHECK(chroot(".") == 0 && chdir("/") == 0);
			printf("%u ", ahead(3));
			CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
			errno = 0;
			printf("%d %d %u ", open("secret", O_RDONLY), errno, ahead(3));
			CHECK(pread(before, &byte, 1, 100) == 1);
			printf("%d %d\n", byte, (int)getuid());
			_exit(0);
		}
		int status;
		waitpid(child, &status, 0);
		printf("%s\n", ended(status));
	}
}
