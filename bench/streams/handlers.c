/* Request handlers of the microbenchmarks of Li, Papathanasiou and Shen
 * (2004, section 3.1): each thread serves one request after the other.
 *
 * handlers DIRECTORY FILES FILE_BYTES WORKLOAD HANDLERS WARM_S RUN_S SEED [THINK_US]
 *
 * File i is DIRECTORY/f%05d; its 8 bytes at offset o are mix(i << 32 | o),
 * for every o that is a multiple of 4096: each page read is looked at. */
#include "streams.h"

/* When counting begins and ends; whether there is nothing left to do. */
static _Atomic int counting, stopping, exhausted;
/* Requests answered, counted or not. */
static _Atomic uint64_t served;

/* Shortest time that says anything, and how often the end is looked for. */
#define RUN_MIN_NS 100000000u
#define LOOK_US 1000

/* Sleeps so long, and until each worker has answered a request on the mean; or
 * until there is nothing left to do. */
static void busy_for(double s, int workers)
{
	uint64_t end = now_ns() + (uint64_t)(s * 1e9), last = served + (uint64_t)workers;
	while (!exhausted && (now_ns() < end || served < last))
		usleep(LOOK_US);
}

/* Lets the workers run: `warm_s` uncounted, then `run_s`, both for a request of
 * each worker at least: the first ones of all workers begin at once and go on
 * in step, and where many take turns each takes long. Or until there is
 * nothing left to do; prints what they did. Requests that are under way at
 * the end are not waited for beyond their next block. */
static int measure(struct worker *workers, int count, double warm_s, double run_s,
		   void *(*work)(void *), uint64_t seed)
{
	for (int i = 0; i < count; i++) {
		workers[i].number = i;
		workers[i].random = mix(seed * 1000003 + (uint64_t)i);
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("pthread_create");
	}
	busy_for(warm_s, count);
	uint64_t before = 0, after = 0, total = 0, requests = 0, latency = 0, wrong = 0;
	for (int i = 0; i < count; i++)
		before += workers[i].bytes;
	counting = 1;
	uint64_t start = now_ns();
	busy_for(run_s, count);
	for (int i = 0; i < count; i++)
		after += workers[i].bytes;
	uint64_t end = now_ns();
	counting = 0;
	stopping = 1;
	for (int i = 0; i < count; i++)
		pthread_join(workers[i].thread, NULL);
	if (exhausted && end - start < RUN_MIN_NS) {
		fprintf(stderr, "all files have been read too soon: give more, or a slower disk\n");
		return 3;
	}
	for (int i = 0; i < count; i++) {
		total += workers[i].bytes;
		requests += workers[i].requests;
		latency += workers[i].latency_ns;
		wrong += workers[i].wrong;
	}
	printf("served %llu\ntotal %llu\nbytes %llu\nns %llu\nrequests %llu\nlatency_ns %llu\nwrong %llu\n",
	       (unsigned long long)served, (unsigned long long)total,
	       (unsigned long long)(after - before), (unsigned long long)(end - start),
	       (unsigned long long)requests,
	       (unsigned long long)(requests ? latency / requests : 0), (unsigned long long)wrong);
	return wrong ? 2 : 0;
}

/* A request has been answered; it counts where counting had begun before. */
static void answered(struct worker *me, uint64_t began)
{
	int counts = counting;
	served++;
	if (counts) {
		me->requests++;
		me->latency_ns += now_ns() - began;
	}
}

static const char *directory;
static uint64_t files, file_bytes;
static unsigned think_us;
/* The order in which files are chosen: at random, and none twice, so that no
 * cache answers (the paper's files are many times its memory). */
static uint32_t *order;
static _Atomic uint64_t chosen;
static enum { ONE_WHOLE, ONE_RAND, TWO_RAND, FOUR_64KB } workload;

struct open_file {
	int fd;
	uint64_t number, position;
};

/* The next file; with no number of its own where all have been read. */
static struct open_file open_one(void)
{
	uint64_t turn = chosen++;
	if (turn >= files && workload != FOUR_64KB) {
		exhausted = 1;
		return (struct open_file){ -1, 0, 0 };
	}
	uint64_t number = order[turn % files];
	char path[4096];
	snprintf(path, sizeof path, "%s/f%05llu", directory, (unsigned long long)number);
	struct open_file file = { open(path, O_RDONLY | O_CLOEXEC), number, 0 };
	if (file.fd < 0)
		die(path);
	return file;
}

static void read_block(struct worker *me, struct open_file *file, char *buffer)
{
	ssize_t got = pread(file->fd, buffer, BLOCK, (off_t)file->position);
	if (got != BLOCK)
		die("pread");
	for (uint64_t at = 0; at < BLOCK; at += 4096) {
		uint64_t word;
		memcpy(&word, buffer + at, 8);
		if (word != mix(file->number << 32 | (file->position + at)))
			me->wrong++;
	}
	file->position += BLOCK;
	me->bytes += BLOCK;
}

static uint64_t some_blocks(struct worker *me)
{
	return 1 + below(&me->random, file_bytes / BLOCK);
}

static void serve(struct worker *me, char *buffer)
{
	uint64_t blocks = file_bytes / BLOCK;
	if (workload == ONE_WHOLE || workload == ONE_RAND) {
		uint64_t count = workload == ONE_WHOLE ? blocks : some_blocks(me);
		uint64_t thinks[4] = { ~0u, ~0u, ~0u, ~0u };
		for (int i = 0; think_us && i < 4; i++)
			thinks[i] = below(&me->random, count);
		struct open_file file = open_one();
		for (uint64_t block = 0; block < count && file.fd >= 0 && !stopping; block++) {
			for (int i = 0; think_us && i < 4; i++)
				if (thinks[i] == block)
					usleep(think_us);
			read_block(me, &file, buffer);
		}
		close(file.fd);
	} else if (workload == TWO_RAND) {
		struct open_file file[2];
		uint64_t count[2];
		for (int i = 0; i < 2; i++) {
			file[i] = open_one();
			count[i] = some_blocks(me);
		}
		for (uint64_t block = 0; (block < count[0] || block < count[1]) && !stopping; block++)
			for (int i = 0; i < 2; i++)
				if (block < count[i] && file[i].fd >= 0)
					read_block(me, &file[i], buffer);
		close(file[0].fd);
		close(file[1].fd);
	} else {
		for (int i = 0; i < 4 && !stopping; i++) {
			struct open_file file = open_one();
			file.position = below(&me->random, blocks) * BLOCK;
			read_block(me, &file, buffer);
			close(file.fd);
		}
	}
}

static void *work(void *argument)
{
	struct worker *me = argument;
	char *buffer = malloc(BLOCK);
	if (!buffer)
		die("malloc");
	while (!stopping) {
		uint64_t began = now_ns();
		serve(me, buffer);
		/* What is done after that is no request. */
		if (exhausted)
			break;
		answered(me, began);
	}
	free(buffer);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 9) {
		fprintf(stderr, "usage: handlers DIRECTORY FILES FILE_BYTES WORKLOAD HANDLERS WARM_S "
				"RUN_S SEED [THINK_US]\n");
		return 1;
	}
	directory = argv[1];
	files = strtoull(argv[2], NULL, 10);
	file_bytes = strtoull(argv[3], NULL, 10);
	const char *names[] = { "one-whole", "one-rand", "two-rand", "four-64kb" };
	int which = 0;
	while (which < 4 && strcmp(argv[4], names[which]))
		which++;
	int count = atoi(argv[5]);
	if (which == 4 || count < 1 || files == 0 || file_bytes < BLOCK)
		return 1;
	workload = which;
	think_us = argc > 9 ? (unsigned)atoi(argv[9]) : 0;
	order = malloc(files * sizeof *order);
	if (!order)
		die("malloc");
	uint64_t random = mix(strtoull(argv[8], NULL, 10));
	for (uint64_t i = 0; i < files; i++) {
		uint64_t other = below(&random, i + 1);
		order[i] = order[other];
		order[other] = (uint32_t)i;
	}
	struct worker *workers = calloc((size_t)count, sizeof *workers);
	return measure(workers, count, atof(argv[6]), atof(argv[7]), work, strtoull(argv[8], NULL, 10));
}
