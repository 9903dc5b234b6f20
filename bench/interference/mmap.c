/* mmap and munmap, by the thread that stalls and by another one; brk by the
 * first.
 * usage: mmap FILE READS SAMPLES */
#include "common.h"

static struct samples beside;
static atomic_int done, begun;

static void call(struct samples *s, int schedstat, long late)
{
	struct mark start = mark_now(schedstat);
	char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	p[0] = 1;
	if (munmap(p, 16 * PAGE) != 0)
		fail("munmap");
	be_late(late, 0);
	samples_add(s, sample_since(&start, schedstat));
}

/* Only the first thread allocates: nobody else moves the heap's end. */
static void grow_and_shrink(struct samples *s, int schedstat)
{
	struct mark start = mark_now(schedstat);
	char *end = sbrk(16 * PAGE);
	if (end == (void *)-1)
		fail("sbrk");
	end[0] = 1;
	if (sbrk(-16 * PAGE) == (void *)-1)
		fail("sbrk");
	samples_add(s, sample_since(&start, schedstat));
}

static void *other_thread(void *unused)
{
	int schedstat = schedstat_open();
	(void)unused;
	while (!atomic_load(&done)) {
		call(&beside, schedstat, -1);
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
	long reads = atol(argv[2]);
	int schedstat = schedstat_open();
	struct samples own = samples_new(2 * (size_t)reads);
	pthread_t thread;
	beside = samples_new(1 << 20);
	if (pthread_create(&thread, NULL, other_thread, NULL) != 0)
		fail("pthread_create");
	while (!atomic_load(&begun))
		pause_us(50);
	for (long i = 0; i < reads; i++) {
		reader_read(&r);
		call(&own, schedstat, i - reads / 2);
		grow_and_shrink(&own, schedstat);
	}
	atomic_store(&done, 1);
	pthread_join(thread, NULL);
	samples_write(&own, argv[3]);
	samples_write(&beside, argv[3]);
	printf("read %016llx\n", (unsigned long long)r.sum);
	return 0;
}
