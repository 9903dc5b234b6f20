//! A memory cgroup that has no room for program and copy both: the kernel ends
//! the copy, and the program, which is larger and asks last, goes on. In one
//! that has hardly any, no copy is made.

#[expect(dead_code, reason = "this test uses a part of it")]
mod bed;
mod cgroup;
mod report;

use std::fs;
use std::process::Command;

use bed::{RUNAHEAD, bed, ok};
use cgroup::Cgroup;
use runahead_protocol::stats::Loss;

const LIMIT_BYTES: u64 = 48 << 20;
/// Of the program, in the end, and of its copy, which computes on inverted
/// bytes and so finds that it is one. The program waits in the first round until
/// the copy has taken its memory (it runs at idle priority: where others keep
/// the processors busy that takes seconds), in others a little; it asks by
/// system call instructions of its own, at which no other copy is made.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define MIB (1024L * 1024)
static volatile int turning = 1;
static long raw(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
static unsigned char first(const char *path) {
    unsigned char byte = 0;
    int fd = open(path, O_RDONLY);
    pread(fd, &byte, 1, 100);
    close(fd);
    return byte;
}
static long used(const char *path) {
    char text[32] = "";
    int fd = raw(SYS_open, (long)path, O_RDONLY, 0);
    raw(SYS_read, fd, (long)text, sizeof text - 1);
    raw(SYS_close, fd, 0, 0);
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
        for (int i = 0; i < (round ? 200 : 30000) && argc > 2 && used(argv[2]) < 17 * MIB; i++) usleep(2000);
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

/// Less than a copy may need.
const NO_ROOM_BYTES: u64 = 15 << 19;
/// As much of a file that lies in memory as weighs more than the limit.
const MAPPED_BYTES: usize = 48 << 20;
/// Has a file in memory that it is given besides, by calls at which no copy is made, and
/// reads until it has a child (its copy, which turns for ever where it finds
/// other bytes than those that are there), and says so; asks by system call
/// instructions of its own, at which none is made either.
const CHILDREN: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile int turning = 1;
static long raw(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
int main(int argc, char **argv) {
    char name[64], text[64];
    if (argc > 2) {
        int fd = open(argv[2], O_RDONLY);
        long len = lseek(fd, 0, SEEK_END);
        void *at = mmap(0, len, PROT_NONE, MAP_SHARED, fd, 0);
        if (mprotect(at, len, PROT_READ) || madvise(at, len, MADV_POPULATE_READ)) return 9;
    }
    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    unsigned char byte = 0;
    int data = open(argv[1], O_RDONLY), found = 0;
    for (int i = 0; i < 50 && !found; i++) {
        pread(data, &byte, 1, 100 + i);
        while (byte != 7 && turning) ;
        int fd = raw(SYS_open, (long)name, O_RDONLY, 0);
        found = raw(SYS_read, fd, (long)text, sizeof text) > 0;
        raw(SYS_close, fd, 0, 0);
    }
    printf("%d\n", found);
    return 3;
}
"#;

#[test]
fn no_copy_is_made_where_there_is_no_room() {
    let bed = bed!();
    let (source, program) = (bed.path("children.c"), bed.path("children"));
    fs::write(&source, CHILDREN).unwrap();
    ok(&Command::new("gcc").args(["-O1", "-w", "-o"]).args([&program, &source]).output().unwrap());
    let data = bed.path("data");
    fs::write(&data, vec![7; 4096]).unwrap();
    let statistics = bed.path("stats.json");
    // Written by this process, and so charged to its own cgroup.
    let mapped = bed.path("mapped");
    fs::write(&mapped, vec![7; MAPPED_BYTES]).unwrap();
    let cases = [
        (LIMIT_BYTES, false, None, "1\n", None),
        (NO_ROOM_BYTES, false, None, "0\n", Some(Loss::NoRoom)),
        // Nor where it would not be ended alone, however much room there is,
        (LIMIT_BYTES, true, None, "0\n", Some(Loss::EndedTogether)),
        // or not before the program.
        (LIMIT_BYTES, false, Some(&mapped), "0\n", Some(Loss::Outweighs)),
        (2 * LIMIT_BYTES, false, Some(&mapped), "1\n", None),
    ];
    for (limit, all_or_none, mapped, found, loss) in cases {
        let cgroup = Cgroup::new(limit);
        if all_or_none {
            cgroup.end_all_or_none();
        }
        let mut command = Command::new(RUNAHEAD);
        command.arg(format!("--stats={}", statistics.display()));
        command.args(["--test=10", "--"]).arg(&program).arg(&data).args(mapped);
        cgroup.enter(command.env("XDG_CACHE_HOME", bed.path("cache")));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{limit}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), found, "{limit}");
        let stats = report::read(&statistics);
        let losses = loss.map(|loss| format!("children: {}", loss.text()));
        assert_eq!(stats["losses"], serde_json::json!(Vec::from_iter(losses)), "{limit}");
    }
}

#[test]
fn where_no_copy_would_be_ended_alone_doctor_says_so() {
    let bed = bed!();
    for all_or_none in [false, true] {
        let cgroup = Cgroup::new(LIMIT_BYTES);
        if all_or_none {
            cgroup.end_all_or_none();
        }
        let mut command = Command::new(RUNAHEAD);
        command.arg("doctor").env("XDG_CACHE_HOME", bed.path("cache"));
        cgroup.enter(&mut command);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(text.contains("set memory.oom.group"), all_or_none, "{text}");
    }
}

/// A usual launch is one after a first that found the same.
#[test]
fn where_no_copy_can_ever_be_made_the_program_runs_plainly() {
    let bed = bed!();
    for (limit, has_agent) in [(LIMIT_BYTES, true), (NO_ROOM_BYTES, false), (LIMIT_BYTES, true)] {
        let cgroup = Cgroup::new(limit);
        for launch in ["first", "usual"] {
            let mut command = Command::new(RUNAHEAD);
            command.args(["cat", "/proc/self/maps"]);
            cgroup.enter(command.env("XDG_CACHE_HOME", bed.path("cache")));
            let maps = ok(&command.output().unwrap());
            assert_eq!(maps.contains("/agent-"), has_agent, "{launch} in {limit}: {maps}");
        }
    }
}
