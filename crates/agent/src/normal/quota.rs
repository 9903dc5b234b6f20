//! What is left of the processor time that the program's cgroup may take: `cpu.max`
//! (Documentation/admin-guide/cgroup-v2.rst), `cpu.cfs_quota_us` of version 1
//! (Documentation/scheduler/sched-bwc.rst, Linux 6.18). Containers have one. Idle priority
//! spares the program nothing there: what a copy takes is taken of the program's share, and
//! when that is used up both stand still until the period ends.

use super::cgroup::{Path, read_number};
use crate::procfs;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// No copy is made where of four parts of the quota so many were taken in the last
/// interval: a copy computes as much as the program does meanwhile, or more.
const SPENT_QUARTERS: u128 = 3;

/// The lowest quota on this process's cgroup. Looked for once in a process: one that is set
/// later goes unnoticed. All-zero: not looked for yet.
#[derive(Debug)]
struct Quota {
    looked: bool,
    /// Processor time in a second, in ns; 0: there is no quota.
    ns_per_s: u64,
    /// The file that tells what was taken, and NUL.
    usage: Path,
    /// What it told last, in ns, and when; 0: nothing yet.
    taken_ns: u64,
    at_ns: u64,
    is_spent: bool,
}

struct Shared {
    quota: UnsafeCell<Quota>,
    is_used: AtomicBool,
    is_set: AtomicBool,
}

// SAFETY: `is_used` is held by whoever uses the other.
unsafe impl Sync for Shared {}

static QUOTA: Shared = Shared {
    quota: UnsafeCell::new(Quota {
        looked: false,
        ns_per_s: 0,
        usage: Path::EMPTY,
        taken_ns: 0,
        at_ns: 0,
        is_spent: false,
    }),
    is_used: AtomicBool::new(false),
    is_set: AtomicBool::new(false),
};

/// Whether there is a quota, as [`is_spent`] has found.
pub fn is_set() -> bool {
    QUOTA.is_set.load(Relaxed)
}

/// Whether there is a quota, and most of it was taken since the last call, which another
/// thread may be making: `None` then, and where there is none.
pub fn is_spent(now_ns: u64) -> Option<bool> {
    if QUOTA.is_used.swap(true, Acquire) {
        return None;
    }
    // SAFETY: `is_used` has been seen false, and set.
    let quota = unsafe { &mut *QUOTA.quota.get() };
    quota.look();
    QUOTA.is_set.store(quota.ns_per_s != 0, Relaxed);
    let spent = (quota.ns_per_s != 0).then(|| {
        let taken_ns = taken_ns(quota.usage.with_nul());
        quota.tell(taken_ns, now_ns)
    });
    QUOTA.is_used.store(false, Release);
    spent
}

impl Quota {
    fn look(&mut self) {
        if !self.looked {
            self.looked = true;
            self.ns_per_s = self.usage.find_quota().unwrap_or(0);
        }
    }

    /// So much has been taken since the cgroup began (`None`: nobody says), at `now_ns`.
    fn tell(&mut self, taken_ns: Option<u64>, now_ns: u64) -> bool {
        let Some(taken_ns) = taken_ns else { return true };
        let taken = u128::from(taken_ns.saturating_sub(self.taken_ns));
        let passed = u128::from(now_ns.saturating_sub(self.at_ns));
        if self.at_ns != 0 && passed != 0 {
            let most = u128::from(self.ns_per_s) * passed * SPENT_QUARTERS / 4;
            self.is_spent = taken * 1_000_000_000 >= most;
        }
        (self.taken_ns, self.at_ns) = (taken_ns, now_ns);
        self.is_spent
    }
}

/// Processor time in `cpu.stat` (version 2, its first line in µs) or `cpuacct.usage`
/// (version 1, a number in ns), in ns; `path` ends in NUL.
fn taken_ns(path: &[u8]) -> Option<u64> {
    if path.ends_with(b"/cpuacct.usage\0") {
        return read_number(path);
    }
    let mut text = [0u8; 64];
    let line = procfs::read(path, &mut text)?.split(|&byte| byte == b'\n').next()?;
    procfs::decimal(line.strip_prefix(b"usage_usec ")?)?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(ns_per_s: u64) -> Quota {
        let usage = Path::EMPTY;
        Quota { looked: true, ns_per_s, usage, taken_ns: 0, at_ns: 0, is_spent: false }
    }

    #[test]
    fn three_quarters_of_a_quota_are_most_of_it() {
        // Half a processor.
        let mut quota = quota(500_000_000);
        assert!(!quota.tell(Some(7_000_000_000), 1_000_000_000), "nothing is known yet");
        // In 60 ms, of 30 ms.
        for (taken_ms, spent) in [(22, false), (23, true), (0, false), (30, true)] {
            let taken_ns = quota.taken_ns + taken_ms * 1_000_000;
            assert_eq!(quota.tell(Some(taken_ns), quota.at_ns + 60_000_000), spent);
        }
        let last = quota.tell(Some(quota.taken_ns), quota.at_ns);
        assert!(last, "no time has passed");
        assert!(quota.tell(None, quota.at_ns + 1), "nobody says");
    }

    #[test]
    fn what_was_taken_is_read_of_both_versions() {
        let root = std::env::temp_dir().join(std::format!("quota-test-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let taken = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::write(&path, text).unwrap();
            let mut path = path.into_os_string().into_encoded_bytes();
            path.push(0);
            taken_ns(&path)
        };
        let stat = "usage_usec 4711\nuser_usec 4000\nsystem_usec 711\nnr_periods 3\n";
        assert_eq!(taken("cpu.stat", stat), Some(4_711_000));
        assert_eq!(taken("cpuacct.usage", "4711\n"), Some(4711));
        assert_eq!(taken("cpu.stat", "nr_periods 3\n"), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
