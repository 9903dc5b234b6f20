/* XDataSlice without the X: oblique planar slices through a volume of 32-bit
 * values that lies in bricks of 16 x 16 x 8 values (8 KiB), z running fastest.
 * For each slice it works out which bricks the plane crosses, reads them in
 * ascending order, one pread each, and draws the slice in false colour
 * (Patterson 1997, section 3.4.5; Fraser and Chang 2003, section 3.1).
 *
 * usage: xdataslice VOLUME SIDE SLICES SEED
 *
 * The pictures go to standard output (PGM), the number of blocks of each slice
 * to standard error. Both depend on the arguments and the volume alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BX = 16, BY = 16, BZ = 8, BLOCK = BX * BY * BZ * 4, PICTURE = 512 };

static uint64_t state;

static uint64_t next(void)
{
	uint64_t z = state += 0x9E3779B97F4A7C15u; /* SplitMix64 */
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static double unit(void) /* in [0, 1) */
{
	return (double)(next() >> 11) / (double)(1ull << 53);
}

struct plane {
	double n[3];		/* unit normal */
	double d;		/* n . x = d on the plane */
	double u[3], v[3];	/* axes of the picture */
};

static struct plane random_plane(double side)
{
	struct plane p;
	double length;
	do {
		for (int i = 0; i < 3; i++)
			p.n[i] = 2 * unit() - 1;
		length = sqrt(p.n[0] * p.n[0] + p.n[1] * p.n[1] + p.n[2] * p.n[2]);
	} while (length > 1 || length < 0.1);
	p.d = 0;
	for (int i = 0; i < 3; i++) {
		p.n[i] /= length;
		p.d += p.n[i] * side * (1.2 * unit() - 0.1);
	}
	/* The picture's axes: n x the axis that is least parallel to n. */
	int axis = 0;
	for (int i = 1; i < 3; i++)
		if (fabs(p.n[i]) < fabs(p.n[axis]))
			axis = i;
	double e[3] = { axis == 0, axis == 1, axis == 2 };
	for (int i = 0; i < 3; i++)
		p.u[i] = p.n[(i + 1) % 3] * e[(i + 2) % 3] - p.n[(i + 2) % 3] * e[(i + 1) % 3];
	length = sqrt(p.u[0] * p.u[0] + p.u[1] * p.u[1] + p.u[2] * p.u[2]);
	for (int i = 0; i < 3; i++)
		p.u[i] /= length;
	for (int i = 0; i < 3; i++)
		p.v[i] = p.n[(i + 1) % 3] * p.u[(i + 2) % 3] - p.n[(i + 2) % 3] * p.u[(i + 1) % 3];
	return p;
}

/* Whether a box whose smallest corner is c is cut by the plane. */
static int crosses(const struct plane *p, const double c[3])
{
	static const double size[3] = { BX, BY, BZ };
	double low = -p->d, high = -p->d;
	for (int i = 0; i < 3; i++) {
		double a = p->n[i] * c[i], b = p->n[i] * (c[i] + size[i]);
		low += a < b ? a : b;
		high += a < b ? b : a;
	}
	return low <= 0 && high >= 0;
}

/* Colours the values of a brick that lie within half a cell of the plane. */
static void draw(const struct plane *p, const uint32_t *values, const double c[3],
		 double side, uint8_t *picture)
{
	double scale = PICTURE / (side * 1.75); /* a cube's diagonal is 1.73 sides */
	for (int x = 0; x < BX; x++)
		for (int y = 0; y < BY; y++)
			for (int z = 0; z < BZ; z++) {
				double at[3] = { c[0] + x, c[1] + y, c[2] + z }, off = -p->d;
				double pu = 0, pv = 0;
				for (int i = 0; i < 3; i++)
					off += p->n[i] * at[i];
				if (fabs(off) > 0.5)
					continue;
				for (int i = 0; i < 3; i++) {
					pu += p->u[i] * (at[i] - side / 2);
					pv += p->v[i] * (at[i] - side / 2);
				}
				int column = (int)(PICTURE / 2 + pu * scale);
				int row = (int)(PICTURE / 2 + pv * scale);
				if (column < 0 || column >= PICTURE || row < 0 || row >= PICTURE)
					continue;
				uint32_t value = values[(x * BY + y) * BZ + z];
				picture[row * PICTURE + column] = (uint8_t)(1 + value % 255);
			}
}

static void fail(const char *what)
{
	fprintf(stderr, "xdataslice: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(const void *data, size_t len)
{
	const char *from = data;
	while (len > 0) {
		ssize_t n = write(1, from, len);
		if (n < 0)
			fail("standard output");
		from += n;
		len -= (size_t)n;
	}
}

int main(int argc, char **argv)
{
	static uint32_t values[BX * BY * BZ];
	static uint8_t picture[PICTURE * PICTURE];
	if (argc != 5) {
		fprintf(stderr, "usage: xdataslice VOLUME SIDE SLICES SEED\n");
		return 2;
	}
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0)
		fail(argv[1]);
	long side = atol(argv[2]), slices = atol(argv[3]);
	state = strtoull(argv[4], NULL, 10);
	long nx = side / BX, ny = side / BY, nz = side / BZ;
	long *list = malloc(sizeof *list * (size_t)(nx * ny * nz));
	if (!list)
		fail("list of blocks");
	for (long slice = 0; slice < slices; slice++) {
		struct plane p = random_plane((double)side);
		long blocks = 0;
		/* First the list, then the reads: as the program's data layer does. */
		for (long b = 0; b < nx * ny * nz; b++) {
			double c[3] = { (double)(b / (ny * nz) * BX), (double)(b / nz % ny * BY),
					(double)(b % nz * BZ) };
			if (crosses(&p, c))
				list[blocks++] = b;
		}
		memset(picture, 0, sizeof picture);
		for (long i = 0; i < blocks; i++) {
			long b = list[i];
			double c[3] = { (double)(b / (ny * nz) * BX), (double)(b / nz % ny * BY),
					(double)(b % nz * BZ) };
			if (pread(fd, values, BLOCK, (off_t)b * BLOCK) != BLOCK)
				fail("short read of the volume");
			draw(&p, values, c, (double)side, picture);
		}
		char text[64];
		int len = snprintf(text, sizeof text, "P5\n%d %d\n255\n", PICTURE, PICTURE);
		put(text, (size_t)len);
		put(picture, sizeof picture);
		fprintf(stderr, "slice %ld: %ld blocks\n", slice, blocks);
	}
	return 0;
}
