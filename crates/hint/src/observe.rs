//! How far a program has read, where it does not say: the kernel counts the bytes.

use std::fs;
use std::path::Path;

/// Watches a process's bytes read (`rchar` of /proc/PID/io). Children that it has waited for
/// are in the count, running ones are looked for.
#[derive(Debug)]
pub(crate) struct Observer {
    pid: u32,
    seen: Option<u64>,
    /// Bytes held back until there are [`BEGINNING_BYTES`] of them; none: long past.
    beginning: Option<u64>,
    /// Bytes that the looks themselves have read, where this process is watched: they count.
    looked: u64,
}

/// The first bytes prove nothing: programs read their settings, and this library reads what
/// the kernel says of a device.
const BEGINNING_BYTES: u64 = 64 << 10;

impl Observer {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid, seen: None, beginning: Some(0), looked: 0 }
    }

    /// Forgets what was read so far.
    pub(crate) fn skip(&mut self) {
        self.seen = None;
    }

    /// Bytes read since the last call, without `own` bytes that are not the program's, counted
    /// since the beginning. 0 at first.
    pub(crate) fn bytes(&mut self, own: u64) -> u64 {
        let before = self.seen;
        let total = look(before, || {
            let mut looked = 0;
            // Those of this look come after the count that it reads first.
            let total = tree(self.pid, 0, &mut looked).saturating_sub(own + self.looked);
            if self.pid == std::process::id() {
                self.looked += looked;
            }
            total
        });
        self.seen = Some(total);
        let new = before.map_or(0, |before| total.saturating_sub(before));
        match &mut self.beginning {
            None => new,
            Some(held) => {
                *held += new;
                if *held < BEGINNING_BYTES {
                    return 0;
                }
                self.beginning.take().unwrap_or(0)
            }
        }
    }
}

/// Bytes that were read in all, of which there were `before`. Where they seem to be fewer now,
/// a child that was waited for in the middle of the look was in neither its own count nor, yet,
/// in its parent's: its bytes would be new ones the next time.
fn look(before: Option<u64>, mut total: impl FnMut() -> u64) -> u64 {
    let now = total();
    if before.is_some_and(|before| now < before) { total() } else { now }
}

/// Depth to which descendants are followed: shells that start shells.
const DEPTH_MAX: u32 = 8;

/// Bytes that a process and those below it have read; adds to `looked` what that took to read.
fn tree(pid: u32, depth: u32, looked: &mut u64) -> u64 {
    let own = rchar(&text(format!("/proc/{pid}/io"), looked)).unwrap_or(0);
    if depth >= DEPTH_MAX {
        return own;
    }
    let below = children(pid, looked);
    own + below.into_iter().map(|child| tree(child, depth + 1, looked)).sum::<u64>()
}

/// Threads of a process whose children are looked for, the oldest: each takes some microseconds
/// with each look. Children of others count when they have been waited for.
const THREADS_MAX: usize = 16;

/// The children of a process. The kernel lists them by the thread that started them.
fn children(pid: u32, looked: &mut u64) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut children = Vec::new();
    for thread in threads.flatten().take(THREADS_MAX) {
        let own = text(thread.path().join("children"), looked);
        children.extend(own.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    children
}

fn text(path: impl AsRef<Path>, looked: &mut u64) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    *looked += text.len() as u64;
    text
}

fn rchar(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("rchar: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_waited_for_in_the_middle_is_not_counted_twice() {
        // A child that has read 70 is missed once.
        let mut totals = [100, 30, 100, 120].into_iter();
        let mut before = None;
        let mut new = Vec::new();
        while totals.len() > 0 {
            let total = look(before, || totals.next().unwrap());
            new.push(before.map(|before: u64| total.saturating_sub(before)));
            before = Some(total);
        }
        assert_eq!(new, [None, Some(0), Some(20)]);
        // One that nobody waits for is gone, and what is read then counts.
        assert_eq!(look(Some(100), || 30), 30);
    }

    /// A program that starts commands in a thread: nobody has waited for them yet.
    #[test]
    fn children_of_threads_are_seen() {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        const BYTES: u64 = 64 << 20;
        let data = tempfile::NamedTempFile::new().unwrap();
        data.as_file().set_len(BYTES).unwrap();
        let start = "import subprocess, sys, threading; t = threading.Thread(target=\
                     lambda: subprocess.run(['sh', '-c', 'cat \"$0\" > /dev/null; echo; read x', \
                     sys.argv[1]])); t.start(); t.join()";
        let mut command = Command::new("python3");
        command.args(["-c", start]).arg(data.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let seen = tree(program.id(), 0, &mut 0);
        drop(program.stdin.take());
        program.wait().unwrap();
        assert!(seen >= BYTES, "{seen}");
    }

    #[test]
    fn reads_are_seen() {
        let mut observer = Observer::new(std::process::id());
        assert_eq!(observer.bytes(0), 0);
        let size = fs::read("/proc/self/exe").unwrap().len() as u64;
        assert!(size > BEGINNING_BYTES && observer.bytes(0) >= size);
        assert_eq!(rchar("rchar: 12\nwchar: 3\n"), Some(12));
        assert_eq!(rchar("nothing"), None);
        assert_eq!(Observer::new(u32::MAX).bytes(0), 0);
    }
}
