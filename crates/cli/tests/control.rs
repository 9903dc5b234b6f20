//! Memory control, live: in a memory cgroup that just holds what the program
//! uses, a speculative process that prefetches nothing but wrong pages is
//! found out and stopped; and what the agent decided is what `policy` decides
//! on the same events.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_policy::memory_control::{Estimate, Parameters};
use runahead_protocol::session::TEST_WITHOUT_MEMORY_CONTROL;
use serde_json::Value;
use support::Scratch;
use support::speculation::{EVERY_READ_STALLS, Run, plainly, run};

/// The speculative process predicts ranges that are all wrong.
const ALWAYS_WRONG: u64 = 2;

/// Reads pages here and there in the even 128 KiB blocks of a file; the wrong
/// ones are those of the odd blocks.
const HOSTILE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static unsigned char page[4096];
    unsigned long sum = 0, random = 1;
    int fd = open(argv[1], O_RDONLY);
    long blocks = lseek(fd, 0, SEEK_END) / 131072 / 2;
    for (int n = 0; n < 6000; n++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        long block = (random >> 33) % blocks, in = (random >> 20) % 32;
        if (pread(fd, page, sizeof page, block * 262144 + in * 4096) != sizeof page) return 9;
        for (int at = 0; at < 4096; at++) sum = sum * 31 + page[at];
        usleep(200);
    }
    printf("%lx\n", sum);
    return 0;
}
"#;

/// A memory cgroup, version 1 or 2; `None` without the rights.
struct Group(PathBuf);

impl Group {
    fn new(name: &str, limit_bytes: u64) -> Option<Group> {
        let version1 = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
        let root = if version1 { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" };
        if !version1 {
            // May be on already.
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
        }
        let path = Path::new(root).join(format!("runahead-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Group(path);
        let file = if version1 { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(group.0.join(file), limit_bytes.to_string()).ok()?;
        Some(group)
    }

    /// Has a command's process move in before it becomes the program.
    fn hold(&self, command: &mut Command) {
        use std::os::unix::process::CommandExt;
        let path = self.0.join("cgroup.procs");
        // SAFETY: opens and writes a file; the test's other threads hold no
        // lock that this needs.
        unsafe { command.pre_exec(move || fs::write(&path, "0")) };
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be leaving.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// The logged intervals, given to `policy` once more: it must act the same.
fn replay(stats: &Value) -> usize {
    let processes = stats["control"]["intervals"].as_array().unwrap();
    let mut replayed = 0;
    for process in processes {
        let mut estimate = Estimate::default();
        for (number, interval) in process.as_array().unwrap().iter().enumerate() {
            let at = |index: usize| interval[index].as_u64().unwrap();
            let parameters = Parameters { alpha: 0, threshold: at(2) };
            let action = estimate.end_interval(at(0), at(1), &parameters);
            assert_eq!(action as u64, at(3), "interval {number} of {stats:#}");
            replayed += 1;
        }
    }
    replayed
}

/// [`HOSTILE`], compiled, with its file, in a cgroup that just holds what it
/// uses.
struct Tight {
    scratch: Scratch,
    program: String,
    file: String,
    group: Group,
    expected: (String, Option<i32>),
    /// Intervals whose decision has been compared.
    replayed: usize,
}

impl Tight {
    fn new() -> Option<Tight> {
        let scratch = Scratch::new();
        let program = scratch.compile("hostile", HOSTILE, &["-O1"]);
        let program = program.to_str().unwrap().to_owned();
        let file = scratch.file("blocks", vec![0x5a; 32 << 20], 0o644);
        let file = file.to_str().unwrap().to_owned();
        // 16 MiB of the file, and 5 MiB for everything else.
        let group = Group::new("tight", 21 << 20)?;
        let mut tight =
            Tight { scratch, program, file, group, expected: Default::default(), replayed: 0 };
        tight.forget();
        let mut plain = Command::new(&tight.program);
        tight.group.hold(plain.arg(&tight.file));
        tight.expected = plainly(&mut plain);
        Some(tight)
    }

    /// What the group reads is charged to it only where nobody else has it.
    fn forget(&self) {
        let blocks = fs::File::open(&self.file).unwrap();
        blocks.sync_all().unwrap();
        rustix::fs::fadvise(&blocks, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// Runs with a speculative process that is always wrong until memory
    /// control has found that out. It runs on idle cycles only: on a busy
    /// machine it may do no harm, and then there is nothing to find.
    fn run_until_disabled(&mut self, test: u64) -> Run {
        const RUNS_MAX: usize = 16;
        for last in 1..=RUNS_MAX {
            self.forget();
            let test = test | ALWAYS_WRONG | EVERY_READ_STALLS;
            let command = [self.program.as_str(), &self.file];
            let run = run(&self.scratch, test, &command, |command| self.group.hold(command));
            let printed = (&run.stdout, run.status);
            assert_eq!(printed, (&self.expected.0, self.expected.1), "{}", run.stats);
            self.replayed += replay(&run.stats);
            if run.count("/control/disabled_count") > 0 {
                assert!(run.stats["control"]["disabled_s"].as_f64().unwrap() > 0.0);
                return run;
            }
            assert!(last < RUNS_MAX, "never stopped: {:#}", run.stats);
        }
        unreachable!()
    }
}

#[test]
fn useless_speculation_is_stopped_in_a_tight_cgroup() {
    if !support::is_root() {
        return support::skip("making a memory cgroup needs root");
    }
    let Some(mut tight) = Tight::new() else {
        return support::skip("no memory cgroup can be made");
    };
    let run = tight.run_until_disabled(0);
    assert!(tight.replayed > 0, "{}", run.stats);
    assert!(run.count("/speculation/parked/disabled") > 0, "{:#}", run.stats);
    // The same, only that nothing comes of it: what `bench memory` compares
    // memory control with.
    let run = tight.run_until_disabled(TEST_WITHOUT_MEMORY_CONTROL);
    assert_eq!(run.count("/speculation/parked/disabled"), 0, "{:#}", run.stats);
}

#[test]
fn no_copy_is_made_where_there_is_no_room_for_one() {
    if !support::is_root() {
        return support::skip("making a memory cgroup needs root");
    }
    let scratch = Scratch::new();
    let program = scratch.compile("reader", support::speculation::READER, &["-O1"]);
    let program = program.to_str().unwrap();
    let file = support::speculation::noise(&scratch, 64);
    let file = file.to_str().unwrap();
    let Some(group) = Group::new("tiny", 6 << 20) else {
        return support::skip("no memory cgroup can be made");
    };
    let expected = plainly(Command::new(program).arg(file));
    let run = run(&scratch, EVERY_READ_STALLS, &[program, file], |command| group.hold(command));
    assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{}", run.stats);
    assert_eq!(run.count("/speculation/synchronizations/attempted"), 0, "{:#}", run.stats);
    assert!(run.count("/speculation/synchronizations/declined") > 0, "{:#}", run.stats);
}
