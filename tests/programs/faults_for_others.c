/* userfaultfd serves each fault once, for the program, and tells of its own
 * forks only; a page that is not inherited stays the program's own; the vsyscall page; protection keys. */
#include "faults.h"
static char *area;
int main(void)
{
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	/* Of forks only the privileged are told. */
	struct uffdio_api api = { .api = UFFD_API, .features = geteuid() ? 0 : UFFD_FEATURE_EVENT_FORK };
	if (uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0) {
		area = mmap(NULL, 32 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct uffdio_register range = { .range = { (unsigned long)area, 32 * 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
		CHECK(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
		pthread_t thread;
		pthread_create(&thread, NULL, serve, NULL);
		for (int i = 0; i < 32; i++) {
			unsigned sum = ahead(3);
			printf("%d %u ", area[i * 4096], sum);
		}
		printf("%d %d\n", served, forks);
	} else
		puts("no userfaultfd here");
	char *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(madvise(own, 4096, MADV_DONTFORK) == 0);
	CHECK(madvise(own + 4096, 4096, MADV_WIPEONFORK) == 0);
	int key = pkey_alloc(0, 0);
	char *keyed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (key >= 0)
		pkey_mprotect(keyed, 4096, PROT_READ | PROT_WRITE, key);
	long (*vtime)(long *) = (void *)0xffffffffff600400;
	for (int round = 0; round < 40; round++) {
		own[0]++, own[4096]++, keyed[0]++;
		unsigned sum = ahead(3);
		if (key >= 0)
			pkey_set(key, round % 2 ? PKEY_DISABLE_WRITE : 0);
		sum += ahead(2);
		if (key >= 0)
			pkey_set(key, 0);
		printf("%d %d %d %u ", own[0], own[4096], keyed[0], sum);
		int status;
		pid_t child = fork();
		if (child == 0)
			_exit(own[4096] == 0 ? 3 : 4);
		waitpid(child, &status, 0);
		printf("%s\n", ended(status));
	}
	/* The kernel may not have the page: then it kills, as it would alone. */
	pid_t child = fork();
	int status;
	if (child == 0) {
		unsigned sum = ahead(2);
		long now = vtime(NULL);
		sum += ahead(2);
		_exit(labs(now - time(NULL)) < 3 && sum != 1);
	}
	waitpid(child, &status, 0);
	printf("%s\n", ended(status));
}
