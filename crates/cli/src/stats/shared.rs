//! The memory file of statistics ([`runahead_protocol::stats`]), mapped.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use runahead_protocol::stats::{FILE_LEN, Header, MAGIC, SLOTS_MAX, Slot};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// `root_exiting`: the program's exit hook has run.
const EXITING: u32 = 1;
/// `root_exiting`: the program is gone and no hook has run. Written by the
/// collector alone.
const GONE: u32 = 2;

/// The mapped file. Mapped until the process ends, because a program may use
/// it as long.
#[derive(Debug)]
pub struct Shared {
    file: Arc<OwnedFd>,
    start: NonNull<Header>,
}

// SAFETY: what is mapped consists of atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// A new file for the program that has or will have this process id.
    ///
    /// # Errors
    /// No descriptor or memory.
    pub fn new(root_pid: u32) -> io::Result<Shared> {
        let file = rustix::fs::memfd_create("runahead-stats", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, FILE_LEN as u64)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), FILE_LEN, prot, MapFlags::SHARED, &file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let shared = Shared { file: Arc::new(file), start };
        shared.header().root_pid.store(root_pid, Ordering::Relaxed);
        shared.header().magic.store(MAGIC, Ordering::Release);
        Ok(shared)
    }

    /// The same mapping for another owner.
    pub fn share(&self) -> Shared {
        Shared { file: Arc::clone(&self.file), start: self.start }
    }

    /// The descriptor's number.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The first part of the file.
    pub fn header(&self) -> &Header {
        // SAFETY: mapped for good, page-aligned, atomics only.
        unsafe { self.start.as_ref() }
    }

    /// Slots that processes have asked for: more than there are, perhaps.
    pub fn taken(&self) -> usize {
        self.header().slots_taken.load(Ordering::Acquire) as usize
    }

    /// The slots that processes have taken.
    pub fn slots(&self) -> &[Slot] {
        let taken = self.taken();
        // SAFETY: SLOTS_MAX slots follow the header in the mapping; atomics
        // only.
        unsafe {
            let first = self.start.as_ptr().add(1).cast::<Slot>();
            std::slice::from_raw_parts(first, taken.min(SLOTS_MAX))
        }
    }

    /// Notes that the program is gone, unless its exit hook was first.
    pub fn mark_gone(&self) {
        let word = &self.header().root_exiting;
        // Whatever else stands there: a program may have scribbled.
        let unless_exiting = |word| (word != EXITING).then_some(GONE);
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_exiting);
        self.wake_exiting();
    }

    /// Whether the program ended without its exit hook.
    pub fn is_gone(&self) -> bool {
        self.header().root_exiting.load(Ordering::Acquire) == GONE
    }

    /// Wakes whoever waits for the end.
    pub fn wake_exiting(&self) {
        wake(&self.header().root_exiting);
    }

    /// Wakes the program's exit hook.
    pub fn wake_collected(&self) {
        wake(&self.header().collected);
    }

    /// Sleeps until the program's exit hook has run or it is gone.
    pub fn wait_exiting(&self) {
        let word = &self.header().root_exiting;
        // Anything but these two is not from us: a program may scribble.
        while !matches!(word.load(Ordering::Acquire), EXITING | GONE) {
            let seen = word.load(Ordering::Acquire);
            if matches!(seen, EXITING | GONE) {
                break;
            }
            // SAFETY: a futex word in shared memory, no other pointers.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word.as_ptr(),
                    libc::FUTEX_WAIT,
                    seen,
                    std::ptr::null::<libc::timespec>(),
                )
            };
        }
    }
}

fn wake(word: &AtomicU32) {
    // SAFETY: a futex word in shared memory, no other pointers.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
