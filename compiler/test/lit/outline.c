// A nest that is there twice has its strips in a function of their own, with its
// frame: the one that it was in keeps its registers for the nest as it was.
// RUN: %clang -O2 -S -emit-llvm -fno-discard-value-names -o - %s | %FileCheck %s

// CHECK-LABEL: define {{.*}}@scale(
// CHECK-NOT: alloca
// CHECK-NOT: @ra_begin_2(
// CHECK: call {{.*}}@scale.strips(
// CHECK-NOT: @ra_tick(
// CHECK: ret void
void scale(double *restrict a, const double *restrict b, long n) {
    for (long i = 0; i < n; ++i)
        a[i] = b[i] * 0.5;
}

// What the nest computes comes back.
// CHECK-LABEL: define {{.*}}@last(
// CHECK: call {{.*}}@last.strips(
// CHECK: ret i64
long last(const long *a, long n) {
    long found = 0;
    for (long i = 0; i < n; ++i)
        found = a[i] > found ? a[i] : found;
    return found;
}

// The frame goes along where a loop outside is no part of the nest, too, before which
// addresses in the frame were taken: that loop leaves them alone.
// CHECK-LABEL: define {{.*}}@lists(
// CHECK-NOT: alloca
// CHECK: call {{.*}}@lists.strips(
struct list {
    struct list *next;
    double *a;
    long n;
};
void lists(struct list *from) {
    for (struct list *l = from; l; l = l->next) {
        double *a = l->a;
        for (long i = 0, n = l->n; i < n; ++i)
            a[i] *= 0.5;
    }
}

// One that is there once, with another nest inside, stays.
// CHECK-LABEL: define {{.*}}@rows(
// CHECK: call {{.*}}@ra_begin_2(
// CHECK: ret void
void rows(double *out, const long *row, const double *a, long n) {
    for (long i = 0; i < n; ++i) {
        double sum = 0;
        for (long k = row[i]; k < row[i + 1]; ++k)
            sum += a[k];
        out[i] = sum;
    }
}

// Vectorized as the loop was.
// CHECK-LABEL: define internal {{.*}}@scale.strips(
// CHECK: alloca
// CHECK: call i64 @ra_begin_2(
// CHECK: fmul <2 x double>
// CHECK: call void @ra_tick(
