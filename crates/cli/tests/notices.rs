//! Notices of page faults become fewer where they lead to nothing, and what
//! was not noticed is counted all the same.

mod report;

use std::fs;
use std::path::PathBuf;
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

/// Maps a file whose pages have been forgotten, and shared memory that nobody
/// has touched; prints, after each, how many events there are.
const MAPPER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int events(void) {
    static char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int count = 0;
    while (fgets(line, sizeof line, maps)) count += strstr(line, "perf_event") != NULL;
    fclose(maps);
    return count;
}
int main(int argc, char **argv) {
    size_t len = 4 << 20;
    int shared = memfd_create("shared", 0), fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *zeros = calloc(1, len);
    if (ftruncate(shared, len) != 0 || write(fd, zeros, len) != len || fsync(fd) != 0) return 9;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    printf("%d\n", events());
    mmap(0, len, PROT_READ, MAP_SHARED, fd, 0);
    printf("%d\n", events());
    return 3;
}
"#;

/// The same with a file only, beside another thread; then executes what is not
/// there, asks for the limit on queued signals, and sets it to what it is.
const UNCHANGED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
static int events(void) {
    static char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int count = 0;
    while (fgets(line, sizeof line, maps)) count += strstr(line, "perf_event") != NULL;
    fclose(maps);
    return count;
}
static pthread_barrier_t begun;
static void *stay(void *unused) {
    pthread_barrier_wait(&begun);
    for (;;) pause();
    return unused;
}
int main(int argc, char **argv) {
    size_t len = 4 << 20;
    struct rlimit limit;
    pthread_t thread;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, calloc(1, len), len) != len || fsync(fd) != 0) return 9;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    mmap(0, len, PROT_READ, MAP_SHARED, fd, 0);
    pthread_barrier_init(&begun, 0, 2);
    if (pthread_create(&thread, 0, stay, 0) != 0) return 6;
    pthread_barrier_wait(&begun);
    printf("%d", events());
    if (execv("/nonexistent", argv) != -1) return 5;
    printf("%d", events());
    if (getrlimit(RLIMIT_SIGPENDING, &limit) != 0) return 8;
    printf("%d", events());
    if (setrlimit(RLIMIT_SIGPENDING, &limit) != 0) return 7;
    printf("%d\n0\n", events());
    return 3;
}
"#;

/// Maps a file of so many pages whose pages have been forgotten, and touches
/// none.
const UNTOUCHED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    size_t len = (size_t)atol(argv[2]) * 4096;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, calloc(1, len), len) != len || fsync(fd) != 0) return 9;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    printf("%d\n0\n", mmap(0, len, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
    return 3;
}
"#;

/// Maps a file whose pages have been forgotten, looks at the first, and walks over
/// other memory.
const ELSEWHERE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    size_t len = (size_t)atol(argv[2]) * 4096, heap_len = 64 << 20;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    unsigned char *heap = mmap(0, heap_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(heap, 1, heap_len);
    if (write(fd, heap, len) != len || fsync(fd) != 0) return 9;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    unsigned long sum = *(volatile char *)mmap(0, len, PROT_READ, MAP_PRIVATE, fd, 0);
    for (unsigned long i = 0; i < 40000000; i++)
        sum += heap[i * 2654435761 % (heap_len / 4096) * 4096]++;
    printf("%lx\n0\n", sum);
    return 3;
}
"#;

fn printed(output: &Output) -> (String, u64) {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    (lines.next().unwrap().to_owned(), lines.next().unwrap().parse().unwrap())
}

/// The program, built, and where its data go.
struct Built {
    place: tempfile::TempDir,
    pages: u64,
}

impl Built {
    fn new() -> Built {
        Built::of(PROGRAM)
    }

    fn of(text: &str) -> Built {
        // On the disk that holds the build: pages in memory only are never forgotten.
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let built = Built { place, pages: PAGES };
        let (source, program) = (built.path("program.c"), built.path("program"));
        fs::write(&source, text).unwrap();
        let done = Command::new("gcc").arg("-O1").arg("-o").args([&program, &source]).output();
        assert!(done.as_ref().is_ok_and(|output| output.status.success()), "{done:?}");
        built
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn run(&self, command: &mut Command) -> (String, u64) {
        printed(&command.arg(self.path("data")).arg(self.pages.to_string()).output().unwrap())
    }

    /// What it prints under Runahead, which must be as without, and the
    /// statistics.
    fn observed(&self, options: &[String]) -> (u64, Value) {
        let (expected, _) = self.run(&mut Command::new(self.path("program")));
        let stats = self.path("stats.json");
        let mut observed = Command::new(RUNAHEAD);
        observed.arg("run").args(options).arg(format!("--stats={}", stats.display()));
        let (found, faults) = self.run(observed.arg("--").arg(self.path("program")));
        assert_eq!(found, expected);
        (faults, report::read(&stats))
    }
}

fn count(stats: &Value, at: &str) -> u64 {
    stats.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {at} in {stats:#}"))
}

#[test]
fn notices_become_fewer_and_all_stalls_are_counted() {
    // Nothing comes of any notice.
    let (faults, stats) = Built::new().observed(&["--mode=observe".into()]);
    if stats.pointer("/losses").and_then(Value::as_array).is_some_and(|all| !all.is_empty()) {
        // Perf events may be forbidden.
        assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "{}", stats["losses"]);
        eprintln!("not tested: {}", stats["losses"]);
        return;
    }
    let (stalls, notices) = (count(&stats, "/io_stalls/count"), count(&stats, "/faults/notices"));
    assert!(faults >= PAGES / 2, "{faults} faults only: {stats:#}");
    assert!(notices <= faults / 8, "{notices} notices of {faults} faults");
    assert_eq!(count(&stats, "/faults/notices_by_watching"), 0);
    // A notice is still out when the last faults come.
    assert!(stalls <= faults && stalls + 200 >= faults, "{stalls} stalls of {faults} faults");
}

#[test]
fn where_perf_events_are_refused_the_program_is_watched() {
    use runahead_protocol::session::{TEST_EVERY_READ_STALLS, TEST_WITHOUT_PERF};
    let test = TEST_EVERY_READ_STALLS | TEST_WITHOUT_PERF;
    let built = Built::new();
    let (mut faults, mut stats) = built.observed(&[format!("--test={test}")]);
    // A copy runs on idle cycles only: on a busy machine it may come to nothing.
    const WANTED: [&str; 3] = [
        "/faults/notices_by_watching",
        "/speculation/synchronizations/completed",
        "/speculation/prefetches/issued",
    ];
    for _ in 0..11 {
        if WANTED.iter().all(|name| stats.pointer(name).and_then(Value::as_u64) != Some(0)) {
            break;
        }
        (faults, stats) = built.observed(&[format!("--test={test}")]);
    }
    if stats.pointer("/losses").and_then(Value::as_array).is_some_and(|all| !all.is_empty()) {
        // Nobody may look at anybody, or the C library has no rseq(2).
        assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "{}", stats["losses"]);
        eprintln!("not tested: {}", stats["losses"]);
        return;
    }
    let notices = count(&stats, "/faults/notices_by_watching");
    assert!(notices > 0, "none of {faults} faults was noticed: {stats:#}");
    assert_eq!(count(&stats, "/faults/notices"), notices);
    assert!(count(&stats, "/speculation/synchronizations/completed") > 0, "{stats:#}");
    assert!(count(&stats, "/speculation/prefetches/issued") > 0, "{stats:#}");
}

#[test]
fn shared_memory_is_not_watched_where_nothing_is_swapped_out() {
    let built = Built::of(MAPPER);
    let swap = fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1);
    let mut command = Command::new(RUNAHEAD);
    let (before, after) = built.run(command.arg("--").arg(built.path("program")));
    if after == 0 {
        // Perf events may be forbidden.
        assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "no event at all");
        eprintln!("not tested: no event at all");
        return;
    }
    assert_eq!(before, if swap { "1" } else { "0" });
    assert_eq!(after, 1);
}

#[test]
fn notices_outlast_what_changes_nothing() {
    let built = Built::of(UNCHANGED);
    let mut command = Command::new(RUNAHEAD);
    let (events, _) = built.run(command.arg("--").arg(built.path("program")));
    if events == "0000" {
        // Perf events may be forbidden.
        assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "no event at all");
        eprintln!("not tested: no event at all");
        return;
    }
    // Of both threads; of the other; the same; of none.
    assert_eq!(events, "2110");
}

/// What it would wait for while it goes through it in order is noticed by nobody.
#[test]
fn a_large_mapping_of_a_file_is_speculated_about_before_it_is_touched() {
    use runahead_protocol::session::TEST_EVERY_READ_STALLS;
    let attempts = |pages| {
        let built = Built { pages, ..Built::of(UNTOUCHED) };
        let (_, stats) = built.observed(&[format!("--test={TEST_EVERY_READ_STALLS}")]);
        count(&stats, "/speculation/synchronizations/attempted")
    };
    assert_eq!([attempts(PAGES), attempts(PAGES - 1)], [1, 0]);
}

/// One that comes to nothing of the mapping gives itself up: no stall may come at
/// which the program would.
#[test]
fn such_a_copy_does_not_walk_over_other_memory_for_long() {
    use runahead_protocol::session::{TEST_EVERY_READ_STALLS, TEST_IMPORTING};
    let test = TEST_EVERY_READ_STALLS | TEST_IMPORTING;
    let (_, stats) = Built::of(ELSEWHERE).observed(&[format!("--test={test}")]);
    if count(&stats, "/speculation/synchronizations/importing") == 0 {
        // Its memory cannot be imported here.
        assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "{stats:#}");
        eprintln!("not tested: {}", stats["losses"]);
        return;
    }
    assert!(count(&stats, "/speculation/synchronizations/pages_imported") < 1200, "{stats:#}");
}
