//! The allocator: the first memory comes from a small static arena.
//!
//! `runahead PROGRAM` makes a few dozen short-lived allocations before it
//! executes the program. musl asks the kernel for each group of them and gives
//! it back, thirty calls and a dozen page faults in a start-up that is counted
//! in microseconds. What the arena has given is not taken back, but for the
//! last piece; when it is empty, everything goes to the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Its size in bytes: what a launch takes with a large environment. Only pages
/// that are used take memory.
const LEN: usize = 256 * 1024;

/// Larger pieces come from the system.
const PIECE_MAX: usize = 32 * 1024;

#[repr(align(64))]
struct Memory(UnsafeCell<[u8; LEN]>);

// SAFETY: each byte is given to one owner at a time, by `USED`.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; LEN]));
/// Bytes from the start that have been given.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The allocator.
pub struct Arena;

/// Where `pointer` lies in the arena.
fn position(pointer: *mut u8) -> Option<usize> {
    (pointer as usize).checked_sub(MEMORY.0.get() as usize).filter(|at| *at < LEN)
}

/// The piece that starts at or after `used`, and its end.
fn piece(used: usize, layout: Layout) -> Option<(usize, usize)> {
    let base = MEMORY.0.get() as usize;
    let at = (base + used).checked_next_multiple_of(layout.align())? - base;
    let end = at.checked_add(layout.size())?;
    (layout.size() <= PIECE_MAX && end <= LEN).then_some((at, end))
}

// SAFETY: pieces of the arena lie apart from each other, aligned and inside,
// and are never moved; all others are the system's.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut used = USED.load(Relaxed);
        while let Some((at, end)) = piece(used, layout) {
            match USED.compare_exchange_weak(used, end, Relaxed, Relaxed) {
                // SAFETY: inside the arena.
                Ok(_) => return unsafe { MEMORY.0.get().cast::<u8>().add(at) },
                Err(other) => used = other,
            }
        }
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > PIECE_MAX {
            // Pages that the kernel has zeroed are not written.
            // SAFETY: the caller's own promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's own promise; as long as the layout says.
        unsafe {
            let pointer = self.alloc(layout);
            if !pointer.is_null() {
                pointer.write_bytes(0, layout.size());
            }
            pointer
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match position(pointer) {
            // Taken back where it is the last one.
            Some(at) => _ = USED.compare_exchange(at + layout.size(), at, Relaxed, Relaxed),
            // SAFETY: not of the arena, so the system's.
            None => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(at) = position(pointer) else {
            // SAFETY: not of the arena, so the system's.
            return unsafe { System.realloc(pointer, layout, size) };
        };
        // The last one grows or shrinks where it is.
        let end = at + layout.size();
        let fits = size <= PIECE_MAX && at + size <= LEN;
        if fits && USED.compare_exchange(end, at + size, Relaxed, Relaxed).is_ok() {
            return pointer;
        }
        // SAFETY: the caller promises a valid size for this alignment; old and
        // new are apart, and both as long as what is copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                pointer.copy_to_nonoverlapping(new, size.min(layout.size()));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_apart_and_keep_their_bytes() {
        let mut rounds = Vec::new();
        for round in 0..2000_usize {
            let layout = Layout::from_size_align(1 + round % 300, 1 << (round % 7)).unwrap();
            // SAFETY: a layout of at least one byte; freed below with it.
            let pointer = unsafe { Arena.alloc(layout) };
            assert_eq!(pointer as usize % layout.align(), 0);
            // SAFETY: layout.size() bytes of ours.
            unsafe { pointer.write_bytes(round as u8, layout.size()) };
            rounds.push((pointer, layout, round as u8));
            if round % 3 == 0 {
                let (pointer, layout, byte) = rounds.swap_remove(round % rounds.len());
                let size = layout.size() * 2 + 1;
                // SAFETY: allocated above with this layout.
                unsafe {
                    let pointer = Arena.realloc(pointer, layout, size);
                    let bytes = std::slice::from_raw_parts(pointer, layout.size());
                    assert!(bytes.iter().all(|at| *at == byte));
                    Arena.dealloc(pointer, Layout::from_size_align(size, layout.align()).unwrap());
                }
            }
        }
        for (pointer, layout, byte) in rounds {
            // SAFETY: allocated above with this layout, and not freed yet.
            unsafe {
                let bytes = std::slice::from_raw_parts(pointer, layout.size());
                assert!(bytes.iter().all(|at| *at == byte), "overwritten by another");
                Arena.dealloc(pointer, layout);
            }
        }
    }
}
