//! Page faults that fail, in mapped files of which a part cannot be read.

#[expect(dead_code, reason = "these tests use a part of it")]
mod bed;

use std::fs;
use std::process::{Command, Output};

use bed::{RUNAHEAD, bed, ok};
use runahead_protocol::session::TEST_WITHOUT_PERF;
use runahead_slowdisk::SlowDisk;

/// Recovers from read errors of a mapped file as virtual machines do: by the address of the
/// instruction that failed.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
extern char access_at[], recover[];
__attribute__((noinline, noclone)) static int peek(const volatile unsigned char *at) {
    int value;
    __asm__ volatile(
        ".globl access_at\n access_at: movzbl (%1), %0\n jmp 1f\n"
        ".globl recover\n recover: movl $-1, %0\n 1:" : "=&r"(value) : "r"(at) : "memory");
    return value;
}
static void handler(int signal, siginfo_t *info, void *context) {
    greg_t *instruction = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if ((char *)*instruction != access_at) _exit(9);
    *instruction = (greg_t)recover;
}
int main(int argc, char **argv) {
    size_t len = 8 << 20;
    unsigned sum = 0;
    int bad = 0, fd = open(argv[1], O_RDONLY);
    unsigned char *map = mmap(0, len, PROT_READ, MAP_PRIVATE, fd, 0);
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
    madvise(map, len, MADV_RANDOM);
    sigaction(SIGBUS, &action, 0);
    for (long i = 0; i < 150; i++) {
        int byte = peek(map + i * 7919 * 4096 % len);
        bad += byte < 0;
        sum = sum * 31 + byte;
    }
    printf("%d bad, %u\n", bad, sum);
    return 3;
}
"#;

#[test]
fn a_handler_finds_the_instruction_that_failed() {
    let bed = bed!();
    let (source, program) = (bed.path("program.c"), bed.path("program"));
    fs::write(&source, PROGRAM).unwrap();
    ok(&Command::new("gcc").args(["-O1", "-w", "-o"]).args([&program, &source]).output().unwrap());
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    let file = disk.mountpoint().join("file");
    disk.pause().unwrap();
    let bytes: Vec<u8> =
        (0..8u32 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    fs::write(&file, bytes).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    runahead_slowdisk::lose(&file, 0..4 << 20).unwrap();
    disk.resume().unwrap();
    let run = |command: &mut Command| {
        disk.cold().unwrap();
        let Output { status, stdout, .. } = command.arg(&file).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap())
    };
    let plain = run(&mut Command::new(&program));
    assert!(plain.0 == Some(3) && !plain.1.starts_with("0 bad"), "{plain:?}");
    for test in [0, TEST_WITHOUT_PERF] {
        let mut command = Command::new(RUNAHEAD);
        command.env("XDG_CACHE_HOME", bed.path("cache"));
        command.arg("run").arg(format!("--test={test}")).arg("--").arg(&program);
        assert_eq!(run(&mut command), plain, "{test}");
    }
}
