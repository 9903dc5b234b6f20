//! What a run of a program came to.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A run that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(120);

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
}

impl PartialEq for Counts {
    fn eq(&self, _: &Counts) -> bool {
        true
    }
}

/// Runs `command` in `directory` and takes everything down.
pub fn observe(command: &mut Command, directory: &Path, statistics: &Path) -> Outcome {
    let _ = fs::remove_file(statistics);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: a program that signals its group hits no test.
    command.process_group(0);
    let mut child = command.spawn().unwrap();
    let reader = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reader(Box::new(child.stdout.take().unwrap()));
    let stderr = reader(Box::new(child.stderr.take().unwrap()));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > HANG {
            let group = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            child.wait().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, signal) => format!("signal {signal:?}, core {}", status.core_dumped()),
    };
    let mut tree = BTreeMap::new();
    take_down(directory, "", &mut tree);
    Outcome {
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
        ended,
        tree,
        counts: counts(statistics),
    }
}

fn counts(statistics: &Path) -> Counts {
    let Ok(text) = fs::read_to_string(statistics) else { return Counts::default() };
    // A program may end without a report, or before it is written.
    let Ok(json) = serde_json::from_str::<Value>(&text) else { return Counts::default() };
    let number = |path: &str| json.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    Counts {
        synchronizations: number("/speculation/synchronizations/completed"),
        prefetches: number("/speculation/prefetches/issued"),
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
