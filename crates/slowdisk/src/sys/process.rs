//! Processes by number and start time, so that a reused number is not mistaken.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pid: i32,
    /// Field 22 of /proc/PID/stat, clock ticks since boot.
    start_ticks: u64,
}

impl ProcessId {
    /// The running process of that number.
    pub fn of(pid: i32) -> Option<Self> {
        let (state, start_ticks) = stat(pid)?;
        (state != 'Z').then_some(Self { pid, start_ticks })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Kills it, if it is still the same.
    pub fn kill(&self) {
        if let (true, Some(pid)) = (self.is_alive(), Pid::from_raw(self.pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Waits until it is gone; false if it still runs after `patience`.
    pub fn wait_gone(&self, patience: Duration) -> bool {
        let give_up = Instant::now() + patience;
        while self.is_alive() {
            if Instant::now() > give_up {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

/// State letter and start time of a process.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, parentheses too.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_living_from_the_dead() {
        let me = ProcessId::of(std::process::id() as i32).unwrap();
        assert!(me.is_alive());
        let later = ProcessId { start_ticks: me.start_ticks + 1, ..me };
        assert!(!later.is_alive(), "same number, another process");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        id.kill();
        assert!(id.wait_gone(Duration::from_secs(60)), "a zombie counts as gone");
        child.wait().unwrap();
        assert_eq!(ProcessId::of(-1), None);
    }
}
