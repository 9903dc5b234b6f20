//! A call beside which no copy may live is left for good, by a handler's
//! `siglongjmp` or a cancellation: speculation goes on.

mod support;

use support::Scratch;
use support::speculation::{EVERY_READ_STALLS, noise, plainly, run};

/// Leaves a wait for children of every kind in the way that the first argument
/// says, and reads the file that the second names.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static sigjmp_buf back;
static void leave(int signal) { siglongjmp(back, signal); }
static void *wait_for_all(void *unused) { return waitpid(-1, 0, __WALL), unused; }
int main(int argc, char **argv) {
    unsigned char byte = 0;
    unsigned sum = 0;
    pid_t child = fork();
    if (child == 0) for (;;) pause();
    if (!strcmp(argv[1], "jump")) {
        struct itimerval soon = { { 0, 0 }, { 0, 20000 } };
        signal(SIGALRM, leave);
        if (sigsetjmp(back, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, 0);
            wait_for_all(0);
            return 9;
        }
    } else {
        pthread_t thread;
        pthread_create(&thread, 0, wait_for_all, 0);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, 0);
    }
    int fd = open(argv[2], O_RDONLY);
    for (int i = 0; i < 20; i++) {
        if (pread(fd, &byte, 1, i * 4096) != 1) return 8;
        sum = sum * 31 + byte;
        usleep(2000);
    }
    kill(child, SIGKILL);
    printf("%u %d\n", sum, waitpid(child, 0, 0) == child);
    return 3;
}
"#;

/// glibc 2.41 and later: nobody hears of a thread that is cancelled in a wait, and no copy is
/// made any more (docs/limitations.md).
fn waits_in_the_library() -> bool {
    // SAFETY: a string that stays.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let minor = version.to_str().unwrap().split('.').nth(1).unwrap();
    minor.parse::<u32>().unwrap() >= 41
}

#[test]
fn speculation_goes_on_after_a_wait_that_is_left() {
    let scratch = Scratch::new();
    let data = noise(&scratch, 20);
    let program = scratch.compile("program", PROGRAM, &["-O1", "-pthread", "-fexceptions"]);
    for how in ["jump", "cancel"] {
        let command = [program.to_str().unwrap(), how, data.to_str().unwrap()];
        let plain = plainly(std::process::Command::new(command[0]).args(&command[1..]));
        assert_eq!(plain.1, Some(3), "{}", plain.0);
        let found = run(&scratch, EVERY_READ_STALLS, &command, |_| {});
        assert_eq!((&found.stdout, found.status), (&plain.0, plain.1), "{how}");
        if how == "cancel" && waits_in_the_library() {
            continue;
        }
        let copies = found.count("/speculation/synchronizations/completed");
        assert!(copies > 0, "{how}: no speculation: {:#}", found.stats);
    }
}
