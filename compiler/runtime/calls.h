/* System calls under the names that POSIX has for them, but not through the C library:
 * its functions of these names are weak, and in a program that is written in plain C the
 * names are the program's own (a function `read`, an array `access`), or it has wrapped
 * them to count what it does. The headers come first: they declare the functions.
 *
 * Unlike those of the library they are no places where a thread may be cancelled. */
#ifndef RUNAHEAD_CALLS_H
#define RUNAHEAD_CALLS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the headers of an older C library do not name. */
#ifndef MADV_COLD /* Linux 5.4 */
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif

#ifndef __x86_64__
#error "the pass and its layer know x86-64 only"
#endif

static inline long ra_call(long number, long a, long b, long c, long d, long e, long f) {
    enum { ERRNO_MAX = 4095 };
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result >= 0 || result < -ERRNO_MAX)
        return result;
    errno = (int)-result;
    return -1;
}
#define RA_CALL(number, a, b, c, d, e, f, ...) \
    ra_call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* Tests pretend some. */
#ifndef syscall
#define syscall(...) RA_CALL(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#endif
#ifndef access
#define access(path, mode) (int)RA_CALL(SYS_access, path, mode, 0, 0, 0, 0, 0)
#endif
#ifndef open
#define open(path, flags) (int)RA_CALL(SYS_openat, AT_FDCWD, path, flags, 0, 0, 0, 0)
#endif
#ifndef openat
#define openat(fd, path, flags) (int)RA_CALL(SYS_openat, fd, path, flags, 0, 0, 0, 0)
#endif
#ifndef close
#define close(fd) (int)RA_CALL(SYS_close, fd, 0, 0, 0, 0, 0, 0)
#endif
#ifndef read
#define read(fd, at, bytes) RA_CALL(SYS_read, fd, at, bytes, 0, 0, 0, 0)
#endif
#ifndef pread
#define pread(fd, at, bytes, offset) RA_CALL(SYS_pread64, fd, at, bytes, offset, 0, 0, 0)
#endif
#ifndef getdents64
#define getdents64(fd, at, bytes) RA_CALL(SYS_getdents64, fd, at, bytes, 0, 0, 0, 0)
#endif
/* On x86-64 the C library's structures are the kernel's. */
#ifndef stat
#define stat(path, status) (int)RA_CALL(SYS_stat, path, status, 0, 0, 0, 0, 0)
#endif
#ifndef fstat
#define fstat(fd, status) (int)RA_CALL(SYS_fstat, fd, status, 0, 0, 0, 0, 0)
#endif
#ifndef posix_fadvise
#define posix_fadvise(fd, offset, bytes, advice) \
    (int)RA_CALL(SYS_fadvise64, fd, offset, bytes, advice, 0, 0, 0)
#endif
#ifndef sync_file_range
#define sync_file_range(fd, offset, bytes, flags) \
    (int)RA_CALL(SYS_sync_file_range, fd, offset, bytes, flags, 0, 0, 0)
#endif
#ifndef mmap
#define mmap(at, bytes, prot, flags, fd, offset) \
    (void *)RA_CALL(SYS_mmap, at, bytes, prot, flags, fd, offset, 0)
#endif
#ifndef munmap
#define munmap(at, bytes) (int)RA_CALL(SYS_munmap, at, bytes, 0, 0, 0, 0, 0)
#endif
#ifndef mprotect
#define mprotect(at, bytes, prot) (int)RA_CALL(SYS_mprotect, at, bytes, prot, 0, 0, 0, 0)
#endif
#ifndef munlock
#define munlock(at, bytes) (int)RA_CALL(SYS_munlock, at, bytes, 0, 0, 0, 0, 0)
#endif
#ifndef mincore
#define mincore(at, bytes, there) (int)RA_CALL(SYS_mincore, at, bytes, there, 0, 0, 0, 0)
#endif
#ifndef madvise
#define madvise(at, bytes, advice) (int)RA_CALL(SYS_madvise, at, bytes, advice, 0, 0, 0, 0)
#endif
#ifndef prctl
#define prctl(...) (int)RA_CALL(SYS_prctl, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#endif
#ifndef getrusage
#define getrusage(who, usage) (int)RA_CALL(SYS_getrusage, who, usage, 0, 0, 0, 0, 0)
#endif
#ifndef getrlimit
#define getrlimit(of, limit) (int)RA_CALL(SYS_getrlimit, of, limit, 0, 0, 0, 0, 0)
#endif
#ifndef getpid
#define getpid() (int)RA_CALL(SYS_getpid, 0, 0, 0, 0, 0, 0, 0)
#endif

#endif
