/* Clients of a search server that speaks MySQL's protocol (searchd): each
 * thread asks one query of a list after the other.
 *
 * queries PORT INDEX QUERIES CLIENTS ANSWERS
 *
 * QUERIES has one line of keywords per query. Where the file ANSWERS is there,
 * each answer must be what it says; else it is written. Time is counted until
 * the last query has been taken, so that every run does the same work. */
#include "streams.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define LINE_MAX_BYTES 256
#define ANSWER_MAX_BYTES 65536

static int port;
static const char *index_name;
static uint64_t queries, *answers;
static char (*lines)[LINE_MAX_BYTES];
static _Atomic uint64_t taken, last_ns;

static void receive(int fd, void *into, size_t bytes)
{
	for (size_t have = 0; have < bytes;) {
		ssize_t got = recv(fd, (char *)into + have, bytes - have, 0);
		if (got <= 0)
			die("recv");
		have += (size_t)got;
	}
}

/* A packet's payload: its length and number, then it. */
static size_t packet(int fd, uint8_t *into)
{
	uint8_t head[4];
	receive(fd, head, sizeof head);
	size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
	if (len == 0 || len > ANSWER_MAX_BYTES) {
		fprintf(stderr, "a packet of %zu bytes\n", len);
		exit(1);
	}
	receive(fd, into, len);
	if (into[0] == 0xff) {
		fprintf(stderr, "searchd: %.*s\n", (int)len - 3, into + 3);
		exit(1);
	}
	return len;
}

static void tell(int fd, uint8_t number, const void *payload, size_t len)
{
	uint8_t out[4 + LINE_MAX_BYTES * 2] = { (uint8_t)len, (uint8_t)(len >> 8), 0, number };
	memcpy(out + 4, payload, len);
	if (send(fd, out, len + 4, MSG_NOSIGNAL) != (ssize_t)len + 4)
		die("send");
}

static int connected(uint8_t *buffer)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	struct timeval limit = { .tv_sec = 100 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	packet(fd, buffer);
	/* Protocol 4.1; packets up to 16 MiB; UTF-8; no user, no password. */
	uint8_t login[34] = { 0x00, 0x82, 0, 0, 0, 0, 0, 1, 33 };
	tell(fd, 1, login, sizeof login);
	packet(fd, buffer);
	return fd;
}

/* Rows of the answer, as a number. */
static uint64_t asked(int fd, const char *query, uint8_t *buffer)
{
	char text[LINE_MAX_BYTES * 2];
	int len = snprintf(text, sizeof text, "%cSELECT id, WEIGHT() FROM %s WHERE MATCH('%s') LIMIT 10",
			   3, index_name, query);
	tell(fd, 0, text, (size_t)len);
	packet(fd, buffer);
	uint64_t answer = 1;
	/* Columns and rows; each of the two ends with a packet of its own. */
	for (int ends = 0; ends < 2;) {
		size_t got = packet(fd, buffer);
		if (buffer[0] == 0xfe && got < 9) {
			ends++;
			continue;
		}
		for (size_t at = 0; ends == 1 && at < got; at++)
			answer = mix(answer ^ buffer[at]);
	}
	return answer ? answer : 1;
}

static void *work(void *argument)
{
	struct worker *me = argument;
	uint8_t *buffer = malloc(ANSWER_MAX_BYTES);
	if (!buffer)
		die("malloc");
	int fd = connected(buffer);
	for (;;) {
		uint64_t began = now_ns(), query = taken++;
		if (query >= queries)
			break;
		if (query == queries - 1)
			last_ns = began;
		uint64_t answer = asked(fd, lines[query], buffer);
		if (answers[query] && answers[query] != answer)
			me->wrong++;
		answers[query] = answer;
		me->requests++;
		me->latency_ns += now_ns() - began;
	}
	close(fd);
	free(buffer);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: queries PORT INDEX QUERIES CLIENTS ANSWERS\n");
		return 1;
	}
	port = atoi(argv[1]);
	index_name = argv[2];
	FILE *in = fopen(argv[3], "r");
	if (!in)
		die(argv[3]);
	char line[LINE_MAX_BYTES];
	while (fgets(line, sizeof line, in)) {
		line[strcspn(line, "\n")] = 0;
		lines = realloc(lines, (queries + 1) * sizeof *lines);
		if (!lines)
			die("realloc");
		strcpy(lines[queries++], line);
	}
	int count = atoi(argv[4]);
	if (queries == 0 || count < 1)
		return 1;
	answers = calloc(queries, sizeof *answers);
	struct worker *workers = calloc((size_t)count, sizeof *workers);
	if (!answers || !workers)
		die("calloc");
	FILE *known = fopen(argv[5], "r");
	if (known && fread(answers, sizeof *answers, queries, known) != queries)
		die(argv[5]);
	uint64_t start = now_ns(), latency = 0, wrong = 0;
	for (int i = 0; i < count; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("pthread_create");
	for (int i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		latency += workers[i].latency_ns;
		wrong += workers[i].wrong;
	}
	if (!known) {
		FILE *out = fopen(argv[5], "w");
		if (!out || fwrite(answers, sizeof *answers, queries, out) != queries || fclose(out))
			die(argv[5]);
	}
	printf("ns %llu\nrequests %llu\nlatency_ns %llu\nwrong %llu\n",
	       (unsigned long long)(last_ns - start), (unsigned long long)queries,
	       (unsigned long long)(latency / queries), (unsigned long long)wrong);
	return wrong ? 2 : 0;
}
