// What is thrown in a nest comes to the handler that it would come to without the pass: the
// one of its own try block, behind another one with other types.
// RUN: %cxx -O2 %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 %t | %FileCheck %s
// RUN: env RUNAHEAD=off %t | %FileCheck %s
// CHECK: double int none
#include <cstdio>
#include <cstdlib>

__attribute__((noinline)) static void throw_double(double x) {
    if (x > 5)
        throw x;
}

__attribute__((noinline)) static void throw_int(double x) {
    if (x > 1e5)
        throw 7;
}

__attribute__((noinline)) static const char *caught(double *a, long rows, long columns) {
    try {
        throw_double(a[0]);
    } catch (double) {
        return "double";
    }
    try {
        for (long i = 0; i < rows; ++i) {
            double sum = 0;
            for (long k = 0; k < columns; ++k)
                sum += a[i * columns + k];
            if (sum > 1)
                throw_int(sum);
        }
    } catch (int) {
        return "int";
    }
    return "none";
}

static const char *caught_at_all(double *a, long rows, long columns) {
    try {
        return caught(a, rows, columns);
    } catch (...) {
        return "escaped";
    }
}

int main() {
    const long rows = 1024, columns = 1024;
    double *a = static_cast<double *>(std::calloc(rows * columns, sizeof(double)));
    a[0] = 6;
    const char *first = caught_at_all(a, rows, columns);
    a[0] = 0;
    for (long k = 0; k < columns; ++k)
        a[1000 * columns + k] = 1000;
    const char *second = caught_at_all(a, rows, columns);
    std::printf("%s %s %s\n", first, second, caught_at_all(a, 1000, columns));
}
