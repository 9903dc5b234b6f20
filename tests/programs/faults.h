/* A thread that serves the faults of a userfaultfd, each once, and counts the forks that
 * it is told of. */
#ifndef FAULTS_H
#define FAULTS_H
#include "common.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
static int served, forks, uffd = -1;
static void *serve(void *unused)
{
	static char page[4096];
	struct uffd_msg message;
	while (read(uffd, &message, sizeof message) == sizeof message) {
		struct uffdio_copy copy = { .dst = message.arg.pagefault.address & ~4095ul, .src = (unsigned long)page, .len = 4096 };
		if (message.event == UFFD_EVENT_FORK)
			forks++, close(message.arg.fork.ufd);
		if (message.event != UFFD_EVENT_PAGEFAULT)
			continue;
		page[0] = ++served;
		ioctl(uffd, UFFDIO_COPY, &copy);
	}
	return NULL;
}
#endif
