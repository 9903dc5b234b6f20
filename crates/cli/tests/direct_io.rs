//! Direct I/O beside copies, as on kernels before Linux 6.5, which lose what is in flight
//! when a copy is made.

mod support;

use std::process::Command;

use runahead_protocol::session::TEST_LOSES_DIRECT_READS;
use support::Scratch;
use support::speculation::{self, EVERY_READ_STALLS, REFUSE_PATCHING};

/// Reads a file piece by piece, beside what its second argument says.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static unsigned char bytes[4096];
    int pipes[2];
    unsigned long sum = 0, context = 0;
    int fd = open(argv[1], O_RDONLY), set = 0;
    if (strcmp(argv[2], "opened") == 0 && open(argv[1], O_RDONLY | O_DIRECT) < 0) return 9;
    if (strcmp(argv[2], "set") == 0) set = open(argv[1], O_RDONLY);
    if (set && fcntl(set, F_SETFL, O_DIRECT) != 0) return 9;
    if (strcmp(argv[2], "asynchronous") == 0 && syscall(SYS_io_setup, 8, &context) != 0) return 9;
    if (strcmp(argv[2], "pipe") == 0 && pipe2(pipes, O_DIRECT) != 0) return 9;
    while (read(fd, bytes, sizeof bytes) > 0)
        for (int at = 0; at < sizeof bytes; at++) sum = sum * 31 + bytes[at];
    printf("%lx\n", sum);
    return 3;
}
"#;

#[test]
fn no_copy_is_made_beside_direct_reads_that_it_would_lose() {
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &["-O1"]);
    let noise = speculation::noise(&scratch, 32);
    for (beside, loses) in [
        ("nothing", false),
        ("pipe", false),
        ("opened", true),
        ("set", true),
        ("asynchronous", true),
    ] {
        let command = [program.to_str().unwrap(), noise.to_str().unwrap(), beside];
        let expected = speculation::plainly(Command::new(&program).args(&command[1..]));
        if expected.1 == Some(9) {
            support::skip("no direct or asynchronous I/O here");
            continue;
        }
        for tier in [0, REFUSE_PATCHING] {
            let test = EVERY_READ_STALLS | TEST_LOSES_DIRECT_READS | tier;
            let run = speculation::run(&scratch, test, &command, |_| {});
            assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{}", run.stats);
            let made = run.count("/speculation/synchronizations/completed");
            assert_eq!(made == 0, loses, "{beside}: {}", run.stats);
            assert_eq!(run.losses().contains("direct or asynchronous I/O"), loses, "{beside}");
        }
    }
}
