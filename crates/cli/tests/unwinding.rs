//! Unwinding out of a hooked call: cancellation runs destructors, and an
//! exception out of a signal handler is caught, as without runahead.

mod support;

use std::process::Command;

use support::Scratch;
use support::speculation::{self as speculation, EVERY_READ_STALLS, REFUSE_PATCHING};

const PROGRAM: &str = r#"
#include <csignal>
#include <cstdio>
#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

static int channel[2];

struct Guard {
    const char *name;
    ~Guard() { std::printf("destroyed %s\n", name); }
};

static long inner() {
    Guard guard{"inner"};
    char byte;
    long got = read(channel[0], &byte, 1);
    std::printf("not reached: %ld\n", got);
    return got;
}

static void *blocks(void *) {
    Guard guard{"outer"};
    return reinterpret_cast<void *>(inner() + 1);
}

static void cancel() {
    pthread_t thread;
    void *result;
    pthread_create(&thread, nullptr, blocks, nullptr);
    usleep(50000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    std::printf("cancelled: %d\n", result == PTHREAD_CANCELED);
}

static void throws(int) { throw 7; }

static void interrupt() {
    std::signal(SIGALRM, throws);
    itimerval time = {{0, 0}, {0, 50000}};
    try {
        Guard guard{"interrupted"};
        setitimer(ITIMER_REAL, &time, nullptr);
        inner();
    } catch (int number) {
        std::printf("caught %d\n", number);
    }
    // The signal is still blocked, because its handler never returned.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int main() {
    setvbuf(stdout, nullptr, _IONBF, 0);
    if (pipe(channel)) return 1;
    interrupt();
    cancel();
    interrupt();
    return 4;
}
"#;

#[test]
fn destructors_run_and_exceptions_are_caught() {
    let scratch = Scratch::new();
    let flags = ["-x", "c++", "-O1", "-fnon-call-exceptions", "-pthread"];
    let code = scratch.file("unwinds.cc", PROGRAM, 0o644);
    let program = scratch.join("unwinds");
    let made = Command::new("c++").args(flags).arg("-o").arg(&program).arg(code).output().unwrap();
    assert!(made.status.success(), "{}", support::text(&made.stderr));
    let expected = speculation::plainly(&mut Command::new(&program));
    assert_eq!(expected.1, Some(4), "{}", expected.0);
    assert!(expected.0.contains("destroyed outer") && expected.0.contains("caught 7"));
    for test in [0, EVERY_READ_STALLS, REFUSE_PATCHING] {
        let run = speculation::run(&scratch, test, &[program.to_str().unwrap()], |_| {});
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{test}");
        assert_eq!(run.count("/sites/patched") > 0, test & REFUSE_PATCHING == 0);
    }
}
