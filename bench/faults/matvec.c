/* MATVEC of the paper's Table 1, out of core over a mapped file: y = A x for
 * a square matrix of doubles that lies in the file row by row.
 *
 * usage: matvec FILE ROUNDS
 *
 * Prints the norm of the last vector.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	struct stat stat;
	if (argc != 3)
		return 2;
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &stat) != 0) {
		perror(argv[1]);
		return 1;
	}
	size_t n = (size_t)sqrt((double)stat.st_size / sizeof(double));
	const double *a = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	double *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
	if (a == MAP_FAILED || !x || !y) {
		perror("memory");
		return 1;
	}
	for (size_t i = 0; i < n; i++)
		x[i] = 1.0 / (double)(i + 1);
	double norm = 0;
	for (int round = atoi(argv[2]); round > 0; round--) {
		norm = 0;
		for (size_t i = 0; i < n; i++) {
			double sum = 0;
			for (size_t j = 0; j < n; j++)
				sum += a[i * n + j] * x[j];
			y[i] = sum;
			norm += sum * sum;
		}
		norm = sqrt(norm);
		for (size_t i = 0; i < n; i++)
			x[i] = y[i] / norm;
	}
	printf("%.12g\n", norm);
}
