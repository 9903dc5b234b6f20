/* What a hooked function must leave as it was: results, errno, offsets,
   cancellation, the ways to end and to execute. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int file, channel[2];
static char bytes[64];

static void cleaned(void *what) { printf("cleaned %s\n", (char *)what); }

static void *waits_for_a_pipe(void *unused) {
    pthread_cleanup_push(cleaned, "pipe");
    ssize_t got = read(channel[0], bytes, 1);
    printf("not reached: %zd\n", got);
    pthread_cleanup_pop(0);
    return 0;
}

static pthread_barrier_t barrier;

static void *reads_a_file(void *unused) {
    int old;
    pthread_cleanup_push(cleaned, "file");
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    for (;;) pread(file, bytes, 1, 0);
    pthread_cleanup_pop(0);
    return 0;
}

static void say(const char *what, ssize_t result) {
    printf("%s: %zd %s\n", what, result, result < 0 ? strerror(errno) : "");
}

int main(int argc, char **argv) {
    if (argc > 2) { puts(argv[2]); return 5; }
    setvbuf(stdout, 0, _IONBF, 0);
    say("missing", open("/nonexistent/file", O_RDONLY));
    file = open(argv[1], O_RDONLY);
    say("file", file);
    say("directory", read(open("/", O_RDONLY), bytes, 1));
    say("closed", read(77, bytes, 1));
    say("fault", read(file, (void *)1, 64));
    say("negative", pread(file, bytes, 8, -5));
    say("pread", pread(file, bytes, 8, 100));
    say("byte", bytes[3]);
    struct iovec vector[2] = {{bytes, 3}, {bytes + 10, 5}};
    say("readv", readv(file, vector, 2));
    say("preadv", preadv(file, vector, 2, 4090));
#ifdef __GLIBC__
    say("preadv2", preadv2(file, vector, 2, -1, 0));
#endif
    say("offset", lseek(file, 0, SEEK_CUR));
    say("byte", bytes[11]);
    pipe(channel);
    off_t at = 10;
    say("sendfile", sendfile(channel[1], file, &at, 20));
    say("at", at);
    say("piped", read(channel[0], bytes, 64));
    int copy = dup(file), moved = fcntl(file, F_DUPFD, 40);
    say("dup", read(copy, bytes, 2));
    say("dupfd", read(moved, bytes, 2));
    dup2(channel[0], moved);
    write(channel[1], "abc", 3);
    say("now a pipe", read(moved, bytes, 64));
    close(copy);
    say("closed", read(copy, bytes, 2));

    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, waits_for_a_pipe, 0);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    pthread_barrier_init(&barrier, 0, 2);
    pthread_create(&thread, 0, reads_a_file, 0);
    pthread_barrier_wait(&barrier);
    pthread_cancel(thread);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);

    for (int way = 0; way < 5; way++) {
        int status;
        pid_t child = way == 3 ? vfork() : fork();
        if (child == 0) {
            if (way != 3) read(file, bytes, 4);
            if (way == 0) _exit(40);
            if (way == 1) exit(41);
            if (way == 2) abort();
            if (way == 3) execl(argv[0], argv[0], argv[1], "executed", (char *)0);
            if (way == 4) { char *words[] = {argv[0], argv[1], "searched", 0}; execvp(words[0], words); }
            _exit(9);
        }
        waitpid(child, &status, 0);
        printf("child %d: %x\n", way, status);
    }
    printf("popen: %d\n", pclose(popen("exit 7", "r")));
    say("left", read(file, bytes, 64));
    exit(6);
}
