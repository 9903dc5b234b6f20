//! What a run of a program came to.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A run that takes longer than this hangs: two minutes, or so many seconds as
/// RUNAHEAD_TEST_LIMIT_S says (`scripts/mutations`, where programs do hang).
pub fn limit() -> Duration {
    let given = std::env::var("RUNAHEAD_TEST_LIMIT_S").ok();
    Duration::from_secs(given.and_then(|seconds| seconds.parse().ok()).unwrap_or(120))
}

/// How a run ended that had to be killed; no program prints it.
const HUNG: &str = "hung, killed";

/// Times before this were set by the program; later ones are the clock's.
const CLOCK_FROM_S: i64 = 1_000_000_000;

#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    /// Exit status or signal.
    pub ended: String,
    /// Files by name: what they are and hold.
    pub tree: BTreeMap<String, String>,
    /// Counts of the run, apart from the comparison.
    pub counts: Counts,
}

/// What the statistics say; equal to any other, so that it is not compared.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub synchronizations: u64,
    pub prefetches: u64,
    /// Copies that ended because their filter refused a call of the agent's.
    pub bugs: u64,
}

impl Outcome {
    /// Whether it had to be killed: a failure even where all others hang, too.
    pub fn hung(&self) -> bool {
        self.ended.starts_with(HUNG)
    }
}

impl PartialEq for Counts {
    fn eq(&self, _: &Counts) -> bool {
        true
    }
}

/// Runs `command` in `directory` and takes everything down. It is killed, with
/// all that it has started, where it takes longer than `limit`.
pub fn observe(
    command: &mut Command,
    directory: &Path,
    statistics: &Path,
    limit: Duration,
) -> Outcome {
    let _ = fs::remove_file(statistics);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: a program that signals its group hits no test.
    command.process_group(0);
    // Where the tests are killed, it is, too: a rogue would run for ever.
    // SAFETY: one system call.
    unsafe { command.pre_exec(die_with_parent) };
    let mut child = command.spawn().unwrap();
    let stdout = text_of(child.stdout.take().unwrap());
    let stderr = text_of(child.stderr.take().unwrap());
    let end = Instant::now() + limit;
    let mut ended = match wait_until(&mut child, end) {
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (_, signal) => format!("signal {signal:?}, core {}", status.core_dumped()),
        },
        None => {
            let state = states(&family(child.id()));
            kill_family(&mut child);
            format!("{HUNG} after {limit:?}: {state}")
        }
    };
    // A process that outlives the program may hold the pipes.
    let mut rest = |pipe: mpsc::Receiver<String>, name: &str| {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        pipe.recv_timeout(left).unwrap_or_else(|_| {
            ended = format!("{HUNG}: its {name} is still open; it had {ended}");
            String::new()
        })
    };
    let (stdout, stderr) = (rest(stdout, "standard output"), rest(stderr, "standard error"));
    let mut tree = BTreeMap::new();
    take_down(directory, "", &mut tree);
    Outcome { stdout, stderr, ended, tree, counts: counts(statistics) }
}

/// The signal comes when the thread that waits for the child has ended. A change
/// of user takes it back, and children do not have it.
fn die_with_parent() -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// All that comes out of a pipe, read beside.
fn text_of(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (text, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = text.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn wait_until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process and its descendants, by parent; those in sessions of their own
/// are found, those whose parent has died are not.
fn family(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        if let Some(parent) = rest.split(' ').nth(1).and_then(|field| field.parse::<u32>().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    family
}

/// Whether every process that was told of `statistics` ends: a collector does
/// soon after its program, whatever the program has done to their memory.
pub fn ends(statistics: &Path) -> bool {
    const SOON: Duration = Duration::from_secs(30);
    let name = statistics.as_os_str().as_encoded_bytes();
    let told = || {
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            words.windows(name.len()).any(|window| window == name)
        })
    };
    let began = Instant::now();
    while told() {
        if began.elapsed() > SOON {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// What each of them does, for the message.
fn states(family: &[u32]) -> String {
    let state = |pid: &u32| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let name = read("comm")?.trim().to_owned();
        let state = read("stat")?.rsplit_once(") ")?.1.chars().next()?;
        Some(format!("{name} ({pid}) {state} in {}", read("wchan").unwrap_or_default()))
    };
    family.iter().filter_map(state).collect::<Vec<_>>().join(", ")
}

fn kill_family(child: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    // Twice: one may have been forking.
    for _ in 0..2 {
        for pid in family(child.id()) {
            let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
        }
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    }
    child.wait().unwrap();
}

fn counts(statistics: &Path) -> Counts {
    let Ok(text) = fs::read_to_string(statistics) else { return Counts::default() };
    // A program may end without a report, or before it is written.
    let Ok(json) = serde_json::from_str::<Value>(&text) else { return Counts::default() };
    let number = |path: &str| json.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    Counts {
        synchronizations: number("/speculation/synchronizations/completed"),
        prefetches: number("/speculation/prefetches/issued"),
        bugs: number("/speculation/parked/bug"),
    }
}

/// Kind, mode, links, owner, size, time if the program set it, contents.
fn take_down(directory: &Path, prefix: &str, tree: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if name == "lost+found" {
            continue;
        }
        let path = entry.path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut text = format!("{:o} links {} uid {}", meta.mode(), meta.nlink(), meta.uid());
        if meta.mtime() < CLOCK_FROM_S {
            text += &format!(" time {}.{}", meta.mtime(), meta.mtime_nsec());
        }
        if meta.is_symlink() {
            text += &format!(" -> {}", fs::read_link(&path).unwrap().display());
        } else if meta.is_file() {
            text += &format!(" size {} sum {:x}", meta.len(), checksum(&path));
        }
        tree.insert(name.clone(), text);
        if meta.is_dir() {
            take_down(&path, &format!("{name}/"), tree);
        }
    }
}

/// FNV-1a over the allocated parts, so that sparse files are quick.
fn checksum(path: &Path) -> u64 {
    let file = fs::File::open(path).unwrap();
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    let mut at = 0;
    while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).unwrap();
        let mut bytes = vec![0; (end - start) as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, start).unwrap();
        for (offset, &byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            sum = (sum ^ u64::from(byte) ^ (start + offset as u64)).wrapping_mul(0x100_0000_01b3);
        }
        at = end;
    }
    sum
}
