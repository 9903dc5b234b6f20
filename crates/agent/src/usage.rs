//! Resource usage (getrusage(2), wait4(2)).

use crate::arch::nr;
use crate::sys::call;

/// `struct rusage` (x86-64), as far as the agent looks at it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Usage {
    user_s: u64,
    user_us: u64,
    system_s: u64,
    system_us: u64,
    /// Largest resident set, in KiB.
    pub peak_kib: u64,
    unused: [u64; 3],
    /// Faults that needed no storage.
    pub minor_faults: u64,
    /// Faults that waited for storage.
    pub major_faults: u64,
    others: [u64; 6],
    /// Times that it gave its processor up because it had to wait.
    pub voluntary_switches: u64,
    /// Times that its processor was taken away.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Processor time, user and system, in µs.
    pub fn cpu_us(&self) -> u64 {
        let seconds = self.user_s.wrapping_add(self.system_s);
        seconds.wrapping_mul(1_000_000).wrapping_add(self.user_us).wrapping_add(self.system_us)
    }
}

/// Of this process.
pub fn of_self() -> Usage {
    of(0)
}

/// Of this thread.
pub fn of_thread() -> Usage {
    const RUSAGE_THREAD: usize = 1;
    of(RUSAGE_THREAD)
}

fn of(whom: usize) -> Usage {
    let mut usage = Usage::default();
    // SAFETY: the kernel writes one struct rusage, which Usage has the size of.
    unsafe { call(nr::GETRUSAGE, &[whom, core::ptr::from_mut(&mut usage) as usize]) };
    usage
}

const _: () = assert!(size_of::<Usage>() == 144);
