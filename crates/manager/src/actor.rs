//! Does what the engine decides: opens files, reads ahead, gives back.
//!
//! It works in threads that have a descriptor table of their own. So the program's
//! descriptor numbers are what they would be, nothing of ours is inherited by its children,
//! and, what matters most, closing a file here does not drop the POSIX locks that the program
//! holds on it: those belong to a table.
//!
//! A file is open here only while something is done with it, and opened again for the next
//! thing. Held for longer, a file system could not be unmounted that the program has done
//! with, nor would the space of a file come free that it has removed.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::engine::Report;
use crate::geometry::{Geometry, Given};
use crate::layout::{EXTENTS_MAX, FileInfo};
use crate::{BLOCK_BYTES, CLUSTER_BLOCKS};
use runahead_device::extents::extents;

/// Files that were just used and are kept open until [`Actor::close_unused`].
const FRESH_MAX: usize = 128;
/// Files that linger at a time; hints for others that cannot be opened again are lost.
const LINGERING_MAX: usize = 512;
/// How long a file that is better not opened again stays open after its last use.
pub const LINGER: Duration = Duration::from_secs(1);
/// `f_type` of FUSE, as statfs(2) tells it.
const FUSE_MAGIC: u32 = 0x6573_5546;
/// Threads that wait for prefetches and open files, at most: two for each disk.
const WORKERS_MAX: usize = 64;
/// Stack of a worker; they only make system calls.
const STACK_BYTES: usize = 128 << 10;
const PAGE_BYTES: u64 = 4096;
/// Bytes of one call of readahead(2).
const REQUEST_BYTES: u64 = CLUSTER_BLOCKS as u64 * BLOCK_BYTES;

/// Gives this thread, and those that it will start, a descriptor table of their own with
/// nothing in it.
///
/// # Errors
/// If the kernel refuses: then nothing may be opened here.
pub fn own_descriptor_table() -> io::Result<()> {
    // In one call, which copies nothing that it closes. Copies keep files open, however
    // briefly: a pipe's reader would wait for its end, and a lock would be found held.
    // SAFETY: plain call; it gives this thread a table of its own before it closes anything.
    if unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } == 0
    {
        return Ok(());
    }
    // SAFETY: plain call; it only affects this thread's table of descriptors.
    if unsafe { libc::unshare(libc::CLONE_FILES) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the table is this thread's own; what is in it are copies that nobody uses.
    if unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Turns at the processor that are asked for, nanoseconds: the shortest that the kernel gives.
const SLICE_NS: u64 = 100_000;

#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Asks for short turns at the processor: who takes little at a time gets it sooner, so that
/// disks do not wait while others compute. It is no more of the processor, and needs no
/// right. Kernels before 6.12 take no notice.
pub fn ask_for_short_turns() {
    let mut attributes = SchedAttr::default();
    let size = std::mem::size_of::<SchedAttr>();
    // SAFETY: the kernel fills at most `size` bytes.
    let told = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    let normal = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(|policy| policy as u32);
    if told < 0 || !normal.contains(&attributes.policy) {
        return;
    }
    attributes.runtime_ns = SLICE_NS;
    // SAFETY: the kernel reads as many bytes as `size` in it says.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// CLOCK_MONOTONIC, nanoseconds.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Which file is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// By its name.
    Path(PathBuf),
    /// A descriptor that a process has open, found by its number and, since it may be closed
    /// and used again meanwhile, known by what it is.
    Descriptor {
        /// The process.
        pid: u32,
        /// The number.
        fd: i32,
        /// `st_dev` and `st_ino`.
        identity: (u64, u64),
    },
}

impl Source {
    fn open(&self) -> io::Result<File> {
        match self {
            Self::Path(path) => {
                // Opening a FIFO or a device could wait or do something: look first.
                let kind = std::fs::metadata(path)?.file_type();
                if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_dir() {
                    return Err(io::Error::other("not a file with a page cache"));
                }
                open_read_only(path.as_os_str().as_bytes())
            }
            Self::Descriptor { pid, fd, identity } => {
                let path = format!("/proc/{pid}/fd/{fd}");
                let metadata = std::fs::metadata(&path)?;
                if (metadata.dev(), metadata.ino()) != *identity {
                    return Err(io::Error::other("the descriptor names another file now"));
                }
                let file = open_read_only(path.as_bytes())?;
                let metadata = file.metadata()?;
                if (metadata.dev(), metadata.ino()) != *identity {
                    return Err(io::Error::other("the descriptor names another file now"));
                }
                Ok(file)
            }
        }
    }
}

fn open_read_only(path: &[u8]) -> io::Result<File> {
    let path = CString::new(path)?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // Prefetching is no access that anybody should see; only owners may ask for that.
    for flags in [flags | libc::O_NOATIME, flags] {
        // SAFETY: a valid string with its terminating zero.
        let fd = unsafe { libc::open(path.as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: a new descriptor that nobody else owns.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
    }
    Err(io::Error::last_os_error())
}

/// What a file is, and where it is opened.
#[derive(Debug)]
struct Place {
    source: Source,
    /// Its name, where it was found by a descriptor: the program may close that and read on,
    /// through a mapping or another.
    name: Option<Source>,
    /// `st_dev` and `st_ino`, and when it was made.
    identity: (u64, u64, u64),
    /// It may be opened again; see [`drops_pages`].
    reopens: bool,
    /// Open as long as somebody has it.
    open: Mutex<Weak<File>>,
}

impl Place {
    /// The file, opened if it is not open, and if it still is the same.
    fn file(&self) -> io::Result<Arc<File>> {
        let mut open = locked(&self.open);
        if let Some(file) = open.upgrade() {
            return Ok(file);
        }
        let sources = [Some(&self.source), self.name.as_ref()];
        let found = sources.into_iter().flatten().filter(|_| self.reopens).find_map(|source| {
            let file = source.open().ok()?;
            let metadata = file.metadata().ok()?;
            let identity = (metadata.dev(), metadata.ino(), born_ns(&metadata));
            (identity == self.identity).then_some(file)
        });
        let file = Arc::new(found.ok_or_else(|| io::Error::other("it cannot be opened again"))?);
        *open = Arc::downgrade(&file);
        Ok(file)
    }

    /// The file, where it is open. Waits for nobody who is just opening it.
    fn if_open(&self) -> Option<Arc<File>> {
        self.open.try_lock().ok()?.upgrade()
    }
}

/// Whether the pages in memory go when a file is opened once more: FUSE does so, unless its
/// server says otherwise (`FOPEN_KEEP_CACHE`). What was prefetched would be lost each time.
fn drops_pages(file: &File) -> bool {
    let mut told = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the kernel fills the whole structure where it succeeds.
    let kind = unsafe {
        if libc::fstatfs(file.as_raw_fd(), told.as_mut_ptr()) < 0 {
            return false;
        }
        told.assume_init().f_type
    };
    kind as u32 == FUSE_MAGIC
}

/// The name of what was found by a descriptor.
fn name_of(source: &Source, file: &File) -> Option<Source> {
    matches!(source, Source::Descriptor { .. })
        .then(|| std::fs::read_link(format!("/proc/thread-self/fd/{}", file.as_raw_fd())).ok())
        .flatten()
        .map(Source::Path)
}

/// A file that was looked up.
#[derive(Clone, Debug)]
pub struct Opened {
    file: Arc<File>,
    place: Arc<Place>,
    /// What the engine is told.
    pub info: FileInfo,
}

/// What became of a job.
#[derive(Debug)]
pub enum Done {
    /// A prefetch.
    Prefetched(u64, Report),
    /// The prefetch with this tag failed because the file with this number could not be
    /// opened again: it is to be looked up before it is hinted once more.
    Lost(u64, u32, Report),
    /// A file was opened and looked at.
    Found(u32, io::Result<Opened>),
}

enum Job {
    Prefetch { tag: u64, number: u32, place: Arc<Place>, open: Option<Arc<File>>, range: Bytes },
    Find { number: u32, source: Source },
}

/// Bytes of a file.
#[derive(Clone, Copy)]
struct Bytes {
    offset: u64,
    length: u64,
}

#[derive(Default)]
struct Queue {
    /// Prefetches go first: disks must not fall idle because files are being opened.
    prefetches: VecDeque<Job>,
    finds: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<Vec<Done>>,
    owner: Thread,
    geometries: Mutex<HashMap<u64, Geometry>>,
    given: Given,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acts for one process. To be made in a thread with a descriptor table of its own, which is
/// unparked when something is done.
pub struct Actor {
    shared: Arc<Shared>,
    workers: usize,
    places: HashMap<u32, Arc<Place>>,
    /// Open until [`Self::close_unused`]: what is found or released is often used at once.
    fresh: Vec<Arc<File>>,
    /// Those that are better not opened again, and when they were used last.
    lingering: HashMap<u32, (Arc<File>, Instant)>,
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actor").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Actor {
    /// An actor whose owner is this thread, told what is given of the disks.
    pub fn new(given: Given) -> Self {
        let shared = Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Mutex::default(),
            owner: std::thread::current(),
            geometries: Mutex::default(),
            given,
        };
        Self {
            shared: Arc::new(shared),
            workers: 0,
            places: HashMap::new(),
            fresh: Vec::new(),
            lingering: HashMap::new(),
        }
    }

    /// Opens a file and looks at it; the answer is among [`Self::take_done`].
    pub fn find(&mut self, number: u32, source: Source) {
        self.push(Job::Find { number, source });
    }

    /// Takes a file that was found, for prefetches and releases under its number.
    pub fn keep(&mut self, number: u32, opened: &Opened) {
        self.places.insert(number, Arc::clone(&opened.place));
        self.lingering.remove(&number);
        if !opened.place.reopens && self.lingering.len() < LINGERING_MAX {
            self.lingering.insert(number, (Arc::clone(&opened.file), Instant::now()));
        }
        self.freshen(Arc::clone(&opened.file));
    }

    fn freshen(&mut self, file: Arc<File>) {
        if self.fresh.len() == FRESH_MAX {
            self.fresh.clear();
        }
        self.fresh.push(file);
    }

    /// Closes what nothing is done with. To be called whenever there is nothing more to do at
    /// once, and where [files linger](Self::is_lingering), after [`LINGER`].
    pub fn close_unused(&mut self) {
        self.fresh.clear();
        self.lingering.retain(|_, (_, used)| used.elapsed() < LINGER);
    }

    /// Whether a file is open that nothing may be done with any more.
    pub fn is_lingering(&self) -> bool {
        !self.lingering.is_empty()
    }

    /// Starts a prefetch; its report is among [`Self::take_done`].
    pub fn prefetch(&mut self, tag: u64, number: u32, offset: u64, length: u64) {
        let Some(place) = self.places.get(&number).map(Arc::clone) else {
            locked(&self.shared.done).push(Done::Prefetched(tag, failed()));
            return;
        };
        if let Some((_, used)) = self.lingering.get_mut(&number) {
            *used = Instant::now();
        }
        let open = place.if_open();
        self.push(Job::Prefetch { tag, number, place, open, range: Bytes { offset, length } });
    }

    /// Gives a range of the page cache back. Dirty pages and those that somebody has mapped
    /// stay.
    pub fn release(&mut self, number: u32, offset: u64, length: u64) {
        let Some(place) = self.places.get(&number) else { return };
        let Ok(file) = place.file() else { return };
        let (offset, length) = (offset as libc::off_t, length as libc::off_t);
        // SAFETY: plain call on an open descriptor.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, length, libc::POSIX_FADV_DONTNEED) };
        self.freshen(file);
    }

    /// What is done since the last call.
    pub fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut *locked(&self.shared.done))
    }

    fn push(&mut self, job: Job) {
        let mut queue = locked(&self.shared.queue);
        match job {
            Job::Prefetch { .. } => queue.prefetches.push_back(job),
            Job::Find { .. } => queue.finds.push_back(job),
        }
        let waiting = queue.prefetches.len() + queue.finds.len();
        let short = queue.idle < waiting && self.workers < WORKERS_MAX;
        drop(queue);
        self.shared.work.notify_one();
        if short {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("runahead".into());
            if builder.stack_size(STACK_BYTES).spawn(move || work(&shared)).is_ok() {
                self.workers += 1;
            } else if self.workers == 0 {
                // Nobody would ever do it.
                let job = {
                    let mut queue = locked(&self.shared.queue);
                    queue.prefetches.pop_back().or_else(|| queue.finds.pop_back())
                };
                if let Some(job) = job {
                    locked(&self.shared.done).push(perform(job, &self.shared));
                }
            }
        }
    }
}

impl Default for Actor {
    fn default() -> Self {
        Self::new(Given::default())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        locked(&self.shared.queue).closed = true;
        self.shared.work.notify_all();
    }
}

fn work(shared: &Shared) {
    ask_for_short_turns();
    loop {
        let mut queue = locked(&shared.queue);
        let job = loop {
            if queue.closed {
                return;
            }
            let next = queue.prefetches.pop_front().or_else(|| queue.finds.pop_front());
            if let Some(job) = next {
                break job;
            }
            queue.idle += 1;
            queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        };
        drop(queue);
        let done = perform(job, shared);
        locked(&shared.done).push(done);
        shared.owner.unpark();
    }
}

fn perform(job: Job, shared: &Shared) -> Done {
    match job {
        Job::Prefetch { tag, number, place, open, range } => {
            match open.map_or_else(|| place.file(), Ok) {
                Ok(file) => Done::Prefetched(tag, read_ahead(&file, range)),
                Err(_) => Done::Lost(tag, number, failed()),
            }
        }
        Job::Find { number, source } => Done::Found(number, find(&source, shared)),
    }
}

/// The report of a prefetch that did not come about.
fn failed() -> Report {
    Report { ended_ns: now_ns(), ..Report::default() }
}

/// Reads a range into the page cache and waits until it is there.
fn read_ahead(file: &File, range: Bytes) -> Report {
    let Bytes { offset, length } = range;
    let started_ns = now_ns();
    let cpu_before = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut advised = 0;
    let mut at = offset;
    while at < offset + length && advised == 0 {
        // No more than a device takes in one request: the kernel would drop the rest.
        let part = (offset + length - at).min(REQUEST_BYTES);
        // SAFETY: plain call on an open descriptor.
        advised = unsafe { libc::readahead(file.as_raw_fd(), at as libc::off64_t, part as usize) };
        at += part;
    }
    let cpu_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_before;
    if advised < 0 {
        // No readahead on this file: nothing that could be waited for either.
        return failed();
    }
    // A byte of the last page: it is there when the whole request is, and nothing is copied.
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let end = (offset + length).min(bytes);
    let mut ok = end > offset;
    if ok {
        let mut byte = [0];
        let last_page = ((end - 1) / PAGE_BYTES * PAGE_BYTES).max(offset);
        ok = matches!(file.read_at(&mut byte, last_page), Ok(1));
    }
    Report { ok, started_ns, ended_ns: now_ns(), cpu_ns }
}

fn find(source: &Source, shared: &Shared) -> io::Result<Opened> {
    let file = source.open()?;
    let metadata = file.metadata()?;
    if !metadata.file_type().is_file() && !metadata.file_type().is_block_device() {
        return Err(io::Error::other("not a file with a page cache"));
    }
    let known = locked(&shared.geometries).get(&metadata.dev()).copied();
    let geometry = known.unwrap_or_else(|| {
        let path = match source {
            Source::Path(path) => path.clone(),
            Source::Descriptor { pid, fd, .. } => format!("/proc/{pid}/fd/{fd}").into(),
        };
        let geometry = Geometry::of(&path, metadata.dev(), &shared.given);
        locked(&shared.geometries).insert(metadata.dev(), geometry);
        geometry
    });
    let info = FileInfo {
        device: metadata.dev(),
        inode: metadata.ino(),
        born_ns: born_ns(&metadata),
        bytes: size_of(&file, metadata.len()),
        extents: extents(&file, 0..u64::MAX, EXTENTS_MAX, false).unwrap_or_default(),
        geometry,
    };
    let file = Arc::new(file);
    let place = Place {
        source: source.clone(),
        name: name_of(source, &file),
        identity: (info.device, info.inode, info.born_ns),
        reopens: !drops_pages(&file),
        open: Mutex::new(Arc::downgrade(&file)),
    };
    Ok(Opened { file, place: Arc::new(place), info })
}

/// When a file was made, in ns since 1970; 0 where that is not known.
pub fn born_ns(metadata: &Metadata) -> u64 {
    let born = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    born.map_or(0, |born| u64::try_from(born.as_nanos()).unwrap_or(u64::MAX))
}

/// A file's size, or a block device's.
fn size_of(file: &File, bytes: u64) -> u64 {
    if bytes > 0 {
        return bytes;
    }
    // SAFETY: plain call; the descriptor is nobody else's.
    let end = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) };
    u64::try_from(end).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits for one answer, at most half a minute.
    fn next(actor: &mut Actor) -> Done {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(done) = actor.take_done().pop() {
                return done;
            }
            assert!(Instant::now() < deadline, "nothing was done");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_file_is_found_read_and_given_back() {
        let directory =
            tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")).unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 300_000]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let mut actor = Actor::default();
        actor.find(3, Source::Path(path));
        let Done::Found(3, Ok(opened)) = next(&mut actor) else { panic!("not found") };
        assert_eq!(opened.info.bytes, 300_000);
        actor.keep(3, &opened);
        actor.release(3, 0, 0);
        actor.prefetch(9, 3, 0, 65536);
        let Done::Prefetched(9, report) = next(&mut actor) else { panic!("not prefetched") };
        assert!(report.ok && report.ended_ns >= report.started_ns);
        actor.prefetch(10, 3, 400_000, 8192);
        let Done::Prefetched(10, report) = next(&mut actor) else { panic!("not prefetched") };
        assert!(!report.ok, "behind the end");
    }

    /// From here on this thread may not call unshare(2).
    fn refuse_unshare() {
        let jump = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
        let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
        let (unshare, eperm) = (libc::SYS_unshare as u32, libc::EPERM as u32);
        let mut code = [
            jump(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number, 0, 0),
            jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, unshare, 0, 1),
            jump(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | eperm, 0, 0),
            jump(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let filter = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
        // SAFETY: the kernel copies the filter, which is this thread's alone.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
                    == 0
        };
        assert!(refused, "{}", io::Error::last_os_error());
    }

    /// unshare(2) would copy the table, and keep a pipe's end open meanwhile.
    #[test]
    fn a_table_of_its_own_is_no_copy() {
        let kept = File::open("/dev/null").unwrap();
        let own = std::thread::spawn(|| {
            refuse_unshare();
            own_descriptor_table().unwrap();
            // The one of the directory itself is among them.
            std::fs::read_dir("/proc/thread-self/fd").unwrap().count()
        });
        assert_eq!(own.join().unwrap(), 1);
        assert!(kept.metadata().is_ok(), "the program's own table is as it was");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let directory =
            tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")).unwrap();
        let fifo = directory.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: a valid string with its terminating zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut actor = Actor::default();
        for path in [fifo, directory.path().to_owned(), "/dev/null".into(), "/no/such".into()] {
            actor.find(0, Source::Path(path.clone()));
            let Done::Found(0, found) = next(&mut actor) else { panic!("not found") };
            assert!(found.is_err(), "{}", path.display());
        }
        let file = File::open("/proc/self/exe").unwrap();
        let identity = (1, 2);
        let source = Source::Descriptor { pid: std::process::id(), fd: file.as_raw_fd(), identity };
        actor.find(0, source);
        let Done::Found(0, found) = next(&mut actor) else { panic!("not found") };
        assert!(found.is_err(), "another file");
        actor.prefetch(1, 77, 0, 8192);
        let Done::Prefetched(1, report) = next(&mut actor) else { panic!("no report") };
        assert!(!report.ok, "never registered");
    }

    #[test]
    fn what_the_program_may_not_read_is_not_prefetched() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, vec![1; 8192]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o200)).unwrap();
        // For writing it is open: that is no right to read.
        let file = File::options().write(true).open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let identity = (metadata.dev(), metadata.ino());
        let fd = file.as_raw_fd();
        let mine = metadata.uid();
        let found = std::thread::spawn(move || {
            // SAFETY: plain call; it changes this thread's rights only, and those of the
            // threads that it starts.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            if changed < 0 && mine == 0 {
                return None;
            }
            let mut actor = Actor::default();
            let source = Source::Descriptor { pid: std::process::id(), fd, identity };
            let mut refused = Vec::new();
            for source in [source, Source::Path(path)] {
                actor.find(0, source);
                let Done::Found(0, found) = next(&mut actor) else { panic!("not found") };
                refused.push(found.is_err());
            }
            Some(refused)
        });
        assert_eq!(found.join().unwrap(), Some(vec![true, true]));
    }

    #[test]
    fn a_file_that_becomes_shorter_or_goes_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let mut actor = Actor::default();
        actor.find(0, Source::Path(path.clone()));
        let Done::Found(0, Ok(opened)) = next(&mut actor) else { panic!("not found") };
        actor.keep(0, &opened);
        File::options().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        for (tag, offset, there) in [(1, 0, true), (2, 65_536, false)] {
            actor.prefetch(tag, 0, offset, 8192);
            let Done::Prefetched(_, report) = next(&mut actor) else { panic!("no report") };
            assert_eq!(report.ok, there, "at {offset}");
        }
        // Removed: as long as it is open it is still there; by its name it is not found again.
        std::fs::remove_file(&path).unwrap();
        actor.prefetch(3, 0, 0, 8192);
        let Done::Prefetched(3, report) = next(&mut actor) else { panic!("no report") };
        assert!(report.ok);
        drop(opened);
        actor.close_unused();
        actor.prefetch(4, 0, 0, 8192);
        let Done::Lost(4, 0, report) = next(&mut actor) else { panic!("it is there") };
        assert!(!report.ok && report.ended_ns > 0);
        actor.find(1, Source::Path(path));
        let Done::Found(1, found) = next(&mut actor) else { panic!("not found") };
        assert!(found.is_err());
    }
    /// Whether this process has it open.
    fn is_open(path: &std::path::Path) -> bool {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).any(|at| at == path)
    }

    /// A file of two blocks, by a descriptor of this process's.
    fn by_descriptor(path: &std::path::Path) -> (File, Source) {
        std::fs::write(path, vec![7; 16_384]).unwrap();
        let file = File::open(path).unwrap();
        let metadata = file.metadata().unwrap();
        let identity = (metadata.dev(), metadata.ino());
        let (pid, fd) = (std::process::id(), file.as_raw_fd());
        (file, Source::Descriptor { pid, fd, identity })
    }

    #[test]
    fn a_file_is_open_while_something_is_done_with_it_and_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        for is_by_path in [true, false] {
            let (file, descriptor) = by_descriptor(&path);
            let source = if is_by_path { Source::Path(path.clone()) } else { descriptor };
            let mut actor = Actor::default();
            actor.find(0, source);
            let Done::Found(0, Ok(opened)) = next(&mut actor) else { panic!("not found") };
            actor.keep(0, &opened);
            drop(opened);
            // By its name, where the descriptor is closed.
            drop(file);
            assert!(is_open(&path), "what is found is used at once");
            for tag in 0..3 {
                actor.close_unused();
                assert!(!is_open(&path), "before prefetch {tag}");
                actor.prefetch(tag, 0, 0, 8192);
                let Done::Prefetched(_, report) = next(&mut actor) else { panic!("no report") };
                assert!(report.ok && !is_open(&path), "after prefetch {tag}");
                actor.release(0, 0, 0);
            }
            assert!(!actor.is_lingering());
            // Another file of that name is not the one that was hinted.
            let other = directory.path().join("other");
            std::fs::write(&other, vec![8; 16_384]).unwrap();
            std::fs::rename(&other, &path).unwrap();
            actor.close_unused();
            actor.prefetch(9, 0, 0, 8192);
            assert!(matches!(next(&mut actor), Done::Lost(9, 0, _)), "another file was read");
        }
    }

    #[test]
    fn a_removed_file_is_there_by_its_descriptor_until_that_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, source) = by_descriptor(&directory.path().join("data"));
        let mut actor = Actor::default();
        actor.find(0, source);
        let Done::Found(0, Ok(opened)) = next(&mut actor) else { panic!("not found") };
        actor.keep(0, &opened);
        drop(opened);
        std::fs::remove_file(directory.path().join("data")).unwrap();
        actor.close_unused();
        actor.prefetch(1, 0, 0, 8192);
        let Done::Prefetched(1, report) = next(&mut actor) else { panic!("no report") };
        assert!(report.ok);
        drop(file);
        actor.prefetch(2, 0, 0, 8192);
        assert!(matches!(next(&mut actor), Done::Lost(2, 0, _)));
    }

    #[test]
    fn what_is_better_not_opened_again_stays_open_for_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let (_file, source) = by_descriptor(&path);
        let mut actor = Actor::default();
        actor.find(0, source);
        let Done::Found(0, Ok(mut opened)) = next(&mut actor) else { panic!("not found") };
        assert!(opened.place.reopens || drops_pages(&opened.file));
        Arc::get_mut(&mut opened.place).unwrap().reopens = false;
        actor.keep(0, &opened);
        drop(opened);
        actor.prefetch(1, 0, 0, 8192);
        assert!(matches!(next(&mut actor), Done::Prefetched(1, _)));
        assert!(actor.is_lingering());
        while actor.is_lingering() {
            std::thread::sleep(LINGER / 8);
            actor.close_unused();
        }
        actor.prefetch(2, 0, 0, 8192);
        assert!(matches!(next(&mut actor), Done::Lost(2, 0, _)), "it was opened again");
    }
}
