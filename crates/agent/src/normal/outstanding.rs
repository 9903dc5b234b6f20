//! Swapped pages that a copy had brought back when it ended, and that the program
//! has not come to. They are speculative for as long as they lie in the swap cache
//! (SpecPages_p of section 6.1), and each that the program then maps is a removed
//! stall: Benefit_p goes on while speculation is stopped. What has been evicted
//! before is neither.
//!
//! A sample of them is followed, at the end of each interval: one that was in the
//! swap cache at a look and is mapped at the next has been used without a wait.

use super::accounting::{LOOKS, spread};
use super::faults;
use crate::arch::import_nr;
use crate::sys::{PAGE_SIZE, call};
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::log::{Log, PAGES_MAX};

/// Pages that are followed.
const SAMPLES: usize = LOOKS as usize;

/// A sample of what the copy that ended last has left. All-zero: nothing.
#[derive(Debug, Default)]
pub struct Outstanding {
    /// Numbers of pages: addresses in units of a page.
    sample: [u64; SAMPLES],
    /// How many of them there are.
    len: u64,
    /// A bit for each that may lie in the swap cache, or be on its way there.
    waiting: u16,
    /// A bit for each that has been seen there.
    seen: u16,
    /// Pages that they stand for.
    span: u64,
}

impl Outstanding {
    /// What a copy leaves that is about to end and has prefetched nothing but
    /// swapped pages.
    pub fn of(log: &Log) -> Outstanding {
        // Values from the log may be noise: bound them.
        let tail = log.pages.tail.load(Relaxed);
        let span = tail.saturating_sub(log.pages.consumed.load(Relaxed)).min(PAGES_MAX as u64);
        let mut left = Outstanding { span, ..Default::default() };
        for (number, cell) in spread(tail, span).zip(&mut left.sample) {
            *cell = log.pages.get(number).unwrap_or(0);
            left.len += 1;
            left.waiting = left.waiting << 1 | 1;
        }
        left
    }

    /// Pages that lie in the swap cache, as far as is known.
    pub fn pages(&self) -> u64 {
        self.stand_for(self.waiting)
    }

    fn stand_for(&self, bits: u16) -> u64 {
        (self.span * u64::from(bits.count_ones())).checked_div(self.len).unwrap_or(0)
    }

    /// Looks where they are; returns how many the program has used since the last
    /// look without a wait.
    pub fn look(&mut self) -> u64 {
        if self.waiting == 0 {
            return 0;
        }
        let Some(used) = faults::with_pagemap(|pagemap| self.used_by(pagemap)) else {
            self.waiting = 0;
            return 0;
        };
        self.stand_for(used)
    }

    /// Bits of those that the program has used.
    fn used_by(&mut self, pagemap: i32) -> u16 {
        let mut used = 0;
        for (index, &page) in self.sample.iter().enumerate() {
            let bit = 1 << index;
            if self.waiting & bit == 0 {
                continue;
            }
            if faults::is_present(pagemap, page) {
                used |= self.seen & bit;
                self.waiting &= !bit;
            } else if is_cached(page) {
                self.seen |= bit;
            } else {
                self.waiting &= !bit;
            }
        }
        used
    }
}

/// Whether a page that is not mapped lies in the swap cache (mincore(2)).
fn is_cached(page: u64) -> bool {
    let mut resident = 0u8;
    let at = core::ptr::from_mut(&mut resident) as usize;
    // SAFETY: the kernel writes one byte. The page is a hint, perhaps noise: of what
    // is not mapped it has nothing to say.
    let result = unsafe {
        call(import_nr::MINCORE, &[(page as usize).wrapping_mul(PAGE_SIZE), PAGE_SIZE, at])
    };
    result == 0 && resident & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    const PAGES: usize = 64;

    /// Pages of a file in memory, which mincore(2) sees as it sees a swap cache.
    fn memory() -> usize {
        // SAFETY: new memory.
        unsafe {
            let file = libc::memfd_create(c"outstanding".as_ptr(), 0);
            let len = PAGES * PAGE_SIZE;
            let zeros = [0u8; PAGES * PAGE_SIZE];
            assert_eq!(libc::write(file, zeros.as_ptr().cast(), len), len as isize);
            let all = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(core::ptr::null_mut(), len, all, libc::MAP_SHARED, file, 0);
            assert_ne!(at, libc::MAP_FAILED);
            at as usize
        }
    }

    fn log(memory: usize, consumed: u64) -> Box<Log> {
        // SAFETY: zeroed memory is a valid log.
        let log: Box<Log> = unsafe { Box::new_zeroed().assume_init() };
        (0..PAGES).for_each(|at| log.pages.push((memory / PAGE_SIZE + at) as u64));
        log.pages.consumed.store(consumed, Relaxed);
        log
    }

    fn drop_pages(memory: usize, from: usize, to: usize) {
        let at = (memory + from * PAGE_SIZE) as *mut libc::c_void;
        // SAFETY: of the test's own mapping: a hole has no page.
        let result = unsafe { libc::madvise(at, (to - from) * PAGE_SIZE, libc::MADV_REMOVE) };
        assert_eq!(result, 0);
    }

    fn touch(memory: usize, from: usize, to: usize) {
        // SAFETY: pages of the test's own mapping.
        (from..to).for_each(|at| unsafe {
            ((memory + at * PAGE_SIZE) as *mut u8).write_volatile(1);
        });
    }

    #[test]
    fn only_what_lay_there_and_is_mapped_next_has_been_used() {
        let memory = memory();
        let log = log(memory, 32);
        let mut left = Outstanding::of(&log);
        assert_eq!(left.pages(), 32);
        assert_eq!(left.look(), 0);
        assert_eq!(left.pages(), 32, "all lie there");
        drop_pages(memory, 48, 64);
        touch(memory, 48, 64);
        touch(memory, 32, 40);
        drop_pages(memory, 40, 44);
        // The last sixteen have been evicted and brought back between two looks:
        // nobody has seen it, so they count.
        assert_eq!((left.look(), left.pages()), (8 + 16, 4));
        assert_eq!(left.look(), 0, "once");
    }

    #[test]
    fn what_was_never_seen_there_is_not_credited() {
        let memory = memory();
        let log = log(memory, 0);
        let mut left = Outstanding::of(&log);
        drop_pages(memory, 0, 32);
        touch(memory, 32, 64);
        assert_eq!((left.look(), left.pages()), (0, 0));
        touch(memory, 0, 64);
        assert_eq!(left.look(), 0);
    }

    #[test]
    fn noise_is_bounded() {
        let memory = memory();
        let log = log(memory, u64::MAX);
        assert_eq!(Outstanding::of(&log).pages(), 0);
        log.pages.consumed.store(0, Relaxed);
        log.pages.tail.store(u64::MAX, Relaxed);
        let mut left = Outstanding::of(&log);
        assert!(left.pages() <= PAGES_MAX as u64);
        left.sample.fill(u64::MAX);
        assert_eq!((left.look(), left.pages()), (0, 0));
        assert_eq!(Outstanding::default().pages(), 0);
    }
}
