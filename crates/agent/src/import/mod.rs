//! The importing copy (Fraser and Chang, sections 5.1 and 5.2: fast refork
//! and one-way copy-on-write, from user space).
//!
//! A speculative process that starts without the program's large anonymous
//! regions and imports the pages that it touches. A synchronisation costs the
//! normal process no page tables, and none of its later stores a fault.
//!
//! Three parties. The *normal process* keeps the regions from being copied
//! ([`regions`]). The *copy* has empty memory in their place and is told of
//! each touch of a missing page (`speculative::imports`). What that page is,
//! only the program's page tables say, and to look there one has to lock the
//! program's address space, which nothing at idle priority may do: so the
//! copy asks the *aide* ([`aide`]), a small process at normal priority that
//! shares the program's memory. It copies present pages out, and prefetches
//! swapped ones into the swap cache by the plain `madvise` of one's own
//! memory, which needs no privilege.

pub mod aide;
pub mod handover;
mod look;
pub mod regions;

use crate::arena::Part;
use crate::config::CONFIG;
use crate::sys::PAGE_SIZE;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Pages of one question.
pub const PAGES_MAX: usize = 32;

/// Addresses of one look at what has been consumed.
pub const ADDRESSES_MAX: usize = 64;

/// What the aide found a page to be; [`Desk::pages`].
pub mod page {
    /// Never touched by the program: zeros.
    pub const UNTOUCHED: u8 = 0;
    /// In memory: its bytes lie on the desk.
    pub const IMPORTED: u8 = 1;
    /// Swapped out.
    pub const SWAPPED: u8 = 2;
    /// Not the program's any more, or nobody knows.
    pub const UNKNOWN: u8 = 3;
}

/// Life of the aide; [`Desk::life`].
pub mod life {
    /// There is none.
    pub const NONE: u32 = 0;
    /// It shares the program's descriptor table still.
    pub const STARTING: u32 = 1;
    /// It answers.
    pub const READY: u32 = 2;
    /// It is to end: after a change of rights the program may not kill it.
    pub const ENDING: u32 = 3;
}

/// What the copy asks for; [`Desk::question`].
pub mod question {
    /// Nothing: it has been answered.
    pub const NONE: u32 = 0;
    /// What pages are, their bytes, and a prefetch of some of the swapped.
    pub const PAGES: u32 = 1;
    /// Which of the addresses are in memory by now.
    pub const PRESENT: u32 = 2;
}

/// Memory that normal process, copy and aide share. The copy computes on
/// garbage and may write anything here: whoever reads it bounds what it uses.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Desk {
    /// One of [`life`].
    pub life: AtomicU32,
    /// Questions asked; a futex word.
    pub asked: AtomicU32,
    /// Questions answered; a futex word.
    pub answered: AtomicU32,
    /// One of [`question`].
    pub question: AtomicU32,
    /// First page asked about.
    pub address: AtomicU64,
    /// How many.
    pub count: AtomicU32,
    /// Of those, the first to be prefetched if swapped.
    pub prefetch_from: AtomicU32,
    /// The one after the last.
    pub prefetch_to: AtomicU32,
    /// 1 while the copy waits for the normal process to catch up.
    pub at_horizon: AtomicU32,
    /// Pages that this copy had prefetched.
    pub prefetched: AtomicU64,
    /// Of those, pages that the program has come to since.
    pub consumed: AtomicU64,
    /// Pages that this copy imported.
    pub imported: AtomicU64,
    /// Which addresses are asked about.
    pub addresses: [AtomicU64; ADDRESSES_MAX],
    /// Whether each is in memory.
    pub present: [AtomicU8; ADDRESSES_MAX],
    /// What each page is, one of [`page`].
    pub pages: [AtomicU8; PAGES_MAX],
    data: Data,
}

#[repr(C, align(4096))]
#[derive(Debug)]
struct Data(UnsafeCell<[[u8; PAGE_SIZE]; PAGES_MAX]>);

// SAFETY: the data is reached by raw addresses only, by one side at a time:
// the aide between a question and its answer, the copy afterwards.
unsafe impl Sync for Desk {}

/// Bytes that a desk takes.
pub const DESK_LEN: usize = size_of::<Desk>();

impl Desk {
    /// Where the bytes of page `index` lie.
    pub fn data(&self, index: usize) -> usize {
        self.data.0.get() as usize + index.min(PAGES_MAX - 1) * PAGE_SIZE
    }
}

/// The desk, if this process has one.
pub fn desk() -> Option<&'static Desk> {
    // SAFETY: null, or DESK_LEN bytes mapped by `make_desk`, which stay
    // mapped while the pointer is set; all fields are atomics.
    unsafe { CONFIG.desk.load(Relaxed).as_ref() }
}

/// The desk, made where there is none yet.
pub fn make_desk() -> Option<&'static Desk> {
    if let Some(desk) = desk() {
        return Some(desk);
    }
    if !Part::Desk.share() {
        return None;
    }
    CONFIG.desk.store(Part::Desk.start() as *mut Desk, Relaxed);
    desk()
}
