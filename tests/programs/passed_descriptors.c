/* Descriptors sent over a socket (SCM_RIGHTS), memory files with seals, and
 * O_TMPFILE: each has the references that the program gives it. */
#include "common.h"
static void send_fd(int socket, int fd)
{
	char byte = 'x', room[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	CHECK(sendmsg(socket, &message, 0) == 1);
}
static int take_fd(int socket)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	int fd = -1;
	if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}
int main(void)
{
	int sockets[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
	for (int round = 0; round < 20; round++) {
		int ends[2], memory = memfd_create("memory", MFD_ALLOW_SEALING | MFD_CLOEXEC);
		char byte = 0;
		pipe(ends);
		ahead(2);
		send_fd(sockets[0], ends[1]);
		close(ends[1]);
		ahead(3);
		int writer = take_fd(sockets[1]);
		write(writer, "y", 1);
		ahead(2);
		close(writer);
		printf("%zd ", read(ends[0], &byte, 1));
		ahead(2);
		/* Nobody holds the other end any more. */
		printf("%zd %c ", read(ends[0], &byte, 1), byte);
		close(ends[0]);
		ftruncate(memory, 5000);
		char *map = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
		ahead(2);
		map[round] = round;
		errno = 0;
		/* A writable mapping forbids the seal, the program's own only. */
		printf("%d %d ", fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), errno == EBUSY);
		munmap(map, 5000);
		pread(memory, &byte, 1, round);
		printf("%d %d ", fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK), byte);
		close(memory);
		int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
		write(nameless, "kept", 4);
		ahead(2);
		printf("%zd\n", pread(nameless, &byte, 1, 2));
		close(nameless);
	}
}
