//! Streams of a server with many threads on one disk are followed, whichever
//! call reads them, and read what they would. Root, FUSE, loop devices, a disk.

#[expect(dead_code, reason = "these tests use a part of it")]
mod bed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bed::{Bed, RUNAHEAD, bed, contents, eventually, ok};
use runahead_slowdisk::{SlowDisk, UpOptions};
use serde_json::Value;

const FILE_BYTES: usize = 2 << 20;
const FILES: usize = 24;
const THREADS: usize = 6;
/// The kernel's own readahead is compared with the runs now and then; whether
/// it has its turn when a short run begins is not decided here.
const RUNS_MAX: usize = 6;

/// Threads that read whole files, one after the other, by the call that the
/// first argument names, into more than one buffer where it takes them.
const SERVER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>
static const char *how, *directory;
static int files;
static _Atomic int next;
static _Atomic uint64_t sum;
static void *serve(void *unused) {
    static __thread unsigned char buffer[65536];
    int null = open("/dev/null", O_WRONLY), channel[2], file;
    if (null < 0 || pipe(channel) != 0) abort();
    while ((file = next++) < files) {
        char path[4096];
        snprintf(path, sizeof path, "%s/f%d", directory, file);
        int fd = open(path, O_RDONLY);
        if (fd < 0) abort();
        uint64_t all = 0, seen = 0;
        for (ssize_t got = 1; got > 0; all += got) {
            struct iovec two[3] = { { buffer, 5000 }, { buffer, 0 }, { buffer + 5000, 60536 } };
            if (!strcmp(how, "read")) got = read(fd, buffer, 65536);
            else if (!strcmp(how, "pread")) got = pread(fd, buffer, 65536, all);
            else if (!strcmp(how, "readv")) got = readv(fd, two, 3);
            else if (!strcmp(how, "preadv")) got = preadv(fd, two, 3, all);
            else if (!strcmp(how, "sendfile")) got = sendfile(null, fd, 0, 65536);
            else if (!strcmp(how, "splice")) {
                got = splice(fd, 0, channel[1], 0, 65536, 0);
                for (ssize_t left = got, out; left > 0; left -= out)
                    if ((out = splice(channel[0], 0, null, 0, left, 0)) <= 0) abort();
            } else abort();
            if (got < 0) abort();
            for (ssize_t i = 0; i < got; i += 509) seen = seen * 31 + buffer[i];
        }
        sum += seen * (file + 1) + all;
        close(fd);
    }
    return 0;
}
int main(int argc, char **argv) {
    if (argc < 5) return 9;
    how = argv[1]; directory = argv[2]; files = atoi(argv[3]);
    int threads = atoi(argv[4]);
    pthread_t all[64];
    for (int i = 0; i < threads; i++) pthread_create(&all[i], 0, serve, 0);
    for (int i = 0; i < threads; i++) pthread_join(all[i], 0);
    printf("%lx\n", (unsigned long)sum);
}
"#;

fn compile(bed: &Bed) -> PathBuf {
    let (source, program) = (bed.path("server.c"), bed.path("server"));
    fs::write(&source, SERVER).unwrap();
    let mut gcc = Command::new("gcc");
    ok(&gcc.args(["-O1", "-pthread", "-o"]).args([&program, &source]).output().unwrap());
    program
}

fn serve(mut command: Command, program: &Path, how: &str, directory: &Path) -> String {
    command.arg(program).arg(how).arg(directory);
    ok(&command.args([FILES.to_string(), THREADS.to_string()]).output().unwrap())
}

/// Runs of streams in statistics, which come when the last process has gone.
fn runs(statistics: &Path) -> u64 {
    let read = || -> Option<u64> {
        let text = fs::read_to_string(statistics).ok()?;
        serde_json::from_str::<Value>(&text).ok()?.pointer("/streams/runs")?.as_u64()
    };
    assert!(eventually(|| read().is_some()), "no statistics");
    let runs = read().unwrap();
    fs::remove_file(statistics).unwrap();
    runs
}

#[test]
fn streams_are_followed_whichever_call_reads_them() {
    let bed = bed!();
    let program = compile(&bed);
    let options = UpOptions { size_bytes: 256 << 20, scale: 0.5, ..bed.options("hdd") };
    let disk = SlowDisk::up(&options).unwrap();
    disk.pause().unwrap();
    for file in 0..FILES {
        let path = disk.mountpoint().join(format!("f{file}"));
        fs::write(path, contents(file as u64, FILE_BYTES)).unwrap();
    }
    disk.resume().unwrap();
    let (cache, statistics) = (bed.path("cache"), bed.path("statistics.json"));
    let mut profile = Command::new(RUNAHEAD);
    profile.env("XDG_CACHE_HOME", &cache).args(["profile", "--load", "100", "--time", "3"]);
    ok(&profile.arg(disk.mountpoint()).output().unwrap());
    for how in ["read", "pread", "readv", "preadv", "sendfile", "splice"] {
        disk.pause().unwrap();
        let plain = serve(Command::new("env"), &program, how, disk.mountpoint());
        disk.resume().unwrap();
        let followed = (0..RUNS_MAX).any(|_| {
            disk.cold().unwrap();
            let mut command = Command::new(RUNAHEAD);
            // What is learnt of a program's reads by one call says nothing of another.
            let runtime = bed.path(how);
            fs::create_dir_all(&runtime).unwrap();
            command.env("XDG_CACHE_HOME", &cache).env("XDG_RUNTIME_DIR", runtime);
            command.arg("run").arg(format!("--stats={}", statistics.display())).arg("--");
            assert_eq!(serve(command, &program, how, disk.mountpoint()), plain, "{how}");
            runs(&statistics) >= FILES as u64 / 2
        });
        assert!(followed, "{how}: no runs");
    }
    drop(disk);
}
