//! The few system calls that the agent makes on its own account, as plain
//! functions over the gate. Results are the kernel's: negative is `-errno`.

use crate::arch::{import_nr, nr, syscall6};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `E2BIG`.
pub const E2BIG: isize = -7;
/// `EAGAIN`.
pub const EAGAIN: isize = -11;
/// `ENOENT`.
pub const ENOENT: isize = -2;
/// `ENOTDIR`.
pub const ENOTDIR: isize = -20;
/// `EBADF`.
pub const EBADF: isize = -9;
/// `EPERM`.
pub const EPERM: isize = -1;
/// `EACCES`.
pub const EACCES: isize = -13;
/// `ENOSYS`.
pub const ENOSYS: isize = -38;
/// `EOPNOTSUPP`.
pub const EOPNOTSUPP: isize = -95;
/// `AT_FDCWD`.
pub const AT_FDCWD: usize = -100isize as usize;
/// `O_CLOEXEC`, for read-only opens.
pub const O_RDONLY_CLOEXEC: usize = 0o2_000_000;
/// `O_NONBLOCK` and `O_NOCTTY`: what lies where a file is expected may be a FIFO, which
/// is not waited for, or a terminal.
pub const O_NONBLOCK_NOCTTY: usize = 0o4_400;
/// `O_DIRECT`.
pub const O_DIRECT: usize = 0o40_000;
/// `RWF_NOWAIT` (preadv2(2), Linux 4.14).
pub const RWF_NOWAIT: usize = 8;
/// `PROT_READ`.
pub const PROT_READ: usize = 1;
/// `PROT_WRITE`.
pub const PROT_WRITE: usize = 2;
/// `PROT_EXEC`.
pub const PROT_EXEC: usize = 4;
/// `MAP_SHARED`.
pub const MAP_SHARED: usize = 1;
/// `MAP_PRIVATE`.
pub const MAP_PRIVATE: usize = 2;
/// `MAP_ANONYMOUS`.
pub const MAP_ANONYMOUS: usize = 0x20;
/// `MADV_DONTFORK`: children do not get the region.
pub const MADV_DONTFORK: usize = 10;
/// `MAP_FIXED`.
pub const MAP_FIXED: usize = 0x10;
/// Page size of this architecture, in bytes.
pub const PAGE_SIZE: usize = 4096;

/// `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IoVec {
    /// First byte.
    pub base: usize,
    /// Length in bytes.
    pub len: usize,
}

/// `struct stat` (x86-64), as far as the agent looks at it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stat {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    nlink: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    gid: u32,
    pad: u32,
    /// Device that a device file stands for.
    pub rdev: u64,
    /// Size in bytes.
    pub size: i64,
    /// Its file system's unit, in bytes.
    pub block_len: i64,
    /// What it takes on its device, in 512 bytes.
    pub blocks: i64,
    accessed: [u64; 2],
    /// When the data were last changed: seconds since 1970, and ns.
    pub modified: [u64; 2],
    /// The same of the inode: its data, its permissions, its attributes.
    pub changed: [u64; 2],
    rest: [u64; 3],
}

/// File type bits of `mode`.
pub const S_IFMT: u32 = 0o170_000;
/// Regular file.
pub const S_IFREG: u32 = 0o100_000;
/// `S_IFCHR`.
pub const S_IFCHR: u32 = 0o020_000;
/// Block device.
pub const S_IFBLK: u32 = 0o060_000;
/// Directory.
pub const S_IFDIR: u32 = 0o040_000;

/// Any call with plain numbers.
///
/// # Safety
/// As for [`syscall6`].
#[inline]
pub unsafe fn call(number: usize, args: &[usize]) -> isize {
    let mut all = [0; 6];
    for (slot, &arg) in all.iter_mut().zip(args) {
        *slot = arg;
    }
    // SAFETY: forwarded to the caller.
    unsafe { syscall6(number, all) }
}

/// close(2) of a descriptor that the agent opened.
pub fn close(fd: i32) {
    // SAFETY: closes a descriptor of ours.
    unsafe { call(nr::CLOSE, &[fd as usize]) };
}

/// openat(2), read-only, close-on-exec, without a wait; `path` ends with NUL.
pub fn open_read(path: &[u8]) -> isize {
    debug_assert_eq!(path.last(), Some(&0));
    let flags = O_RDONLY_CLOEXEC | O_NONBLOCK_NOCTTY;
    // SAFETY: opens a file for reading; the path is NUL-terminated.
    unsafe { call(nr::OPENAT, &[AT_FDCWD, path.as_ptr() as usize, flags]) }
}

/// Makes the pages of `[start, end)` present, writable and this memory's own, as
/// if each were written with the byte that it has, where the kernel can
/// (madvise(2), MADV_POPULATE_WRITE, Linux 5.14) and the memory may be written.
pub fn make_writable(start: usize, end: usize) {
    const MADV_POPULATE_WRITE: usize = 23;
    // SAFETY: changes no byte.
    unsafe { call(nr::MADVISE, &[start, end.wrapping_sub(start), MADV_POPULATE_WRITE]) };
}

/// Begins to read what is missing of `[start, end)` of mapped files (madvise(2),
/// MADV_WILLNEED).
pub fn will_need(start: usize, end: usize) {
    const MADV_WILLNEED: usize = 3;
    // SAFETY: advice.
    unsafe { call(nr::MADVISE, &[start, end.wrapping_sub(start), MADV_WILLNEED]) };
}

/// Gives `[start, end)` a mapping of its own, which the kernel joins with none beside it:
/// by advice against huge pages, which so little does not get (madvise(2),
/// MADV_NOHUGEPAGE). Where the kernel has none, it stays as it is.
pub fn set_apart(start: usize, end: usize) {
    without_huge_pages(start, end);
}

/// Has the kernel put no huge pages into `[start, end)`.
pub fn without_huge_pages(start: usize, end: usize) {
    const MADV_NOHUGEPAGE: usize = 15;
    // SAFETY: advice.
    unsafe { call(nr::MADVISE, &[start, end.wrapping_sub(start), MADV_NOHUGEPAGE]) };
}

/// ioctl(2).
///
/// # Safety
/// `argument` must be what `request` wants.
pub unsafe fn ioctl(fd: i32, request: usize, argument: usize) -> isize {
    // SAFETY: the caller's.
    unsafe { call(nr::IOCTL, &[fd as usize, request, argument]) }
}

/// Bytes that the agent has read by calls like read(2), which the kernel counts as the
/// program's (`rchar` of proc_pid_io(5)).
static OWN_READ_BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts what such a call of ours has returned, and gives it back.
pub fn count_own_read(result: isize) -> isize {
    if let Ok(bytes @ 1..) = u64::try_from(result) {
        OWN_READ_BYTES.fetch_add(bytes, Relaxed);
    }
    result
}

/// How much this process's agent has read so far, in bytes.
pub fn own_read_bytes() -> u64 {
    OWN_READ_BYTES.load(Relaxed)
}

/// read(2) into a buffer of ours.
pub fn read(fd: i32, buffer: &mut [u8]) -> isize {
    // SAFETY: the kernel writes at most buffer.len() bytes into it.
    let result =
        unsafe { call(nr::READ, &[fd as usize, buffer.as_mut_ptr() as usize, buffer.len()]) };
    count_own_read(result)
}

/// fstat(2).
pub fn fstat(fd: i32, stat: &mut Stat) -> isize {
    // SAFETY: the kernel writes one struct stat, which Stat has the size of.
    unsafe { call(nr::FSTAT, &[fd as usize, ptr::from_mut(stat) as usize]) }
}

/// Whether the page at `address` can be read, asked of the kernel, which
/// answers EFAULT where a look of ours would kill the program.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn is_readable(address: usize) -> bool {
    // rt_sigprocmask with an invalid `how` reads the set first and changes
    // nothing: EINVAL where it can be read, EFAULT where not. At 0 there is no set,
    // which is as good as one that can be read.
    const NO_HOW: usize = 99;
    const EINVAL: isize = -22;
    if address < PAGE_SIZE {
        return false;
    }
    // SAFETY: changes nothing (rt_sigprocmask(2): EINVAL for an unknown how).
    (unsafe { call(nr::RT_SIGPROCMASK, &[NO_HOW, address & !7, 0, 8]) }) == EINVAL
}

/// `struct statx` (statx(2)), as far as it is looked at.
#[derive(Default)]
#[repr(C)]
pub struct Statx {
    mask: u32,
    block_len: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    /// Type and permissions.
    pub mode: u16,
    pad: u16,
    /// Inode number.
    pub ino: u64,
    size: u64,
    blocks: u64,
    between: [u64; 9],
    rdev_major: u32,
    rdev_minor: u32,
    dev_major: u32,
    dev_minor: u32,
    rest: [u64; 14],
}

const _: () = assert!(size_of::<Statx>() == 256);

impl Statx {
    /// Asks about a descriptor what is known of it: fstat(2) may wait for a server
    /// (FUSE), or for all that was written (NFS), for what nobody wants to know here.
    /// 0, or the error's number; a container's filter may refuse the call.
    #[inline]
    pub fn ask(&mut self, fd: i32) -> isize {
        const AT_EMPTY_PATH: usize = 0x1000;
        const AT_STATX_DONT_SYNC: usize = 0x4000;
        const STATX_BASIC_STATS: usize = 0x7ff;
        let (path, at) = (c"".as_ptr() as usize, ptr::from_mut(self) as usize);
        let flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
        // SAFETY: an empty path; the kernel writes one struct statx.
        unsafe { call(nr::STATX, &[fd as usize, path, flags, STATX_BASIC_STATS, at]) }
    }

    /// The device, as stat(2) gives it.
    #[inline]
    pub fn dev(&self) -> u64 {
        device(self.dev_major, self.dev_minor)
    }
}

/// fstat(2), as far as the agent looks at it, as it is known ([`Statx::ask`]); whether
/// anybody says.
pub fn known_fstat(fd: i32, stat: &mut Stat) -> bool {
    let mut statx = Statx::default();
    match statx.ask(fd) {
        0 => {}
        EBADF => return false,
        _ => return fstat(fd, stat) == 0,
    }
    stat.dev = statx.dev();
    stat.ino = statx.ino;
    stat.mode = u32::from(statx.mode);
    stat.uid = statx.uid;
    stat.rdev = device(statx.rdev_major, statx.rdev_minor);
    stat.size = statx.size as i64;
    stat.block_len = statx.block_len.into();
    stat.blocks = statx.blocks as i64;
    true
}

/// Device, as stat(2) gives it, and inode number of what a descriptor refers
/// to, as they are known; `None` where nobody says.
pub fn identity(fd: i32) -> Option<(u64, u64)> {
    let mut stat = Stat::default();
    known_fstat(fd, &mut stat).then_some((stat.dev, stat.ino))
}

/// A device number as stat(2) gives it (makedev(3)).
#[inline]
fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

/// The magic number of the file system that a descriptor's file lies on (statfs(2)); `None`
/// where nobody says. A server's is asked for it.
pub fn file_system(fd: i32) -> Option<u64> {
    // struct statfs begins with the type, a long.
    let mut found = [0u64; 15];
    let at = found.as_mut_ptr() as usize;
    // SAFETY: the kernel writes one struct statfs, 120 bytes.
    let result = unsafe { call(runahead_emulate::arch::nr::FSTATFS, &[fd as usize, at]) };
    let [kind, ..] = found;
    (result == 0).then_some(kind)
}

/// The device that a descriptor's file lies on, as stat(2) gives it; 0 where
/// nobody says.
pub fn device_of(fd: i32) -> u64 {
    identity(fd).map_or(0, |(dev, _)| dev)
}

/// stat(2) of a path that ends in NUL; whether that was answered.
pub fn stat(path: &[u8], stat: &mut Stat) -> bool {
    let (start, at) = (path.as_ptr() as usize, ptr::from_mut(stat) as usize);
    // SAFETY: a NUL-terminated path; the kernel writes one struct stat.
    path.last() == Some(&0)
        && unsafe { call(import_nr::NEWFSTATAT, &[AT_FDCWD, start, at, 0]) } == 0
}

/// `lseek(fd, 0, SEEK_CUR)`: asks, moves nothing.
pub fn position(fd: i32) -> isize {
    // SAFETY: only queries the offset.
    unsafe { call(nr::LSEEK, &[fd as usize, 0, 1]) }
}

/// `fcntl(fd, F_GETFL)`.
pub fn status_flags(fd: i32) -> isize {
    // SAFETY: a query.
    unsafe { call(nr::FCNTL, &[fd as usize, 3]) }
}

/// Anonymous memory; 0 on failure.
pub fn map_anonymous(len: usize, flags: usize) -> usize {
    let flags = flags | MAP_ANONYMOUS;
    // SAFETY: new memory at an address of the kernel's choice.
    let address =
        unsafe { call(nr::MMAP, &[0, len, PROT_READ | PROT_WRITE, flags, usize::MAX, 0]) };
    if address < 0 { 0 } else { address as usize }
}

/// `CLOCK_MONOTONIC` in ns.
pub fn now_ns() -> u64 {
    clock_ns(1)
}

/// Time since 1970 (`CLOCK_REALTIME`), in ns.
pub fn real_time_ns() -> u64 {
    clock_ns(0)
}

/// `CLOCK_THREAD_CPUTIME_ID` in ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(3)
}

/// Processor time of a process in ns; 0 where there is none. Its clock is
/// `CPUCLOCK_SCHED` of the process id (clock_getcpuclockid(3)).
pub fn process_cpu_ns(pid: u32) -> u64 {
    clock_ns(((!pid << 3) | 2) as i32 as usize)
}

/// What a clock says in ns (clock_gettime(2)); 0: there is no such clock.
fn clock_ns(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes one struct timespec.
    unsafe { call(nr::CLOCK_GETTIME, &[clock, time.as_mut_ptr() as usize]) };
    let [seconds, ns] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(ns)
}

/// Sleeps `ns` (below one second).
pub fn sleep(ns: u64) {
    let time = [0u64, ns.min(999_999_999)];
    // SAFETY: reads one struct timespec.
    unsafe { call(nr::NANOSLEEP, &[time.as_ptr() as usize, 0]) };
}

/// [`sleep`] in the program's own threads: not for as much longer as the program may let the
/// kernel put its timers off (`PR_SET_TIMERSLACK`).
pub fn sleep_exactly(ns: u64) {
    without_slack(|| sleep(ns));
}

/// Runs `action`, which waits with a timeout, with hardly any timer slack. Where that is to
/// be put back, no signal comes in between: a handler would find another, and might leave by
/// `longjmp`.
pub fn without_slack<R>(action: impl FnOnce() -> R) -> R {
    const PR_SET_TIMERSLACK: usize = 29;
    const PR_GET_TIMERSLACK: usize = 30;
    /// What the kernel gives everybody.
    const USUAL_NS: isize = 50_000;
    // SAFETY: a query.
    let slack = unsafe { call(nr::PRCTL, &[PR_GET_TIMERSLACK]) };
    if slack <= USUAL_NS {
        return action();
    }
    // SAFETY: concerns when this thread's timers are due.
    let set = |ns: usize| unsafe { call(nr::PRCTL, &[PR_SET_TIMERSLACK, ns]) };
    undisturbed(|| {
        set(1);
        let result = action();
        set(slack as usize);
        result
    })
}

/// Process id.
pub fn getpid() -> u32 {
    // SAFETY: a query.
    (unsafe { call(nr::GETPID, &[]) }) as u32
}

/// Thread id.
pub fn gettid() -> u32 {
    // SAFETY: a query.
    (unsafe { call(nr::GETTID, &[]) }) as u32
}

/// What a resource is limited to (prlimit(2)); `u64::MAX`: not at all.
pub fn soft_limit(resource: usize) -> Option<u64> {
    let mut limit = [0u64; 2];
    let at = limit.as_mut_ptr() as usize;
    // SAFETY: the kernel writes one struct rlimit64.
    let result = unsafe { call(nr::PRLIMIT64, &[0, resource, 0, at]) };
    let [soft, _] = limit;
    (result == 0).then_some(soft)
}

/// User id for file system checks (setfsuid(2) with an invalid id asks).
pub fn file_system_user() -> u32 {
    // SAFETY: -1 is no user: changes nothing.
    (unsafe { call(nr::SETFSUID, &[usize::MAX]) }) as u32
}

/// Group for file system checks.
pub fn file_system_group() -> u32 {
    // SAFETY: as above.
    (unsafe { call(nr::SETFSGID, &[usize::MAX]) }) as u32
}

/// Sets the signal mask of the thread and returns the old one
/// (rt_sigprocmask(2), SIG_SETMASK).
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both are 8-byte signal sets of ours.
    unsafe {
        call(
            nr::RT_SIGPROCMASK,
            &[2, ptr::from_ref(&mask) as usize, ptr::from_mut(&mut old) as usize, 8],
        )
    };
    old
}

/// Runs `action` without a signal in between: none of the program's handlers leaves it by
/// `longjmp`, and no cancellation.
pub fn undisturbed<R>(action: impl FnOnce() -> R) -> R {
    let mask = set_signal_mask(u64::MAX);
    let result = action();
    set_signal_mask(mask);
    result
}

/// The same where it may take long, because storage or a server is waited for: those of
/// the signals by which somebody ends what hangs that the program has left to the kernel
/// still end it.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn undisturbed_or_ended<R>(action: impl FnOnce() -> R) -> R {
    /// SIGHUP, SIGINT, SIGQUIT, SIGALRM and SIGTERM.
    const ENDING: [usize; 5] = [1, 2, 3, 14, 15];
    let ends = |signal: &usize| default_ends(*signal);
    let open = ENDING.into_iter().filter(ends).fold(0, |set, signal| set | 1 << (signal - 1));
    let mask = set_signal_mask(u64::MAX);
    // What was blocked before stays so.
    set_signal_mask(!open | mask);
    let result = action();
    set_signal_mask(mask);
    result
}

/// Whether a signal is neither handled nor ignored.
fn default_ends(signal: usize) -> bool {
    // struct kernel_sigaction.
    let mut action = [0usize; 4];
    let at = action.as_mut_ptr() as usize;
    // SAFETY: a query, for which the kernel writes one struct sigaction.
    let asked = unsafe { call(nr::RT_SIGACTION, &[signal, 0, at, 8]) };
    let [handler, ..] = action;
    asked == 0 && handler == 0
}

/// `FUTEX_WAKE` of one waiter on a shared word.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: wakes whoever waits on a word of ours.
    unsafe { call(nr::FUTEX, &[word.as_ptr() as usize, 1, 1]) };
}

/// `FUTEX_WAIT` on a shared word while it is `expected`, at most `ns`; false: it
/// was another one already.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, ns: u64) -> bool {
    const EAGAIN: isize = -11;
    let timeout = [ns / 1_000_000_000, ns % 1_000_000_000];
    // SAFETY: waits on a word of ours, with a timeout.
    unsafe {
        call(nr::FUTEX, &[word.as_ptr() as usize, 0, expected as usize, timeout.as_ptr() as usize])
            != EAGAIN
    }
}

/// Copies bytes of the program's memory so that a wild pointer does nothing;
/// whether all of them are there.
///
/// # Safety
/// `into` is valid for writing `len` bytes, and any bytes may be put there.
pub unsafe fn copy_own(at: usize, into: *mut u8, len: usize) -> bool {
    let local = IoVec { base: into as usize, len };
    let remote = IoVec { base: at, len };
    let own = getpid() as usize;
    let [local_at, remote_at] = [ptr::from_ref(&local), ptr::from_ref(&remote)];
    let args = [own, local_at as usize, 1, remote_at as usize, 1, 0];
    // SAFETY: copies `len` bytes to where the caller permits it, or fails.
    let copied = unsafe { call(import_nr::PROCESS_VM_READV, &args) };
    copied == len as isize
}

const _: () = assert!(size_of::<Stat>() == 144);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_those_of_stat() {
        assert_eq!(device(8, 1), 0x801);
        assert_eq!(device(0x123, 0x4_5678), 0x4561_2378, "as makedev(3) has it");
        assert_eq!(device(0xfedc_bedf, 0), 0xfedc_b000_000e_df00);
        let null = std::fs::File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&null);
        let mut stat = Stat::default();
        assert_eq!(fstat(fd, &mut stat), 0);
        assert_eq!(identity(fd), Some((stat.dev, stat.ino)));
        assert_eq!(identity(-1), None);
    }
    #[test]
    fn what_is_known_of_a_file_is_what_stat_says() {
        let about = |stat: &Stat| {
            (stat.dev, stat.ino, stat.mode, stat.uid, stat.rdev, stat.size, stat.blocks)
        };
        for path in ["/dev/null", "/proc/self/exe", "/"] {
            let file = std::fs::File::open(path).unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            let (mut asked, mut known) = (Stat::default(), Stat::default());
            assert!(fstat(fd, &mut asked) == 0 && known_fstat(fd, &mut known));
            assert_eq!(about(&asked), about(&known), "{path}");
        }
        assert!(!known_fstat(-1, &mut Stat::default()));
    }
}
