//! Huge pages of a program's own, of which the machine has a few: copies take none of them.
//! Root: it adds some to the pool for as long as it runs.

mod support;

use std::fs;
use std::process::Command;

use support::Scratch;
use support::speculation::{self, EVERY_READ_STALLS, REFUSE_PATCHING};

const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// Pages that the test adds, and of which the program has half. With others that are free
/// a copy takes some, too, which only the counts tell.
const PAGES: u64 = 8;

struct Pool(u64);

impl Pool {
    /// As many more, or `None` where the machine does not have them.
    fn more(pages: u64) -> Option<Pool> {
        let before = fs::read_to_string(POOL).ok()?.trim().parse().ok()?;
        let pool = Pool(before);
        let wanted = before + pages;
        // Memory may be in smaller pieces, after much work.
        for _ in 0..20 {
            fs::write(POOL, wanted.to_string()).ok()?;
            let now: u64 = fs::read_to_string(POOL).ok()?.trim().parse().ok()?;
            if now >= wanted {
                return Some(pool);
            }
            fs::write("/proc/sys/vm/compact_memory", "1").ok()?;
        }
        None
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = fs::write(POOL, self.0.to_string());
    }
}

/// Writes to half of the free huge pages between reads of a file, and maps the other half
/// again and again.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define LEN (2ul << 20)
extern char *mapped_early __attribute__((weak));
extern unsigned long early_len __attribute__((weak));
int main(int argc, char **argv) {
    int rights = PROT_READ | PROT_WRITE, failed = 0;
    unsigned long len = atol(argv[3]) * LEN, sum = 0;
    int more = strcmp(argv[2], "unreserved") == 0 ? MAP_NORESERVE : 0;
    char *own, *other;
    unsigned char byte;
    int fd = open(argv[1], O_RDONLY);
    for (int i = 0; strstr(argv[2], "late") && i < 3; i++) pread(fd, &byte, 1, i * 4096);
    if (strstr(argv[2], "file")) {
        int file = memfd_create("huge", MFD_HUGETLB);
        if (ftruncate(file, len) != 0) return 9;
        own = mmap(0, len, rights, MAP_PRIVATE, file, 0);
    } else if (&mapped_early) {
        own = mapped_early, len = early_len;
    } else {
        int kind = strcmp(argv[2], "shared") == 0 ? MAP_SHARED : MAP_PRIVATE;
        own = mmap(0, len, rights, kind | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    }
    if (len == 0 || own == MAP_FAILED) return 9;
    for (unsigned long at = 0; at < len; at += LEN) own[at] = at / LEN + 1;
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 3; i++)
            if (pread(fd, &byte, 1, (round * 3 + i) * 4096) == 1) sum = sum * 31 + byte;
        // A copy comes to these pages first.
        if (strcmp(argv[2], "shared") == 0 && round < 3) usleep(20000);
        for (unsigned long at = 0; at < len; at += LEN) own[at]++, sum = sum * 31 + own[at];
        other = mmap(0, len, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | more, -1, 0);
        if (other == MAP_FAILED) {
            failed++;
            continue;
        }
        for (unsigned long at = 0; at < len; at += LEN) other[at] = 1;
        munmap(other, len);
    }
    printf("%lx, %d of 30 failed\n", sum, failed);
    return 3;
}
"#;

/// A library of the program's, which is there before the agent.
const EARLY: &str = r#"
#define _GNU_SOURCE
#include <sys/mman.h>
char *mapped_early;
unsigned long early_len = 4ul << 21;
__attribute__((constructor)) static void map(void) {
    mapped_early = mmap(0, early_len, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (mapped_early == MAP_FAILED) return;
    for (unsigned long at = 0; at < early_len; at += 2ul << 20) mapped_early[at] = 1;
}
"#;

#[test]
fn copies_take_no_huge_pages() {
    if !support::is_root() {
        return support::skip("needs root");
    }
    let Some(_pool) = Pool::more(PAGES) else { return support::skip("no huge pages here") };
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &["-O1"]);
    let library = scratch.compile("libearly.so", EARLY, &["-shared", "-fPIC"]);
    let early = scratch.compile("early", PROGRAM, &["-O1", library.to_str().unwrap()]);
    let noise = speculation::noise(&scratch, 96);
    let half = (PAGES / 2).to_string();
    // Whether a copy is made: before there are such pages, or where none is private.
    for (program, kind, makes) in [
        (&program, "private", false),
        (&program, "unreserved", false),
        (&program, "file", false),
        (&early, "early", false),
        (&program, "late", true),
        (&program, "late file", true),
        (&program, "shared", true),
    ] {
        let command = [program.to_str().unwrap(), noise.to_str().unwrap(), kind, &half];
        let expected = speculation::plainly(Command::new(program).args(&command[1..]));
        assert_eq!(expected.1, Some(3), "{kind}: {}", expected.0);
        assert!(expected.0.contains(", 0 of 30"), "{kind}: {}", expected.0);
        for tier in [0, REFUSE_PATCHING] {
            let test = EVERY_READ_STALLS | tier;
            let run = speculation::run(&scratch, test, &command, |_| {});
            assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{kind} {tier}");
            let made = run.count("/speculation/synchronizations/completed");
            assert_eq!(made > 0, makes, "{kind} {tier}: {}", run.stats);
            // Where mmap(2) is not seen, nobody looks before the next copy is wanted.
            let seen = !makes || tier == 0;
            assert!(!seen || run.losses().contains("huge pages"), "{kind} {tier}");
        }
    }
}
