//! When a program that was run ahead of has ended, nothing of it is left: no
//! process, no file, no shared memory, and what it read from can be unmounted
//! at once. Alone in its file, because it adopts the orphans of its process.

// What compares runs is for the other file.
mod report;
#[allow(dead_code)]
mod suite;

use std::fs;
use std::path::Path;
use std::process::Command;

use runahead_protocol::session::{TEST_ALWAYS_WRONG, TEST_EVERY_READ_STALLS};
use suite::{RUNAHEAD, Scratch, furnish, is_root, program, variant::User};

const RUNS: usize = 1000;
const UNMOUNTS: usize = 50;
const KILLED_RUNS: usize = 10;
const WALKS: usize = 20;

fn count(directory: &str) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

/// Names of ours in the directory of POSIX shared memory, but two of
/// directories that others may make and remove there meanwhile: a user's own
/// (`runahead-UID`) and those that benchmarks work in.
fn shared_memory() -> Vec<String> {
    let of_others = |name: &str| {
        let rest = name.strip_prefix("runahead-").unwrap_or("-");
        rest.starts_with("bench-") || rest.bytes().all(|byte| byte.is_ascii_digit())
    };
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().map(Result::unwrap);
    let names = entries.map(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (entry.file_name().to_string_lossy().into_owned(), is_directory)
    });
    let ours = names.filter(|(name, is_directory)| {
        name.contains("runahead") && !(*is_directory && of_others(name))
    });
    let mut names: Vec<_> = ours.map(|(name, _)| name).collect();
    names.sort();
    names
}

/// One run in `directory`; nothing of it may be alive afterwards, not even a
/// zombie: orphans come here, and children of every kind are looked for.
fn run(binary: &Path, directory: &Path, scratch: &Path, statistics: Option<&Path>) {
    let mut command = Command::new(RUNAHEAD);
    command.arg("run").arg(format!("--test={TEST_EVERY_READ_STALLS}"));
    if let Some(statistics) = statistics {
        command.arg(format!("--stats={}", statistics.display()));
    }
    command.arg(binary).current_dir(directory);
    command.env("XDG_CACHE_HOME", scratch.join("cache")).env("TMPDIR", scratch.join("tmp"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
}

fn nobody_is_left() {
    let mut status = 0;
    // SAFETY: a word for the status.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::WNOHANG) };
    assert_eq!(pid, -1, "a process is left");
}

/// Kills itself where a copy, which finds other bytes than those that are
/// there, turns for ever.
const KILLED: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static volatile int turning = 1;
    unsigned char byte = 0;
    int data = open(argv[1], O_RDONLY);
    for (int i = 0; i < 3; i++) {
        pread(data, &byte, 1, i);
        while (byte != 7 && turning) ;
    }
    usleep(20000); /* The program does not wait until its copy has begun. */
    kill(getpid(), SIGKILL);
}
"#;

/// One child of any kind, waited for: its status as wait(2) gives it.
fn reap() -> Option<i32> {
    let mut status = 0;
    // SAFETY: a word for the status.
    (unsafe { libc::waitpid(-1, &mut status, libc::__WALL) } > 0).then_some(status)
}

/// A copy does not outlive a program that is killed: it is killed with it.
fn a_copy_dies_with_its_program(scratch: &Path) {
    let (source, binary) = (scratch.join("killed.c"), scratch.join("killed"));
    let data = scratch.join("sevens");
    fs::write(&data, [7; 4096]).unwrap();
    fs::write(&source, KILLED).unwrap();
    let compiled = Command::new("cc").args(["-O1", "-w", "-o"]).arg(&binary).arg(&source).status();
    assert!(compiled.unwrap().success());
    let mut copies = 0;
    for _ in 0..KILLED_RUNS {
        let mut command = Command::new(RUNAHEAD);
        command.arg(format!("--test={}", TEST_EVERY_READ_STALLS | TEST_ALWAYS_WRONG)).arg("--");
        command.arg(&binary).arg(&data).env("XDG_CACHE_HOME", scratch.join("cache"));
        let status = command.status().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        // Its orphans come here.
        while let Some(status) = reap() {
            if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
                continue; // It had not begun, and found its program gone.
            }
            assert!(
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL,
                "{status:x}"
            );
            copies += 1;
        }
    }
    assert!(copies > 0, "no copy was alive when its program was killed");
}

#[test]
fn nothing_is_left() {
    // SAFETY: a flag of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let scratch = Scratch::new("after-the-end");
    let place = scratch.path().join("place");
    for name in ["place", "cache", "tmp"] {
        fs::create_dir(scratch.path().join(name)).unwrap();
    }
    furnish(&place, User::Own);
    let binary = program::build("fd_numbers.c".into(), scratch.path(), None).binary;

    let statistics = scratch.path().join("run.json");
    run(&binary, &place, scratch.path(), Some(&statistics));
    let json = report::read(&statistics);
    let made = json.pointer("/speculation/synchronizations/completed").unwrap();
    assert!(made.as_u64() > Some(0), "no speculation: {json}");
    // The collector may live a moment longer than its report.
    while reap().is_some() {}

    a_copy_dies_with_its_program(scratch.path());

    let cache = count(&scratch.path().join("cache/runahead").display().to_string());
    let objects = shared_memory();
    let descriptors = count("/proc/self/fd");
    for _ in 0..RUNS {
        run(&binary, &place, scratch.path(), None);
        nobody_is_left();
    }
    assert_eq!(count(&scratch.path().join("cache/runahead").display().to_string()), cache);
    assert_eq!(count(&scratch.path().join("tmp").display().to_string()), 0);
    assert_eq!(count("/proc/self/fd"), descriptors);
    assert_eq!(shared_memory(), objects);

    if is_root() {
        unmounts(&binary, scratch.path());
        unmounts_what_was_walked(scratch.path());
    }
}

/// The file system is free the moment that the program has ended.
fn unmounts(binary: &Path, scratch: &Path) {
    let mount = scratch.join("mount");
    fs::create_dir(&mount).unwrap();
    for round in 0..UNMOUNTS {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount(c"none", &mount, c"tmpfs", flags, c"size=4m").unwrap();
        furnish(&mount, User::Own);
        run(binary, &mount, scratch, None);
        let unmounted = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::empty());
        assert_eq!(unmounted, Ok(()), "round {round}: busy");
    }
}

/// Those who read directories ahead have gone with the program, too.
fn unmounts_what_was_walked(scratch: &Path) {
    let binary = program::build("walks.c".into(), scratch, None).binary;
    let (place, mount) = (scratch.join("walked"), scratch.join("mount"));
    fs::create_dir(&place).unwrap();
    let statistics = scratch.join("walks.json");
    let mut read_ahead = 0;
    for round in 0..WALKS {
        let flags = rustix::mount::MountFlags::BIND;
        rustix::mount::mount(&place, &mount, c"none", flags, None).unwrap();
        run(&binary, &mount, scratch, Some(&statistics));
        let unmounted = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::empty());
        assert_eq!(unmounted, Ok(()), "round {round}: busy");
        let json = report::read(&statistics);
        read_ahead += json.pointer("/speculation/prefetches/issued").unwrap().as_u64().unwrap();
    }
    assert!(read_ahead > 0, "no directory was read ahead");
}
