// The run-time layer is there for x86-64 on Linux only: what the same compiler makes for
// another machine stays as it is. So does what MemorySanitizer checks, to which all that
// the layer writes is uninitialized.
// RUN: %clang -O2 -S -emit-llvm -o - %s | %FileCheck %s --check-prefix=HERE
// RUN: %clang -O2 -m32 -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -mx32 -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -target bpf -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -target nvptx64-nvidia-cuda -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -target aarch64-linux-gnu -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -target x86_64-linux-android21 -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -target x86_64-unknown-freebsd -S -emit-llvm -o - %s | %FileCheck %s
// RUN: %clang -O2 -fsanitize=memory -S -emit-llvm -o - %s | %FileCheck %s
// HERE: ra_begin_2
// CHECK: define {{.*}}@scale(
// CHECK-NOT: ra_
void scale(double *a, unsigned long n) {
    for (unsigned long i = 0; i < n; ++i)
        a[i] *= 3;
}

// HERE: ra_memset
// CHECK: define {{.*}}@fill(
// CHECK-NOT: ra_
void fill(char *a, unsigned long n) {
    for (unsigned long i = 0; i < n; ++i)
        a[i] = 0;
}
