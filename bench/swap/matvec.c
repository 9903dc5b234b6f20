/* MATVEC (Brown and Mowry 2000; Fraser and Chang 2003, Table 1): multiplies a
 * matrix that does not fit into memory by a vector, row by row. */
#include "common.h"
#include <math.h>

int main(int argc, char **argv) {
    size_t bytes = begin(argc, argv);
    size_t n = (size_t)sqrt((double)bytes / sizeof(double));
    double *a = memory(n * n * sizeof *a), *x = memory(n * sizeof *x), *y = memory(n * sizeof *y);
    for (size_t i = 0; i < n; i++) {
        x[i] = 1.0 / (double)(i + 1);
        for (size_t j = 0; j < n; j++) a[i * n + j] = (double)((i * 31 + j * 17) % 1009);
    }
    start();
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++) sum += a[i * n + j] * x[j];
        y[i] = sum;
    }
    double checksum = 0;
    for (size_t i = 0; i < n; i++) checksum += y[i];
    return finish(checksum);
}
