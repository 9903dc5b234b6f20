/* runahead.h - disclose what will be read.
 *
 * A program that knows what it will read says so, as early and as completely as it can, in
 * the order in which it will read. A manager prefetches it, keeps what will be read again and
 * gives back the rest (R. H. Patterson III, Informed Prefetching and Caching, 1997). Hints
 * are disclosure, not commands: nothing depends on them, and wrong ones cost little.
 *
 * Nothing needs to be linked: the first call loads librunahead_hint.so, from the path in
 * RUNAHEAD_HINT_LIBRARY or where the dynamic linker looks. Where it is absent, or RUNAHEAD=off
 * is in the environment, hints are accepted and forgotten and reads are plain reads. With
 * RUNAHEAD_LINKED defined before the inclusion, the program links with the library instead.
 * The environment is that of the first call. A program with more rights than whoever starts
 * it (set-user-ID, capabilities) does not obey the paths in theirs.
 *
 * Every function may be called by every thread. None waits for storage but runahead_pread.
 * A child made by fork begins without hints.
 */
#ifndef RUNAHEAD_H
#define RUNAHEAD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range of a file's bytes; length 0: to the end of the file. */
struct runahead_segment {
	uint64_t offset;
	uint64_t length;
};

/* The same of one of several descriptors. */
struct runahead_fd_segment {
	int fd;
	uint64_t offset;
	uint64_t length;
};

#ifdef RUNAHEAD_LINKED

/* These ranges of a file, open or not, will be read in this order, after everything hinted
 * before. A file that cannot be opened when its turn comes is passed over.
 * 0, or -1 and errno: ENOSPC (4,194,304 segments are outstanding; of these, the first ones
 * were taken, as many as there was room for), ENFILE, EFAULT (no path, no segments, or more of
 * them than memory holds, as a negative count becomes), EBADF (the path is empty, or relative
 * where the working directory is gone). */
int runahead_hint_path(const char *path, const struct runahead_segment *segments, size_t count);

/* The same of an open file. EBADF: not an open file with a page cache. */
int runahead_hint_fd(int fd, const struct runahead_segment *segments, size_t count);

/* The same across open files. With EBADF and ENFILE none is taken. */
int runahead_hint_fds(const struct runahead_fd_segment *segments, size_t count);

/* The first count outstanding segments will not be read. */
int runahead_hint_cancel(size_t count);

/* Segments that were hinted and not read yet. */
size_t runahead_hint_outstanding(void);

/* 1 where a manager takes hints, else 0. */
int runahead_hint_available(void);

/* Reads as pread does, and tells the manager how far the program is. Without such calls the
 * manager goes by the number of bytes that the process reads. */
ssize_t runahead_pread(int fd, void *buffer, size_t count, off_t offset);

/* Tells it that bytes were read otherwise: through a mapping, or by a library. What is beyond
 * the end of the file does not count, nor does a length that no read returns, such as the -1
 * of one that failed. */
void runahead_hint_consumed(int fd, uint64_t offset, uint64_t length);

#else /* not RUNAHEAD_LINKED: loaded by the first call */

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

/* secure_getenv, which is declared to GNU programs only: NULL in one with more rights than
 * whoever starts it, which must not load what they name. */
extern char *runahead_getenv_(const char *name) __asm__("secure_getenv");

/* pread, which is not declared to programs in strict ISO C. */
extern ssize_t runahead_plain_pread_(int fd, void *buffer, size_t count, off_t offset)
	__asm__("pread");

/* A function of the library; NULL where it is absent. */
static inline void *runahead_symbol_(const char *name)
{
	static void *library;
	static int tried; /* 0: not yet, 1: yes */
	if (!__atomic_load_n(&tried, __ATOMIC_ACQUIRE)) {
		const char *path = runahead_getenv_("RUNAHEAD_HINT_LIBRARY");
		/* Loading it twice at a time does no harm: the linker counts. */
		void *loaded = dlopen(path && *path ? path : "librunahead_hint.so",
				      RTLD_NOW | RTLD_LOCAL);
		__atomic_store_n(&library, loaded, __ATOMIC_RELEASE);
		__atomic_store_n(&tried, 1, __ATOMIC_RELEASE);
	}
	void *loaded = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
	return loaded ? dlsym(loaded, name) : NULL;
}

/* Looks a function up once. */
#define RUNAHEAD_LOOKUP_(type, name)                                            \
	static void *looked_up_;                                                \
	static int known_;                                                      \
	if (!__atomic_load_n(&known_, __ATOMIC_ACQUIRE)) {                      \
		__atomic_store_n(&looked_up_, runahead_symbol_(name),           \
				 __ATOMIC_RELEASE);                             \
		__atomic_store_n(&known_, 1, __ATOMIC_RELEASE);                 \
	}                                                                       \
	/* ISO C knows no way from an object's address to a function; dlsym needs one. */ \
	type function_ = __extension__(type) __atomic_load_n(&looked_up_, __ATOMIC_ACQUIRE)

static inline int runahead_hint_path(const char *path, const struct runahead_segment *segments,
				     size_t count)
{
	typedef int (*type)(const char *, const struct runahead_segment *, size_t);
	RUNAHEAD_LOOKUP_(type, "runahead_hint_path");
	return function_ ? function_(path, segments, count) : 0;
}

static inline int runahead_hint_fd(int fd, const struct runahead_segment *segments, size_t count)
{
	typedef int (*type)(int, const struct runahead_segment *, size_t);
	RUNAHEAD_LOOKUP_(type, "runahead_hint_fd");
	return function_ ? function_(fd, segments, count) : 0;
}

static inline int runahead_hint_fds(const struct runahead_fd_segment *segments, size_t count)
{
	typedef int (*type)(const struct runahead_fd_segment *, size_t);
	RUNAHEAD_LOOKUP_(type, "runahead_hint_fds");
	return function_ ? function_(segments, count) : 0;
}

static inline int runahead_hint_cancel(size_t count)
{
	typedef int (*type)(size_t);
	RUNAHEAD_LOOKUP_(type, "runahead_hint_cancel");
	return function_ ? function_(count) : 0;
}

static inline size_t runahead_hint_outstanding(void)
{
	typedef size_t (*type)(void);
	RUNAHEAD_LOOKUP_(type, "runahead_hint_outstanding");
	return function_ ? function_() : 0;
}

static inline int runahead_hint_available(void)
{
	typedef int (*type)(void);
	RUNAHEAD_LOOKUP_(type, "runahead_hint_available");
	return function_ ? function_() : 0;
}

static inline ssize_t runahead_pread(int fd, void *buffer, size_t count, off_t offset)
{
	typedef ssize_t (*type)(int, void *, size_t, off_t);
	RUNAHEAD_LOOKUP_(type, "runahead_pread");
	return function_ ? function_(fd, buffer, count, offset)
			 : runahead_plain_pread_(fd, buffer, count, offset);
}

static inline void runahead_hint_consumed(int fd, uint64_t offset, uint64_t length)
{
	typedef void (*type)(int, uint64_t, uint64_t);
	RUNAHEAD_LOOKUP_(type, "runahead_hint_consumed");
	if (function_)
		function_(fd, offset, length);
}

#endif /* RUNAHEAD_LINKED */

#ifdef __cplusplus
}
#endif

#endif /* RUNAHEAD_H */
