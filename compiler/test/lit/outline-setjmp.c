// A nest that something returns to a second time, or that looks at its function's own
// frame, stays in that function.
// RUN: %clang -O2 -S -emit-llvm -o - %s | %FileCheck %s
#include <setjmp.h>

// CHECK-NOT: .strips(

// CHECK-LABEL: define {{.*}}@checkpoints(
// CHECK: call i64 @ra_begin_2(
// CHECK: call void @ra_tick(
extern jmp_buf again;
void checkpoints(long *a, long n) {
    for (long i = 0; i < n; ++i)
        if (a[i] < 0)
            a[i] = setjmp(again);
}

// CHECK-LABEL: define {{.*}}@frames(
// CHECK: call i64 @ra_begin_2(
// CHECK: call void @ra_tick(
void frames(void **a, long n) {
    for (long i = 0; i < n; ++i)
        if (a[i])
            a[i] = __builtin_frame_address(0);
}

// CHECK-LABEL: define {{.*}}@callers(
// CHECK: call i64 @ra_begin_2(
// CHECK: call void @ra_tick(
void callers(void **a, long n) {
    for (long i = 0; i < n; ++i)
        if (a[i])
            a[i] = __builtin_return_address(0);
}

// CHECK-LABEL: define {{.*}}@arguments(
// CHECK: call i64 @ra_begin_2(
// CHECK: call void @ra_tick(
void use(__builtin_va_list list);
void arguments(long *a, long n, ...) {
    for (long i = 0; i < n; ++i)
        if (a[i] < 0) {
            __builtin_va_list list;
            __builtin_va_start(list, n);
            use(list);
            __builtin_va_end(list);
        }
}
