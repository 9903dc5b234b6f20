//! Who the program is, its signals, its limits, its locks and its sleep.

use crate::abi::*;
use crate::arch::nr;
use crate::context::Context;
use crate::kernel::Kernel;
use crate::outcome::{Answer, errno, park};
use runahead_protocol::stats::Park;

/// Size of the kernel's `sigset_t`, in bytes.
const SIGSET_BYTES: usize = 8;

/// Signals that cannot be blocked or handled: SIGKILL and SIGSTOP.
const UNBLOCKABLE: u64 = 1 << (9 - 1) | 1 << (19 - 1);

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn getpid(&mut self, _: [usize; 6]) -> Answer {
        Ok(self.e.identity.pid as usize)
    }

    pub(crate) fn gettid(&mut self, _: [usize; 6]) -> Answer {
        Ok(self.e.identity.tid as usize)
    }

    pub(crate) fn getppid(&mut self, _: [usize; 6]) -> Answer {
        Ok(self.e.identity.ppid as usize)
    }

    pub(crate) fn getpgrp(&mut self, _: [usize; 6]) -> Answer {
        Ok(self.e.identity.pgid as usize)
    }

    pub(crate) fn getpgid(&mut self, a: [usize; 6]) -> Answer {
        self.of_itself(a[0], self.e.identity.pgid)
    }

    pub(crate) fn getsid(&mut self, a: [usize; 6]) -> Answer {
        self.of_itself(a[0], self.e.identity.sid)
    }

    fn of_itself(&self, pid: usize, value: i32) -> Answer {
        match pid as i32 {
            0 => Ok(value as usize),
            pid if pid == self.e.identity.pid => Ok(value as usize),
            _ => park(Park::Unanswerable),
        }
    }

    /// `kill(pid, signal)`: to others it is swallowed.
    pub(crate) fn kill(&mut self, a: [usize; 6]) -> Answer {
        let identity = self.e.identity;
        let target = a[0] as i32;
        let group = target == 0 || target == -1 || target == -identity.pgid;
        self.signal(a[1], target == identity.pid || group)
    }

    /// `gettimeofday(time, zone)`.
    pub(crate) fn gettimeofday(&mut self, a: [usize; 6]) -> Answer {
        for (address, len) in [(a[0], 16), (a[1], 8)] {
            if address != 0 {
                self.ready(address, len)?;
            }
        }
        self.on_program(nr::GETTIMEOFDAY, a)
    }

    /// `tkill(tid, signal)`.
    pub(crate) fn tkill(&mut self, a: [usize; 6]) -> Answer {
        self.signal(a[1], a[0] as i32 == self.e.identity.tid)
    }

    /// `tgkill(pid, tid, signal)`.
    pub(crate) fn tgkill(&mut self, a: [usize; 6]) -> Answer {
        self.signal(a[2], a[0] as i32 == self.e.identity.pid)
    }

    fn signal(&mut self, signal: usize, itself: bool) -> Answer {
        match signal {
            0 => Ok(0),
            65.. => errno(EINVAL),
            _ if itself => park(Park::Signal),
            _ => Ok(0),
        }
    }

    /// `rt_sigaction`: the kernel's actions stay the agent's.
    pub(crate) fn rt_sigaction(&mut self, a: [usize; 6]) -> Answer {
        let [signal, new, old, size, ..] = a;
        let index = signal.wrapping_sub(1);
        if size != SIGSET_BYTES || index >= crate::emulator::SIGNALS_MAX {
            return errno(EINVAL);
        }
        if new != 0 && UNBLOCKABLE >> index & 1 == 1 {
            return errno(EINVAL);
        }
        let wanted = if new == 0 { None } else { Some(self.load_words::<4>(new)?) };
        if old != 0 {
            if self.e.known_actions >> index & 1 == 1 {
                let action = self.e.actions.get(index).copied().unwrap_or([0; 4]);
                self.store_words(old, &action)?;
            } else {
                self.ready(old, 32)?;
                self.on_program(nr::RT_SIGACTION, [signal, 0, old, size, 0, 0])?;
            }
        }
        if let (Some(action), Some(slot)) = (wanted, self.e.actions.get_mut(index)) {
            *slot = action;
            self.e.known_actions |= 1 << index;
        }
        Ok(0)
    }

    /// `rt_sigprocmask`: what the kernel blocks stays the agent's.
    pub(crate) fn rt_sigprocmask(&mut self, a: [usize; 6]) -> Answer {
        let [how, new, old, size, ..] = a;
        if size != SIGSET_BYTES {
            return errno(EINVAL);
        }
        let blocked = self.e.blocked_signals;
        if new != 0 {
            let [set] = self.load_words(new)?;
            let set = set & !UNBLOCKABLE;
            self.e.blocked_signals = match how {
                0 => blocked | set,
                1 => blocked & !set,
                2 => set,
                _ => return errno(EINVAL),
            };
        }
        if old != 0 {
            self.store_words(old, &[blocked])?;
        }
        Ok(0)
    }

    pub(crate) fn rt_sigpending(&mut self, a: [usize; 6]) -> Answer {
        self.store_words(a[0], &[0])?;
        Ok(0)
    }

    pub(crate) fn sigaltstack(&mut self, a: [usize; 6]) -> Answer {
        const SS_DISABLE: u64 = 2;
        const MINSIGSTKSZ: u64 = 2048;
        let old = self.e.altstack;
        if a[0] != 0 {
            let [sp, flags, size] = self.load_words(a[0])?;
            // ss_flags is an int; SS_AUTODISARM may be or'ed in.
            let flags = flags & 0xffff_ffff;
            if flags & !(SS_DISABLE | 1 | 1 << 31) != 0 {
                return errno(EINVAL);
            }
            if flags & SS_DISABLE != 0 {
                self.e.altstack = [0, flags, 0];
            } else if size < MINSIGSTKSZ {
                return errno(ENOMEM);
            } else {
                self.e.altstack = [sp, flags & !1, size];
            }
        }
        if a[1] != 0 {
            self.store_words(a[1], &old)?;
        }
        Ok(0)
    }

    /// `futex`: a wait that would block waits for another thread.
    pub(crate) fn futex(&mut self, a: [usize; 6]) -> Answer {
        const FUTEX_WAIT: usize = 0;
        const FUTEX_WAKE: usize = 1;
        const FUTEX_REQUEUE: usize = 3;
        const FUTEX_CMP_REQUEUE: usize = 4;
        const FUTEX_WAIT_BITSET: usize = 9;
        const FUTEX_WAKE_BITSET: usize = 10;
        // Without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
        match a[1] & 0x7f {
            FUTEX_WAIT | FUTEX_WAIT_BITSET => {
                if self.load_u32(a[0])? != a[2] as u32 {
                    return errno(EAGAIN);
                }
                park(Park::NeedsOther)
            }
            FUTEX_WAKE | FUTEX_REQUEUE | FUTEX_CMP_REQUEUE | FUTEX_WAKE_BITSET => Ok(0),
            _ => park(Park::NeedsOther),
        }
    }

    /// `wait4(pid, status, options, rusage)`, `waitid(…, options)`: no child
    /// has changed as far as this process can know.
    pub(crate) fn wait4(&mut self, a: [usize; 6]) -> Answer {
        const WNOHANG: usize = 1;
        if a[2] & WNOHANG != 0 { Ok(0) } else { park(Park::NeedsOther) }
    }

    /// `prlimit64`: looking only.
    pub(crate) fn prlimit64(&mut self, a: [usize; 6]) -> Answer {
        if a[0] != 0 && a[0] as i32 != self.e.identity.pid {
            return park(Park::Unanswerable);
        }
        if a[3] != 0 {
            self.ready(a[3], 16)?;
            return self.on_program(nr::PRLIMIT64, [0, a[1], 0, a[3], 0, 0]);
        }
        Ok(0)
    }

    pub(crate) fn getrandom(&mut self, a: [usize; 6]) -> Answer {
        self.ready(a[0], a[1])?;
        self.on_program(nr::GETRANDOM, [a[0], a[1], a[2], 0, 0, 0])
    }

    pub(crate) fn getgroups(&mut self, a: [usize; 6]) -> Answer {
        self.ready(a[1], (a[0] & 0xffff).saturating_mul(4))?;
        self.on_program(nr::GETGROUPS, [a[0] & 0xffff, a[1], 0, 0, 0, 0])
    }

    pub(crate) fn getresuid(&mut self, a: [usize; 6]) -> Answer {
        self.three_ids(nr::GETRESUID, a)
    }

    pub(crate) fn getresgid(&mut self, a: [usize; 6]) -> Answer {
        self.three_ids(nr::GETRESGID, a)
    }

    fn three_ids(&mut self, number: usize, a: [usize; 6]) -> Answer {
        for address in [a[0], a[1], a[2]] {
            self.ready(address, 4)?;
        }
        self.on_program(number, [a[0], a[1], a[2], 0, 0, 0])
    }

    /// `capget(header, data)`.
    pub(crate) fn capget(&mut self, a: [usize; 6]) -> Answer {
        self.ready(a[0], 8)?;
        if a[1] != 0 {
            self.ready(a[1], 24)?;
        }
        self.on_program(nr::CAPGET, [a[0], a[1], 0, 0, 0, 0])
    }

    pub(crate) fn getcpu(&mut self, a: [usize; 6]) -> Answer {
        for address in [a[0], a[1]] {
            if address != 0 {
                self.ready(address, 4)?;
            }
        }
        self.on_program(nr::GETCPU, [a[0], a[1], 0, 0, 0, 0])
    }

    pub(crate) fn sched_getaffinity(&mut self, a: [usize; 6]) -> Answer {
        if a[0] != 0 && a[0] as i32 != self.e.identity.pid && a[0] as i32 != self.e.identity.tid {
            return park(Park::Unanswerable);
        }
        self.ready(a[2], a[1])?;
        self.on_program(nr::SCHED_GETAFFINITY, [0, a[1], a[2], 0, 0, 0])
    }

    pub(crate) fn prctl(&mut self, a: [usize; 6]) -> Answer {
        const PR_SET_PDEATHSIG: usize = 1;
        const PR_GET_DUMPABLE: usize = 3;
        const PR_SET_DUMPABLE: usize = 4;
        const PR_SET_NAME: usize = 15;
        const PR_SET_TIMERSLACK: usize = 29;
        const PR_SET_THP_DISABLE: usize = 41;
        const PR_SET_VMA: usize = 0x5356_4d41;
        match a[0] {
            PR_SET_PDEATHSIG | PR_SET_DUMPABLE | PR_SET_NAME | PR_SET_TIMERSLACK
            | PR_SET_THP_DISABLE | PR_SET_VMA => Ok(0),
            PR_GET_DUMPABLE => Ok(1),
            _ => park(Park::Unanswerable),
        }
    }

    /// `arch_prctl`: the segment bases are registers of this process alone.
    pub(crate) fn arch_prctl(&mut self, a: [usize; 6]) -> Answer {
        match a[0] {
            0x1001 | 0x1002 => self.on_program(nr::ARCH_PRCTL, [a[0], a[1], 0, 0, 0, 0]),
            0x1003 | 0x1004 => {
                self.ready(a[1], 8)?;
                self.on_program(nr::ARCH_PRCTL, [a[0], a[1], 0, 0, 0, 0])
            }
            _ => errno(EINVAL),
        }
    }

    /// `personality`: looking only.
    pub(crate) fn personality(&mut self, a: [usize; 6]) -> Answer {
        if a[0] as u32 != u32::MAX {
            return park(Park::Unanswerable);
        }
        self.on_program(nr::PERSONALITY, [a[0], 0, 0, 0, 0, 0])
    }

    /// `setitimer(which, new, old)`: no timer ever fires.
    pub(crate) fn setitimer(&mut self, a: [usize; 6]) -> Answer {
        self.zero_itimer(a[2])
    }

    pub(crate) fn getitimer(&mut self, a: [usize; 6]) -> Answer {
        self.zero_itimer(a[1])
    }

    /// `timer_settime` and `timerfd_settime` give the old value in the
    /// fourth argument.
    pub(crate) fn timer_settime(&mut self, a: [usize; 6]) -> Answer {
        self.zero_itimer(a[3])
    }

    fn zero_itimer(&mut self, address: usize) -> Answer {
        if address != 0 {
            self.store_words(address, &[0; 4])?;
        }
        Ok(0)
    }

    /// `timer_create(clock, event, id)`.
    pub(crate) fn timer_create(&mut self, a: [usize; 6]) -> Answer {
        self.store(a[2], &0u32.to_ne_bytes())?;
        Ok(0)
    }

    pub(crate) fn sched_getparam(&mut self, a: [usize; 6]) -> Answer {
        self.store(a[1], &0u32.to_ne_bytes())?;
        Ok(0)
    }
}
