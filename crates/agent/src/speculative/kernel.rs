//! The kernel as the emulator sees it: real calls through the gate, the
//! program's memory, and the wait for the normal process.

use super::regions::regions;
use super::{Own, imports, readers, reopen, shared};
use crate::Gate;
use crate::arch::{nr, syscall6, ticks};
use crate::config::CONFIG;
use crate::normal::group::Group;
use crate::sys;
use crate::usage;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use runahead_emulate::frontier::{Ahead, Walk};
use runahead_emulate::{Calls, Kernel, Mapped, Protecting};
use runahead_protocol::log::Log;
use runahead_protocol::stats::Park;

/// The memory cgroup, for its counters.
static GROUP: Own<Group> = Own(UnsafeCell::new(Group::EMPTY));

/// How often this thread had slept when that was last looked at, or when it last
/// woke from a sleep of its own.
static SLEPT: AtomicU64 = AtomicU64::new(0);

/// Longest sleep before the world is looked at again, in ns.
const LOOK_NS: u64 = 500_000_000;

impl Calls for Gate {
    fn call(&mut self, number: usize, args: [usize; 6]) -> isize {
        // SAFETY: in a speculative process the filter allows nothing that is
        // not safe there; in the normal process only the residency oracles
        // come here, whose calls change nothing.
        unsafe { syscall6(number, args) }
    }
}

/// Inside a speculative process.
pub struct Inside {
    /// The log that it shares with the normal process.
    pub log: &'static Log,
}

impl Calls for Inside {
    fn call(&mut self, number: usize, args: [usize; 6]) -> isize {
        let result = Gate.call(number, args);
        if number == nr::PREADV2
            && let Ok(bytes @ 1..) = u64::try_from(result)
        {
            self.log.read_bytes.fetch_add(bytes, Relaxed);
        }
        result
    }
}

/// Touches each page of a buffer that lies in a large mapping of a file, as
/// the kernel cannot: it would answer EFAULT where the fault handler opens a
/// page or puts zeros there.
fn bring_in(address: usize, len: usize) {
    if !regions().covers(address, len) {
        return;
    }
    let mut at = address;
    let end = address.saturating_add(len);
    while at < end {
        if regions().covers(at, 1) {
            let byte = at as *mut u8;
            // SAFETY: the program gave it to be written to; where it cannot
            // be, the fault handler parks this process.
            unsafe { byte.write_volatile(byte.read_volatile()) };
        }
        at = (at & !(sys::PAGE_SIZE - 1)).saturating_add(sys::PAGE_SIZE);
    }
}

impl Kernel for Inside {
    fn prepare_write(&mut self, address: usize, len: usize) -> bool {
        bring_in(address, len);
        imports::bring(address, len);
        !shared::was_shared(address, len) || shared::make_private(address, len)
    }

    fn load(&mut self, address: usize, into: &mut [u8]) -> bool {
        // SAFETY: where the program's memory is not readable, the fault
        // handler parks this process; `into` is memory of ours.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len())
        };
        true
    }

    fn store(&mut self, address: usize, from: &[u8]) -> bool {
        if !self.prepare_write(address, from.len()) {
            return false;
        }
        // SAFETY: as for `load`.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), address as *mut u8, from.len()) };
        true
    }

    fn is_shared(&mut self, address: usize, len: usize) -> bool {
        shared::was_shared(address, len) || regions().covers(address, len)
    }

    fn protecting(&mut self, address: usize, len: usize, protection: usize) -> Protecting {
        // Large mappings of files: the fault handler gives access, page by page.
        if regions().covers(address, len) {
            return Protecting::Done;
        }
        shared::protecting(address, len, protection)
    }

    fn is_absent(&mut self, address: usize, len: usize) -> bool {
        imports::touches(address, len)
    }

    fn mapped(&mut self, address: usize, len: usize, of: Option<Mapped>) {
        let len = len.next_multiple_of(sys::PAGE_SIZE);
        cut(address, len);
        if let Some(Mapped { fd, offset, protection }) = of
            && protection & sys::PROT_READ != 0
            && let Some(own) = reopen::again(fd)
        {
            regions().add_own((address, address + len), offset, protection, own);
        }
    }

    fn unmapped(&mut self, address: usize, len: usize) {
        cut(address, len.next_multiple_of(sys::PAGE_SIZE));
    }

    fn now_ns(&mut self) -> u64 {
        // Several times for each file: a call costs ten times the counter.
        match CONFIG.ticks_per_us.load(Relaxed) {
            0 => sys::now_ns(),
            ticks_per_us => {
                let ticks = ticks();
                ticks / ticks_per_us * 1000 + ticks % ticks_per_us * 1000 / ticks_per_us
            }
        }
    }

    fn wait_consumed(&mut self, until: u64) -> bool {
        loop {
            let word = self.log.wake_word.load(Acquire);
            self.log.wake_at.store(until, Relaxed);
            // The normal process looks at wake_at after it has stored
            // consumed, this process the other way round; the timeout covers
            // the store that neither has seen.
            if self.log.consumed.load(Acquire) >= until {
                self.log.wake_at.store(u64::MAX, Relaxed);
                return true;
            }
            sys::futex_wait(&self.log.wake_word, word, LOOK_NS);
            self.slept();
        }
    }

    fn walk(&mut self, walk: &Walk, readers: u32) -> bool {
        match self.log.directories.readers_max.load(Relaxed) {
            0 => false,
            most => readers::walk(walk, readers.min(most)),
        }
    }

    fn reached(&mut self, dev: u64, ino: u64) -> Ahead {
        readers::reached(dev, ino)
    }

    fn refaults(&mut self) -> Option<u64> {
        // SAFETY: emulation is one thread's, and not re-entered.
        let group = unsafe { &mut *GROUP.0.get() };
        group.read().map(|reading| reading.refaults)
    }

    fn pause(&mut self, ns: u64) {
        sys::sleep(ns);
        self.slept();
    }

    fn slept(&mut self) -> bool {
        let now = usage::of_thread().voluntary_switches;
        SLEPT.swap(now, Relaxed) != now
    }
}

/// Of a range that is no longer what it was nothing is kept track of.
fn cut(address: usize, len: usize) {
    if !regions().cut(address, len) {
        super::park(Park::TableFull, -1);
    }
}
