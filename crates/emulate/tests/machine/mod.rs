//! A machine for the emulator: the kernel's own files and names, but a page
//! cache, a device and a normal process that are modelled, so that every run
//! is the same. Each real call is checked against the gate.
#![allow(dead_code, reason = "each test file uses a part")]

use runahead_emulate::frontier::Walk;
use runahead_emulate::{
    Calls, Emulator, Identity, Kernel, Outcome, Protecting, Start, arch::nr, gate,
};
use runahead_protocol::log::Log;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub const PAGE: u64 = 4096;

/// What the modelled file system says to `RWF_NOWAIT`, `cachestat` and
/// `mincore`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// Like ext4.
    NoWait,
    /// Like FUSE: refuses NOWAIT, cachestat answers.
    Cachestat,
    /// Like overlayfs: refuses NOWAIT, cachestat sees nothing.
    Overlay,
    /// Like FUSE for somebody who neither owns nor may write the files.
    Foreign,
    /// Like tracefs.
    Delicate,
    /// Like FUSE as it tells what it is, whose server says that what is in memory of a
    /// file stays when that is opened, or says nothing.
    Keeping,
    Forgetting,
    /// Like SMB.
    Smb,
    /// Does not say what it is.
    Silent,
}

pub type PageId = (u64, u64, u64);

pub struct Machine {
    pub fs: FileSystem,
    /// Every page that was never read is cold where this is set.
    pub cold: bool,
    resident: BTreeSet<PageId>,
    in_flight: BTreeMap<PageId, u64>,
    pub now_ns: u64,
    pub latency_ns: u64,
    /// Most pages in flight at once.
    pub in_flight_max: usize,
    pub calls: Vec<(usize, [usize; 6])>,
    /// Real descriptors that the emulator has.
    pub open: BTreeSet<usize>,
    /// Memory that the program has.
    regions: Vec<(usize, usize)>,
    pub consumed: *const AtomicU64,
    pub horizon_waits: Vec<u64>,
    pub hopeless: bool,
    /// Memory calls are only looked at.
    pub pretend_memory: bool,
    /// What becomes of an mprotect(2).
    pub protecting: Protecting,
    /// Where each mapping of a file begins, and the page of the file there.
    mappings: BTreeMap<usize, PageId>,
    /// How long a call on a name takes, in ns.
    pub name_wait_ns: u64,
    /// It takes so long because others have the processor.
    pub preempted: bool,
    /// Names whose attributes readers of directories asked for.
    pub named: Vec<String>,
    /// Walks that were to be read ahead.
    pub walks: Vec<Walk>,
    /// Pages read in again after their eviction.
    pub refaults: Option<u64>,
    /// Pages that are dirty.
    pub dirty: BTreeSet<PageId>,
}

impl Machine {
    pub fn new() -> Machine {
        Machine {
            fs: FileSystem::NoWait,
            cold: false,
            resident: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            now_ns: 1_000_000,
            latency_ns: 1_000_000,
            in_flight_max: 0,
            calls: Vec::new(),
            open: BTreeSet::new(),
            regions: Vec::new(),
            consumed: std::ptr::null(),
            horizon_waits: Vec::new(),
            hopeless: false,
            pretend_memory: false,
            protecting: Protecting::Real,
            mappings: BTreeMap::new(),
            name_wait_ns: 0,
            preempted: false,
            named: Vec::new(),
            walks: Vec::new(),
            refaults: None,
            dirty: BTreeSet::new(),
        }
    }

    /// Makes memory known as the program's.
    pub fn own<T>(&mut self, memory: &mut [T]) -> usize {
        let address = memory.as_mut_ptr().expose_provenance();
        self.regions.push((address, size_of_val(memory)));
        address
    }

    pub fn count(&self, number: usize) -> usize {
        self.calls.iter().filter(|call| call.0 == number).count()
    }

    fn owns(&self, address: usize, len: usize) -> bool {
        self.regions.iter().any(|(start, region)| {
            address >= *start && len <= *region && address - start <= region - len
        })
    }

    fn page_id(fd: i32, offset: u64) -> Option<PageId> {
        // SAFETY: stat is plain data that fstat fills.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live stat.
        let done = unsafe { libc::fstat(fd, &mut stat) } == 0;
        let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        (done && regular).then_some((stat.st_dev, stat.st_ino, offset / PAGE))
    }

    fn settle(&mut self) {
        let now = self.now_ns;
        let done: Vec<PageId> =
            self.in_flight.iter().filter(|page| *page.1 <= now).map(|page| *page.0).collect();
        for page in done {
            self.in_flight.remove(&page);
            self.resident.insert(page);
        }
    }

    pub fn is_resident(&mut self, page: PageId) -> bool {
        self.settle();
        !self.cold || self.resident.contains(&page)
    }

    /// Puts the page at `offset` of a file into the modelled cache.
    pub fn warm(&mut self, path: &Path, offset: u64) {
        let page = Self::page_of(path, offset);
        self.resident.insert(page);
    }

    /// The normal process has begun to read the page at `offset` of a file.
    pub fn begin(&mut self, path: &Path, offset: u64) {
        self.start_read(Self::page_of(path, offset));
    }

    /// Pages of a file up to `len` bytes that are neither there nor on their way.
    pub fn holes(&self, path: &Path, len: u64) -> Vec<u64> {
        let page = |number: &u64| Self::page_of(path, number * PAGE);
        let is_hole = |number: &u64| {
            !self.resident.contains(&page(number)) && !self.in_flight.contains_key(&page(number))
        };
        (0..len / PAGE).filter(is_hole).collect()
    }

    fn page_of(path: &Path, offset: u64) -> PageId {
        use std::os::unix::fs::MetadataExt;
        let meta = path.metadata().unwrap();
        (meta.dev(), meta.ino(), offset / PAGE)
    }

    fn start_read(&mut self, page: PageId) {
        if !self.is_resident(page) && !self.in_flight.contains_key(&page) {
            let done = self.now_ns + self.latency_ns;
            self.in_flight.insert(page, done);
            self.in_flight_max = self.in_flight_max.max(self.in_flight.len());
        }
    }

    /// Bytes of `len` at `offset` up to the first page that is not resident.
    fn resident_prefix(&mut self, fd: i32, offset: u64, len: u64) -> u64 {
        let Some((dev, ino, first)) = Self::page_id(fd, offset) else { return len };
        let mut page = first;
        while page * PAGE < offset + len {
            if !self.is_resident((dev, ino, page)) {
                return (page * PAGE).saturating_sub(offset);
            }
            page += 1;
        }
        len
    }

    fn read(&mut self, args: [usize; 6]) -> isize {
        let [fd, vector, count, offset, _, flags] = args;
        let regular = Self::page_id(fd as i32, 0).is_some();
        let nowait = flags & 8 != 0;
        if nowait && regular && self.fs != FileSystem::NoWait {
            return -(libc::EOPNOTSUPP as isize);
        }
        if count > 1024 || !self.cold || !regular {
            return raw(nr::PREADV2, [fd, vector, count, offset, 0, 0]);
        }
        // SAFETY: in these tests the vector is always real memory: the
        // emulator's or the program's, checked before by the emulator.
        let part = |index| unsafe { (vector as *const [usize; 2]).add(index).read_unaligned() };
        let vector: Vec<[usize; 2]> = (0..count).map(part).collect();
        let len: u64 = vector.iter().map(|part| part[1] as u64).sum();
        // SAFETY: as in page_id.
        let size = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstat(fd as i32, &mut stat);
            stat.st_size as u64
        };
        let offset = offset as u64;
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return 0;
        }
        let tries = matches!(self.fs, FileSystem::Keeping | FileSystem::Forgetting);
        if !nowait && tries && (offset, len) == (0, 1) {
            self.resident.extend(Self::page_id(fd as i32, 0));
        } else if !nowait {
            self.demand(fd as i32, offset, len);
        }
        let prefix = self.resident_prefix(fd as i32, offset, len);
        if prefix < len {
            let (dev, ino, _) = Self::page_id(fd as i32, 0).unwrap();
            let missing = (offset + prefix) / PAGE..=(offset + len - 1) / PAGE;
            // Like the kernel: what meets a page that is on its way begins nothing.
            if !self.in_flight.contains_key(&(dev, ino, *missing.start())) {
                missing.for_each(|page| self.start_read((dev, ino, page)));
            }
        }
        if prefix == 0 {
            return -(libc::EAGAIN as isize);
        }
        let (mut done, mut left) = (0, prefix);
        for [address, part] in vector {
            let part = (part as u64).min(left);
            let at = [fd, address, part as usize, (offset + done) as usize, 0, 0];
            assert_eq!(raw(libc::SYS_pread64 as usize, at), part as isize);
            done += part;
            left -= part;
        }
        done as isize
    }

    /// A plain read waits: the emulator must never make one that would.
    fn demand(&mut self, fd: i32, offset: u64, len: u64) {
        let prefix = self.resident_prefix(fd, offset, len);
        assert_eq!(prefix, len, "a plain read of {len} bytes at {offset} would wait");
    }

    fn readahead(&mut self, args: [usize; 6]) -> isize {
        let (fd, offset, len) = (args[0] as i32, args[1] as u64, args[2] as u64);
        assert!(len <= 1280 * 1024, "the kernel would cut a readahead of {len} bytes");
        let Some((dev, ino, first)) = Self::page_id(fd, offset) else { return -22 };
        for page in first..(offset + len).div_ceil(PAGE) {
            self.start_read((dev, ino, page));
        }
        0
    }

    fn mincore(&mut self, args: [usize; 6]) -> isize {
        // None is large.
        let Some((start, (dev, ino, first))) = self
            .mappings
            .range(..=args[0])
            .next_back()
            .map(|(start, page)| (*start, *page))
            .filter(|(start, _)| args[0] - *start < 1 << 20)
        else {
            return -12;
        };
        let first = first + (args[0] - start) as u64 / PAGE;
        // SAFETY: the emulator's vector has a byte for each page.
        let pages =
            unsafe { std::slice::from_raw_parts_mut(args[2] as *mut u8, args[1].div_ceil(4096)) };
        for (index, page) in pages.iter_mut().enumerate() {
            let resident = self.is_resident((dev, ino, first + index as u64));
            *page = u8::from(resident || self.fs == FileSystem::Foreign);
        }
        0
    }

    fn cachestat(&mut self, args: [usize; 6]) -> isize {
        if self.fs == FileSystem::Foreign {
            return -(libc::EPERM as isize);
        }
        // SAFETY: struct cachestat_range and struct cachestat of the
        // emulator.
        let (range, out) =
            unsafe { (*(args[1] as *const [u64; 2]), &mut *(args[2] as *mut [u64; 5])) };
        let (dev, ino, first) = Self::page_id(args[0] as i32, range[0]).unwrap();
        let pages = first..(range[0] + range[1]).div_ceil(PAGE);
        let all = pages.clone();
        // Pages on their way are counted, as the kernel does.
        self.settle();
        let cached = pages.filter(|page| {
            let page = (dev, ino, *page);
            !self.cold || self.resident.contains(&page) || self.in_flight.contains_key(&page)
        });
        out[0] = cached.count() as u64;
        out[1] = self.dirty.range((dev, ino, all.start)..(dev, ino, all.end)).count() as u64;
        0
    }

    /// Drops whole pages, and a file's last one.
    fn dont_need(&mut self, args: [usize; 6]) -> isize {
        let (start, len) = (args[1] as u64, args[2] as u64);
        let (dev, ino, _) = Self::page_id(args[0] as i32, start).unwrap();
        // SAFETY: asks for the end of a file that only the emulator reads.
        let size = unsafe { libc::lseek(args[0] as i32, 0, libc::SEEK_END) } as u64;
        let end = if start + len >= size { size.div_ceil(PAGE) } else { (start + len) / PAGE };
        for page in start.div_ceil(PAGE)..end {
            assert!(!self.dirty.contains(&(dev, ino, page)), "page {page} would be written");
            self.resident.remove(&(dev, ino, page));
        }
        0
    }
}

/// A real system call.
pub fn raw(number: usize, a: [usize; 6]) -> isize {
    // SAFETY: tests make only calls that the gate permits or that they chose
    // themselves, on memory that they own.
    let result =
        unsafe { libc::syscall(number as libc::c_long, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if result == -1 {
        -(std::io::Error::last_os_error().raw_os_error().unwrap() as isize)
    } else {
        result as isize
    }
}

impl Calls for Machine {
    fn call(&mut self, number: usize, mut args: [usize; 6]) -> isize {
        assert!(gate::permits(number, args), "system call {number} {args:x?} is outside the gate");
        self.calls.push((number, args));
        self.now_ns += 1_000;
        if matches!(number, nr::OPENAT | nr::NEWFSTATAT | nr::GETDENTS64) {
            self.now_ns += self.name_wait_ns;
        }
        let own = c"/proc/thread-self/fd";
        match number {
            nr::PREADV2 => return self.read(args),
            nr::READAHEAD => return self.readahead(args),
            nr::MINCORE if !self.pretend_memory => return self.mincore(args),
            nr::CACHESTAT => return self.cachestat(args),
            nr::FADVISE64 if args[3] == 4 => return self.dont_need(args),
            nr::FSTATFS if self.fs == FileSystem::Silent => return -(libc::ENOSYS as isize),
            nr::FSTATFS if self.kind() != 0 => {
                let kind = self.kind();
                // SAFETY: the emulator's struct statfs; f_type is its first word.
                unsafe { (args[1] as *mut u64).write(kind) };
                return 0;
            }
            nr::FACCESSAT2 if self.fs == FileSystem::Foreign => return -(libc::EACCES as isize),
            nr::MMAP if args[4] as i32 >= 0 && !self.pretend_memory => {
                let mapping = raw(number, args);
                let page = Self::page_id(args[4] as i32, args[5] as u64).unwrap();
                self.mappings.insert(mapping as usize, page);
                return mapping;
            }
            // One that other tests' memory may get next must not be found
            // again below a mapping made there later.
            nr::MUNMAP if !self.pretend_memory => {
                self.mappings.retain(|start, _| !(args[0]..args[0] + args[1]).contains(start));
            }
            nr::MUNMAP
            | nr::MPROTECT
            | nr::MREMAP
            | nr::MMAP
            | nr::BRK
            | nr::MADVISE
            | nr::ARCH_PRCTL
            | nr::MINCORE
                if self.pretend_memory =>
            {
                return 0;
            }
            // A thread with a descriptor table of its own has another
            // /proc/self than the process whose thread it is.
            nr::OPENAT if self.is_string(args[1], c"/proc/self/fd") => {
                args[1] = own.as_ptr().expose_provenance();
            }
            nr::CLOSE => assert!(self.open.remove(&args[0]), "{} is not its own", args[0]),
            _ => {}
        }
        let result = raw(number, args);
        if number == nr::OPENAT && result >= 0 {
            self.open.insert(result as usize);
            let opens = args[2] & libc::O_PATH as usize == 0;
            if self.fs == FileSystem::Forgetting
                && opens
                && let Some((dev, ino, _)) = Self::page_id(result as i32, 0)
            {
                self.resident.retain(|page| (page.0, page.1) != (dev, ino));
            }
        }
        if number == nr::STATX && result == 0 {
            // SAFETY: a name that the kernel has just read to its NUL.
            let name = unsafe { CStr::from_ptr(args[1] as *const libc::c_char) };
            self.named.push(name.to_str().unwrap_or("").to_owned());
        }
        result
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for fd in &self.open {
            raw(nr::CLOSE, [*fd, 0, 0, 0, 0, 0]);
        }
    }
}

impl Machine {
    /// The magic number of the file system, where another than that of the tests' files.
    fn kind(&self) -> u64 {
        match self.fs {
            FileSystem::Overlay => 0x794c_7630,
            FileSystem::Delicate => 0x7472_6163,
            FileSystem::Keeping | FileSystem::Forgetting => 0x6573_5546,
            FileSystem::Smb => 0xfe53_4d42,
            FileSystem::NoWait | FileSystem::Cachestat => 0,
            FileSystem::Foreign | FileSystem::Silent => 0,
        }
    }

    fn is_string(&self, address: usize, text: &CStr) -> bool {
        let len = text.to_bytes_with_nul().len();
        let mut bytes = vec![0u8; len];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: len };
        // SAFETY: the kernel checks the remote address.
        let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        got == len as isize && bytes == text.to_bytes_with_nul()
    }
}

impl Kernel for Machine {
    fn prepare_write(&mut self, address: usize, len: usize) -> bool {
        self.owns(address, len)
    }

    fn load(&mut self, address: usize, into: &mut [u8]) -> bool {
        // Strings of the program are read in chunks that may reach beyond
        // what it owns, within a page.
        let known = self.regions.iter().any(|(start, len)| {
            let end = (start + len).next_multiple_of(4096);
            address >= start / 4096 * 4096 && address.saturating_add(into.len()) <= end
        });
        if known {
            // SAFETY: whole pages of which a part is the program's. The rest
            // may be the emulator's, `into` among it.
            unsafe { std::ptr::copy(address as *const u8, into.as_mut_ptr(), into.len()) };
        }
        known
    }

    fn store(&mut self, address: usize, from: &[u8]) -> bool {
        let owned = self.owns(address, from.len());
        if owned {
            // SAFETY: the range is the program's.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), address as *mut u8, from.len()) };
        }
        owned
    }

    fn protecting(&mut self, _: usize, _: usize, _: usize) -> Protecting {
        self.protecting
    }

    fn is_shared(&mut self, _: usize, _: usize) -> bool {
        false
    }

    fn mapped(&mut self, _: usize, _: usize, _: Option<runahead_emulate::Mapped>) {}

    fn unmapped(&mut self, _: usize, _: usize) {}

    fn now_ns(&mut self) -> u64 {
        self.now_ns += 100;
        self.now_ns
    }

    fn wait_consumed(&mut self, until: u64) -> bool {
        self.horizon_waits.push(until);
        if !self.consumed.is_null() {
            // SAFETY: points into the log of the running test.
            unsafe { &*self.consumed }.fetch_max(until, Ordering::Relaxed);
        }
        self.now_ns += 10 * self.latency_ns;
        !self.hopeless
    }

    fn pause(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    fn slept(&mut self) -> bool {
        !self.preempted
    }

    fn refaults(&mut self) -> Option<u64> {
        self.refaults
    }

    fn walk(&mut self, walk: &Walk, _: u32) -> bool {
        self.walks.push(*walk);
        false
    }
}

/// A speculative process on a [`Machine`].
pub struct Copy {
    pub machine: Machine,
    pub emulator: Box<Emulator>,
    pub log: Box<Log>,
}

impl Copy {
    /// On a file system of which nothing is in memory.
    pub fn cold(fs: FileSystem) -> Copy {
        let mut copy = Copy::new();
        copy.machine.fs = fs;
        copy.machine.cold = true;
        copy
    }

    pub fn new() -> Copy {
        // SAFETY: zero bytes are a valid Emulator and a valid Log, as both
        // promise, and the layouts are those of the types.
        let (mut emulator, log): (Box<Emulator>, Box<Log>) = unsafe {
            (
                Box::from_raw(alloc_zeroed(Layout::new::<Emulator>()).cast()),
                Box::from_raw(alloc_zeroed(Layout::new::<Log>()).cast()),
            )
        };
        emulator.start(&Start {
            identity: identity(),
            memory_max_bytes: 64 << 20,
            depth: 0,
            blocked_signals: 0,
            reads_text: false,
            always_wrong: false,
            release: None,
        });
        let mut machine = Machine::new();
        machine.consumed = &raw const log.consumed;
        Copy { machine, emulator, log }
    }

    pub fn outcome(&mut self, number: usize, args: &[usize]) -> Outcome {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        self.emulator.call(&mut self.machine, &self.log, number, all)
    }

    /// Result of a call that must not park.
    pub fn call(&mut self, number: usize, args: &[usize]) -> isize {
        match self.outcome(number, args) {
            Outcome::Return(result) => result,
            parked => panic!("system call {number}: {parked:?}"),
        }
    }

    /// A path as the program holds it; never freed.
    pub fn path(&mut self, path: impl AsRef<Path>) -> usize {
        let text = CString::new(path.as_ref().to_str().unwrap()).unwrap();
        let text: &'static mut [u8] = text.into_bytes_with_nul().leak();
        self.machine.own(text)
    }

    pub fn open(&mut self, path: impl AsRef<Path>, flags: i32) -> isize {
        let path = self.path(path);
        self.call(nr::OPENAT, &[libc::AT_FDCWD as usize, path, flags as usize, 0o644])
    }

    /// Reads into a buffer filled with `0xee`.
    pub fn read(&mut self, fd: isize, len: usize) -> (isize, Vec<u8>) {
        self.read_over(fd, vec![0xee; len])
    }

    /// Into a buffer in which something was before.
    pub fn read_over(&mut self, fd: isize, mut buffer: Vec<u8>) -> (isize, Vec<u8>) {
        let len = buffer.len();
        let address = self.machine.own(&mut buffer);
        let result = self.call(nr::READ, &[fd as usize, address, len]);
        (result, buffer)
    }

    pub fn pread(&mut self, fd: isize, len: usize, offset: usize) -> (isize, Vec<u8>) {
        let mut buffer = vec![0xee; len];
        let address = self.machine.own(&mut buffer);
        let result = self.call(nr::PREAD64, &[fd as usize, address, len, offset]);
        (result, buffer)
    }

    pub fn consume(&mut self, reads: u64) {
        self.log.consumed.store(reads, Ordering::Relaxed);
    }
}

pub fn identity() -> Identity {
    // SAFETY: these calls only look.
    unsafe {
        Identity {
            pid: libc::getpid(),
            tid: libc::gettid(),
            ppid: libc::getppid(),
            pgid: libc::getpgrp(),
            sid: libc::getsid(0),
            fsuid: libc::geteuid(),
            fsgid: libc::getegid(),
        }
    }
}

/// A directory of its own that is gone at the end.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("emulate-{}-{name}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, contents(len)).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that name their own position and are never `0xee`.
pub fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at / 4096 + at) % 199) as u8).collect()
}
