/* An index search server: keyword queries over posting lists in one big file
 * (the paper's section 3.1; its server and data were a company's own).
 *
 * search INDEX WORDS SEARCHERS WARM_S RUN_S SEED
 *
 * INDEX.map holds WORDS entries { hash, offset, postings }, sorted by hash, in
 * which a word is looked for by halving. INDEX holds each word's list: 32-bit
 * document numbers, rising; number j of word w is j * gap(w) + mix(w, j) %
 * gap(w). A query intersects the lists of one to four words; each list is read
 * in blocks, sequentially, as the intersection needs it, so that several
 * streams of one file go on at once and stop when one list has ended. */
#include "streams.h"

#define LIST_BLOCK 32768
#define PER_BLOCK (LIST_BLOCK / 4)

struct entry {
	uint64_t hash, offset, postings;
};

static int index_fd, map_fd;
static uint64_t words;

static uint64_t gap(uint64_t word)
{
	return 2 + mix(word ^ 0x676170) % 30;
}

static uint32_t document(uint64_t word, uint64_t number)
{
	return (uint32_t)(number * gap(word) + mix(word << 32 ^ number) % gap(word));
}

struct list {
	uint64_t word, offset, postings, at;
	uint32_t block[PER_BLOCK];
};

static int look_up(uint64_t word, struct list *list)
{
	uint64_t hash = mix(word), low = 0, high = words;
	while (low < high) {
		uint64_t middle = (low + high) / 2;
		struct entry entry;
		if (pread(map_fd, &entry, sizeof entry, (off_t)(middle * sizeof entry)) != sizeof entry)
			die("read the map");
		if (entry.hash == hash) {
			list->word = word;
			list->offset = entry.offset;
			list->postings = entry.postings;
			list->at = 0;
			return 1;
		}
		if (entry.hash < hash)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

/* The document at the list's place; 0: the list has ended. */
static int here(struct worker *me, struct list *list, uint32_t *found)
{
	if (list->at >= list->postings)
		return 0;
	uint64_t in = list->at % PER_BLOCK;
	if (in == 0) {
		uint64_t rest = (list->postings - list->at) * 4;
		size_t want = rest < LIST_BLOCK ? (size_t)rest : LIST_BLOCK;
		off_t at = (off_t)(list->offset + list->at * 4);
		if (pread(index_fd, list->block, want, at) != (ssize_t)want)
			die("read the index");
		if (list->block[0] != document(list->word, list->at))
			me->wrong++;
		me->bytes += want;
	}
	*found = list->block[in];
	return 1;
}

static void query(struct worker *me, struct list *lists)
{
	/* Words of a query: the lengths of web queries then (mean 2.4). */
	static const int lengths[10] = { 1, 2, 2, 2, 2, 3, 3, 3, 3, 4 };
	int count = lengths[below(&me->random, 10)];
	for (int i = 0; i < count; i++) {
		/* Frequent words are asked for more often. */
		double share = unit(&me->random);
		uint64_t word = (uint64_t)(share * share * (double)words);
		if (!look_up(word < words ? word : words - 1, &lists[i]))
			me->wrong++;
	}
	uint32_t candidate = 0;
	while (!stopping) {
		int agree = 1;
		uint32_t most = candidate;
		for (int i = 0; i < count; i++) {
			uint32_t found;
			for (;;) {
				if (!here(me, &lists[i], &found))
					return;
				if (found >= candidate)
					break;
				lists[i].at++;
			}
			agree &= found == candidate;
			if (found > most)
				most = found;
		}
		candidate = agree ? candidate + 1 : most;
	}
}

static void *work(void *argument)
{
	struct worker *me = argument;
	struct list *lists = calloc(4, sizeof *lists);
	if (!lists)
		die("calloc");
	while (!stopping) {
		uint64_t began = now_ns();
		query(me, lists);
		answered(me, began);
	}
	free(lists);
	return NULL;
}

static int by_hash(const void *a, const void *b)
{
	uint64_t x = ((const struct entry *)a)->hash, y = ((const struct entry *)b)->hash;
	return x < y ? -1 : x > y;
}

/* Writes an index of so many bytes and its map; prints the number of words. */
static int make(const char *path, uint64_t bytes, uint64_t seed)
{
	char map_path[4096];
	snprintf(map_path, sizeof map_path, "%s.map", path);
	FILE *out = fopen(path, "w"), *map = fopen(map_path, "w");
	if (!out || !map)
		die(path);
	struct entry *entries = NULL;
	uint64_t count = 0, offset = 0, random = mix(seed);
	uint32_t *list = malloc(8 << 20);
	while (offset < bytes) {
		/* 64 KB to 4 MB, the logarithm uniform: mean 950 KB. */
		double length = 65536.0;
		uint64_t doublings = below(&random, 6);
		length *= (double)(1u << doublings) * (1.0 + unit(&random));
		uint64_t postings = (uint64_t)length / 4;
		entries = realloc(entries, (count + 1) * sizeof *entries);
		entries[count] = (struct entry){ mix(count), offset, postings };
		for (uint64_t j = 0; j < postings; j++)
			list[j] = document(count, j);
		if (fwrite(list, 4, postings, out) != postings)
			die(path);
		offset += postings * 4;
		count++;
	}
	qsort(entries, count, sizeof *entries, by_hash);
	if (fwrite(entries, sizeof *entries, count, map) != count || fclose(out) || fclose(map))
		die(map_path);
	printf("%llu\n", (unsigned long long)count);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "make"))
		return make(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
	if (argc != 7) {
		fprintf(stderr, "usage: search INDEX WORDS SEARCHERS WARM_S RUN_S SEED\n"
				"       search make INDEX BYTES SEED\n");
		return 1;
	}
	char map_path[4096];
	snprintf(map_path, sizeof map_path, "%s.map", argv[1]);
	index_fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	map_fd = open(map_path, O_RDONLY | O_CLOEXEC);
	if (index_fd < 0 || map_fd < 0)
		die(argv[1]);
	words = strtoull(argv[2], NULL, 10);
	int count = atoi(argv[3]);
	if (words == 0 || count < 1)
		return 1;
	struct worker *workers = calloc((size_t)count, sizeof *workers);
	return measure(workers, count, atof(argv[4]), atof(argv[5]), work, strtoull(argv[6], NULL, 10));
}
