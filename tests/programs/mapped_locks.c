/* A mapping holds the description, and a copy has all mappings: a lock of the
 * description ends with the program's own close and munmap, in whatever order,
 * and memory files are sealed once the program has unmapped them. */
#include "common.h"
static unsigned char known;
static void look(void)
{
	unsigned char byte;
	int fd = open(BIG, O_RDONLY);
	pread(fd, &byte, 1, 100);
	close(fd);
	linger_if(byte != known);
}
static int set(int fd, int ofd, int blocking)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	return ofd ? fcntl(fd, blocking ? F_OFD_SETLKW : F_OFD_SETLK, &whole)
		   : flock(fd, LOCK_EX | (blocking ? 0 : LOCK_NB));
}
int main(void)
{
	int fd = open(BIG, O_RDONLY);
	pread(fd, &known, 1, 100);
	close(fd);
	for (int round = 0; round < 16; round++) {
		int ofd = round & 1, late = round & 2, private = round & 4, len = round & 8 ? 4096 : 65536;
		fd = open("locked", O_RDWR | O_CREAT, 0600);
		CHECK(ftruncate(fd, len) == 0);
		if (!late)
			CHECK(set(fd, ofd, 1) == 0);
		volatile char *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
					 private ? MAP_PRIVATE : MAP_SHARED, fd, 0);
		at[0] = round;
		look();
		if (late)
			CHECK(set(fd, ofd, 1) == 0);
		/* Another copy, or the one that was made before a late lock. */
		if (!late || private)
			look();
		if ((round ^ round >> 1) & 1) {
			close(fd);
			munmap((void *)at, len);
		} else {
			munmap((void *)at, len);
			close(fd);
		}
		fd = open("locked", O_RDWR);
		CHECK(set(fd, ofd, 0) == 0);
		close(fd);
		CHECK(unlink("locked") == 0);
		/* In a child, which has no copy yet: one is made with the mapping. */
		int status;
		pid_t child = fork();
		if (child == 0) {
			fd = memfd_create("sealed", MFD_ALLOW_SEALING);
			CHECK(ftruncate(fd, len) == 0);
			at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			at[0] = 1;
			look();
			munmap((void *)at, len);
			_exit(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
		}
		waitpid(child, &status, 0);
		CHECK(status == 0);
	}
	printf("end\n");
}
