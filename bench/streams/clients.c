/* Clients of a media server: each thread asks for one clip after the other
 * over a connection that stays open (HTTP/1.1).
 *
 * clients PORT SIZES CLIENTS WARM_S RUN_S SEED
 *
 * SIZES has one line per clip, its size; clip i is /c%05d. Clips are chosen by
 * a Zipf distribution (exponent 1). The first 8 bytes of clip i are mix(i). */
#include "streams.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int port;
static uint64_t clips, *sizes;
static double *cumulated;

static int connected(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	struct timeval limit = { .tv_sec = 60 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

static uint64_t choose(struct worker *me)
{
	double share = unit(&me->random) * cumulated[clips - 1];
	uint64_t low = 0, high = clips - 1;
	while (low < high) {
		uint64_t middle = (low + high) / 2;
		if (cumulated[middle] < share)
			low = middle + 1;
		else
			high = middle;
	}
	/* Popular clips lie anywhere. */
	return mix(low) % clips;
}

static void ask(struct worker *me, int fd, char *buffer, size_t room)
{
	uint64_t clip = choose(me);
	int len = snprintf(buffer, room, "GET /c%05llu HTTP/1.1\r\nHost: x\r\n\r\n",
			   (unsigned long long)clip);
	if (send(fd, buffer, (size_t)len, MSG_NOSIGNAL) != len)
		die("send");
	/* The header, and what came with it. */
	size_t have = 0;
	char *end = NULL;
	while (!end) {
		ssize_t got = recv(fd, buffer + have, room - 1 - have, 0);
		if (got <= 0)
			die("recv");
		have += (size_t)got;
		buffer[have] = 0;
		end = strstr(buffer, "\r\n\r\n");
		if (!end && have > 4096)
			die("no header");
	}
	if (strncmp(buffer, "HTTP/1.1 200", 12) != 0) {
		me->wrong++;
		return;
	}
	uint64_t body = have - (size_t)(end + 4 - buffer);
	char head[8];
	uint64_t headed = body < 8 ? body : 8;
	memcpy(head, end + 4, headed);
	me->bytes += body;
	while (body < sizes[clip]) {
		ssize_t got = recv(fd, buffer, room, 0);
		if (got <= 0)
			die("recv");
		uint64_t more = 8 - headed < (uint64_t)got ? 8 - headed : (uint64_t)got;
		memcpy(head + headed, buffer, more);
		headed += more;
		body += (uint64_t)got;
		me->bytes += (uint64_t)got;
	}
	uint64_t word;
	memcpy(&word, head, 8);
	if (body != sizes[clip] || word != mix(clip))
		me->wrong++;
}

static void *work(void *argument)
{
	struct worker *me = argument;
	size_t room = 1 << 18;
	char *buffer = malloc(room);
	int fd = connected();
	while (!stopping) {
		uint64_t began = now_ns();
		ask(me, fd, buffer, room);
		answered(me, began);
	}
	close(fd);
	free(buffer);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: clients PORT SIZES CLIENTS WARM_S RUN_S SEED\n");
		return 1;
	}
	port = atoi(argv[1]);
	FILE *in = fopen(argv[2], "r");
	if (!in)
		die(argv[2]);
	unsigned long long size;
	double sum = 0;
	while (fscanf(in, "%llu", &size) == 1) {
		sizes = realloc(sizes, (clips + 1) * sizeof *sizes);
		cumulated = realloc(cumulated, (clips + 1) * sizeof *cumulated);
		sum += 1.0 / (double)(clips + 1);
		sizes[clips] = size;
		cumulated[clips++] = sum;
	}
	int count = atoi(argv[3]);
	if (clips == 0 || count < 1)
		return 1;
	struct worker *workers = calloc((size_t)count, sizeof *workers);
	return measure(workers, count, atof(argv[4]), atof(argv[5]), work, strtoull(argv[6], NULL, 10));
}
