/* Four processes read records through one descriptor. Each record must come
 * whole, and exactly once: reads that are split in two tear records.
 * usage: shared_read FILE RECORDS SAMPLES */
#include "common.h"

enum { WORKERS = 4 };

struct shared {
	atomic_long torn, strange;
	atomic_ullong sum;
	atomic_uchar seen[];
};

static void work(int fd, long records, struct shared *shared, struct samples *s, long late)
{
	static uint64_t record[WORDS];
	int schedstat = schedstat_open();
	for (long calls = 0;; calls++) {
		struct mark start = mark_now(schedstat);
		ssize_t n = read(fd, record, RECORD_BYTES);
		be_late(calls, late);
		samples_add(s, sample_since(&start, schedstat));
		if (n == 0)
			return;
		if (n != RECORD_BYTES) {
			atomic_fetch_add(&shared->strange, 1);
			return;
		}
		uint64_t sum = 0, first = record[0];
		int torn = 0;
		for (int i = 0; i < WORDS; i++) {
			torn |= record[i] != first + (uint64_t)i;
			sum = sum * 31 + record[i];
		}
		if (torn)
			atomic_fetch_add(&shared->torn, 1);
		/* Which one it is: the offset says where the reader is, not which
		 * record it got, so search by content (records are few). */
		for (long i = 0; i < records; i++)
			if (mix((uint64_t)i) == first) {
				atomic_fetch_add(&shared->seen[i], 1);
				break;
			}
		atomic_fetch_add(&shared->sum, sum);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0)
		fail(argv[1]);
	long records = atol(argv[2]), lost = 0;
	size_t len = sizeof(struct shared) + (size_t)records;
	struct shared *shared =
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("shared memory");
	for (int w = 0; w < WORKERS; w++) {
		pid_t child = fork();
		if (child < 0)
			fail("fork");
		if (child == 0) {
			struct samples s = samples_new((size_t)records + 1);
			work(fd, records, shared, &s, w == 0 ? records / 16 : -1);
			samples_write(&s, argv[3]);
			_exit(0);
		}
	}
	for (int w = 0; w < WORKERS; w++) {
		int status;
		if (wait(&status) < 0 || status != 0)
			atomic_fetch_add(&shared->strange, 1);
	}
	for (long i = 0; i < records; i++)
		lost += atomic_load(&shared->seen[i]) != 1;
	printf("read %016llx\ntorn %ld\nlost %ld\nstrange %ld\n",
	       (unsigned long long)atomic_load(&shared->sum), atomic_load(&shared->torn), lost,
	       atomic_load(&shared->strange));
	return 0;
}
