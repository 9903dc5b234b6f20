//! Tier T0: where nothing may be patched, calls are hooked by symbol, and the
//! program does not notice that either.

mod support;

use std::os::unix::process::CommandExt;
use std::process::Command;

use support::Scratch;
use support::speculation::{self as speculation, EVERY_READ_STALLS, REFUSE_PATCHING};

/// Memory-deny-write-execute for the program and its children (Linux 6.3).
fn deny_write_execute(command: &mut Command) {
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    let none: libc::c_ulong = 0;
    // SAFETY: one prctl between fork and exec. On older kernels it fails, and
    // patching is then refused by the testing switch alone.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, none, none, none);
            Ok(())
        });
    }
}

fn knows_mdwe() -> bool {
    const PR_GET_MDWE: i32 = 66;
    // SAFETY: a query.
    unsafe { libc::prctl(PR_GET_MDWE, 0, 0, 0, 0) >= 0 }
}

#[test]
fn programs_that_call_read_are_run_ahead_of() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 96);
    for flags in [
        &["-O1"][..],
        &["-O1", "-Wl,-z,lazy"],
        &["-O1", "-Wl,-z,now", "-Wl,-z,relro"],
        &["-O1", "-no-pie"],
        &["-O1", "-fno-plt"],
        &["-O2", "-D_FORTIFY_SOURCE=2"],
    ] {
        let reader = scratch.compile("reader", speculation::READER, flags);
        let command = [reader.to_str().unwrap(), noise.to_str().unwrap()];
        let expected = speculation::plainly(Command::new(&reader).arg(&noise));
        let test = EVERY_READ_STALLS | REFUSE_PATCHING;
        let run = speculation::run_until_predicted(&scratch, test, &command, &expected, |_| {});
        assert_eq!(run.count("/sites/patched"), 0);
        assert!(run.losses().contains("by symbol only"), "{}", run.losses());
        assert_eq!(run.count("/exit_status"), 3, "{flags:?}: the end was told: {}", run.stats);
    }
}

#[test]
fn memory_that_must_not_be_patched_is_not() {
    if !knows_mdwe() {
        eprintln!("skipped: PR_SET_MDWE needs Linux 6.3");
        return;
    }
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 96);
    let reader = speculation::reader(&scratch);
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    // In a child of the program, too.
    let shell = format!("'{reader}' '{}'; exit $?", noise.display());
    for command in [&[&*reader, noise.to_str().unwrap()][..], &["sh", "-c", &shell]] {
        let test = EVERY_READ_STALLS;
        let run = speculation::run_until_predicted(
            &scratch,
            test,
            command,
            &expected,
            deny_write_execute,
        );
        assert_eq!(run.count("/sites/patched"), 0);
        assert!(run.losses().contains("patching was refused"), "{}", run.losses());
    }
}

/// What a hooked function must leave as it was: results, errno, offsets,
/// cancellation, the ways to end and to execute.
const MANNERS: &str = r#"
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
    say("preadv2", preadv2(file, vector, 2, -1, 0));
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
"#;

#[test]
fn results_errors_and_cancellation_are_the_librarys() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    for flags in [&["-O1", "-pthread"][..], &["-O2", "-D_FORTIFY_SOURCE=2", "-pthread"]] {
        let manners = scratch.compile("manners", MANNERS, flags);
        let expected = speculation::plainly(Command::new(&manners).arg(&noise));
        assert_eq!(expected.1, Some(6), "{}", expected.0);
        assert!(expected.0.contains("cleaned file"), "{}", expected.0);
        let command = [manners.to_str().unwrap(), noise.to_str().unwrap()];
        for test in [REFUSE_PATCHING, REFUSE_PATCHING | EVERY_READ_STALLS, EVERY_READ_STALLS, 0] {
            let run = speculation::run(&scratch, test, &command, |_| {});
            assert_eq!(run.stdout, expected.0, "{flags:?} {test}");
            assert_eq!(run.status, expected.1, "{flags:?} {test}");
            assert_eq!(run.count("/exit_status"), 6, "{flags:?} {test}: {}", run.stats);
        }
    }
}

#[test]
fn a_library_that_stands_before_libc_is_respected() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    let reader = speculation::reader(&scratch);
    let source = r#"
        #include <sys/types.h>
        ssize_t read(int fd, void *into, size_t len) { *(char *)into = 7; return 0; }
    "#;
    let other = scratch.compile("other.so", source, &["-shared", "-fPIC"]);
    let expected =
        speculation::plainly(Command::new(&reader).arg(&noise).env("LD_PRELOAD", &other));
    assert_eq!(expected.0, "0 0\n");
    // Behind the agent, as the launcher would put it.
    let shell =
        format!("LD_PRELOAD=$LD_PRELOAD:'{}' '{reader}' '{}'", other.display(), noise.display());
    let command = ["sh", "-c", &shell];
    let run = speculation::run(&scratch, REFUSE_PATCHING, &command, |_| {});
    assert_eq!((&run.stdout, run.status), (&expected.0, expected.1));
    assert!(run.stats["programs"].to_string().contains("\"reader\""), "{}", run.stats);
}
