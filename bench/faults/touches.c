/* Random page touches of a mapped file: the plainest program that waits in
 * page faults.
 *
 * usage: touches FILE TOUCHES SEED
 *
 * Prints a sum over the touched bytes.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	struct stat stat;
	if (argc != 4)
		return 2;
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &stat) != 0 || stat.st_size < 4096) {
		perror(argv[1]);
		return 1;
	}
	const unsigned char *map = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	uint64_t pages = (uint64_t)stat.st_size / 4096, state = strtoull(argv[3], NULL, 10), sum = 0;
	for (long i = atol(argv[2]); i > 0; i--) {
		uint64_t z = state += 0x9E3779B97F4A7C15u; /* SplitMix64 */
		z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
		z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
		z ^= z >> 31;
		sum = sum * 31 + map[z % pages * 4096 + (z >> 52)];
	}
	printf("%016llx\n", (unsigned long long)sum);
}
