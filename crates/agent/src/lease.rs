//! What a child by vfork(2) has of its parent's memory until it leaves that.
//! Nobody of ours would notice when: a child that executes a program does not come
//! back, nor does one that is killed, and the parent's other threads go on. The
//! kernel does, and empties the word that set_tid_address(2) has named, where
//! others have the memory, too (`mm_release` in kernel/fork.c).

use crate::arch::{nr, thread_pointer};
use crate::sys::call;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// [`Lease::taken`]: by nobody. What the kernel writes.
const FREE: u32 = 0;
/// By somebody who has yet to say who that is.
const TAKING: u32 = 1;
const TAKEN: u32 = 2;

/// Something that one child at a time can have.
#[derive(Debug)]
pub struct Lease {
    taken: AtomicU32,
    /// Thread whose child has it, or had it last ([`thread_pointer`]): it has the
    /// thread's registers, and the thread waits.
    thread: AtomicUsize,
}

impl Lease {
    /// Nobody's.
    pub const fn free() -> Lease {
        Lease { taken: AtomicU32::new(FREE), thread: AtomicUsize::new(0) }
    }

    /// Takes it for the child that calls. False where another has it, the kernel would
    /// not give it back, or the child has named a word already (`CLONE_CHILD_CLEARTID`):
    /// somebody waits for that, and the kernel empties one.
    #[cold]
    pub fn take(&self) -> bool {
        if !has_named_none() || self.taken.compare_exchange(FREE, TAKING, AcqRel, Relaxed).is_err()
        {
            return false;
        }
        self.thread.store(thread_pointer(), Relaxed);
        self.taken.store(TAKEN, Release);
        let is_taken = name(self.taken.as_ptr() as usize);
        if !is_taken {
            self.taken.store(FREE, Release);
        }
        is_taken
    }

    /// Gives it back before that: the child goes on in this memory.
    pub fn give_back(&self) {
        name(0);
        self.taken.store(FREE, Release);
    }

    /// Whether the child that calls has it, or one of the calling thread's.
    pub fn is_mine(&self) -> bool {
        self.taken.load(Acquire) == TAKEN && self.thread.load(Relaxed) == thread_pointer()
    }
}

/// Whether the kernel knows of no such word of this thread's; not, where it cannot tell
/// (`CONFIG_CHECKPOINT_RESTORE`).
fn has_named_none() -> bool {
    const PR_GET_TID_ADDRESS: usize = 40;
    let mut word = usize::MAX;
    // SAFETY: the kernel writes one word.
    let result = unsafe { call(nr::PRCTL, &[PR_GET_TID_ADDRESS, &raw mut word as usize]) };
    result == 0 && word == 0
}

/// Names the word that the kernel is to empty, 0 for none; whether it will.
fn name(word: usize) -> bool {
    // SAFETY: a word of ours that lives as long as the memory.
    (unsafe { call(nr::SET_TID_ADDRESS, &[word]) }) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    static LEASE: Lease = Lease::free();
    static OTHER: Lease = Lease::free();

    /// Calls `child` in a child by vfork(2), so to speak; its wait status.
    fn in_child(child: extern "C" fn(*mut libc::c_void) -> i32) -> i32 {
        let mut stack = std::vec![0u128; 4096];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let mut status = 0;
        // SAFETY: the stack is the child's alone, and there until it has left.
        unsafe {
            let top = stack.as_mut_ptr().add(stack.len()).cast();
            let pid = libc::clone(child, top, flags, std::ptr::null_mut());
            assert!(pid > 0);
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        }
        status
    }

    extern "C" fn ends(_: *mut libc::c_void) -> i32 {
        let taken = LEASE.take() && !LEASE.take() && LEASE.is_mine();
        i32::from(taken)
    }

    extern "C" fn is_killed(_: *mut libc::c_void) -> i32 {
        _ = LEASE.take();
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) }
    }

    extern "C" fn executes(_: *mut libc::c_void) -> i32 {
        _ = LEASE.take();
        let words = [c"/bin/true".as_ptr(), std::ptr::null()];
        // SAFETY: null-terminated arrays of C strings.
        unsafe { libc::execve(words[0], words.as_ptr(), [std::ptr::null()].as_ptr()) }
    }

    extern "C" fn gives_back(_: *mut libc::c_void) -> i32 {
        // The kernel would empty the second only.
        let one_only = LEASE.take() && !OTHER.take();
        LEASE.give_back();
        i32::from(one_only && !LEASE.is_mine() && OTHER.take() && OTHER.is_mine())
    }

    #[test]
    fn what_a_child_has_is_free_when_it_has_left() {
        for (child, status) in [
            (ends as extern "C" fn(*mut libc::c_void) -> i32, 1 << 8),
            (is_killed, libc::SIGKILL),
            (executes, 0),
            (gives_back, 1 << 8),
        ] {
            assert_eq!(in_child(child), status);
            assert!(!LEASE.is_mine() && !OTHER.is_mine());
            let taken = [&LEASE, &OTHER].map(|lease| lease.taken.load(Acquire));
            assert_eq!(taken, [FREE, FREE]);
        }
    }
}
