/* The threads of this layer beside the program's: how they begin, and how the program
 * ends when nothing else is left of it. */
#define _GNU_SOURCE
#include "internal.h"

#include <linux/futex.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The thread that ends the program, as the C library does with the last one. The
 * helper cannot: what exit handlers write would go to descriptors that it has not. */
static _Atomic uint32_t ending;
static sigset_t signals_of_program; /* blocked where the helper was started */
static int own_process = -1; /* what /proc says of it; in the helper's table of descriptors */

/* Those that the program was given. The thread that begins the layer's may be bound to one
 * of them (OMP_PROC_BIND), where these would only get what it leaves them. */
enum { PROCESSORS_MAX = 8192 };
static unsigned long processors[PROCESSORS_MAX / 8 / sizeof(unsigned long)];
static long processor_bytes; /* of that; below 1: they are not known */

__attribute__((constructor)) static void note_processors(void) {
    const int saved = errno;
    if (!why_not_call())
        processor_bytes = syscall(SYS_sched_getaffinity, 0, sizeof(processors), processors);
    errno = saved;
}

void begin_thread(const char *name) {
    const struct sched_param ordinary = {0};
    ra_inside = true; /* a memcpy of the program's own must not wait here for this thread */
    prctl(PR_SET_NAME, name);
    if (processor_bytes > 0)
        syscall(SYS_sched_setaffinity, 0, processor_bytes, processors);
    const long policy = syscall(SYS_sched_getscheduler, 0);
    if (policy == SCHED_FIFO || policy == SCHED_RR)
        syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &ordinary);
}

static int add_thread_local(struct dl_phdr_info *object, size_t bytes, void *sum) {
    (void)bytes;
    for (int i = 0; i < object->dlpi_phnum; ++i)
        if (object->dlpi_phdr[i].p_type == PT_TLS)
            *(size_t *)sum += object->dlpi_phdr[i].p_memsz + object->dlpi_phdr[i].p_align;
    return 0;
}

/* The thread-local data of all objects at most. The C library takes it out of a stack that
 * it is told the size of (glibc 2.36), and has no public name for how much it will be. */
static size_t thread_local_bytes(void) {
    size_t sum = 0;
    dl_iterate_phdr(add_thread_local, &sum);
    return sum;
}

bool start_thread(void *(*body)(void *), size_t stack_bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack_bytes)
        pthread_attr_setstacksize(&attributes, stack_bytes + thread_local_bytes());
    bool is_started = pthread_create(&thread, &attributes, body, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return is_started;
}

bool can_see_end(void) {
    own_process = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int state = openat(own_process, "stat", O_RDONLY | O_CLOEXEC);
    if (state >= 0)
        close(state);
    return state >= 0;
}

/* Is this thread of the layer, or of that of a library? Of several helpers that see
 * each other one ends the program. */
static bool is_thread_ours(long id, long own) {
    char path[64], name[32];
    snprintf(path, sizeof(path), "task/%ld/comm", id);
    const int fd = openat(own_process, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof(name) - 1);
    if (fd >= 0)
        close(fd);
    /* One that has ended may have made another, which was not there yet when the threads
     * were listed; or there is no descriptor or memory to look at it. */
    if (n <= 0)
        return false;
    name[n - 1] = 0;
    if (strcmp(name, HELPER_NAME) == 0)
        return id >= own;
    return strcmp(name, OTHER_NAME) == 0 || is_library_thread(name);
}

/* Are the threads of this layer all that is left beside the main thread, and those of
 * the layers of libraries? */
static bool is_the_rest_ours(void) {
    const long own = syscall(SYS_gettid), process = getpid();
    const int tasks = openat(own_process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(struct dirent) char listed[4096];
    bool is_ours = true;
    long length = -1; /* where it cannot be listed: not all were seen */
    while (is_ours && tasks >= 0 && (length = getdents64(tasks, listed, sizeof(listed))) > 0)
        for (long at = 0; is_ours && at < length;) {
            const struct dirent *task = (const void *)(listed + at);
            const char *name = task->d_name;
            const long id = (long)number_at(&name, 10);
            is_ours = id <= 0 || id == process || is_thread_ours(id, own);
            at += task->d_reclen;
        }
    if (tasks >= 0)
        close(tasks);
    return is_ours && length == 0;
}

bool is_alone(void) {
    char text[512];
    int fd = openat(own_process, "stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *at = strrchr(text, ')');
    /* Field 3 of proc(5). */
    return at && at[1] == ' ' && at[2] == 'Z' && is_the_rest_ours();
}

void tell_ender(uint32_t what) {
    atomic_store(&ending, what);
    syscall(SYS_futex, &ending, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *ender(void *nothing) {
    (void)nothing;
    begin_thread(OTHER_NAME);
    uint32_t what;
    while ((what = atomic_load(&ending)) == ENDS_NOT_YET)
        syscall(SYS_futex, &ending, FUTEX_WAIT_PRIVATE, ENDS_NOT_YET, NULL, NULL, 0);
    if (what == ENDS_PROGRAM) {
        ra_inside = false; /* exit handlers are the program's */
        pthread_sigmask(SIG_SETMASK, &signals_of_program, NULL);
        exit(0);
    }
    return NULL;
}

void start_helper(void) {
    int none = 0, cancel;
    if (!atomic_compare_exchange_strong(&ra.helper, &none, 1))
        return;
    int saved = errno;
    const char *filtered = why_not_call();
    if (filtered) {
        do_without_since(filtered);
        errno = saved;
        return;
    }
    sigset_t all;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_of_program);
    static const char *const none_started = "a thread of the layer could not be started";
    if (!start_thread(ender, 0)) {
        do_without_since(none_started);
    } else if (!start_thread(helper, THREAD_STACK_BYTES)) {
        do_without_since(none_started);
        tell_ender(ENDS_ALONE);
    }
    pthread_sigmask(SIG_SETMASK, &signals_of_program, NULL);
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
}
