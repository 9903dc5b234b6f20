//! Memory in which a child by vfork(2) puts together what it executes a program
//! with. Its stack may be small and lie inside its parent's, and what it maps its
//! parent keeps when it has gone. So that is used again, by one child after another.

use crate::arch::nr;
use crate::lease::Lease;
use crate::state::State;
use crate::sys::{self, call};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

const WORD: usize = size_of::<usize>();

/// Memory that one child at a time has.
#[derive(Debug)]
pub struct Scratch {
    lease: Lease,
    address: AtomicUsize,
    /// So many; 0: not mapped yet.
    words: AtomicUsize,
}

/// What `action` comes to with so many words, of any content; `None` where they are
/// not to be had.
#[cold]
pub fn with<R>(state: &State, words: usize, action: impl FnOnce(&mut [usize]) -> R) -> Option<R> {
    let mut scratches = state.scratches.iter();
    let (scratch, before) = scratches.find_map(|free| Some((free, free.lease.take()?)))?;
    let address = scratch.room(words);
    let result = address.map(|address| {
        // SAFETY: mapped, of this length or longer, and nobody else's now.
        action(unsafe { core::slice::from_raw_parts_mut(address as *mut usize, words) })
    });
    // Only what goes on in this memory comes here.
    scratch.lease.give_back(before);
    result
}

impl Scratch {
    /// Makes sure of so many words, for whoever has it.
    fn room(&self, words: usize) -> Option<usize> {
        let (address, had) = (self.address.load(Relaxed), self.words.load(Relaxed));
        if had >= words {
            return Some(address);
        }
        // One that is killed in between leaves a mapping that nobody knows of, but
        // nobody with one that is not there.
        self.words.store(0, Relaxed);
        if had != 0 {
            // SAFETY: mapped below; nobody else's now.
            unsafe { call(nr::MUNMAP, &[address, had * WORD]) };
        }
        let len = (words * WORD).next_multiple_of(sys::PAGE_SIZE);
        let address = sys::map_anonymous(len, sys::MAP_PRIVATE);
        if address == 0 {
            return None;
        }
        // Forked children know nothing of it.
        // SAFETY: advice on what has just been mapped.
        unsafe { call(nr::MADVISE, &[address, len, sys::MADV_DONTFORK]) };
        self.address.store(address, Relaxed);
        self.words.store(len / WORD, Relaxed);
        Some(address)
    }
}
