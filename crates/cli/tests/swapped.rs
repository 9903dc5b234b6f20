//! Memory that is swapped out: a program in a small memory cgroup, over an
//! emulated swap device, computes the same, and what it is about to touch is
//! prefetched. Root, FUSE, loop devices, a memory cgroup, a disk.

#[expect(dead_code, reason = "these tests use a part of it")]
mod bed;
mod cgroup;
mod report;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bed::{Bed, RUNAHEAD, bed, ok};
use cgroup::Cgroup;
use runahead_slowdisk::{FileSystem, SlowDisk, UpOptions};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// The program's data; the cgroup lets it have a third of it.
const DATA_MIB: u64 = 36;
const LIMIT_MIB: u64 = 12;
/// No run takes a tenth of it, the slow plain one included.
const PATIENCE: Duration = Duration::from_secs(90);
/// `EVERY_READ_STALLS`: a synchronisation at the first read.
const TEST: &str = "--test=8";
/// The copy runs on idle cycles only; on a busy machine it may come to nothing
/// in any one run.
const RUNS_MAX: usize = 12;

/// Fills memory, reads once, touches pages of the memory at random, one of
/// which decides the next, forks on the way, and prints what it found.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    size_t pages = (size_t)atol(argv[1]) * 256;
    unsigned char *data = mmap(0, pages * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (argc < 3 || data == MAP_FAILED) return 9;
    for (size_t i = 0; i < pages; i++) data[i * 4096 + i % 4096] = (unsigned char)(i * 7 + 1);
    char byte;
    int fd = open(argv[2], O_RDONLY);
    if (read(fd, &byte, 1) != 1) return 8;
    uint64_t state = 88172645463325252u, sum = 0;
    for (int touch = 0; touch < 600; touch++) {
        state ^= state << 13; state ^= state >> 7; state ^= state << 17;
        size_t page = state % pages;
        sum = sum * 31 + data[page * 4096 + page % 4096];
        if (touch % 7 == 0) data[page * 4096 + 1] += 3, sum += data[page * 4096 + 1];
        if (touch == 300) {
            pid_t child = fork();
            if (child == 0) _exit(data[page * 4096 + page % 4096]);
            int status;
            if (waitpid(child, &status, 0) != child) return 7;
            sum = sum * 31 + (uint64_t)WEXITSTATUS(status);
        }
    }
    printf("%lx\n", (unsigned long)sum);
    return 3;
}
"#;

/// Runs a command in a cgroup, for a bounded time.
fn output_in(cgroup: &Cgroup, command: &mut Command) -> Output {
    cgroup.enter(command);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Where the swap device keeps its contents: on the disk that holds the build.
fn backing() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn compile(bed: &Bed) -> PathBuf {
    let (source, program) = (bed.path("program.c"), bed.path("program"));
    fs::write(&source, PROGRAM).unwrap();
    ok(&Command::new("gcc").arg("-O1").arg("-o").args([&program, &source]).output().unwrap());
    program
}

fn result(output: &Output) -> (String, Option<i32>) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn swapped_memory_is_prefetched_and_stays_as_it_was() {
    let bed = bed!();
    let backing = backing();
    let program = compile(&bed);
    let options = UpOptions {
        fs: FileSystem::Swap,
        size_bytes: 96 << 20,
        backing: Some(backing.path().to_owned()),
        ..bed.options("cloud")
    };
    let disk = SlowDisk::up(&options).unwrap();
    let device = disk.device().unwrap().display().to_string();
    let swaps = || fs::read_to_string("/proc/swaps").unwrap();
    assert!(swaps().contains(&device));
    {
        let cgroup = Cgroup::new(LIMIT_MIB * MIB);
        let data = DATA_MIB.to_string();
        let plain = output_in(&cgroup, Command::new(&program).arg(&data).arg(&program));
        assert_eq!(plain.status.code(), Some(3), "{plain:?}");
        let mut prefetched = 0;
        for _ in 0..RUNS_MAX {
            let stats = bed.path("stats.json");
            let mut command = Command::new(RUNAHEAD);
            command.arg(format!("--stats={}", stats.display())).arg(TEST).arg("--");
            let run = output_in(&cgroup, command.arg(&program).arg(&data).arg(&program));
            assert_eq!(result(&run), result(&plain), "{run:?}");
            let stats = report::read(&stats);
            let count = |at: &str| stats.pointer(at).and_then(Value::as_u64).unwrap_or(0);
            prefetched = count("/speculation/swap/prefetched");
            if prefetched > 0 {
                assert!(count("/speculation/synchronizations/importing") > 0, "{stats:#}");
                break;
            }
        }
        assert!(prefetched > 0, "no swapped page was ever prefetched");
    }
    disk.down(false).unwrap();
    assert!(!swaps().contains(&device), "{}", swaps());
}

#[test]
fn swap_in_memory_is_refused() {
    let bed = bed!();
    for (arguments, reason) in [(vec![], "--backing"), (vec!["--backing", "/dev/shm"], "tmpfs")] {
        let mut command = Command::new(RUNAHEAD);
        command.args(["slowdisk", "up", "--profile", "cloud", "--fs", "swap"]).args(arguments);
        let output = command.arg(bed.path("mnt")).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(reason), "{stderr}");
    }
}
