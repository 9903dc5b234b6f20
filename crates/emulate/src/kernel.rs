//! What the state machine stands on.

use crate::frontier::{Ahead, Walk};

/// Raw system calls, and nothing else.
pub trait Calls {
    /// One raw system call; -errno on failure.
    ///
    /// Pointers among the arguments are either addresses of the program's
    /// memory or point to memory of the caller that lives through the call.
    fn call(&mut self, number: usize, args: [usize; 6]) -> isize;
}

/// What a new mapping of a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The file's real descriptor.
    pub fd: i32,
    /// Offset of the mapping's first byte.
    pub offset: u64,
    /// `PROT_*` bits.
    pub protection: usize,
}

/// What becomes of an mprotect(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protecting {
    /// The kernel may do it: all of it is this process's own.
    Real,
    /// It is as good as done.
    Done,
    /// It must not be done, and nobody can tell what it would have changed.
    Refused,
}

/// Raw system calls, the program's memory and time. The agent implements it
/// through its gate, tests with a model.
pub trait Kernel: Calls {
    /// Makes a range of program memory writable and private to this process
    /// (copying what is touched of mappings that are shared with the normal
    /// process); false: it is not mapped.
    fn prepare_write(&mut self, address: usize, len: usize) -> bool;

    /// Copies program memory out; false: it is not all readable.
    fn load(&mut self, address: usize, into: &mut [u8]) -> bool;

    /// Copies into program memory, as after [`Kernel::prepare_write`];
    /// false: it is not all writable.
    fn store(&mut self, address: usize, from: &[u8]) -> bool;

    /// What becomes of an mprotect(2) of a range. The kernel must not be asked
    /// to make writable what this process still shares with others.
    fn protecting(&mut self, address: usize, len: usize, protection: usize) -> Protecting;

    /// Whether any byte of the range belongs to a mapping that was shared
    /// and that this process still shares with the normal one, so that it must
    /// stay where it is.
    fn is_shared(&mut self, address: usize, len: usize) -> bool;

    /// Whether part of a range is memory that is still to be brought in from
    /// the normal process, so that it cannot be moved.
    fn is_absent(&mut self, _address: usize, _len: usize) -> bool {
        false
    }

    /// Told after the program made a new private mapping: `of` a file's data,
    /// else of code or anonymous memory.
    fn mapped(&mut self, address: usize, len: usize, of: Option<Mapped>);

    /// Told after the program removed every mapping in a range.
    fn unmapped(&mut self, address: usize, len: usize);

    /// Monotonic time in ns.
    fn now_ns(&mut self) -> u64;

    /// Sleeps until the normal process has made `until` reads since the
    /// synchronisation (`Log::consumed`); false: it never will, or this
    /// process is no longer wanted.
    fn wait_consumed(&mut self, until: u64) -> bool;

    /// Has the directories of a walk read ahead, up to `readers` at a time;
    /// false: nobody does, and the descriptor stays the caller's.
    fn walk(&mut self, _walk: &Walk, _readers: u32) -> bool {
        false
    }

    /// Told that the walk has come to a directory: what was done of it ahead.
    fn reached(&mut self, _dev: u64, _ino: u64) -> Ahead {
        Ahead::Unread
    }

    /// Pages that have been read in again after they had been evicted, where the
    /// program's memory is limited; `None`: nobody says.
    fn refaults(&mut self) -> Option<u64> {
        None
    }

    /// Sleeps for about `ns`.
    fn pause(&mut self, ns: u64);

    /// Whether this thread has slept since this was last asked, but in
    /// [`Kernel::pause`] and [`Kernel::wait_consumed`]; true where nobody says.
    fn slept(&mut self) -> bool {
        true
    }
}
