/* Documents for the index of the search server, and queries, one a line.
 *
 * corpus documents COUNT DRAWS SEED
 * corpus queries COUNT DRAWS SEED
 *
 * A document is its number, a tab and its text. Its words are drawn by Zipf's
 * law (exponent 1) from the ranks [DRAWS × RANK_SHARE, that × RANK_RATIO),
 * DRAWS times on the mean: commoner words are stop words, rarer ones have
 * lists too short to stream. So the commonest word is in two of five documents
 * whatever DRAWS is. Who uses a word uses it again (geometrically, twice on
 * the mean), so that there are lists of places beside those of documents. */
#include "streams.h"
#include <math.h>

#define RANK_SHARE 0.72
#define RANK_RATIO 16.0

static double draws;

static void word(uint64_t *random, int again)
{
	unsigned rank = (unsigned)(draws * RANK_SHARE * pow(RANK_RATIO, unit(random)));
	do
		printf("k%u ", rank);
	while (again && next(random) & 1);
}

static void document(uint64_t number, uint64_t *random)
{
	printf("%llu\t", (unsigned long long)number);
	for (double left = draws * (0.5 + unit(random)); left >= 1; left--)
		word(random, 1);
}

static void query(uint64_t *random)
{
	/* Words of a query: the lengths of web queries then (mean 2.4). */
	static const int lengths[10] = { 1, 2, 2, 2, 2, 3, 3, 3, 3, 4 };
	for (int left = lengths[below(random, 10)]; left; left--)
		word(random, 0);
}

int main(int argc, char **argv)
{
	int ask = argc == 5 && !strcmp(argv[1], "queries");
	if (argc != 5 || (draws = atof(argv[3])) < 2) {
		fprintf(stderr, "usage: corpus documents|queries COUNT DRAWS SEED\n");
		return 1;
	}
	uint64_t count = strtoull(argv[2], NULL, 10), random = mix(strtoull(argv[4], NULL, 10));
	for (uint64_t number = 1; number <= count; number++) {
		if (ask)
			query(&random);
		else
			document(number, &random);
		putchar('\n');
	}
	return fflush(stdout) != 0;
}
