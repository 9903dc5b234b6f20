//! Running a small C program that reads a file piece by piece, with and
//! without runahead, and looking at what speculation came to.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::Scratch;

/// Synchronise at every read, stalled or not ([`runahead_protocol::session`]).
pub const EVERY_READ_STALLS: u64 = 8;
/// Use tier T0.
pub const REFUSE_PATCHING: u64 = 1;

/// Reads the file piece by piece, a pause between two, and prints a sum.
pub const READER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static unsigned char bytes[4096];
    unsigned long sum = 0;
    ssize_t got;
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0) return 9;
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {
        for (ssize_t at = 0; at < got; at++) sum = sum * 31 + bytes[at];
        usleep(2000);
    }
    close(fd);
    printf("%lx %zd\n", sum, got);
    return 3;
}
"#;

/// Behaviour that hooks must leave as it was.
pub const MANNERS: &str = include_str!("manners.c");

/// A file of noise, of `pages` pages.
pub fn noise(scratch: &Scratch, pages: usize) -> PathBuf {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let bytes: Vec<u8> = (0..pages * 4096)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    scratch.file("noise", bytes, 0o644)
}

/// What a program did.
#[derive(Debug)]
pub struct Run {
    pub stdout: String,
    pub status: Option<i32>,
    pub stats: Value,
}

impl Run {
    pub fn count(&self, pointer: &str) -> u64 {
        self.stats.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    pub fn losses(&self) -> String {
        self.stats["losses"].to_string()
    }
}

/// Runs it plainly: output and status.
pub fn plainly(command: &mut Command) -> (String, Option<i32>) {
    let output = command.output().unwrap();
    (super::text(&output.stdout), output.status.code())
}

/// Runs it under runahead with `options`; `prepare` may change the launch.
pub fn run(scratch: &Scratch, test: u64, command: &[&str], prepare: impl Fn(&mut Command)) -> Run {
    let file = scratch.join("stats.json");
    let mut runahead = scratch.runahead();
    runahead.arg(format!("--stats={}", file.display()));
    runahead.arg("--test").arg(test.to_string()).arg("--").args(command);
    prepare(&mut runahead);
    let output = runahead.output().unwrap();
    assert!(output.stderr.is_empty(), "{}", super::text(&output.stderr));
    Run {
        stdout: super::text(&output.stdout),
        status: output.status.code(),
        stats: super::report::read(&file),
    }
}

/// Runs it until a speculative process has predicted a read. It runs on idle
/// cycles only, so on a busy machine it may come to nothing in any one run.
pub fn run_until_predicted(
    scratch: &Scratch,
    test: u64,
    command: &[&str],
    expected: &(String, Option<i32>),
    prepare: impl Fn(&mut Command),
) -> Run {
    const RUNS_MAX: usize = 40;
    for _ in 0..RUNS_MAX {
        let run = run(scratch, test, command, &prepare);
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{}", run.stats);
        if run.count("/reads_predicted") > 0 {
            return run;
        }
    }
    panic!("never predicted a read: {:#}", run(scratch, test, command, &prepare).stats);
}

/// Compiles [`READER`] with a compiler of choice.
pub fn reader(scratch: &Scratch) -> String {
    scratch.compile("reader", READER, &["-O1"]).to_str().unwrap().to_owned()
}
