/* Reads of what has just been read, by the thread that stalls: by an offset of
 * the call's, and by the position of a description that nobody shares.
 * usage: read FILE READS SAMPLES */
#include "common.h"

enum { AGAIN = 4 };

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	struct reader r = reader_open(argv[1]);
	long reads = atol(argv[2]), strange = 0;
	int schedstat = schedstat_open(), second = open(argv[1], O_RDONLY | O_CLOEXEC);
	struct samples s = samples_new(2 * AGAIN * (size_t)reads);
	static uint64_t page[PAGE / 8], other[PAGE / 8];
	if (second < 0)
		fail(argv[1]);
	for (long i = 0; i < reads; i++) {
		off_t at = (off_t)(mix(r.next) % r.pages) * PAGE;
		reader_read(&r);
		for (int k = 0; k < AGAIN; k++) {
			if (lseek(second, at, SEEK_SET) != at)
				fail("seek");
			struct mark start = mark_now(schedstat);
			ssize_t first = pread(r.fd, page, PAGE, at);
			be_late(i, k == 0 ? reads / 2 : -1);
			samples_add(&s, sample_since(&start, schedstat));
			start = mark_now(schedstat);
			ssize_t then = read(second, other, PAGE);
			samples_add(&s, sample_since(&start, schedstat));
			strange += first != PAGE || then != PAGE || memcmp(page, other, PAGE) != 0;
		}
	}
	samples_write(&s, argv[3]);
	printf("read %016llx\nstrange %ld\n", (unsigned long long)r.sum, strange);
	return 0;
}
