//! A program that may lock little memory locks all of its own with the agent as without:
//! the kernel counts what is mapped, and the agent takes back what it has.

mod support;

use std::process::Command;

use support::Scratch;
use support::speculation::{self, EVERY_READ_STALLS, REFUSE_PATCHING};

/// Locks all of its memory as nobody, who may lock 8 MiB, before or after the first half of
/// what it reads; prints what became of it, and of a mapping that is locked too.
const LOCKS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
enum { LIMIT = 8 << 20, PIECES = 16, SMALL = 8 };
static unsigned long sum;
static void read_some(int fd) {
    static unsigned char bytes[4096];
    for (int i = 0; i < PIECES; i++) {
        if (read(fd, bytes, sizeof bytes) != sizeof bytes) printf("short ");
        for (int at = 0; at < sizeof bytes; at++) sum = sum * 31 + bytes[at];
    }
}
int main(int argc, char **argv) {
    struct rlimit limit = { LIMIT, LIMIT };
    int fd = open(argv[1], O_RDONLY), status;
    setrlimit(RLIMIT_MEMLOCK, &limit);
    if (geteuid() == 0 && (setgroups(0, NULL) || setgid(65534) || setuid(65534))) return 9;
    if (atoi(argv[3])) read_some(fd);
    errno = 0;
    int locked = mlockall(atoi(argv[2]));
    printf("%d %d ", locked, errno);
    void *more = mmap(NULL, 2 * LIMIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%d ", more != MAP_FAILED);
    /* What comes to lie where the agent was is nobody else's when it locks once more. */
    unsigned char *places[SMALL];
    for (int i = 0; i < SMALL; i++) {
        places[i] = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        places[i][0] = i;
    }
    printf("%d ", munlockall() | mlockall(MCL_CURRENT));
    for (int i = 0; i < SMALL; i++) sum = sum * 31 + places[i][0];
    read_some(fd);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        read_some(fd);
        _exit(sum & 127);
    }
    waitpid(child, &status, 0);
    printf("%lx %x\n", sum, status);
    return 0;
}
"#;

/// Has made a child, and so the table of executables, before it locks its memory; and makes
/// another then.
const MAKES_CHILDREN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
int main(void) {
    int before = system("true"), locked = mlockall(MCL_CURRENT), after = system("exit 3");
    printf("%x %d %x\n", before, locked, after);
    fflush(stdout);
    return 7;
}
"#;

#[test]
fn children_are_made_after_all_memory_was_locked() {
    let scratch = Scratch::new();
    let program = scratch.compile("children", MAKES_CHILDREN, &["-O1", "-w"]);
    let run = |mut command: Command| {
        let output = command.arg(&program).output().unwrap();
        (support::text(&output.stdout), output.status.to_string())
    };
    let plain = run(Command::new("env"));
    assert_eq!(plain.0, "0 0 300\n");
    for statistics in [&[][..], &["--stats"]] {
        let mut command = scratch.runahead();
        command.arg("run").args(statistics).arg("--");
        assert_eq!(run(command), plain, "{statistics:?}");
    }
}

#[test]
fn all_memory_may_be_locked_as_without() {
    const MCL_CURRENT: i32 = libc::MCL_CURRENT;
    let scratch = Scratch::new();
    let locks = scratch.compile("locks", LOCKS, &["-O1", "-w"]);
    let file = speculation::noise(&scratch, 3 * 16);
    for flags in [MCL_CURRENT, libc::MCL_FUTURE, MCL_CURRENT | libc::MCL_FUTURE] {
        for late in ["0", "1"] {
            let run = |mut command: Command| {
                let command = command.arg(&locks).arg(&file).arg(flags.to_string()).arg(late);
                let output = command.output().unwrap();
                assert!(output.status.success(), "{output:?}");
                support::text(&output.stdout)
            };
            let plain = run(Command::new("env"));
            assert!(plain.starts_with("0 0 "), "{plain}");
            for test in [0, EVERY_READ_STALLS, EVERY_READ_STALLS | REFUSE_PATCHING] {
                let mut command = scratch.runahead();
                command.args(["run", &format!("--test={test}"), "--"]);
                assert_eq!(run(command), plain, "{flags} {late} {test}");
            }
        }
    }
}
