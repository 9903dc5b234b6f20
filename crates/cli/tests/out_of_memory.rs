//! A memory cgroup that has no room for program and copy both: the kernel ends
//! the copy, and the program, which is larger and asks last, goes on.

#[expect(dead_code, reason = "this test uses a part of it")]
mod bed;
mod cgroup;

use std::fs;
use std::process::Command;

use bed::{RUNAHEAD, bed, ok};
use cgroup::Cgroup;

const LIMIT_BYTES: u64 = 48 << 20;
/// Of the program, in the end, and of its copy, which computes on inverted
/// bytes and so finds that it is one.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define MIB (1024L * 1024)
static volatile int turning = 1;
static unsigned char first(const char *path) {
    unsigned char byte = 0;
    int fd = open(path, O_RDONLY);
    pread(fd, &byte, 1, 100);
    close(fd);
    return byte;
}
static long used(const char *path) {
    char text[32] = "";
    int fd = open(path, O_RDONLY);
    read(fd, text, sizeof text - 1);
    close(fd);
    return atol(text);
}
static unsigned long fill(long len, int seed) {
    unsigned long sum = 0;
    unsigned char *at = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 1;
    for (long i = 0; i < len; i += 4096) at[i] = seed + i / 4096;
    for (long i = 0; i < len; i += 4096) sum = sum * 31 + at[i];
    munmap(at, len);
    return sum;
}
int main(int argc, char **argv) {
    for (int round = 0; round < 8; round++) {
        if (first(argv[1]) != 7) {
            memset(mmap(0, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 16 * MIB);
            while (turning) ;
        }
        for (int i = 0; i < 200 && argc > 2 && used(argv[2]) < 17 * MIB; i++) usleep(2000);
        printf("%lx\n", fill(40 * MIB, round));
    }
    return 3;
}
"#;

#[test]
fn the_copy_is_ended_where_memory_runs_out() {
    let bed = bed!();
    let (source, program) = (bed.path("program.c"), bed.path("program"));
    fs::write(&source, PROGRAM).unwrap();
    ok(&Command::new("gcc").args(["-O1", "-w", "-o"]).args([&program, &source]).output().unwrap());
    let data = bed.path("data");
    fs::write(&data, vec![7; 4096]).unwrap();
    let run = |command: &mut Command, cgroup: &Cgroup| {
        command.env("XDG_CACHE_HOME", bed.path("cache"));
        cgroup.enter(command);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let plain = run(Command::new(&program).arg(&data), &Cgroup::new(LIMIT_BYTES));
    assert_eq!(plain.0, Some(3));
    let cgroup = Cgroup::new(LIMIT_BYTES);
    let mut command = Command::new("timeout");
    // Every read counts as a stall, and the copy's bytes are wrong.
    command.args(["-k", "5", "120", RUNAHEAD, "--test=10", "--"]).args([&program, &data]);
    let found = run(command.arg(cgroup.usage()), &cgroup);
    assert_eq!(plain, found);
    assert!(cgroup.kills() > 0, "memory never ran out: this proves nothing");
}
