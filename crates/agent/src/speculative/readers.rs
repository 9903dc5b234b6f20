//! Readers: threads of a copy that read directories ahead of it
//! ([`runahead_emulate::frontier`]). Names have no call that does not wait, so
//! what a device can do at a time takes as many threads as requests.
//!
//! They are made where a walk is seen to wait, and end when nothing has been
//! left to them for a while. They run the agent's code only, under the copy's
//! filter, on stacks of their own, and touch neither the program's memory nor
//! the emulator: all that they share is the [`Frontier`], behind a lock. What
//! goes wrong in one ends the copy.

use crate::Gate;
use crate::arch::{clone_through_gate, nr};
use crate::sys::{self, call};
use crate::usage;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use runahead_emulate::READERS_MAX;
use runahead_emulate::frontier::{self, Ahead, BUFFER_LEN, Frontier, Shared, Walk};
use runahead_emulate::gate::Check;

/// A thread of this process: `CLONE_VM`, `_FS`, `_FILES`, `_SIGHAND`,
/// `_THREAD`, `_SYSVSEM`, `_UNTRACED`, and `_CHILD_CLEARTID`, which says when
/// its stack is free again.
const CLONE_FLAGS: usize =
    0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x80_0000 | 0x20_0000;

/// A reader's stack, in bytes: its buffer, a signal frame (3.5 KiB with
/// AVX-512) and a few small frames.
const STACK_LEN: usize = 16 * 1024;
const _: () = assert!(BUFFER_LEN + 8 * 1024 <= STACK_LEN);

/// How long a reader waits for something to do, in ns.
const IDLE_NS: u64 = 30_000_000;

const READERS: usize = READERS_MAX as usize;

#[repr(C, align(4096))]
struct Stacks(UnsafeCell<[[u8; STACK_LEN]; READERS]>);

// SAFETY: each stack is used by the one reader that has claimed its slot.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_LEN]; READERS]));

/// A word for each stack: the kernel clears it at the thread's end, and wakes
/// who waits on it. The filter lets it do so here only, which takes a mask.
#[repr(C, align(128))]
struct Taken([AtomicU32; READERS]);

const _: () = assert!(size_of::<Taken>() == 4 * READERS && size_of::<Taken>().is_power_of_two());

struct Pool {
    /// 0: free, 1: held, 2: held and waited for (Drepper, Futexes Are Tricky).
    lock: AtomicU32,
    /// Bumped where there is something to do; a futex word.
    work: AtomicU32,
    /// Whether each stack is in use.
    taken: Taken,
    /// Readers that may be at a time.
    limit: AtomicU32,
    /// Readers that have not decided to end, and those of them that wait for
    /// something to do.
    readers: AtomicU32,
    idle: AtomicU32,
    frontier: UnsafeCell<Frontier>,
}

// SAFETY: the frontier is reached with the lock held, all else is atomic.
unsafe impl Sync for Pool {}

static POOL: Pool = Pool {
    lock: AtomicU32::new(0),
    work: AtomicU32::new(0),
    taken: Taken([const { AtomicU32::new(0) }; READERS]),
    limit: AtomicU32::new(0),
    readers: AtomicU32::new(0),
    idle: AtomicU32::new(0),
    frontier: UnsafeCell::new(Frontier::EMPTY),
};

/// What clone(2) must be asked for: a reader, and the word that is cleared at
/// its end one of ours. It could be any other's, and wake somebody.
pub fn clone_checks() -> [Check; 2] {
    let taken = POOL.taken.0.as_ptr() as u64;
    [
        Check { argument: 0, mask: !0, value: CLONE_FLAGS as u64 },
        Check { argument: 3, mask: !(size_of::<Taken>() as u64 - 1), value: taken },
    ]
}

/// The words that may be woken on: nobody else waits there.
pub fn wake_words() -> [u64; 2] {
    [POOL.lock.as_ptr() as u64, POOL.work.as_ptr() as u64]
}

/// Has a walk read ahead by up to `readers` threads; false: it cannot be.
pub fn walk(walk: &Walk, readers: u32) -> bool {
    POOL.limit.store(readers.min(READERS_MAX), Relaxed);
    let begun = POOL.with(|frontier| frontier.begin(walk));
    // If not, there may be what is to be closed, so that the next one can be.
    POOL.filled();
    begun
}

/// What was done of a directory that the copy has come to.
pub fn reached(dev: u64, ino: u64) -> Ahead {
    // Nobody has walked yet: the common case.
    if POOL.limit.load(Relaxed) == 0 {
        return Ahead::Unread;
    }
    let (ahead, had, has) = POOL.with(|frontier| {
        let had = frontier.is_waiting();
        (frontier.reached(dev, ino), had, frontier.is_waiting())
    });
    // The last readers may have been about to end when something was put in.
    if has && (!had || POOL.readers.load(Relaxed) == 0) {
        POOL.filled();
    }
    ahead
}

/// Whether what has been read lately was in memory: nothing more is read.
pub fn is_in_memory() -> bool {
    POOL.limit.load(Relaxed) != 0 && POOL.with(|frontier| frontier.is_in_memory())
}

/// Leaves what was to be read unread.
pub fn forget() {
    POOL.with(Frontier::forget);
    if POOL.limit.load(Relaxed) != 0 {
        POOL.filled();
    }
}

/// Directories read ahead so far.
pub fn ahead() -> u64 {
    if POOL.limit.load(Relaxed) == 0 { 0 } else { POOL.with(|frontier| frontier.ahead()) }
}

impl Pool {
    /// Takes the lock; how often that was slept for.
    fn acquire(&self) -> u64 {
        let mut slept = 0;
        if self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            return slept;
        }
        while self.lock.swap(2, Acquire) != 0 {
            slept += u64::from(sys::futex_wait(&self.lock, 2, IDLE_NS));
        }
        slept
    }

    fn release(&self) {
        if self.lock.swap(0, Release) == 2 {
            sys::futex_wake(&self.lock);
        }
    }

    /// One more reader, where there may be one more.
    fn recruit(&self) {
        let limit = self.limit.load(Relaxed) as usize;
        let free = self.taken.0.iter().enumerate().take(limit).find(|(_, taken)| {
            taken.load(Relaxed) == 0 && taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
        });
        let Some((index, taken)) = free else { return };
        let top = STACKS.0.get() as usize + (index + 1) * STACK_LEN;
        let cleared = taken.as_ptr() as usize;
        self.readers.fetch_add(1, Relaxed);
        // SAFETY: the stack is free: its last reader, if any, has ended.
        if unsafe { clone_through_gate(CLONE_FLAGS, top, serve, 0, cleared) } < 0 {
            self.readers.fetch_sub(1, Relaxed);
            taken.store(0, Release);
        }
    }
}

/// The pool as one reader sees it.
struct Reader {
    /// How often it has slept for the pool's lock.
    slept: Cell<u64>,
}

impl Reader {
    /// How often this thread has waited, but for the others.
    fn waits(&self) -> u64 {
        usage::of_thread().voluntary_switches.saturating_sub(self.slept.get())
    }
}

impl Shared for Reader {
    fn with<R>(&self, act: impl FnOnce(&mut Frontier) -> R) -> R {
        let (result, slept) = POOL.locked(act);
        self.slept.set(self.slept.get() + slept);
        result
    }

    fn filled(&self) {
        POOL.filled();
    }
}

impl Pool {
    fn with<R>(&self, act: impl FnOnce(&mut Frontier) -> R) -> R {
        self.locked(act).0
    }

    /// Does something with the frontier; how often the lock was slept for, too.
    fn locked<R>(&self, act: impl FnOnce(&mut Frontier) -> R) -> (R, u64) {
        let slept = self.acquire();
        // SAFETY: the lock is held, and `act` cannot come here again: it is
        // given nothing but the frontier.
        let result = act(unsafe { &mut *self.frontier.get() });
        self.release();
        (result, slept)
    }

    /// Wakes a reader or makes one; each that finds more to do than it can do
    /// does so again.
    fn filled(&self) {
        self.work.fetch_add(1, Release);
        if self.idle.load(Relaxed) > 0 {
            sys::futex_wake(&self.work);
        } else {
            self.recruit();
        }
    }
}

/// The life of a reader.
extern "C" fn serve(_: usize) -> ! {
    let mut buffer = [0u8; BUFFER_LEN];
    let reader = Reader { slept: Cell::new(0) };
    let mut idle = false;
    loop {
        let seen = POOL.work.load(Acquire);
        let (job, more) = reader.with(|frontier| (frontier.take(), frontier.is_waiting()));
        if let Some(job) = job {
            if more {
                POOL.filled();
            }
            let before = reader.waits();
            if let Some(ino) = frontier::read(&mut Gate, &reader, &job, &mut buffer) {
                let waited = reader.waits() > before;
                reader.with(|frontier| frontier.was_read(ino, waited));
            }
            idle = false;
        } else if idle {
            POOL.readers.fetch_sub(1, Relaxed);
            // SAFETY: ends this thread only; nothing of its stack is needed.
            unsafe { call(nr::EXIT, &[0]) };
        } else {
            POOL.idle.fetch_add(1, Relaxed);
            sys::futex_wait(&POOL.work, seen, IDLE_NS);
            POOL.idle.fetch_sub(1, Relaxed);
            // Woken for what another has taken: not for long without work.
            idle = POOL.work.load(Relaxed) == seen;
        }
    }
}
