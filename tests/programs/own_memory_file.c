/* Reads of /proc/self/mem: errors (EIO where nothing is mapped), short reads
 * at the end of a mapping, and the program's own bytes, not those of a copy. */
#include "common.h"
static volatile unsigned counter;
int main(void)
{
	int mem = open("/proc/self/mem", O_RDONLY), directory = open("data", O_RDONLY | O_DIRECTORY);
	char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(edge + 4096, 4096);
	memset(edge, 'e', 4096);
	CHECK(mem >= 0);
	for (int round = 0; round < 30; round++) {
		char buffer[256];
		unsigned seen = 0;
		counter = round * 3 + ahead(3) % 2;
		errno = 0;
		printf("%zd %d ", pread(mem, buffer, 16, 4096), errno);
		printf("%zd ", pread(mem, buffer, sizeof buffer, (off_t)(edge + 4000)));
		CHECK(buffer[0] == 'e' && buffer[95] == 'e');
		CHECK(pread(mem, &seen, sizeof seen, (off_t)&counter) == sizeof seen && seen == counter);
		CHECK(lseek(mem, 0, SEEK_SET) == 0);
		errno = 0;
		printf("%zd %d ", read(mem, buffer, 1), errno);
		CHECK(lseek(mem, 0, SEEK_CUR) == 0);
		errno = 0;
		printf("%zd %d %u\n", read(directory, buffer, 1), errno, ahead(3));
	}
}
