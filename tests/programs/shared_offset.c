/* Four processes read records through one description: no record is torn,
 * none is lost, none is read twice. */
#include "common.h"
#define RECORD 512
int main(void)
{
	int out[2];
	CHECK(pipe(out) == 0);
	int records = BIG_LEN / RECORD;
	int fd = open("records", O_RDWR | O_CREAT, 0644);
	for (int i = 0; i < records; i++) {
		unsigned words[RECORD / 4];
		for (int k = 0; k < RECORD / 4; k++)
			words[k] = i;
		CHECK(write(fd, words, RECORD) == RECORD);
	}
	lseek(fd, 0, SEEK_SET);
	for (int worker = 0; worker < 4; worker++)
		if (fork() == 0) {
			unsigned words[RECORD / 4], tally[3] = { 0 };
			ssize_t got;
			while ((got = read(fd, words, RECORD)) > 0) {
				int torn = got != RECORD;
				for (int k = 1; k < RECORD / 4; k++)
					torn |= words[k] != words[0];
				tally[0]++, tally[1] += words[0], tally[2] += torn;
			}
			write(out[1], tally, sizeof tally);
			_exit(0);
		}
	unsigned sum[3] = { 0 }, tally[3];
	for (int worker = 0; worker < 4; worker++) {
		CHECK(read(out[0], tally, sizeof tally) == sizeof tally);
		for (int k = 0; k < 3; k++)
			sum[k] += tally[k];
	}
	while (wait(NULL) > 0)
		;
	printf("%u records, sum %u, torn %u, offset %ld\n", sum[0], sum[1], sum[2],
	       (long)lseek(fd, 0, SEEK_CUR));
}
