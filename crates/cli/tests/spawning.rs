//! A program that spawns others keeps no memory for it.

mod support;

use std::process::Command;

use support::Scratch;
use support::speculation::{self, EVERY_READ_STALLS};

/// Spawns programs from several threads at once, and prints how many of them had the
/// agent and by how many KiB its memory has grown meanwhile.
const SPAWNS: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { THREADS = 4, SPAWNS = 50, VARIABLES = 2000 };
static char *variables[VARIABLES + 1], *words[] = { "spawned", NULL };
static int agents;
static int is_agent(struct dl_phdr_info *object, size_t size, void *found) {
    *(int *)found |= strstr(object->dlpi_name, "/agent-") != NULL;
    return 0;
}
static void *spawns(void *by_vfork) {
    for (int i = 0; i < SPAWNS; i++) {
        int status;
        pid_t child;
        if (!by_vfork)
            posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, variables);
        else if ((child = vfork()) == 0) {
            execve("/nonexistent", words, variables);
            execve("/proc/self/exe", words, variables);
            _exit(1);
        }
        waitpid(child, &status, 0);
        __atomic_add_fetch(&agents, WEXITSTATUS(status) == 9, __ATOMIC_RELAXED);
    }
    return NULL;
}
static void round_of(long by_vfork) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, spawns, (void *)by_vfork);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}
static long kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%ld", &pages);
    fclose(file);
    return pages * 4;
}
int main(int argc, char **argv) {
    if (strcmp(argv[0], "spawned") == 0) {
        int agent = 0;
        dl_iterate_phdr(is_agent, &agent);
        return agent ? 9 : 8;
    }
    for (int i = 0; i < VARIABLES; i++) asprintf(&variables[i], "V%d=%d", i, i);
    round_of(0), round_of(1);
    agents = 0;
    long before = kib();
    round_of(0), round_of(1);
    printf("%d %ld\n", agents, kib() - before);
    return 0;
}
"#;

#[test]
fn programs_that_are_spawned_leave_no_memory_to_their_parent() {
    let scratch = Scratch::new();
    let spawns = scratch.compile("spawns", SPAWNS, &["-O1", "-w", "-pthread"]);
    let mut command = scratch.runahead();
    let output = command.args(["run", "--mode=observe", "--"]).arg(spawns).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = support::text(&output.stdout);
    let (agents, kib) = said.trim().split_once(' ').unwrap();
    assert_eq!(agents, "400", "each has the agent");
    // Of eight pieces of 16 KiB some may have been new.
    assert!(kib.parse::<i64>().unwrap() <= 128, "{said}");
}

/// Forks while other threads read, and prints how many children had the file mapped, which
/// nobody here maps.
const FORKS_BESIDE_READS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static int fd, stop;
static long pages;
static void *reads(void *at) {
    char page[4096];
    unsigned seed = (long)at * 7919;
    for (long count = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); count++) {
        seed = seed * 1103515245 + 12345;
        if (count % 16 == 0) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        pread(fd, page, sizeof page, (seed >> 8) % pages * 4096L);
    }
    return NULL;
}
static int has_it_mapped(void) {
    static char maps[1 << 16];
    ssize_t got, len = 0;
    int file = open("/proc/self/maps", O_RDONLY);
    while ((got = read(file, maps + len, sizeof maps - 1 - len)) > 0) len += got;
    return strstr(maps, "/noise") != NULL;
}
int main(int argc, char **argv) {
    pthread_t threads[2];
    int children = 0, status;
    fd = open(argv[1], O_RDONLY);
    pages = lseek(fd, 0, SEEK_END) / 4096;
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, reads, (void *)(i + 1));
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) _exit(has_it_mapped());
        waitpid(child, &status, 0);
        children += status != 0;
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%d\n", children);
    return 0;
}
"#;

/// Of files on an overlay the agent asks by mapping them what of them is in memory.
#[test]
fn a_child_has_no_file_mapped_that_threads_of_its_parent_read() {
    if !support::is_root() {
        support::skip("an overlay needs root");
        return;
    }
    let scratch = Scratch::new();
    let forks = scratch.compile("forks", FORKS_BESIDE_READS, &["-O1", "-w", "-pthread"]);
    let lower = scratch.join("lower");
    for name in ["lower", "over", "memory"] {
        std::fs::create_dir(scratch.join(name)).unwrap();
    }
    let noise = speculation::noise(&scratch, 4096);
    std::fs::rename(noise, lower.join("noise")).unwrap();
    // An upper directory cannot be on an overlay itself.
    let script = format!(
        "set -e; cd {}; mount -t tmpfs none memory; mkdir memory/upper memory/work; \
         mount -t overlay overlay -o lowerdir=lower,upperdir=memory/upper,workdir=memory/work over; \
         for i in $(seq 60); do \"$0\" --test {EVERY_READ_STALLS} -- {} over/noise; done",
        scratch.path().display(),
        forks.display()
    );
    let mut command = Command::new("unshare");
    let runahead = scratch.runahead();
    command.args(["--mount", "--propagation=private", "sh", "-c", &script]);
    command.arg(runahead.get_program());
    command.env("HOME", scratch.path()).env("XDG_RUNTIME_DIR", scratch.path());
    command.env_remove("LD_PRELOAD").env_remove("RUNAHEAD_SESSION").env_remove("RUNAHEAD");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(support::text(&output.stdout), "0\n".repeat(60));
}
