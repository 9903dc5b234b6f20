//! What one process of an executable leaves behind for the next: short ones
//! are executed without the agent after a while, those that execute others or
//! are counted never.

mod newer;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use runahead_policy::learning::{SAMPLE_NS, SHORT_MIN};
use runahead_protocol::session::{
    TEST_ALWAYS_WRONG, TEST_EVERY_READ_STALLS, TEST_FULL_COPIES, TEST_WITH_TABLE,
};
use support::Scratch;

/// Says whether the agent is in it, and what of the session it can see. It reads
/// nothing, which would count as a stall in some tests.
const PROBE: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int is_agent(struct dl_phdr_info *object, size_t size, void *found) {
    *(int *)found |= strstr(object->dlpi_name, "/agent-") != NULL;
    return 0;
}
int main(void) {
    int agent = 0;
    dl_iterate_phdr(is_agent, &agent);
    printf("%d%s%s\n", agent, getenv("LD_PRELOAD") ? " preload" : "",
           getenv("RUNAHEAD_SESSION") ? " session" : "");
    return 0;
}
"#;

const EXECUTIONS: usize = 60;
/// After so many nothing is executed for longer than two samples are apart.
const SLEEPS_AT: usize = 40;

/// What the probes of a shell's loop say, one after the other.
fn probes(mut command: Command, loop_of: &str) -> Vec<bool> {
    let script = format!(
        "i=0; while [ $i -lt {EXECUTIONS} ]; do {loop_of}; i=$((i+1))
         [ $i -ne {SLEEPS_AT} ] || sleep 5; done"
    );
    let output = command.arg("sh").arg("-c").arg(script).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let said = said.lines().map(|line| match line {
        "0" => false,
        "1" => true,
        other => panic!("a probe saw {other:?}"),
    });
    said.collect()
}

fn with_agent(said: &[bool]) -> usize {
    said.iter().filter(|agent| **agent).count()
}

fn runahead(scratch: &Scratch, options: &[&str]) -> Command {
    let mut command = scratch.runahead();
    command.arg("run").args(options).arg("--");
    command
}

#[test]
fn short_processes_are_left_alone_after_a_while() {
    let scratch = Scratch::new();
    let probe = scratch.compile("probe", PROBE, &[]);
    let call = probe.display().to_string();

    let started = Instant::now();
    let said = probes(runahead(&scratch, &[]), &call);
    assert_eq!(said.len(), EXECUTIONS);
    let samples = started.elapsed().as_nanos() as u64 / SAMPLE_NS + 2;
    let first = said.iter().position(|agent| !agent).expect("each of them got the agent");
    let short = usize::from(SHORT_MIN);
    assert!((short..=short + 1).contains(&first), "{said:?}");
    assert!(with_agent(&said) <= short + samples as usize, "{said:?}");
    assert!(with_agent(&said[SLEEPS_AT..]) > 0, "a sample is taken still: {said:?}");

    // Built anew in its place, it is another program.
    let kept = scratch.join("kept");
    copy(&probe, &kept);
    copy(&kept, &probe);
    let said = probes(runahead(&scratch, &[]), &call);
    assert_eq!(with_agent(&said[..short]), short, "{said:?}");

    let counted = format!("--stats={}", scratch.join("run.json").display());
    let said = probes(runahead(&scratch, &[&counted]), &call);
    assert_eq!(with_agent(&said), EXECUTIONS, "who counts sees all");
    let said = probes(runahead(&scratch, &["--mode=observe"]), &call);
    assert_eq!(with_agent(&said), EXECUTIONS);
}

/// Traces a child that it has made before it traces any, then makes one that it does not;
/// both execute the program that the argument names.
const TRACER: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
static pid_t child(const char *program, int stops) {
    pid_t child = fork();
    if (child == 0) {
        if (stops) raise(SIGSTOP);
        execl(program, program, (char *)0);
        _exit(99);
    }
    return child;
}
int main(int argc, char **argv) {
    int status;
    pid_t traced = child(argv[1], 1);
    if (waitpid(traced, &status, WUNTRACED) != traced || !WIFSTOPPED(status)) return 9;
    if (ptrace(PTRACE_SEIZE, traced, 0, PTRACE_O_EXITKILL) || kill(traced, SIGCONT)) return 8;
    while (waitpid(traced, &status, 0) == traced && WIFSTOPPED(status)) ptrace(PTRACE_CONT, traced, 0, 0);
    if (status) return 7;
    waitpid(child(argv[1], 0), &status, 0);
    return status != 0;
}
"#;

#[test]
fn who_is_about_to_be_traced_executes_plainly() {
    let scratch = Scratch::new();
    let [tracer, probe] = [("tracer", TRACER), ("probe", PROBE)]
        .map(|(name, source)| scratch.compile(name, source, &[]));
    let output = runahead(&scratch, &[]).arg(tracer).arg(probe).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n");
}

/// The probe, built as dynamic and as static program.
fn both_probes(scratch: &Scratch) -> [PathBuf; 2] {
    let built = |name, flags: &[&str]| scratch.try_compile(name, PROBE, flags);
    let is_static = built("static", &["-static"]);
    let is_static = is_static.expect("a static program cannot be linked: install libc6-dev");
    [built("probe", &[]).expect("cc"), is_static]
}

/// What a shell's script, given the probes, prints.
fn script(scratch: &Scratch, text: &str, probes: &[PathBuf]) -> String {
    let mut command = runahead(scratch, &[]);
    command.args(["sh", "-c", text]).args(probes).current_dir(scratch.path());
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// That a file has been looked at is remembered with the time of the last change of its
/// inode: that of its data anybody may set.
#[test]
fn what_takes_a_programs_place_is_looked_at_again() {
    let scratch = Scratch::new();
    let text = r#"
        truncate -r "$1" "$0"; sleep 4
        "$0"; "$0"; "$0"
        touch -r "$0" kept; cat "$1" > "$0"; touch -r kept "$0"; sleep 4
        "$0""#;
    assert_eq!(script(&scratch, text, &both_probes(&scratch)), "1\n1\n1\n0\n");
}

/// A program that watches files would see what is read ahead, also where what it executes
/// has been looked at before.
#[test]
fn what_watches_files_executes_plainly() {
    const WATCHES: &str = r#"
        #include <sys/inotify.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            if (inotify_add_watch(inotify_init(), ".", IN_OPEN) < 0) return 1;
            return execv(argv[1], argv + 1);
        }
    "#;
    let scratch = Scratch::new();
    let [probe, _] = both_probes(&scratch);
    let watches = scratch.compile("watches", WATCHES, &[]);
    let text = r#"sleep 4; "$0"; "$0"; "$1" "$0""#;
    assert_eq!(script(&scratch, text, &[probe, watches]), "1\n1\n0\n");
}

/// A look takes two: a static program would find the session in its environment.
#[test]
fn what_cannot_be_looked_at_for_want_of_descriptors_is_executed_plainly() {
    let scratch = Scratch::new();
    let text = r#"ulimit -n 4; "$0"; exec "$1""#;
    assert_eq!(script(&scratch, text, &both_probes(&scratch)), "0\n0\n");
}

/// By another process, which no child of another test keeps open to be written: it is to be
/// executed.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Each round another executable: none of them has a record.
fn copy_probe(scratch: &Scratch, probe: &Path) {
    for number in 0..EXECUTIONS {
        copy(probe, &scratch.join(&format!("probe-{number}")));
    }
}

/// How many of the programs that a shell executes get the agent, the shell being one
/// of many in a row that do `first` before.
fn handed_on(scratch: &Scratch, options: &[&str], first: &str) -> usize {
    let probe = scratch.compile("probe", PROBE, &[]);
    copy_probe(scratch, &probe);
    let call = format!("sh -c '{first}; {}-'$i'; true'", probe.display());
    let said = probes(runahead(scratch, options), &call);
    assert_eq!(said.len(), EXECUTIONS);
    with_agent(&said)
}

#[test]
fn what_executes_programs_that_wait_hands_the_agent_on() {
    let place = Scratch::new();
    let data = place.join("data");
    std::fs::write(&data, "data").unwrap();
    let options = format!("--test={}", TEST_EVERY_READ_STALLS | TEST_WITH_TABLE);
    let reads = format!("cat {0} {0} {0} > /dev/null", data.display());
    let below = [
        // By way of two processes, the first of which is a subshell. The other has
        // more arguments, so that its record is not the shell's.
        format!("(sh -c \"{reads}; true\" a b c d e; true)"),
        // By way of a process that then goes on as a program without the agent.
        format!("(sh -c \"{reads}; RUNAHEAD=off exec true\" a b c d e; true)"),
    ];
    for below in below {
        let scratch = Scratch::new();
        assert_eq!(handed_on(&scratch, &[&options], &below), EXECUTIONS, "{below}");
    }
}

/// Of a script the kernel passes more arguments, and another executable runs.
#[test]
fn scripts_are_executables_of_their_own() {
    for (name, first_line) in [("by-path", "#!/bin/sh -u"), ("by-env", "#!/usr/bin/env sh")] {
        let scratch = Scratch::new();
        let probe = scratch.compile("probe", PROBE, &[]);
        copy_probe(&scratch, &probe);
        let script = scratch.join(name);
        // With a child, so that the shell does not go on as the probe.
        let text = format!("{first_line}\ntrue\n{}-$1\ntrue\n", probe.display());
        scratch.file(name, text, 0o755);
        let said = probes(runahead(&scratch, &[]), &format!("{} $i", script.display()));
        let enlisted = with_agent(&said);
        let short = usize::from(SHORT_MIN);
        assert!((short..EXECUTIONS).contains(&enlisted), "{first_line}: {said:?}");
    }
}

#[test]
fn what_executes_none_that_waits_is_left_alone_with_them() {
    let scratch = Scratch::new();
    let enlisted = handed_on(&scratch, &[], "true");
    assert!((usize::from(SHORT_MIN)..EXECUTIONS).contains(&enlisted), "{enlisted}");
}

/// Each goes on as the next, by way of the same shell: a record waits for the others.
#[test]
fn scripts_that_execute_one_another_are_left_alone() {
    let scratch = Scratch::new();
    let second = scratch.join("second").display().to_string();
    let asks = "case $(cat /proc/$$/maps) in *agent-*) echo 1;; *) echo 0;; esac";
    for (name, next) in [("first", format!("{second} a b c d")), ("second", "true".to_owned())] {
        scratch.file(name, format!("#!/usr/bin/env sh\n{asks}\nexec {next}\n"), 0o755);
    }
    let said =
        probes(runahead(&scratch, &[]), &format!("{} a b c", scratch.join("first").display()));
    assert_eq!(said.len(), 2 * EXECUTIONS);
    assert!((1..EXECUTIONS).contains(&with_agent(&said)), "{said:?}");
}

/// Arguments are counted where the table is asked, which is not so for programs that
/// somebody counts: those of `tests/programs` are.
#[test]
fn arguments_that_cannot_be_read_are_the_kernels_to_find() {
    const PROGRAM: &str = include_str!("../../../tests/programs/exec_failure.c");
    const HEADERS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
    let scratch = Scratch::new();
    let flags = ["-O1", "-w", "-D_GNU_SOURCE", "-pthread", HEADERS];
    let program = scratch.compile("program", PROGRAM, &flags);
    let run = |mut command: Command| {
        // What it makes is there the second time.
        let place = Scratch::new();
        let output = command.arg(&program).current_dir(place.path()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut plain = scratch.runahead();
    plain.env("RUNAHEAD", "off");
    let plain = run(plain);
    let test = format!("--test={}", TEST_EVERY_READ_STALLS | TEST_WITH_TABLE);
    assert_eq!(run(runahead(&scratch, &[])), plain);
    assert_eq!(run(runahead(&scratch, &[&test])), plain);
}

/// How often a name stands in the mappings of a process, by system call
/// instructions of its own, at which nothing is.
const MAPPED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static long raw(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
static char text[1 << 20];
static long content(const char *path) {
    long got, len = 0, fd = raw(SYS_open, (long)path, O_RDONLY, 0);
    while ((got = raw(SYS_read, fd, (long)text + len, sizeof text - 1 - len)) > 0) len += got;
    raw(SYS_close, fd, 0, 0);
    text[len] = 0;
    return len;
}
static int mapped(long pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/maps", pid);
    if (!content(path)) return -1;
    int count = 0;
    for (char *at = text; (at = strstr(at, name)); at++) count++;
    return count;
}
"#;

/// Says of itself, of a child, and of that one's child how often the table is
/// mapped. It is so before a child is made.
const INHERITS: &str = r#"
int main(int argc, char **argv) {
    int before = mapped(getpid(), argv[1]), status;
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) raw(SYS_exit_group, mapped(getpid(), argv[1]), 0, 0);
        waitpid(grandchild, &status, 0);
        raw(SYS_exit_group, 10 * mapped(getpid(), argv[1]) + WEXITSTATUS(status), 0, 0);
    }
    waitpid(child, &status, 0);
    printf("%d %d %d\n", before, mapped(getpid(), argv[1]), WEXITSTATUS(status));
}
"#;

/// Also where the library's fork makes a call of which the analysis does not know which
/// (glibc 2.41 of Debian 13).
#[test]
fn children_inherit_the_table() {
    let scratch = Scratch::new();
    let source = scratch.file("inherits.c", format!("{MAPPED}{INHERITS}"), 0o644);
    for compiler in [Some(PathBuf::from("cc")), newer::compiler()].into_iter().flatten() {
        let looks = scratch.join("looks");
        let mut cc = Command::new(compiler);
        let made = cc.args(["-O1", "-w", "-o"]).args([&looks, &source]).status().unwrap();
        assert!(made.success());
        let name = runahead_protocol::learnt::FILE_NAME;
        let mut command = runahead(&scratch, &[]);
        assert_eq!(support::stdout_of(command.arg(looks).arg(name)), "0 1 11\n");
    }
}

/// Makes a child, with the table, and reads until it has a copy, which turns for
/// ever where it finds other bytes than those that are there; says whether it has
/// come to have the table no more.
const COPIES: &str = r#"
static volatile int turning = 1;
int main(int argc, char **argv) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    if (fork() == 0) _exit(0);
    wait(NULL);
    printf("%d", mapped(getpid(), argv[2]));
    unsigned char byte = 0;
    int data = open(argv[1], O_RDONLY);
    int has = -1, kept = 0;
    /* Of one that ends meanwhile nothing can be said, of three that had it until
     * they ended that they kept it. */
    for (int i = 0; i < 200 && has < 0 && kept < 3; i++) {
        pread(data, &byte, 1, 100 + i);
        while (byte != 7 && turning) ;
        long copy = content(name) ? atol(text) : 0;
        struct timespec pause = { 0, 2000000 };
        int looks = 0, had = 0;
        if (copy) do {
            raw(SYS_nanosleep, (long)&pause, 0, 0);
            has = mapped(copy, argv[2]);
            had |= has > 0;
        } while (has > 0 && ++looks < 10000);
        kept += has < 0 && had;
    }
    printf(" %d\n", has < 0 && kept == 3 ? 1 : has);
}
"#;

#[test]
fn no_copy_keeps_the_table() {
    if !support::is_root() {
        return support::skip("what a copy maps is root's to see");
    }
    let scratch = Scratch::new();
    let copies = scratch.compile("copies", &format!("{MAPPED}{COPIES}"), &["-O1", "-w"]);
    let data = scratch.join("data");
    std::fs::write(&data, vec![7; 4096]).unwrap();
    let test = TEST_ALWAYS_WRONG | TEST_EVERY_READ_STALLS | TEST_FULL_COPIES | TEST_WITH_TABLE;
    let mut command = runahead(&scratch, &[&format!("--test={test}")]);
    command.arg(copies).arg(data).arg(runahead_protocol::learnt::FILE_NAME);
    assert_eq!(support::stdout_of(&mut command), "1 0\n");
}

#[test]
fn the_table_is_in_the_run_time_directory_and_of_no_consequence() {
    let scratch = Scratch::new();
    let run = || runahead(&scratch, &[]).arg("true").status().unwrap().success();
    assert!(run());
    let table = scratch.join("runahead").join(runahead_protocol::learnt::FILE_NAME);
    let len = runahead_protocol::learnt::FILE_LEN;
    assert_eq!(std::fs::metadata(&table).unwrap().len(), len as u64);
    // Noise in it, or none at all: programs run as ever.
    let noise: Vec<u8> = (0..len).map(|at| (at * 7919 / 8) as u8).collect();
    std::fs::write(&table, noise).unwrap();
    assert!(run());
    let program = runahead(&scratch, &[]).args(["sh", "-c", "cat /proc/self/stat"]).output();
    assert!(program.unwrap().status.success());
    std::fs::remove_file(&table).unwrap();
    std::fs::create_dir(&table).unwrap();
    assert!(run());
}
