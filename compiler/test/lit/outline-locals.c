// What the program allocates in a nest lives as long as the function that it is in:
// such a nest stays there, and only the pass's own frames go to another function.
// RUN: %clang -O2 -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -o %t %s && %t
#include <stdint.h>
#include <stdlib.h>

// Strips of a hundred iterations.
__attribute__((noinline)) uint64_t ra_begin_2(void *site, void *frame) {
    uint64_t *word = frame;
    (void)site;
    for (int level = 0; level < 8; ++level)
        word[level] = 100;
    return 1;
}

__attribute__((noinline)) void ra_tick(void *site, void *frame, uint64_t level) {
    (void)site, (void)frame, (void)level;
    __asm__ volatile("");
}

__attribute__((noinline)) static void use_stack(void) {
    volatile char below[1 << 16];
    for (unsigned i = 0; i < sizeof(below); i += 8)
        below[i] = 1;
}

struct node {
    struct node *next;
    long value;
};

// CHECK-NOT: @negatives.strips(
// CHECK-LABEL: define {{.*}}@negatives(
// CHECK: call i64 @ra_begin_2(
__attribute__((noinline)) long negatives(const long *a, long n) {
    struct node *list = NULL;
    for (long i = 0; i < n; ++i)
        if (a[i] < 0) {
            struct node *p = __builtin_alloca(sizeof(*p));
            p->next = list;
            p->value = a[i];
            list = p;
        }
    use_stack();
    long sum = 0;
    for (; list; list = list->next)
        sum += list->value;
    return sum;
}

// CHECK-NOT: @negatives.strips(
// CHECK: call {{.*}}@doubled.strips(
// CHECK-NOT: @negatives.strips(
__attribute__((noinline)) void doubled(long *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 2;
}

int main(void) {
    enum { CELLS = 20000 };
    long *a = calloc(CELLS, sizeof(*a));
    for (int i = 0; i < 50; ++i)
        a[397 * i] = -1;
    doubled(a, CELLS);
    return negatives(a, CELLS) == -100 ? 0 : 1;
}
