/* Shared memory that the program may not write to, but where it gets the right
 * for the time of a store, as databases do to find stray ones: what a copy
 * stores there in between never arrives. */
#include "common.h"
#define KINDS 6
#define MANY 150
#define LEN (2 << 20)
static volatile unsigned *kinds[KINDS];
static volatile unsigned *many[MANY];
static volatile unsigned *map(int protection, int flags, int fd)
{
	volatile unsigned *at = mmap(NULL, LEN, protection, flags, fd, 0);
	CHECK(at != MAP_FAILED);
	return at;
}
static void store(volatile unsigned *at, unsigned by, int otherwise)
{
	CHECK(mprotect((void *)at, 4096, PROT_READ | PROT_WRITE) == 0);
	*at += by;
	CHECK(mprotect((void *)at, 4096, otherwise) == 0);
}
int main(void)
{
	int file = open("shared", O_RDWR | O_CREAT, 0644), memory = memfd_create("m", 0);
	CHECK(ftruncate(file, LEN) == 0 && ftruncate(memory, LEN) == 0);
	int anonymous = MAP_SHARED | MAP_ANONYMOUS;
	kinds[0] = map(PROT_READ, anonymous, -1);
	kinds[1] = map(PROT_READ, MAP_SHARED, file);
	kinds[2] = map(PROT_READ, MAP_SHARED, memory);
	kinds[3] = map(PROT_NONE, anonymous, -1);
	kinds[4] = map(PROT_NONE, MAP_SHARED, file);
	/* Written to before, and not at the moment. */
	kinds[5] = map(PROT_READ | PROT_WRITE, anonymous, -1);
	for (int k = 0; k < KINDS; k++)
		store(kinds[k] + 1024 * k, 1, k % 2 ? PROT_READ : PROT_NONE);
	for (int round = 0; round < 200; round++) {
		ahead(1);
		for (int k = 0; k < KINDS; k++) {
			/* At more than one place of a mapping, and there again. */
			store(kinds[k] + 1024 * (k + round % 3), round + at_100(), PROT_READ);
			store(kinds[k] + 1024 * 9, 1, round % 2 ? PROT_READ : PROT_NONE);
		}
	}
	/* More of them than anybody keeps track of. */
	for (int k = 0; k < MANY; k++) {
		many[k] = map(k % 2 ? PROT_READ : PROT_NONE, anonymous, -1);
		CHECK(mprotect((void *)(many[k] + 4096), 4096, PROT_WRITE) == 0);
	}
	for (int round = 0; round < 100; round++) {
		ahead(1);
		for (int k = round % 5; k < MANY; k += 29)
			store(many[k], 1, PROT_READ);
	}
	for (int k = 0; k < KINDS; k++) {
		unsigned sum = 0;
		CHECK(mprotect((void *)kinds[k], LEN, PROT_READ) == 0);
		for (int page = 0; page < 12; page++)
			sum = sum * 31 + kinds[k][1024 * page];
		printf("%u\n", sum);
	}
	unsigned sum = 0;
	for (int k = 0; k < MANY; k++) {
		CHECK(mprotect((void *)many[k], 4096, PROT_READ) == 0);
		sum = sum * 31 + many[k][0];
	}
	printf("%u\n", sum);
}
