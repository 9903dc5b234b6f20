/* Page faults of a second thread, while the first one's reads stall: fresh
 * pages, and writes to old ones, which a copy makes copy-on-write.
 * usage: faults FILE READS SAMPLES */
#include "common.h"

enum { PAGES = 4096, BURST = 32 };

static struct samples beside;
static atomic_int done, begun;

static void touch(volatile char *page, int schedstat, long call)
{
	struct mark start = mark_now(schedstat);
	*page += 1;
	be_late(call, 5000);
	samples_add(&beside, sample_since(&start, schedstat));
}

static void *other_thread(void *unused)
{
	size_t len = (size_t)PAGES * PAGE;
	int schedstat = schedstat_open();
	long calls = 0;
	char *old = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	(void)unused;
	if (old == MAP_FAILED)
		fail("mmap");
	for (size_t round = 0; !atomic_load(&done); round++) {
		char *fresh = mmap(NULL, BURST * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (fresh == MAP_FAILED)
			fail("mmap");
		for (size_t i = 0; i < BURST; i++) {
			touch(fresh + i * PAGE, schedstat, calls++);
			touch(old + (round * BURST + i) % PAGES * PAGE, schedstat, calls++);
		}
		munmap(fresh, BURST * PAGE);
		atomic_store(&begun, 1);
		pause_us(100);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	struct reader r = reader_open(argv[1]);
	pthread_t thread;
	beside = samples_new(1 << 21);
	if (pthread_create(&thread, NULL, other_thread, NULL) != 0)
		fail("pthread_create");
	while (!atomic_load(&begun))
		pause_us(50);
	for (long i = 0, reads = atol(argv[2]); i < reads; i++)
		reader_read(&r);
	atomic_store(&done, 1);
	pthread_join(thread, NULL);
	samples_write(&beside, argv[3]);
	printf("read %016llx\n", (unsigned long long)r.sum);
	return 0;
}
