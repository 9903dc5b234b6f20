// needs: root
/* A program that unmounts what it has just read from. */
#include "common.h"
#include <sched.h>
#include <sys/mount.h>
int main(int argc, char **argv)
{
	if (argc == 1) {
		CHECK(unshare(CLONE_NEWNS) == 0);
		CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
		CHECK(mkdir("mnt", 0755) == 0);
		/* Who has left a namespace does not speculate any more. */
		execl("/proc/self/exe", argv[0], "mounts", NULL);
		perror("execute again");
	}
	for (int round = 0; round < 20; round++) {
		CHECK(mount("none", "mnt", "tmpfs", 0, "size=1m") == 0);
		/* A copy that is made here has its working directory and the file
		 * there; the next read would end it. */
		CHECK(chdir("mnt") == 0);
		int fd = open("file", O_RDWR | O_CREAT, 0644);
		char buffer[100] = { 'x' };
		CHECK(write(fd, buffer, 100) == 100);
		lseek(fd, 0, SEEK_SET);
		CHECK(read(fd, buffer, 100) == 100);
		linger_if(buffer[0] != 'x');
		CHECK(chdir("..") == 0);
		close(fd);
		printf("%d\n", umount("mnt"));
	}
}
