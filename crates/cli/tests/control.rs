//! Memory control, live: in a memory cgroup that just holds what the program
//! uses, a speculative process that prefetches nothing but wrong pages is
//! found out and stopped; what the agent decided is what `policy` decides on
//! the same events; and what it was told agrees with what the kernel's
//! tracepoints show.

mod support;
mod trace;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use runahead_policy::memory_control::{Estimate, EvictionList, Parameters, Reference, STALL};
use runahead_protocol::session::TEST_WITHOUT_MEMORY_CONTROL;
use serde_json::Value;
use support::Scratch;
use support::speculation::{EVERY_READ_STALLS, Run, plainly, run};
use trace::{Event, Trace, Traced};

/// The speculative process predicts ranges that are all wrong, and computes on
/// what is not there.
const ALWAYS_WRONG: u64 = 2;

/// Reads so many pages of a file's first half at random. A copy that is given
/// anything else than what stands there reads the second half.
const HOSTILE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static unsigned char page[4096];
    unsigned long sum = 0, random = 1;
    int fd = open(argv[1], O_RDONLY);
    long pages = lseek(fd, 0, SEEK_END) / 4096 / 2, half = 0;
    for (int n = atoi(argv[2]); n > 0; n--) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        page[0] = 0;
        if (pread(fd, page, sizeof page, (half + (random >> 33) % pages) * 4096) != sizeof page)
            return 9;
        half = page[0] == 0x5a ? 0 : pages;
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
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        Group::at(
            Path::new(root).join(format!("runahead-{name}-{}-{nth}", std::process::id())),
            limit_bytes,
        )
    }

    fn at(path: PathBuf, limit_bytes: u64) -> Option<Group> {
        let version1 = path.starts_with("/sys/fs/cgroup/memory");
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
    reads: String,
    group: Group,
    expected: (String, Option<i32>),
    /// Intervals whose decision has been compared.
    replayed: usize,
}

impl Tight {
    fn new(reads: u32) -> Option<Tight> {
        let scratch = Scratch::new();
        let program = scratch.compile("hostile", HOSTILE, &["-O1"]);
        let program = program.to_str().unwrap().to_owned();
        let file = scratch.file("blocks", vec![0x5a; 16 << 20], 0o644);
        let file = file.to_str().unwrap().to_owned();
        // 8 MiB of the file, and 5 MiB for everything else.
        let group = Group::new("tight", 13 << 20)?;
        let mut tight = Tight {
            scratch,
            program,
            file,
            reads: reads.to_string(),
            group,
            expected: Default::default(),
            replayed: 0,
        };
        tight.forget();
        let mut plain = Command::new(&tight.program);
        tight.group.hold(plain.args([&tight.file, &tight.reads]));
        tight.expected = plainly(&mut plain);
        Some(tight)
    }

    /// What the group reads is charged to it only where nobody else has it.
    fn forget(&self) {
        let blocks = fs::File::open(&self.file).unwrap();
        blocks.sync_all().unwrap();
        rustix::fs::fadvise(&blocks, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// Runs once, with nothing of the file in memory.
    fn run(&self, test: u64) -> Run {
        self.forget();
        let command = [self.program.as_str(), &self.file, &self.reads];
        let run = run(&self.scratch, test, &command, |command| self.group.hold(command));
        let printed = (&run.stdout, run.status);
        assert_eq!(printed, (&self.expected.0, self.expected.1), "{}", run.stats);
        run
    }

    /// Runs with a speculative process that is always wrong until memory
    /// control has found that out. It runs on idle cycles only: on a busy
    /// machine it may do no harm, and then there is nothing to find.
    fn run_until_disabled(&mut self, test: u64) -> Run {
        const RUNS_MAX: usize = 16;
        for last in 1..=RUNS_MAX {
            let run = self.run(test | ALWAYS_WRONG | EVERY_READ_STALLS);
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

/// Copies run on idle cycles only: what is about the harm they do has the processors to
/// itself, as far as this file goes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn useless_speculation_is_stopped_in_a_tight_cgroup() {
    if !support::is_root() {
        return support::skip("making a memory cgroup needs root");
    }
    let _alone = alone();
    let Some(mut tight) = Tight::new(6000) else {
        return support::skip("no memory cgroup can be made");
    };
    // On a busy machine a copy is given up when it has lagged behind for long:
    // there may be none at the moment when none is allowed any more.
    let mut runs = (0..24).map(|_| tight.run_until_disabled(0));
    let stopped = runs.any(|run| run.count("/speculation/parked/disabled") > 0);
    assert!(stopped, "no copy was ended");
    assert!(tight.replayed > 0, "no interval was replayed");
    // The same, only that nothing comes of it: what `bench memory` compares
    // memory control with.
    let run = tight.run_until_disabled(TEST_WITHOUT_MEMORY_CONTROL);
    assert_eq!(run.count("/speculation/parked/disabled"), 0, "{:#}", run.stats);
}

/// `[added, removed, threshold, action]` of the intervals of the only process.
fn intervals(run: &Run) -> Vec<[u64; 4]> {
    let processes = run.stats["control"]["intervals"].clone();
    let mut processes: Vec<Vec<[u64; 4]>> = serde_json::from_value(processes).unwrap();
    assert!(processes.len() <= 1, "{:#}", run.stats);
    processes.pop().unwrap_or_default()
}

/// Length of an interval, in seconds.
const INTERVAL_S: f64 = 0.25;

/// What the trace shows.
#[derive(Debug, Default)]
struct Truth {
    /// Pages read in again after their eviction, by anybody: what the kernel's
    /// counter should say.
    refaults: u64,
    /// Stalls that speculation added, by the paper's eviction list.
    added: u64,
    /// Stalls that it removed, likewise.
    removed: u64,
    /// Stalls of the program.
    stalls: u64,
}

/// Keeps the eviction list of section 6.1 from what happened; stalls are
/// counted from `from_s` to `until_s`, in seconds after the first event.
fn truth(trace: &[Traced], program: u32, from_s: f64, until_s: f64) -> Truth {
    let mut truth = Truth::default();
    let mut list = EvictionList::new(1);
    let mut evicted = HashSet::new();
    // What the program's read under way has brought in.
    let mut read = HashMap::new();
    let begin_s = trace.first().map_or(0.0, |first| first.at_s);
    for traced in trace {
        let is_counted = (from_s..until_s).contains(&(traced.at_s - begin_s));
        let by_program = traced.thread == program;
        for page in traced.first..traced.first + traced.pages {
            match traced.event {
                Event::Evicted => {
                    list.evicted(page);
                    evicted.insert(page);
                }
                Event::ReadIn => {
                    truth.refaults += u64::from(evicted.remove(&page));
                    if !by_program {
                        list.prefetched(page, 0);
                    } else {
                        read.insert(page, list.read_by_normal(page));
                    }
                }
                Event::Used if by_program => {
                    let of = [read.get(&page).copied(), Some(list.used_by_normal(page))];
                    let is = |what| u64::from(is_counted && of.contains(&Some(what)));
                    truth.added += is(Reference::AddedStall);
                    truth.removed += is(Reference::RemovedStall(0));
                    truth.stalls += u64::from(is_counted && of[0].is_some());
                }
                Event::Used => {}
            }
        }
        // What came with it and is used later is no stall.
        if by_program && traced.event == Event::Used {
            read.clear();
        }
    }
    truth
}

/// The `workingset_refault_file` of a cgroup.
fn refault_counter(group: &Group) -> u64 {
    let text = fs::read_to_string(group.0.join("memory.stat")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("workingset_refault_file "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// What a run was told live, beside what its trace shows.
#[derive(Debug)]
struct Beside {
    /// The kernel's counter of pages read in again.
    refaults: u64,
    /// Stalls added and removed, as estimated live.
    estimated: [u64; 2],
    /// From the trace: `refaults` of the whole run, the rest of the time that
    /// the estimate covers.
    list: Truth,
}

impl Tight {
    /// Runs once and compares; `None` where the trace had no room for all of it.
    fn beside(&self, trace: Trace, test: u64) -> Option<Beside> {
        let before = refault_counter(&self.group);
        let run = self.run(test);
        let trace = trace.stop()?;
        let refaults = refault_counter(&self.group) - before;
        // Of a long run the first ones.
        let intervals = intervals(&run);
        // The first to read the file is the program; what was forgotten before
        // has gone by then.
        let begin = trace.iter().position(|one| one.event == Event::ReadIn)?;
        let trace = trace.get(begin..)?;
        let program = trace.first()?.thread;
        // In the first interval the counters have not been read yet.
        let until_s = INTERVAL_S * (intervals.len() + 1) as f64;
        let list = truth(trace, program, INTERVAL_S, until_s);
        let sum = |index: usize| intervals.iter().map(|one| one[index]).sum::<u64>() / STALL;
        Some(Beside { refaults, estimated: [sum(0), sum(1)], list })
    }
}

/// The live estimate beside the paper's eviction list, which is kept from
/// tracepoints: what it agrees in, and by how much, is in docs/control.md.
#[test]
fn refaults_agree_with_what_tracepoints_show() {
    const RUNS_MAX: usize = 16;
    /// With fewer stalls added there is nothing to compare.
    const ADDED_MIN: u64 = 100;
    if !support::is_root() {
        return support::skip("tracing needs root");
    }
    let _alone = alone();
    let Some(tight) = Tight::new(4000) else {
        return support::skip("no memory cgroup can be made");
    };
    let inode = fs::metadata(&tight.file).unwrap().ino();
    let test = ALWAYS_WRONG | EVERY_READ_STALLS | TEST_WITHOUT_MEMORY_CONTROL;
    // Whoever empties the page cache meanwhile makes evictions that the kernel
    // does not count: one undisturbed run is asked for.
    let mut seen = Vec::new();
    for what in ["as it is"].into_iter().chain(["always wrong"; RUNS_MAX]) {
        tight.forget();
        let Some(trace) = Trace::start(inode) else {
            return support::skip("the kernel has no tracefs");
        };
        let Some(run) = tight.beside(trace, if what == "as it is" { 0 } else { test }) else {
            continue;
        };
        eprintln!("{what}: {run:?}");
        // Pages of the program itself are evicted, too; and the kernel adds
        // some up late.
        let counts = run.refaults.abs_diff(run.list.refaults) <= 256 + run.list.refaults / 8;
        let (added, estimated) = (run.list.added, run.estimated[0]);
        let estimates = (added / 3..=added * 3).contains(&estimated);
        if what == "always wrong" && added >= ADDED_MIN && counts && estimates {
            return;
        }
        seen.push((what, run));
    }
    panic!("no run in which speculation did harm agrees: {seen:#?}");
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

/// What the agent takes is never given back: of a program that just fits the kernel would
/// end one that it would not have ended without.
#[test]
fn the_agent_is_not_brought_where_it_would_be_a_noticeable_part_of_memory() {
    if !support::is_root() {
        return support::skip("making a memory cgroup needs root");
    }
    let scratch = Scratch::new();
    let maps = |limit_bytes: u64| {
        let group = Group::new("small", limit_bytes)?;
        let mut command = scratch.runahead();
        group.hold(command.args(["--", "cat", "/proc/self/maps"]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (Some(small), Some(enough)) = (maps(15 << 20), maps(17 << 20)) else {
        return support::skip("no memory cgroup can be made");
    };
    assert!(small.contains("libc.so") && !small.contains("/agent-"), "{small}");
    assert!(enough.contains("/agent-"), "{enough}");
}

/// One with limits is told of the agent, wherever it is asked, and cgroups are made anew
/// with the names of others, as each container has it.
#[test]
fn what_was_known_of_a_cgroup_is_not_believed_of_a_small_one() {
    if !support::is_root() {
        return support::skip("making a memory cgroup needs root");
    }
    let scratch = Scratch::new();
    let launch = |group: &Group, options: &[&str]| {
        let mut command = scratch.runahead();
        group.hold(command.args(options).args(["--", "cat", "/proc/self/maps"]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).contains("/agent-")
    };
    let Some(roomy) = Group::new("same", 1 << 30) else {
        return support::skip("no memory cgroup can be made");
    };
    assert!(launch(&roomy, &[]) && launch(&roomy, &[]));
    let path = roomy.0.clone();
    drop(roomy);
    let again = Group::at(path, 15 << 20).unwrap();
    assert!(!launch(&again, &[]));
    assert!(launch(&again, &["--stats"]), "who asks is told of the program with it");
    assert!(!launch(&again, &[]));
}
