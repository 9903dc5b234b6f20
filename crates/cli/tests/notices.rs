//! Notices of page faults become fewer where they lead to nothing, and what
//! was not noticed is counted all the same.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

const RUNAHEAD: &str = env!("CARGO_BIN_EXE_runahead");
const PAGES: u64 = 4096;

/// Writes a file, has its pages forgotten, touches each through a mapping, and
/// prints a sum and the faults that waited.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
int main(int argc, char **argv) {
    long pages = atol(argv[2]);
    static unsigned char page[4096];
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (long i = 0; i < pages; i++) {
        memset(page, (int)(i * 7 + 1), sizeof page);
        if (write(fd, page, sizeof page) != sizeof page) return 9;
    }
    if (fsync(fd) != 0) return 8;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    unsigned char *map = mmap(0, (size_t)pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
    madvise(map, (size_t)pages * 4096, MADV_RANDOM);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    unsigned long sum = 0;
    for (long i = 0; i < pages; i++) sum = sum * 31 + map[(i * 1021 % pages) * 4096];
    getrusage(RUSAGE_SELF, &after);
    printf("%lx\n%ld\n", sum, after.ru_majflt - before.ru_majflt);
    return 3;
}
"#;

fn printed(output: &Output) -> (String, u64) {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    (lines.next().unwrap().to_owned(), lines.next().unwrap().parse().unwrap())
}

#[test]
fn notices_become_fewer_and_all_stalls_are_counted() {
    // On the disk that holds the build: pages in memory only are never forgotten.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| place.path().join(name);
    let (source, program) = (path("program.c"), path("program"));
    fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("gcc").arg("-O1").arg("-o").args([&program, &source]).output();
    assert!(built.as_ref().is_ok_and(|output| output.status.success()), "{built:?}");
    let pages = PAGES.to_string();
    let run = |command: &mut Command| command.arg(path("data")).arg(&pages).output().unwrap();
    let (expected, _) = printed(&run(&mut Command::new(&program)));
    let stats = path("stats.json");
    let mut observed = Command::new(RUNAHEAD);
    // Nothing comes of any notice.
    observed.arg("--mode=observe").arg(format!("--stats={}", stats.display()));
    let (found, faults) = printed(&run(observed.arg("--").arg(&program)));
    assert_eq!(found, expected);
    let stats: Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    if stats.pointer("/losses").and_then(Value::as_array).is_some_and(|all| !all.is_empty()) {
        // Perf events may be forbidden.
        assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "{}", stats["losses"]);
        eprintln!("not tested: {}", stats["losses"]);
        return;
    }
    let count = |at: &str| stats.pointer(at).and_then(Value::as_u64).unwrap();
    let (stalls, notices) = (count("/io_stalls/count"), count("/faults/notices"));
    assert!(faults >= PAGES / 2, "{faults} faults only: {stats:#}");
    assert!(notices <= faults / 8, "{notices} notices of {faults} faults");
    // A notice is still out when the last faults come.
    assert!(stalls <= faults && stalls + 200 >= faults, "{stalls} stalls of {faults} faults");
}
