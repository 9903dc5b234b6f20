/* A range is unmapped with a hole in it, which was there before the first stall: nothing
 * of anybody's may have come into the hole. */
#include "common.h"
#define LEN (20ul << 20)
#define HOLE_AT (8ul << 20)
#define HOLE_LEN (8ul << 20)

static void reads_and_touches(const unsigned char *map)
{
	for (int round = 0; round < 6; round++)
		printf("%x %x %x\n", work(), ahead(100), touch_large(map));
}

int main(void)
{
	unsigned char *map = map_large();
	unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(munmap(memory + HOLE_AT, HOLE_LEN) == 0);
	reads_and_touches(map);
	CHECK(munmap(memory, LEN) == 0);
	reads_and_touches(map);
	return 4;
}
