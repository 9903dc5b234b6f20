//! "Would this read wait for storage?" on every file system.
//!
//! `preadv2(RWF_NOWAIT)` answers, copies and starts the read in one call on
//! ext4, xfs and btrfs. overlayfs, FUSE, squashfs, tmpfs and others refuse
//! it (EOPNOTSUPP). There `cachestat(2)` (Linux 6.5) says how many pages of a
//! range are cached, but counts pages that are still being read; `mincore(2)`
//! on a mapping is exact, and costs three calls. On overlayfs `cachestat`
//! looks at the wrong inode. Both answer only for files that the caller owns
//! or may write: `cachestat` says EPERM, `mincore` lies ("all resident").
//!
//! Usable on its own by the normal process: it needs [`Calls`] alone.

use crate::abi::*;
use crate::arch::nr;
use crate::context::OPEN_FOR_READING;
use crate::kernel::Calls;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most pages in one question: what a `mincore` vector on a small signal
/// stack may hold.
pub const PAGES_MAX: usize = 128;

/// Devices whose method is remembered.
const DEVICES_MAX: usize = 16;

const OVERLAYFS: u64 = 0x794c_7630;
/// File systems whose files are made up when read and never wait for
/// storage: procfs, cgroup, cgroup2, ramfs, devpts, and hugetlbfs, where a mapping,
/// for a question too, is reserved from the machine's huge pages.
const MADE_UP: [u64; 6] = [0x9fa0, 0x0027_e0eb, 0x6367_7270, 0x8584_58f6, 0x1cd1, HUGETLBFS];
const SYSFS: u64 = 0x6265_6572;
/// File systems where reading may do something or consume something:
/// debugfs, tracefs, configfs, securityfs, selinuxfs, bpf, efivarfs,
/// binfmt_misc, pstore, mqueue.
const DELICATE: [u64; 10] = [
    0x6462_6720,
    0x7472_6163,
    0x6265_6570,
    0x7363_6673,
    0xf97c_ff8c,
    0xcafe_4a11,
    0xde5e_81e4,
    0x4249_4e4d,
    0x6165_676c,
    0x1980_0202,
];

const FUSE: u64 = 0x6573_5546;
/// SMB: a server keeps the name of what is open anywhere, whoever removes it. What is renamed
/// over it was lost (until Linux 6.17), and its directory is not empty.
const SMB: [u64; 2] = [0xff53_4d42, 0xfe53_4d42];
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// How residency is found out on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Method {
    /// Not known yet; `RWF_NOWAIT` is tried first.
    #[default]
    Unasked = 0,
    /// `preadv2(RWF_NOWAIT)`, unless that is refused.
    NoWait,
    /// `cachestat` for "nothing is there", else `mincore`.
    Cachestat,
    /// `mincore` on a mapping.
    Mincore,
    /// Not at all.
    Blind,
    /// Never waits for storage.
    MadeUp,
    /// The same, but a read is answered by a device's driver, and some of what it
    /// says it says once: hwmon's alarms are cleared by it.
    Sysfs,
    /// Must not be read by a speculative process.
    Delicate,
    /// Must not be opened by one: what is in memory of a file goes when it is, or it can be
    /// neither removed nor replaced while it is open.
    Unopened,
}

/// What is known of one file's right to ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Rights {
    #[default]
    Unasked = 0,
    Granted,
    Refused,
}

/// The oracle of one open file. All-zero is a fresh one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oracle {
    /// How it is asked.
    pub method: Method,
    rights: Rights,
    /// Whether the mapping that `mincore` is asked about is kept.
    keeps: bool,
    /// Where it is; 0: there is none.
    window: usize,
}

/// Bytes from a file's start that a kept mapping covers.
const WINDOW_BYTES: u64 = 256 * 1024;

/// Answer of [`question`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// The whole range is in memory.
    All,
    /// Some of it is not.
    NotAll,
    /// Cannot be known.
    Unknown,
}

impl Oracle {
    /// Nothing is known yet.
    pub const UNASKED: Oracle =
        Oracle { method: Method::Unasked, rights: Rights::Unasked, keeps: false, window: 0 };

    /// An oracle for a file whose owner is (`owned`) or is not the caller's
    /// file system user, or the caller is root. Only where it is not must
    /// the kernel be asked for the right to write.
    pub fn new(owned: bool) -> Oracle {
        let rights = if owned { Rights::Granted } else { Rights::Unasked };
        Oracle { rights, ..Oracle::UNASKED }
    }

    /// One that keeps what it has mapped to ask about, until [`release`]: of
    /// three calls for each question on overlayfs one is left.
    pub fn keeping(owned: bool) -> Oracle {
        Oracle { keeps: true, ..Oracle::new(owned) }
    }
}

/// Gives back what an oracle keeps.
pub fn release<C: Calls>(c: &mut C, oracle: &mut Oracle) {
    let window = core::mem::take(&mut oracle.window);
    if window != 0 {
        c.call(nr::MUNMAP, [window, WINDOW_BYTES as usize, 0, 0, 0, 0]);
    }
}

/// Methods by device. All-zero is empty.
#[derive(Debug, Default)]
pub struct Methods {
    known: [(u64, Method); DEVICES_MAX],
    next: u8,
}

impl Methods {
    /// Nothing known.
    pub const EMPTY: Methods = Methods { known: [(0, Method::Unasked); DEVICES_MAX], next: 0 };

    /// What was found out for `dev`, or [`Method::Unasked`].
    pub fn get(&self, dev: u64) -> Method {
        self.known.iter().find(|known| known.0 == dev).map_or(Method::Unasked, |known| known.1)
    }

    /// Remembers what was found out for `dev`; the oldest of
    /// `DEVICES_MAX` is forgotten.
    pub fn set(&mut self, dev: u64, method: Method) {
        if let Some(known) = self.known.iter_mut().find(|known| known.0 == dev) {
            known.1 = method;
        } else if let Some(oldest) = self.known.get_mut(self.next as usize % DEVICES_MAX) {
            *oldest = (dev, method);
            self.next = self.next.wrapping_add(1);
        }
    }
}

fn failed(result: isize, code: i32) -> bool {
    result == -(code as isize)
}

/// Magic number of the file system that the file behind `fd` is on
/// (statfs(2)); 0: not known.
fn file_system<C: Calls>(c: &mut C, fd: usize) -> u64 {
    // struct statfs: f_type is its first word.
    let mut statfs = [0u64; 15];
    let address = statfs.as_mut_ptr().expose_provenance();
    match c.call(nr::FSTATFS, [fd, address, 0, 0, 0, 0]) {
        0 => statfs.first().copied().unwrap_or(0),
        _ => 0,
    }
}

/// Whether the file behind `fd` is nowhere but in memory, or swapped out: of
/// tmpfs(5), which System V's and memfd_create(2)'s are, too, or hugetlbfs.
pub fn is_in_memory<C: Calls>(c: &mut C, fd: usize) -> bool {
    [TMPFS, HUGETLBFS].contains(&file_system(c, fd))
}

/// Chooses the method for the file behind `fd` on device `dev`, which has
/// just refused `RWF_NOWAIT`, and remembers it.
pub fn refused_nowait<C: Calls>(c: &mut C, methods: &mut Methods, fd: usize, dev: u64) -> Method {
    let known = methods.get(dev);
    if !matches!(known, Method::Unasked | Method::NoWait) {
        return known;
    }
    let method = method_of(file_system(c, fd));
    methods.set(dev, method);
    method
}

/// How files are asked on a file system of a `kind` that refuses `RWF_NOWAIT`.
fn method_of(kind: u64) -> Method {
    match kind {
        OVERLAYFS => Method::Mincore,
        SYSFS => Method::Sysfs,
        _ if MADE_UP.contains(&kind) => Method::MadeUp,
        _ if DELICATE.contains(&kind) => Method::Delicate,
        _ => Method::Cachestat,
    }
}

/// Whether mapping the file behind `fd` on device `dev` is no effect by itself, nor loads
/// from the mapping: not where they are a device's registers (sysfs's `resource0` of PCI),
/// or where huge pages are reserved for it. Asks the kernel where nothing is known yet.
pub fn may_be_mapped<C: Calls>(c: &mut C, methods: &mut Methods, fd: usize, dev: u64) -> bool {
    let known = methods.get(dev);
    let method = if known == Method::Unasked { method_of(file_system(c, fd)) } else { known };
    let may = !matches!(method, Method::MadeUp | Method::Sysfs | Method::Delicate);
    if !may {
        methods.set(dev, method);
    }
    may
}

/// A regular file that a speculative process is about to open.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// An `O_PATH` descriptor of it.
    pub path_fd: usize,
    /// Where it can be opened: a directory's descriptor, and the address of a name.
    pub at: (usize, usize),
    /// Its device.
    pub dev: u64,
    /// Its size, in bytes.
    pub size: u64,
    /// As for [`Oracle::new`].
    pub owned: bool,
}

/// What is known of a regular file's device before the file is opened: opening is an
/// effect by itself where files are delicate (trace_pipe has one reader at a time,
/// Linux 6.6), or forgotten. One question for each device.
///
/// `opening` is what an earlier speculative process has found out (`Log::opening`), and
/// this one leaves.
pub fn before_opening<C: Calls>(
    c: &mut C,
    methods: &mut Methods,
    candidate: &Candidate,
    opening: &AtomicU64,
) -> Method {
    let known = methods.get(candidate.dev);
    if known != Method::Unasked {
        return known;
    }
    let told = opening.load(Relaxed);
    let method = if told != 0 && told >> 1 == candidate.dev {
        if told & 1 != 0 { Method::Unopened } else { Method::NoWait }
    } else {
        let kind = file_system(c, candidate.path_fd);
        let forgets = match method_of(kind) {
            // A server may not say even that (FUSE): nobody knows what opening does.
            _ if kind == 0 => true,
            // Those that must be known; of others a read says more.
            method @ (Method::MadeUp | Method::Sysfs | Method::Delicate) => {
                methods.set(candidate.dev, method);
                return method;
            }
            _ if SMB.contains(&kind) => true,
            // There is nothing to forget: the next file is asked.
            _ if kind == FUSE && candidate.size == 0 => return Method::NoWait,
            _ => kind == FUSE && forgets(c, candidate),
        };
        if matches!(kind, 0 | FUSE) || told == 0 {
            opening.store(candidate.dev << 1 | u64::from(forgets), Relaxed);
        }
        if forgets { Method::Unopened } else { Method::NoWait }
    };
    methods.set(candidate.dev, method);
    method
}

/// Whether the file behind `fd` is a FUSE server's. Closing one that is dirty writes it, and
/// takes an error of that for its own (fuse_flush(), Linux 6.18): the program would not be
/// told. One that does not say what it is may be one.
pub fn is_of_a_server<C: Calls>(c: &mut C, fd: usize) -> bool {
    matches!(file_system(c, fd), 0 | FUSE)
}

/// Whether the directory behind `fd` cannot be removed while it is open anywhere, as far as
/// anybody says.
pub fn is_kept_by_opening<C: Calls>(c: &mut C, fd: usize) -> bool {
    let kind = file_system(c, fd);
    kind == 0 || SMB.contains(&kind)
}

/// Whether what is in memory of a file goes when it is opened: on FUSE it does, unless the
/// server says otherwise with each answer (`FOPEN_KEEP_CACHE`; fuse_finish_open(), Linux
/// 6.18), or has nothing kept in memory at all (`FOPEN_DIRECT_IO`). Tried with the file
/// itself: three times an answer is waited for, and a page read. It stays if its first page
/// is seen in memory after it was read, and still when the file has been opened once more.
fn forgets<C: Calls>(c: &mut C, candidate: &Candidate) -> bool {
    let (dir, name) = candidate.at;
    let flags = OPEN_FOR_READING | if candidate.owned { O_NOATIME } else { 0 };
    let Ok(first) = usize::try_from(c.call(nr::OPENAT, [dir, name, flags, 0, 0, 0])) else {
        return true;
    };
    let mut oracle = Oracle { method: Method::Cachestat, ..Oracle::new(candidate.owned) };
    let mut is_there = |c: &mut C| {
        let mut pages = [0u8; PAGES_MAX];
        let count = resident_pages(c, &mut oracle, first, 0, 1, &mut pages);
        count == Some(1) && pages.first().is_some_and(|page| page & 1 == 1)
    };
    let was_there = byte_at(c, first, 0, 0) == 1 && is_there(c);
    let stays = was_there
        && match usize::try_from(c.call(nr::OPENAT, [dir, name, flags, 0, 0, 0])) {
            Ok(again) => {
                c.call(nr::CLOSE, [again, 0, 0, 0, 0, 0]);
                is_there(c)
            }
            Err(_) => false,
        };
    c.call(nr::CLOSE, [first, 0, 0, 0, 0, 0]);
    !stays
}

/// Asks whether `len` bytes at `offset` of the file behind `fd` (device
/// `dev`) are in memory.
///
/// Where `RWF_NOWAIT` is the method, asking *starts the read* of the page
/// asked for; it looks at the first and the last byte only. The other
/// methods start nothing and look at the first [`PAGES_MAX`] pages.
pub fn question<C: Calls>(
    c: &mut C,
    methods: &mut Methods,
    oracle: &mut Oracle,
    (fd, dev): (usize, u64),
    offset: u64,
    len: u64,
) -> Resident {
    if oracle.method == Method::Unasked {
        oracle.method = methods.get(dev);
    }
    if matches!(oracle.method, Method::Unasked | Method::NoWait) {
        let first = nowait_byte(c, fd, offset);
        if !failed(first, EOPNOTSUPP) {
            oracle.method = Method::NoWait;
            methods.set(dev, Method::NoWait);
            let last = offset.saturating_add(len.saturating_sub(1));
            let all = first >= 0
                && (last / PAGE_BYTES == offset / PAGE_BYTES || nowait_byte(c, fd, last) >= 0);
            return if all { Resident::All } else { Resident::NotAll };
        }
        oracle.method = refused_nowait(c, methods, fd, dev);
    }
    match oracle.method {
        Method::MadeUp | Method::Sysfs => return Resident::All,
        Method::Blind | Method::Delicate | Method::Unopened => return Resident::Unknown,
        _ => {}
    }
    let mut pages = [0u8; PAGES_MAX];
    match resident_pages(c, oracle, fd, offset, len, &mut pages) {
        Some(count) if pages.iter().take(count).all(|page| page & 1 == 1) => Resident::All,
        Some(_) => Resident::NotAll,
        None => Resident::Unknown,
    }
}

/// Reads one byte at `offset` if its page is in memory; its result. Starts
/// the read of the page otherwise.
pub fn nowait_byte<C: Calls>(c: &mut C, fd: usize, offset: u64) -> isize {
    byte_at(c, fd, offset, RWF_NOWAIT)
}

/// Reads one byte at `offset`, with flags of preadv2(2); its result.
fn byte_at<C: Calls>(c: &mut C, fd: usize, offset: u64, flags: usize) -> isize {
    let mut byte = [0u8; 8];
    let vector = [byte.as_mut_ptr().expose_provenance(), 1];
    let address = vector.as_ptr().expose_provenance();
    c.call(nr::PREADV2, [fd, address, 1, offset as usize, 0, flags])
}

/// Which pages of a range are in memory and up to date, where `RWF_NOWAIT`
/// is refused: bit 0 of one byte per page, from the page of `offset` on, at
/// most [`PAGES_MAX`]. Gives their number, or `None` where it cannot be
/// known.
pub fn resident_pages<C: Calls>(
    c: &mut C,
    oracle: &mut Oracle,
    fd: usize,
    offset: u64,
    len: u64,
    pages: &mut [u8; PAGES_MAX],
) -> Option<usize> {
    let first = offset / PAGE_BYTES;
    let last = offset.saturating_add(len.max(1) - 1) / PAGE_BYTES;
    let count = ((last - first).saturating_add(1)).min(PAGES_MAX as u64) as usize;
    if oracle.method == Method::Cachestat {
        let range = [first * PAGE_BYTES, count as u64 * PAGE_BYTES];
        let mut cached = [0u64; 5];
        let arguments = [
            fd,
            range.as_ptr().expose_provenance(),
            cached.as_mut_ptr().expose_provenance(),
            0,
            0,
            0,
        ];
        let result = c.call(nr::CACHESTAT, arguments);
        if result == 0 && cached.first() == Some(&0) {
            pages.fill(0);
            return Some(count);
        }
        if failed(result, EPERM) {
            oracle.rights = Rights::Refused;
        } else if result == 0 {
            oracle.rights = Rights::Granted;
        }
        // Some are cached, which may be on their way; or the kernel has no
        // cachestat. mincore tells.
    }
    if !may_ask(c, oracle, fd) {
        oracle.method = Method::Blind;
        return None;
    }
    let offset = first * PAGE_BYTES;
    if oracle.keeps && offset + count as u64 * PAGE_BYTES <= WINDOW_BYTES {
        if oracle.window == 0 {
            let mapping = c.call(nr::MMAP, [0, WINDOW_BYTES as usize, 0, MAP_PRIVATE, fd, 0]);
            oracle.window = usize::try_from(mapping).unwrap_or(0);
        }
        let at = oracle.window + offset as usize;
        let len = count * PAGE_BYTES as usize;
        let vector = pages.as_mut_ptr().expose_provenance();
        if oracle.window != 0 && c.call(nr::MINCORE, [at, len, vector, 0, 0, 0]) == 0 {
            return Some(count);
        }
        // The program has unmapped it.
        oracle.window = 0;
    }
    mincore(c, fd, offset, count, pages)
}

/// Whether `mincore` tells the truth about a file: it does to the owner and
/// to whoever may write it.
fn may_ask<C: Calls>(c: &mut C, oracle: &mut Oracle, fd: usize) -> bool {
    if oracle.rights == Rights::Unasked {
        let empty = [0u8; 8];
        let path = empty.as_ptr().expose_provenance();
        const W_OK: usize = 2;
        let arguments = [fd, path, W_OK, AT_EMPTY_PATH | AT_EACCESS, 0, 0];
        let allowed = c.call(nr::FACCESSAT2, arguments) == 0;
        oracle.rights = if allowed { Rights::Granted } else { Rights::Refused };
    }
    oracle.rights == Rights::Granted
}

fn mincore<C: Calls>(
    c: &mut C,
    fd: usize,
    offset: u64,
    count: usize,
    pages: &mut [u8; PAGES_MAX],
) -> Option<usize> {
    let len = count * PAGE_BYTES as usize;
    // PROT_NONE: the mapping is only asked about. MAP_PRIVATE keeps it
    // inside what a speculative process may do.
    let mapping = c.call(nr::MMAP, [0, len, 0, MAP_PRIVATE, fd, offset as usize]);
    if (-4095..=0).contains(&mapping) {
        return None;
    }
    let mapping = mapping as usize;
    let vector = pages.as_mut_ptr().expose_provenance();
    let result = c.call(nr::MINCORE, [mapping, len, vector, 0, 0, 0]);
    c.call(nr::MUNMAP, [mapping, len, 0, 0, 0, 0]);
    (result == 0).then_some(count)
}
