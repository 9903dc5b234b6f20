/* A userfaultfd from /dev/userfaultfd (Linux 6.1), which is told of the program's own
 * forks only, and serves each fault once. */
#include "faults.h"
int main(void)
{
	printf("%u\n", ahead(5));
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device >= 0) {
		uffd = ioctl(device, _IO(0xaa, 0), O_CLOEXEC);
		close(device);
	}
	/* Of forks only the privileged are told. */
	struct uffdio_api api = { .api = UFFD_API, .features = geteuid() ? 0 : UFFD_FEATURE_EVENT_FORK };
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) {
		puts("no userfaultfd here");
		return 0;
	}
	char *area = mmap(NULL, 32 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register range = { .range = { (unsigned long)area, 32 * 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	CHECK(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
	pthread_t thread;
	pthread_create(&thread, NULL, serve, NULL);
	for (int i = 0; i < 32; i++) {
		unsigned sum = ahead(3);
		printf("%d %u ", area[i * 4096], sum);
		if (i % 8 == 0) {
			pid_t child = fork();
			if (child == 0)
				_exit(0);
			waitpid(child, NULL, 0);
		}
	}
	printf("%d %d\n", served, forks);
	return 0;
}
