//! Tier T0: where no code may be patched (PR_SET_MDWE, SELinux execmod) or
//! the C library is unknown, the slots through which the loaded objects call
//! its functions are pointed at thunks of ours. This misses what the library
//! calls inside itself, stdio above all, and objects loaded later.
//!
//! A thunk takes a call over only where it reads a regular file: such reads
//! are not interrupted, so that doing without the library's function changes
//! nothing (a pending cancellation is acted on first). Everything else jumps
//! to the original, which stays the cancellation point that it is.
//!
//! The environment is not scrubbed in this tier, because the library's own
//! ways to execute a program cannot be hooked: children follow by inheriting
//! it. A speculative process gets here too and jumps to the originals, whose
//! system calls trap into the emulator.

use crate::arch::{Frame, Interposed, THUNKS_MAX, nr, thunk_address};
use crate::cancellable;
use crate::config::CONFIG;
use crate::elf::{self, Object, ProgramHeader};
use crate::hook::{normal_state, ra_hook};
use crate::normal;
use crate::state::{State, role, state};
use crate::symbols::Tables;
use crate::sys::{self, PAGE_SIZE};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// What is done about a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    ReadChecked,
    Pread,
    PreadChecked,
    Readv,
    Preadv,
    Preadv2,
    Sendfile,
    CopyFileRange,
    /// Returns a descriptor.
    Opens,
    Close,
    Dup2,
    CloseRange,
    /// Closes a descriptor that its arguments do not tell.
    ClosesSome,
    Fcntl,
    Ioctl,
    Execs,
    Ends,
    Delicate,
    Prctl,
    Syscall,
    /// Waits, with options in the third argument.
    Waits,
    /// Waits, with options in the fourth.
    WaitsById,
    /// No copy may live beside it.
    Alone,
    Namespaces,
    /// Says how a file will be read.
    ReadAdvice,
    /// Gives the process another root directory.
    Roots,
    /// Attaches System V shared memory.
    Attaches,
    Locks,
    /// Locks all memory.
    LocksAll,
}

/// The functions, by name.
const FUNCTIONS: &[(&[u8], Kind)] = &[
    (b"read", Kind::Read),
    (b"__read_chk", Kind::ReadChecked),
    (b"pread", Kind::Pread),
    (b"pread64", Kind::Pread),
    (b"__pread_chk", Kind::PreadChecked),
    (b"__pread64_chk", Kind::PreadChecked),
    (b"readv", Kind::Readv),
    (b"preadv", Kind::Preadv),
    (b"preadv64", Kind::Preadv),
    (b"preadv2", Kind::Preadv2),
    (b"preadv64v2", Kind::Preadv2),
    (b"sendfile", Kind::Sendfile),
    (b"sendfile64", Kind::Sendfile),
    (b"copy_file_range", Kind::CopyFileRange),
    (b"open", Kind::Opens),
    (b"open64", Kind::Opens),
    (b"__open_2", Kind::Opens),
    (b"__open64_2", Kind::Opens),
    (b"openat", Kind::Opens),
    (b"openat64", Kind::Opens),
    (b"__openat_2", Kind::Opens),
    (b"__openat64_2", Kind::Opens),
    (b"creat", Kind::Opens),
    (b"creat64", Kind::Opens),
    (b"dup", Kind::Opens),
    (b"close", Kind::Close),
    (b"dup2", Kind::Dup2),
    (b"dup3", Kind::Dup2),
    (b"close_range", Kind::CloseRange),
    (b"closefrom", Kind::ClosesSome),
    (b"fclose", Kind::ClosesSome),
    (b"pclose", Kind::ClosesSome),
    (b"closedir", Kind::ClosesSome),
    (b"freopen", Kind::ClosesSome),
    (b"freopen64", Kind::ClosesSome),
    (b"fcntl", Kind::Fcntl),
    (b"fcntl64", Kind::Fcntl),
    (b"ioctl", Kind::Ioctl),
    (b"execve", Kind::Execs),
    (b"execv", Kind::Execs),
    (b"execvp", Kind::Execs),
    (b"execvpe", Kind::Execs),
    (b"execl", Kind::Execs),
    (b"execlp", Kind::Execs),
    (b"execle", Kind::Execs),
    (b"fexecve", Kind::Execs),
    (b"execveat", Kind::Execs),
    (b"_exit", Kind::Ends),
    (b"_Exit", Kind::Ends),
    (b"quick_exit", Kind::Ends),
    (b"inotify_init", Kind::Delicate),
    (b"inotify_init1", Kind::Delicate),
    (b"fanotify_init", Kind::Delicate),
    (b"prctl", Kind::Prctl),
    (b"syscall", Kind::Syscall),
    (b"waitpid", Kind::Waits),
    (b"wait4", Kind::Waits),
    (b"waitid", Kind::WaitsById),
    (b"umount", Kind::Alone),
    (b"umount2", Kind::Alone),
    (b"chroot", Kind::Roots),
    (b"setsid", Kind::Alone),
    (b"setuid", Kind::Alone),
    (b"setgid", Kind::Alone),
    (b"seteuid", Kind::Alone),
    (b"setegid", Kind::Alone),
    (b"setreuid", Kind::Alone),
    (b"setregid", Kind::Alone),
    (b"setresuid", Kind::Alone),
    (b"setresgid", Kind::Alone),
    (b"setfsuid", Kind::Alone),
    (b"setfsgid", Kind::Alone),
    (b"setgroups", Kind::Alone),
    (b"initgroups", Kind::Alone),
    (b"shmat", Kind::Attaches),
    (b"flock", Kind::Locks),
    (b"mlockall", Kind::LocksAll),
    (b"posix_fadvise", Kind::ReadAdvice),
    (b"posix_fadvise64", Kind::ReadAdvice),
    (b"unshare", Kind::Namespaces),
    (b"setns", Kind::Namespaces),
];

/// Number of the thunk at which calls of the function arrive that glibc 2.41 and later
/// cancel threads in ([`crate::cancellable`]).
pub const CANCELLABLE: usize = FUNCTIONS.len();

const _: () = assert!(CANCELLABLE < THUNKS_MAX);

static ORIGINALS: [AtomicUsize; THUNKS_MAX] = [const { AtomicUsize::new(0) }; THUNKS_MAX];
static ERRNO_LOCATION: AtomicUsize = AtomicUsize::new(0);
/// `pthread_testcancel`, or 0; the entry calls it.
pub static TEST_CANCEL: AtomicUsize = AtomicUsize::new(0);
/// The library tells us of the program's end and its status.
static TOLD_OF_END: AtomicUsize = AtomicUsize::new(0);

/// Points the slots of all loaded objects at thunks; false where none could
/// be.
pub fn all() -> bool {
    let Some(libc) = find_libc() else { return false };
    let hooked = hook_objects(&libc, |_| true);
    if hooked {
        watch_the_end(&libc);
    }
    hooked
}

/// Beside patched sites, the functions whose system calls are made at a site
/// that cannot be patched, because a cancellation asks whether a thread is
/// just there (musl, `__syscall_cp_asm`).
pub fn cancellation_points() {
    if let Some(libc) = find_libc() {
        TOLD_OF_END.store(1, Relaxed); // By the patched site of exit_group.
        hook_objects(&libc, |kind| !matches!(kind, Kind::Execs | Kind::Ends));
    }
}

/// Hooks the functions of the kinds `wanted` in all objects; whether any was.
fn hook_objects(libc: &Tables, wanted: impl Fn(Kind) -> bool) -> bool {
    let known = |name: &[u8]| libc.function(name).unwrap_or(0);
    ERRNO_LOCATION.store(known(b"__errno_location"), Relaxed);
    TEST_CANCEL.store(known(b"pthread_testcancel"), Relaxed);
    find_originals(libc);
    for ((_, kind), original) in FUNCTIONS.iter().zip(&ORIGINALS) {
        if !wanted(*kind) {
            original.store(0, Relaxed);
        }
    }
    let (own, _) = elf::own_image();
    let linker = elf::linker();
    let mut hooked = 0usize;
    elf::for_each(|object| {
        if object.bias != own && linker != Some(object.bias) {
            hooked += hook_object(&object);
        }
    });
    hooked > 0
}

/// Has what arrives at the thunk [`CANCELLABLE`] go to `original`, after a cancellation
/// point where it does not; false where it goes to another function already.
pub fn cancellable(original: usize) -> bool {
    let Some(cell) = ORIGINALS.get(CANCELLABLE) else { return false };
    let test = find_libc().and_then(|libc| libc.function(b"pthread_testcancel"));
    let Some(test) = test else { return false };
    if cell.load(Relaxed) != 0 {
        return cell.load(Relaxed) == original;
    }
    TEST_CANCEL.store(test, Relaxed);
    cell.store(original, Relaxed);
    true
}

/// Where a thunk's calls go.
pub fn original(index: usize) -> usize {
    ORIGINALS.get(index).map_or(0, |original| original.load(Relaxed))
}

/// The C library: the first object that defines both `read` and where errno
/// is.
fn find_libc() -> Option<Tables> {
    let mut found = None;
    elf::for_each(|object| {
        if found.is_none() && is_libc(&object) {
            found = Some(Tables::of(&object));
        }
    });
    found
}

/// Whether an object is a C library.
pub fn is_libc(object: &elf::Object) -> bool {
    let tables = Tables::of(object);
    let all = [&b"__errno_location"[..], b"read", b"_exit"];
    all.iter().all(|name| tables.function(name).is_some())
}

/// Fills in [`ORIGINALS`]; 0 where a call does not arrive at the C library,
/// because another object has put itself before it.
fn find_originals(libc: &Tables) {
    let functions = || FUNCTIONS.iter().zip(&ORIGINALS);
    elf::for_each(|object| {
        let tables = Tables::of(&object);
        for ((name, _), original) in functions() {
            if original.load(Relaxed) == 0 {
                original.store(tables.function(name).unwrap_or(0), Relaxed);
            }
        }
    });
    for ((name, _), original) in functions() {
        if libc.function(name) != Some(original.load(Relaxed)) {
            original.store(0, Relaxed);
        }
    }
}

/// Hooks one object's slots; returns how many.
fn hook_object(object: &Object) -> usize {
    let relro = object.program_headers().iter().find(|header| header.kind == elf::PT_GNU_RELRO);
    let pages = relro.and_then(|header| read_only_pages(object, header));
    let writable = sys::PROT_READ | sys::PROT_WRITE;
    if let Some((start, len)) = pages
        && !protect(start, len, writable)
    {
        return 0;
    }
    let mut hooked = 0;
    Tables::of(object).for_each_slot(|slot, name| {
        let index = FUNCTIONS.iter().position(|(known, _)| *known == name);
        let Some(index) = index else { return };
        let original = original(index);
        if original == 0 || !object.is_data(slot, size_of::<usize>()) {
            return;
        }
        let slot = slot as *mut usize;
        // SAFETY: a slot of the object's own table, inside a writable segment
        // whose read-only part has been opened above; one thread.
        let found = unsafe { *slot };
        // Bound already, or to be bound by a stub of the object.
        if found == original || object.is_code(found, 1) {
            // SAFETY: as above.
            unsafe { *slot = thunk_address(index) };
            hooked += 1;
        }
    });
    if let Some((start, len)) = pages {
        protect(start, len, sys::PROT_READ);
    }
    hooked
}

/// The whole pages that the dynamic linker has made read-only.
fn read_only_pages(object: &Object, header: &ProgramHeader) -> Option<(usize, usize)> {
    let start = object.bias.wrapping_add(header.address as usize) & !(PAGE_SIZE - 1);
    let end = object.bias.wrapping_add((header.address + header.len) as usize) & !(PAGE_SIZE - 1);
    (end > start).then(|| (start, end - start))
}

fn protect(start: usize, len: usize, protection: usize) -> bool {
    // SAFETY: pages of an object's relocated data, restored afterwards.
    (unsafe { sys::call(nr::MPROTECT, &[start, len, protection]) }) == 0
}

/// glibc's `on_exit` hands over the status, and a handler registered before
/// the program's first runs after its last.
fn watch_the_end(libc: &Tables) {
    let Some(on_exit) = libc.function(b"on_exit") else { return };
    // SAFETY: the library's on_exit(3), which takes a function and a word.
    let on_exit: extern "C" fn(extern "C" fn(i32, usize), usize) -> i32 =
        unsafe { core::mem::transmute(on_exit) };
    if on_exit(ended, 0) == 0 {
        TOLD_OF_END.store(1, Relaxed);
    }
}

extern "C" fn ended(status: i32, _: usize) {
    if let Some(state) = normal_state() {
        normal::ending(state, status);
        state.role.store(role::OFF, Relaxed);
    }
}

#[used]
#[cfg_attr(target_os = "none", unsafe(link_section = ".fini_array"))]
static DESTRUCTOR: extern "C" fn() = ra_end;

/// Where nobody tells us of the end (musl): speculation ends with the
/// destructors, and the collector finds the status out by itself.
extern "C" fn ra_end() {
    if ERRNO_LOCATION.load(Relaxed) != 0
        && TOLD_OF_END.load(Relaxed) == 0
        && let Some(state) = normal_state()
        && normal::own(state)
    {
        normal::end_speculation(state);
        state.role.store(role::OFF, Relaxed);
    }
}

/// What the entry does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Next {
    /// Jumps to the original.
    Original = 0,
    /// Calls [`ra_through`] and returns what it returns.
    Through = 1,
    /// Calls the original, then [`ra_after`], and returns its result.
    After = 2,
}

/// Called first for each call of a hooked function; fills in the original.
pub extern "C" fn ra_route(call: &mut Interposed) -> Next {
    let index = call.index;
    call.original = original(index);
    let Some(state) = state() else { return Next::Original };
    if state.role.load(Relaxed) == role::UNKNOWN {
        crate::start::in_child(state);
    }
    if index == CANCELLABLE {
        return cancellable::route(state, call);
    }
    let Some((_, kind)) = FUNCTIONS.get(index) else { return Next::Original };
    if state.role.load(Relaxed) != role::NORMAL || normal::is_silent() {
        return Next::Original;
    }
    if let Some(fd) = kind.reads(call) {
        return if normal::is_looked_at(state, fd) { Next::Through } else { Next::Original };
    }
    kind.before(state, call);
    if matches!(kind, Kind::Opens | Kind::Fcntl) || kind.closes() {
        Next::After
    } else {
        Next::Original
    }
}

impl Kind {
    /// The descriptor that a call is going to read, if it does.
    fn reads(self, call: &Interposed) -> Option<i32> {
        let [first, second, third, fourth, fifth, _] = call.args;
        let fits = match self {
            Kind::ReadChecked => third <= fourth,
            Kind::PreadChecked => third <= fifth,
            _ => true,
        };
        match self {
            Kind::Sendfile => Some(second as i32),
            Kind::Read
            | Kind::ReadChecked
            | Kind::Pread
            | Kind::PreadChecked
            | Kind::Readv
            | Kind::Preadv
            | Kind::Preadv2
            | Kind::CopyFileRange => Some(if fits { first as i32 } else { -1 }),
            _ => None,
        }
    }

    fn closes(self) -> bool {
        matches!(self, Kind::Close | Kind::Dup2 | Kind::CloseRange | Kind::ClosesSome)
    }

    /// The system call that a reading function makes.
    fn system_call(self, [a0, a1, a2, a3, a4, a5]: [usize; 6]) -> (usize, [usize; 6]) {
        match self {
            Kind::Read | Kind::ReadChecked => (nr::READ, [a0, a1, a2, 0, 0, 0]),
            Kind::Pread | Kind::PreadChecked => (nr::PREAD64, [a0, a1, a2, a3, 0, 0]),
            Kind::Readv => (nr::READV, [a0, a1, a2, 0, 0, 0]),
            Kind::Preadv => (nr::PREADV, [a0, a1, a2, a3, 0, 0]),
            // The offset is two arguments to the kernel.
            Kind::Preadv2 => (nr::PREADV2, [a0, a1, a2, a3, 0, a4]),
            Kind::Sendfile => (nr::SENDFILE, [a0, a1, a2, a3, 0, 0]),
            _ => (nr::COPY_FILE_RANGE, [a0, a1, a2, a3, a4, a5]),
        }
    }

    /// What a call is about to change.
    fn before(self, state: &'static State, call: &Interposed) {
        let [first, second, third, fourth, ..] = call.args;
        match self {
            Kind::Close => state.forget(first as u32 as usize),
            Kind::Dup2 => state.opened(second as i32 as isize),
            Kind::CloseRange => state.forget_range(first as u32 as usize, second as u32 as usize),
            Kind::ClosesSome => state.forget_range(0, usize::MAX),
            Kind::Fcntl => normal::before_fcntl(state, first, second),
            Kind::Ioctl => normal::before_ioctl(state, second),
            Kind::Execs if normal::own(state) => normal::end_speculation(state),
            Kind::Ends => normal::ending(state, first as i32),
            Kind::Waits if normal::waits_for_all(third) => normal::before_alone(state),
            Kind::WaitsById if normal::waits_for_all(fourth) => normal::before_alone(state),
            Kind::Alone => normal::before_alone(state),
            Kind::Namespaces => normal::before_namespaces(state),
            Kind::ReadAdvice => normal::before_read_advice(call.args),
            Kind::Roots => normal::before_other_root(state),
            Kind::Delicate => normal::watches(state),
            Kind::Attaches => CONFIG.attaches.store(1, Relaxed),
            Kind::Locks => normal::before_lock(state, first as i32, second),
            Kind::LocksAll => normal::before_lock_all(state),
            Kind::Syscall if first == nr::FLOCK => {
                normal::before_lock(state, second as i32, third);
            }
            Kind::Syscall if normal::changes_rights(first) => normal::before_alone(state),
            Kind::Prctl if normal::dispatches(nr::PRCTL, first, second) => {
                normal::before_dispatch(state);
            }
            Kind::Syscall if normal::dispatches(first, second, third) => {
                normal::before_dispatch(state);
            }
            Kind::Prctl if normal::restricts(nr::PRCTL, first) => normal::restricted(state),
            Kind::Syscall if normal::restricts(first, second) => normal::restricted(state),
            Kind::Prctl => normal::before_prctl(first),
            Kind::Syscall if first == nr::PRCTL => normal::before_prctl(second),
            Kind::Syscall if matches!(first, nr::UNSHARE | nr::SETNS) => {
                normal::before_namespaces(state);
            }
            Kind::Syscall if first == nr::UMOUNT2 => normal::before_alone(state),
            Kind::Syscall if matches!(first, nr::PIVOT_ROOT | nr::CHROOT) => {
                normal::before_other_root(state);
            }
            Kind::Syscall if matches!(first, nr::IO_URING_SETUP | nr::USERFAULTFD) => {
                normal::delicate(state);
            }
            Kind::Syscall if first == nr::IOCTL => normal::before_ioctl(state, third),
            Kind::Syscall if first == nr::IO_SETUP => normal::before_asynchronous(state),
            _ => {}
        }
    }
}

/// The read of a regular file, as the hook makes it.
pub extern "C" fn ra_through(call: &mut Interposed) -> isize {
    if call.index == CANCELLABLE {
        return cancellable::through(call);
    }
    let Some((_, kind)) = FUNCTIONS.get(call.index) else { return -1 };
    let (number, args) = kind.system_call(call.args);
    let result = ra_hook(&mut Frame { number, args, resume: 0 });
    const ERRNO_MAX: isize = 4095;
    if !(-ERRNO_MAX..0).contains(&result) {
        return result;
    }
    // SAFETY: the library's own function, which gives the address of this
    // thread's errno.
    unsafe {
        let location: extern "C" fn() -> *mut i32 =
            core::mem::transmute(ERRNO_LOCATION.load(Relaxed));
        *location() = -result as i32;
    }
    -1
}

/// After a call that may have made a descriptor, or closed one.
pub extern "C" fn ra_after(call: &Interposed, result: isize) {
    if call.index == CANCELLABLE {
        return cancellable::after(call, result);
    }
    let [_, command, ..] = call.args;
    let Some((_, kind)) = FUNCTIONS.get(call.index) else { return };
    if kind.closes()
        && let Some(state) = normal_state()
    {
        normal::closed(state);
    }
    let made = *kind == Kind::Opens || *kind == Kind::Fcntl && normal::makes_descriptor(command);
    if let Some(state) = normal_state().filter(|_| made) {
        state.opened(result as i32 as isize);
    }
}
