//! A program that spawns others keeps no memory for it.

mod support;

use support::Scratch;

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
