//! Watching the program wait (Fraser and Chang, section 4.1.2, where the kernel
//! does not tell: `normal::watch`). `/proc/PID/task/TID/syscall` says of a
//! thread that is off its processor in no system call where it will go on: it
//! waits in a page fault. The aide then sees to it that it goes on in a stub of
//! the agent's ([`crate::arch::Redirect`]).
//!
//! It writes one word of the program's memory, and only where nothing is in
//! it: `rseq_cs` of the process's first thread, whose area is never freed.

use crate::arch::{Bytes, INSTRUCTION_LEN_MAX, import_nr, nr, redirect_of};
use crate::config::CONFIG;
use crate::procfs;
use crate::state::{State, watched};
use crate::status;
use crate::sys::{self, IoVec, call};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use runahead_protocol::session::TEST_EVERY_READ_STALLS;
use runahead_protocol::stats::Loss;

/// Between two looks at a program that waits, in ns.
const LOOK_NS: u64 = 200_000;

/// The same at most, where it does not: a look takes 3 µs of a processor that
/// the program may need.
const LOOK_MAX_NS: u64 = 32_000_000;

/// While testing.
const LOOK_TEST_NS: u64 = 10_000;

/// Looks in a row that may be refused: the program allows them just after the
/// aide has been made.
const REFUSALS_MAX: u32 = 64;

/// Addresses from here on are not the program's.
const ADDRESS_END: u64 = 1 << 47;

/// Where `rseq_cs` lies in `struct rseq`.
const SEQUENCE_AT: usize = 8;

/// The aide's view of its program.
#[derive(Debug, Default)]
pub struct Look {
    /// `/proc/PID/task/PID/syscall` plus one; 0: not opened.
    file: usize,
    interval_ns: u64,
    /// When to look next.
    next_ns: u64,
    refusals: u32,
}

impl Look {
    /// How long until the next look, in ns; `None`: nobody wants one.
    pub fn due_ns(&self, state: &State) -> Option<u64> {
        (state.watch.load(Relaxed) == watched::YES)
            .then(|| self.next_ns.saturating_sub(sys::now_ns()).max(1))
    }

    /// Looks, if it is time.
    pub fn where_due(&mut self, state: &State, pid: usize) {
        if state.watch.load(Relaxed) != watched::YES || sys::now_ns() < self.next_ns {
            return;
        }
        self.once(state, pid);
        let often = CONFIG.test.load(Relaxed) & TEST_EVERY_READ_STALLS != 0;
        let interval_ns = if often { LOOK_TEST_NS } else { self.interval_ns.max(LOOK_NS) };
        self.next_ns = sys::now_ns().saturating_add(interval_ns);
    }

    fn once(&mut self, state: &State, pid: usize) {
        if self.file == 0 {
            self.file = open(pid).map_or(0, |file| file + 1);
        }
        let mut text = [0u8; 192];
        let (at, len) = (text.as_mut_ptr() as usize, text.len());
        // SAFETY: the kernel writes at most the array.
        let got = unsafe { call(nr::PREAD64, &[self.file.wrapping_sub(1), at, len, 0]) };
        let Ok(got) = usize::try_from(sys::count_own_read(got)) else {
            self.refusals += 1;
            if self.refusals >= REFUSALS_MAX {
                state.watch.store(watched::REFUSED, Relaxed);
                if let Some(slot) = state.slot() {
                    slot.lose(Loss::NoNotice);
                }
            }
            return;
        };
        self.refusals = 0;
        let shortest = LOOK_NS << state.watch_slower.load(Relaxed).min(8);
        let led = text.get(..got).and_then(waits_at).map(|at| lead(state, pid, at));
        match led {
            Some(led @ (Led::Now | Led::Otherwise)) => {
                if led == Led::Now {
                    state.watch_gap_ns.store(self.interval_ns.max(shortest), Relaxed);
                    state.watch_seen_ns.store(sys::now_ns(), Relaxed);
                }
                self.interval_ns = shortest;
            }
            Some(Led::Not) | None => {
                self.interval_ns = (self.interval_ns * 2).max(shortest).min(LOOK_MAX_NS)
            }
        }
    }
}

fn open(pid: usize) -> Option<usize> {
    let (mut room, mut path) = ([0u8; 20], [0u8; 64]);
    let number = procfs::digits(pid, &mut room);
    let path = procfs::path(&[b"/proc/", number, b"/task/", number, b"/syscall\0"], &mut path)?;
    usize::try_from(sys::open_read(path)).ok()
}

/// Whether the program takes no notice of where an access fails. The kernel leads a thread
/// away before it runs a handler, which is told then that it was our stub that failed; many
/// handlers look that up. Asked each time, while the thread waits: it can change nothing
/// of it meanwhile.
fn may_be_led(pid: usize) -> bool {
    status::read_of(pid).is_some_and(|status| !status.catches_bad_accesses())
}

/// The instruction of a line "-1 0xSP 0xPC": off its processor, in no system
/// call (proc_pid_syscall(5)).
fn waits_at(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"-1 0x")?.trim_ascii_end();
    let last = text.split(|&byte| byte == b' ').nth(1)?.strip_prefix(b"0x")?;
    let value = procfs::hexadecimal(last)? as u64;
    (value != 0 && value < ADDRESS_END).then_some(value)
}

/// What becomes of a thread that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Led {
    /// It goes on by way of the agent, since now.
    Now,
    /// It will do so already, or cannot here.
    Otherwise,
    /// It may not.
    Not,
}

/// Has the thread go on at its instruction by way of the agent.
fn lead(state: &State, pid: usize, instruction: u64) -> Led {
    let image = CONFIG.image_start.load(Relaxed) as u64..CONFIG.image_end.load(Relaxed) as u64;
    let area = state.watch_area.load(Relaxed);
    if area == 0 || image.contains(&instruction) {
        return Led::Otherwise;
    }
    let Some(redirect) = redirect_of(instruction, || bytes_at(instruction as usize)) else {
        return Led::Otherwise;
    };
    // SAFETY: a word of the first thread's area, which the kernel has confirmed
    // (`normal::watch`): in the block of the first thread, which stays mapped.
    let sequence = unsafe { &*((area + SEQUENCE_AT) as *const AtomicU64) };
    if redirect.is_entered() || sequence.load(Relaxed) != 0 {
        return Led::Otherwise;
    }
    if !may_be_led(pid) {
        return Led::Not;
    }
    // A sequence of the program's own is left alone. One that it begins now
    // takes the place of this one.
    let put = sequence.compare_exchange(0, redirect.address(), AcqRel, Relaxed);
    if put.is_ok() { Led::Now } else { Led::Otherwise }
}

/// The bytes of an instruction; `None` where it is, or follows, a system call:
/// there the kernel may have been asked to make the call again.
fn bytes_at(instruction: usize) -> Option<Bytes> {
    let mut before = [0u8; 2];
    read(instruction.wrapping_sub(2), &mut before);
    let mut bytes = [0u8; INSTRUCTION_LEN_MAX];
    let len = read(instruction, &mut bytes);
    let calls = |bytes: [u8; 2]| matches!(bytes, [0x0f, 0x05 | 0x34] | [0xcd, 0x80]);
    let [first, second, ..] = bytes;
    (len > 0 && !calls(before) && !calls([first, second])).then_some(Bytes { bytes, len })
}

/// Reads the program's memory without touching it: what is gone is an error.
fn read(at: usize, into: &mut [u8]) -> usize {
    let own = IoVec { base: into.as_mut_ptr() as usize, len: into.len() };
    let theirs = IoVec { base: at, len: into.len() };
    let [own, theirs] = [&own, &theirs].map(|vector| core::ptr::from_ref(vector) as usize);
    let pid = sys::getpid() as usize;
    // SAFETY: reads memory that this process shares, into an array of ours.
    let got = unsafe { call(import_nr::PROCESS_VM_READV, &[pid, own, 1, theirs, 1, 0]) };
    usize::try_from(got).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_that_waits_in_no_call_is_led() {
        assert_eq!(waits_at(b"-1 0x7ffd12345678 0x55aa12345678\n"), Some(0x55aa_1234_5678));
        for other in [
            &b"running\n"[..],
            b"0 0x3 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd12345678 0x7f0012345678\n",
            b"-1 0x0 0x0\n", // It has ended.
            b"-1 0x7ffd12345678 0xffffffffff600000\n",
            b"-1 0x7ffd12345678",
            b"",
        ] {
            assert_eq!(waits_at(other), None);
        }
    }

    #[test]
    fn system_calls_are_not_led_anywhere() {
        let code = [0x90u8, 0x90, 0x0f, 0x05, 0x8b, 0x07, 0x90, 0x90];
        let at = |offset: usize| bytes_at(code.as_ptr() as usize + offset);
        assert!(at(2).is_none(), "the call itself");
        assert!(at(4).is_none(), "what follows it");
        assert!(at(5).is_some_and(|bytes| bytes.len > 0));
        assert!(bytes_at(16).is_none(), "nothing is there");
    }

    #[test]
    fn the_file_of_a_process_is_found() {
        let pid = std::process::id() as usize;
        assert!(open(pid).is_some());
    }
}
