// A frame is on the stack of its function, whether that comes to the nest or not: of a
// function that is recursive, only nests are hinted that have functions of their own,
// and the recursion does not go through those.
// RUN: %clang -O2 -S -emit-llvm -o - -Rpass-missed=runahead %s 2>%t | %FileCheck %s
// RUN: %FileCheck --check-prefix=REMARK %s <%t

struct tree {
    struct tree *left, *right;
    long *values, n;
};

// CHECK-LABEL: define {{.*}}@find(
// CHECK-NOT: [{{[0-9]+}} x i64]
// CHECK: ret i64
// REMARK: recursive.c:[[@LINE+2]]:{{.*}} its function is recursive
long find(const struct tree *t, long x) {
    for (long i = 0; i < t->n; ++i)
        if (t->values[i] == x)
            return i;
    const long left = t->left ? find(t->left, x) : -1;
    return left >= 0 || !t->right ? left : find(t->right, x);
}

// By way of another function.
// CHECK-LABEL: define {{.*}}@find_any(
// CHECK-NOT: [{{[0-9]+}} x i64]
// CHECK: ret i64
long find_in(struct tree *const *t, long x);
__attribute__((noinline)) long find_any(const struct tree *t, long x) {
    for (long i = 0; i < t->n; ++i)
        if (t->values[i] == x)
            return i;
    return find_in(&t->left, x) + 1;
}
__attribute__((noinline)) long find_in(struct tree *const *t, long x) {
    return *t ? find_any(*t, x) + 1 : -1;
}

// The recursion goes through the nest itself.
// CHECK-LABEL: define {{.*}}@number(
// CHECK-NOT: [{{[0-9]+}} x i64]
// CHECK: ret void
void number(struct tree *t, struct tree *const *others, long n) {
    for (long i = 0; i < n; ++i)
        if (t->values[i] < 0)
            number(others[i], others, i);
}

// It has a function of its own, without recursion.
// CHECK-LABEL: define {{.*}}@scale(
// CHECK-NOT: [{{[0-9]+}} x i64]
// CHECK: call {{.*}}@scale.strips(
void scale(struct tree *t, long by) {
    long *values = t->values;
    for (long i = 0, n = t->n; i < n; ++i)
        values[i] *= by;
    if (t->left)
        scale(t->left, by);
    if (t->right)
        scale(t->right, by);
}

// No recursion.
// CHECK-LABEL: define {{.*}}@find_first(
// CHECK: alloca [{{[0-9]+}} x i64]
// CHECK: call i64 @ra_begin_2(
long find_first(const long *values, long n, long x) {
    for (long i = 0; i < n; ++i)
        if (values[i] == x)
            return i;
    return -1;
}
