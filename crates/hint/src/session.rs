//! One process's hints: what the program's threads put in, and the thread that passes it on
//! to a manager and does what that decides.
//!
//! The program's side takes a lock and appends. It wakes the manager's thread only where that
//! sleeps for long, so that a hint costs no system call.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use runahead_manager::actor::{self, Actor, Done, Source};
use runahead_manager::engine::{Action, CREDIT, FILES_MAX};
use runahead_manager::memory::Memory;
use runahead_manager::{FileInfo, Mode, ReadNote, Segment, Stats};

use crate::backend::{Backend, HintMode};
use crate::environment::Environment;
use crate::observe::Observer;
use crate::piece::Piece;
use crate::sharers::Sharers;

/// Most outstanding segments of a process, at most 22 bytes each ([`Piece`]).
pub const SEGMENTS_MAX: usize = 4 << 20;
/// Emptied pieces of the queue that are kept, 64 KiB each.
const SPARE_PIECES: usize = 4;
/// Reads after which the manager's thread is woken before its time.
const READS_WAKE: usize = 32;
/// Most reads that wait for the manager's thread, and again for the hints that they are of. A
/// program that is further ahead than that has lost its hints.
const READS_MAX: usize = 1 << 20;
/// Most bytes that one read counts for: of a block device the size is not looked at, and the
/// policy goes through them block by block.
const NOTE_BYTES_MAX: u64 = 64 << 30;
/// Reads that are told at a time where hints wait behind those that they may be of: less than
/// the policy looks ahead, so that what they consume is made up for in between.
const TELL_MAX: usize = 128;
/// Files that are looked up ahead of the one whose hints come next.
const FIND_AHEAD: u32 = 128;
/// How long the thread sleeps where hints are outstanding and something happens.
const BUSY_SLEEP: Duration = Duration::from_millis(1);
/// The same where nothing happened lately; whoever has news wakes it.
const CALM_SLEEP: Duration = Duration::from_millis(50);
/// Looks at a program that reads nothing after which they become rare.
const LOOKS_BUSY: u32 = 100;
/// Until a file is looked for again that was not there and is hinted once more.
const MISSING_AGAIN: Duration = Duration::from_secs(1);
/// Latest events among which one is looked for that says the same as a new one.
const LATEST_EVENTS: usize = 64;
/// Between two looks at the memory.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

/// A range of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes; 0: to the end of the file.
    pub length: u64,
}

/// Why hints were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// [`SEGMENTS_MAX`] segments are outstanding: so many of the given ones were taken. Read
    /// what was disclosed, or cancel it, first.
    TooMany(usize),
    /// More files were named than are kept apart.
    TooManyFiles,
    /// The descriptor is not open, or not of a file with a page cache.
    NotAFile,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany(taken) => write!(
                f,
                "{SEGMENTS_MAX} hinted segments are outstanding, {taken} of these were taken: \
                 read or cancel some first"
            ),
            Self::TooManyFiles => write!(f, "more than {FILES_MAX} files were hinted"),
            Self::NotAFile => write!(f, "not an open file with a page cache"),
        }
    }
}

impl std::error::Error for Error {}

enum Event {
    Segments(Piece),
    Reads(Vec<ReadNote>),
    Cancel(usize),
    /// The file with this number is to be looked up anew.
    Again(u32, Source),
}

/// A file whose identity is known.
#[derive(Clone, Copy)]
struct Hinted {
    number: u32,
    /// What it was like when it was looked at last.
    state: State,
}

/// In what a file differs that has grown, or was given the inode of one that is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    born_ns: u64,
    bytes: u64,
}

#[derive(Default)]
struct Inbox {
    events: VecDeque<Event>,
    reads: usize,
    /// More were noted than are kept.
    overrun: bool,
    sources: Vec<Source>,
    /// By absolute paths.
    by_path: HashMap<PathBuf, u32>,
    by_identity: HashMap<(u64, u64), Hinted>,
    /// Files that were not there when they were looked for, and when that was.
    missing: HashMap<u32, Instant>,
    /// Emptied pieces, whose memory need not be touched for the first time again.
    spare: Vec<Piece>,
}

/// See the [module](self).
pub struct Session {
    inbox: Mutex<Inbox>,
    /// The manager's thread will look at the inbox soon by itself.
    awake: AtomicBool,
    outstanding: AtomicUsize,
    explicit: AtomicBool,
    thread: OnceLock<Thread>,
    stats: Mutex<Stats>,
    /// There is no manager: hints are taken and forgotten.
    absent: AtomicBool,
    observed_pid: Option<u32>,
    looks: AtomicUsize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// A session that nobody serves yet.
    pub(crate) fn idle(observed_pid: Option<u32>) -> Self {
        Self {
            inbox: Mutex::default(),
            awake: AtomicBool::new(true),
            outstanding: AtomicUsize::new(0),
            explicit: AtomicBool::new(false),
            thread: OnceLock::new(),
            stats: Mutex::default(),
            absent: AtomicBool::new(false),
            observed_pid,
            looks: AtomicUsize::new(0),
        }
    }

    /// Starts the thread that serves it, for as long as the process lives.
    pub(crate) fn start(&'static self, environment: Environment) {
        // A signal of the program's must not be handled in a thread that it does not know.
        let blocked = BlockedSignals::all();
        let spawned = std::thread::Builder::new()
            .name("runahead".into())
            .stack_size(512 << 10)
            .spawn(move || {
                let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    self.serve(environment);
                }));
                // Whatever ended it: from now on hints are taken and forgotten.
                self.forget();
                drop(served);
            });
        drop(blocked);
        match spawned {
            Ok(handle) => {
                let _ = self.thread.set(handle.thread().clone());
                handle.thread().unpark();
            }
            Err(_) => self.forget(),
        }
    }

    /// Whether a manager takes the hints.
    pub fn is_served(&self) -> bool {
        !self.absent.load(Ordering::Acquire)
    }

    /// Segments disclosed and not consumed yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    /// What the manager counted (an embedded one; of a machine's manager nothing is known).
    pub fn stats(&self) -> Stats {
        *locked(&self.stats)
    }

    /// How often it was looked how far a program is that does not say so.
    #[doc(hidden)]
    pub fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }

    /// The number of a file named by a path, which need not be open nor exist.
    ///
    /// # Errors
    /// [`Error::TooManyFiles`].
    pub fn path_number(&self, path: &Path) -> Result<u32, Error> {
        // It is opened later, maybe from another directory.
        let absolute = std::path::absolute(path).map_err(|_| Error::NotAFile)?;
        let mut inbox = locked(&self.inbox);
        if !self.is_served() {
            return Ok(0);
        }
        if let Some(&number) = inbox.by_path.get(&absolute) {
            inbox.look_for_missing(number);
            return Ok(number);
        }
        let number = inbox.add(Source::Path(absolute.clone()))?;
        inbox.by_path.insert(absolute, number);
        Ok(number)
    }

    /// The number of an open file.
    ///
    /// # Errors
    /// [`Error::NotAFile`], [`Error::TooManyFiles`].
    pub fn fd_number(&self, fd: i32) -> Result<u32, Error> {
        let (identity, state) = look(fd).ok_or(Error::NotAFile)?;
        let source = Source::Descriptor { pid: std::process::id(), fd, identity };
        let mut inbox = locked(&self.inbox);
        if !self.is_served() {
            return Ok(0);
        }
        let known = inbox.by_identity.get(&identity).copied();
        // One that was made at another time is gone, and its inode another file's.
        let known = known.filter(|known| known.state.born_ns == state.born_ns);
        let Some(Hinted { number, state: before }) = known else {
            let number = inbox.add(source)?;
            inbox.by_identity.insert(identity, Hinted { number, state });
            return Ok(number);
        };
        let by = inbox.descriptor(number);
        drop(inbox);
        // It is not kept open: where the descriptor that it was hinted by is closed, this one
        // serves.
        let is_closed = by.is_some_and(|by| by != fd && self::identity(by) != Some(identity));
        if is_closed || before != state {
            locked(&self.inbox).renew(Hinted { number, state }, identity, source);
        }
        Ok(number)
    }

    /// Discloses what will be read next, behind everything disclosed before, in this order.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn disclose(&self, segments: impl ExactSizeIterator<Item = Segment>) -> Result<(), Error> {
        let wanted = segments.len();
        let mut inbox = locked(&self.inbox);
        if !self.is_served() || wanted == 0 {
            return Ok(());
        }
        let room = SEGMENTS_MAX.saturating_sub(self.outstanding.load(Ordering::Acquire));
        let taken = wanted.min(room);
        let mut segments = segments.take(taken).peekable();
        while segments.peek().is_some() {
            let piece = match inbox.events.back_mut() {
                Some(Event::Segments(piece)) if piece.has_room() => piece,
                _ => {
                    let piece = inbox.spare.pop().unwrap_or_default();
                    inbox.events.push_back(Event::Segments(piece));
                    continue;
                }
            };
            while piece.has_room()
                && let Some(segment) = segments.next()
            {
                piece.push(segment);
            }
        }
        self.outstanding.fetch_add(taken, Ordering::AcqRel);
        drop(inbox);
        self.wake();
        if taken < wanted { Err(Error::TooMany(taken)) } else { Ok(()) }
    }

    /// Cancels the first `segments` of the outstanding ones.
    pub fn cancel(&self, segments: usize) {
        let mut inbox = locked(&self.inbox);
        if self.is_served() {
            inbox.events.push_back(Event::Cancel(segments));
            drop(inbox);
            self.wake();
        }
    }

    /// Whether any file was hinted: only then reads are of interest.
    pub fn wants_reads(&self) -> bool {
        self.outstanding() > 0
    }

    /// A read is about to be noted: from now on the program is taken to note all its hinted
    /// reads. Before the read, so that its bytes are never taken for those of one that is
    /// only observed: then the note would match the next hint for the same bytes.
    pub fn will_note(&self) {
        if !self.explicit.load(Ordering::Relaxed) {
            self.explicit.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that a file was read.
    pub fn note_read(&self, note: ReadNote) {
        let note = ReadNote { length: note.length.min(NOTE_BYTES_MAX), ..note };
        let mut inbox = locked(&self.inbox);
        if !self.is_served() {
            return;
        }
        if inbox.reads == READS_MAX {
            // The thread is stuck, as in an open on a file system whose server is gone.
            inbox.overrun = true;
            return;
        }
        match inbox.events.back_mut() {
            Some(Event::Reads(notes)) => notes.push(note),
            _ => {
                let mut notes = Vec::with_capacity(READS_WAKE);
                notes.push(note);
                inbox.events.push_back(Event::Reads(notes));
            }
        }
        inbox.reads += 1;
        let many = inbox.reads == READS_WAKE;
        drop(inbox);
        if many {
            self.awake.store(true, Ordering::Release);
            self.unpark();
        } else {
            self.wake();
        }
    }

    /// The number of the file with this identity, if it was hinted.
    pub fn known(&self, identity: (u64, u64)) -> Option<u32> {
        locked(&self.inbox).by_identity.get(&identity).map(|hinted| hinted.number)
    }

    fn wake(&self) {
        if !self.awake.load(Ordering::Acquire) && !self.awake.swap(true, Ordering::AcqRel) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Nobody serves it any more.
    fn forget(&self) {
        let mut inbox = locked(&self.inbox);
        self.absent.store(true, Ordering::Release);
        *inbox = Inbox::default();
        self.outstanding.store(0, Ordering::Release);
    }

    /// The manager's thread.
    fn serve(&self, environment: Environment) {
        let mode = environment.mode;
        if actor::own_descriptor_table().is_err() {
            return;
        }
        actor::ask_for_short_turns();
        let mut memory = Memory::of_self();
        let domain = memory.domain();
        let mut sharers = Sharers::register(&domain);
        let socket = environment.socket.path();
        let opened = Backend::open(socket.as_deref(), mode, &domain, &mut memory, sharers.count());
        let Some(mut backend) = opened else { return };
        // The machine's manager has the whole memory for all of its clients.
        let mut sharers = backend.is_embedded().then_some(sharers);
        let mut server = Server::new(Actor::new(environment.disks));
        let mut observer = Observer::new(self.observed_pid.unwrap_or_else(std::process::id));
        let mut memory_at = Instant::now();
        let mut looks_in_vain = 0_u32;
        loop {
            self.awake.store(true, Ordering::Release);
            let mut news = server.take(self, &mut backend);
            let outstanding = self.outstanding() > 0;
            if outstanding && !self.explicit.load(Ordering::Acquire) && mode != HintMode::NoHints {
                let own = if self.observed_pid.is_none() { memory.bytes_read } else { 0 };
                let bytes = observer.bytes(own);
                self.looks.fetch_add(1, Ordering::Relaxed);
                looks_in_vain = looks_in_vain.saturating_add(1);
                // Looked at again: the bytes may be of the first read that is noted.
                if bytes > 0 && !self.explicit.load(Ordering::SeqCst) {
                    backend.observed(bytes);
                    news = true;
                }
            } else {
                observer.skip();
            }
            if outstanding && memory_at.elapsed() >= MEMORY_EVERY {
                memory_at = Instant::now();
                let in_use = backend.bytes_in_use();
                let sharers = sharers.as_mut().map_or(1, Sharers::count);
                backend.set_buffers(memory.buffers(in_use, sharers));
            }
            news |= server.act(self, &mut backend);
            if !backend.is_alive() {
                return;
            }
            *locked(&self.stats) = backend.stats();
            let observing = outstanding && !self.explicit.load(Ordering::Acquire);
            if news {
                looks_in_vain = 0;
                continue;
            }
            let active = outstanding || server.is_busy();
            match (active, observing) {
                (false, _) if server.actor.is_lingering() => self.sleep(actor::LINGER),
                (true, true) if looks_in_vain < LOOKS_BUSY => {
                    std::thread::park_timeout(2 * BUSY_SLEEP);
                }
                (true, false) if locked(&self.inbox).reads > 0 => {
                    std::thread::park_timeout(BUSY_SLEEP);
                }
                _ => self.sleep(if active { CALM_SLEEP } else { Duration::from_secs(3600) }),
            }
        }
    }

    /// Sleeps until somebody has news.
    fn sleep(&self, longest: Duration) {
        self.awake.store(false, Ordering::Release);
        // What came before the store did not wake us.
        if locked(&self.inbox).events.is_empty() {
            std::thread::park_timeout(longest);
        }
    }
}

impl Inbox {
    fn keep(&mut self, mut piece: Piece) {
        if self.spare.len() < SPARE_PIECES {
            piece.clear();
            self.spare.push(piece);
        }
    }

    fn add(&mut self, source: Source) -> Result<u32, Error> {
        let number = self.sources.len() as u32;
        if number > FILES_MAX {
            return Err(Error::TooManyFiles);
        }
        self.sources.push(source);
        Ok(number)
    }

    /// Has a file looked up again that was not there, if that was not just now.
    fn look_for_missing(&mut self, number: u32) {
        let missing = self.missing.get(&number);
        if missing.is_some_and(|at| at.elapsed() >= MISSING_AGAIN)
            && let Some(source) = self.sources.get(number as usize).cloned()
        {
            // Until it is known not to be there once more.
            self.missing.remove(&number);
            self.events.push_back(Event::Again(number, source));
        }
    }

    /// The descriptor that a file is found by, if it is not by its name.
    fn descriptor(&self, number: u32) -> Option<i32> {
        match self.sources.get(number as usize) {
            Some(Source::Descriptor { fd, .. }) => Some(*fd),
            _ => None,
        }
    }

    /// A file was found: from now on reads of it are of this number, if it has none yet.
    fn found(&mut self, number: u32, info: &FileInfo) {
        let state = State { born_ns: info.born_ns, bytes: info.bytes };
        let known = self.by_identity.entry((info.device, info.inode));
        let known = known.or_insert(Hinted { number, state });
        if known.state.born_ns != state.born_ns {
            // That one is gone.
            *known = Hinted { number, state };
        }
    }

    /// Has a file looked up again, by another descriptor where it was found by one.
    fn renew(&mut self, hinted: Hinted, identity: (u64, u64), source: Source) {
        let Some(known) = self.sources.get_mut(hinted.number as usize) else { return };
        if matches!(known, Source::Descriptor { .. }) {
            *known = source;
        }
        let source = known.clone();
        self.by_identity.insert(identity, hinted);
        // One look does where nobody has come to look yet: a file may grow with each hint.
        let latest = self.events.iter_mut().rev().take(LATEST_EVENTS);
        for event in latest {
            if let Event::Again(number, by) = event
                && *number == hinted.number
            {
                *by = source;
                return;
            }
        }
        self.events.push_back(Event::Again(hinted.number, source));
    }
}

/// What is known of an open regular file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// `st_dev` and `st_ino`.
    pub identity: (u64, u64),
    /// None: it is a device.
    bytes: Option<u64>,
}

impl Status {
    /// None for what has no page cache.
    pub(crate) fn of(fd: i32) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel fills the whole structure where it succeeds.
        let stat = unsafe {
            if libc::fstat(fd, stat.as_mut_ptr()) < 0 {
                return None;
            }
            stat.assume_init()
        };
        let bytes = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Some(u64::try_from(stat.st_size).unwrap_or(0)),
            libc::S_IFBLK => None,
            _ => return None,
        };
        Some(Self { identity: (stat.st_dev, stat.st_ino), bytes })
    }

    /// Most bytes that a read at an offset could return.
    pub(crate) fn bytes_from(&self, offset: u64) -> u64 {
        self.bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(offset))
    }
}

/// `st_dev` and `st_ino` of a regular file or block device.
fn identity(fd: i32) -> Option<(u64, u64)> {
    Status::of(fd).map(|status| status.identity)
}

/// The same, and the file's state.
fn look(fd: i32) -> Option<((u64, u64), State)> {
    let identity = identity(fd)?;
    // SAFETY: it was open just now, is only asked about, and not closed.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let metadata = file.metadata().ok()?;
    Some((identity, State { born_ns: actor::born_ns(&metadata), bytes: metadata.len() }))
}

/// Where a file stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Finding,
    Yes,
    No,
    /// It was there, and could not be opened again.
    Lost,
}

impl Found {
    /// Whether hints of it may go to the manager.
    fn is_settled(self) -> bool {
        matches!(self, Self::Yes | Self::No)
    }
}

/// What waits for hints before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Read(ReadNote),
    Cancel(usize),
}

/// The manager's thread's own part.
struct Server {
    actor: Actor,
    waiting: VecDeque<Piece>,
    /// Reads whose hints are not with the manager yet, and what is cancelled behind them: told
    /// before, they would be for nothing, and the hints stay for ever.
    held: VecDeque<Held>,
    /// What is to be done.
    actions: Vec<Action>,
    /// Segments on their way to the manager; empty between two.
    ready: Vec<Segment>,
    files: Vec<Found>,
    next_find: u32,
    next_unresolved: u32,
    credit: usize,
    granted: bool,
    /// Segments that were cancelled at the manager, which has not said so yet.
    cancelling: usize,
}

impl Server {
    fn new(actor: Actor) -> Self {
        Self {
            actor,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            actions: Vec::new(),
            ready: Vec::new(),
            files: Vec::new(),
            next_find: 0,
            next_unresolved: 0,
            credit: 0,
            granted: false,
            cancelling: 0,
        }
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() && self.credit > 0
    }

    /// Takes what the program put in. True if there was something.
    fn take(&mut self, session: &Session, backend: &mut Backend) -> bool {
        let (events, sources) = {
            let mut inbox = locked(&session.inbox);
            inbox.reads = 0;
            if std::mem::take(&mut inbox.overrun) {
                inbox.events.push_back(Event::Cancel(usize::MAX));
            }
            let limit = (self.next_unresolved + FIND_AHEAD).min(inbox.sources.len() as u32);
            let from = self.next_find.min(limit);
            let sources = inbox.sources[from as usize..limit as usize].to_vec();
            (std::mem::take(&mut inbox.events), sources)
        };
        let mut news = !sources.is_empty();
        for source in sources {
            self.files.push(Found::Finding);
            self.actor.find(self.next_find, source);
            self.next_find += 1;
        }
        for event in events {
            // Hints that wait for credit behind others are no news: the thread may sleep.
            news |= match event {
                Event::Segments(segments) => {
                    self.waiting.push_back(segments);
                    self.feed(session, backend)
                }
                Event::Reads(notes) => self.note(&notes, session, backend),
                Event::Cancel(segments) => {
                    self.cancel_in_order(segments, session, backend);
                    true
                }
                Event::Again(number, source) => {
                    self.look_again(number, source);
                    true
                }
            };
        }
        news
    }

    /// Looks a file up anew; one whose turn to be looked up has not come will be anyway.
    fn look_again(&mut self, number: u32, source: Source) {
        if let Some(file) = self.files.get_mut(number as usize) {
            *file = Found::Finding;
            self.actor.find(number, source);
        }
    }

    /// Segments that the manager has, as far as it has said.
    fn sent(&self) -> usize {
        if !self.granted {
            return 0;
        }
        (CREDIT as usize).saturating_sub(self.credit).saturating_sub(self.cancelling)
    }

    /// Whether the first hint that waits does so for something else than that others are
    /// consumed.
    fn is_held_up(&mut self) -> bool {
        let first = self.waiting.front_mut().and_then(Piece::front);
        first.is_some_and(|segment| !self.granted || !self.is_settled(segment.file))
    }

    /// Whether hints of a file may go to the manager.
    fn is_settled(&self, number: u32) -> bool {
        self.files.get(number as usize).is_some_and(|file| file.is_settled())
    }

    fn is_finding(&self, number: u32) -> bool {
        self.files.get(number as usize).is_none_or(|&file| file == Found::Finding)
    }

    /// Tells the manager what was read, or keeps it until the hints that it is of are there.
    /// True if it was told.
    fn note(&mut self, notes: &[ReadNote], session: &Session, backend: &mut Backend) -> bool {
        if self.held.is_empty() && !self.is_held_up() {
            backend.read(notes);
            return true;
        }
        self.held.extend(notes.iter().map(|&note| Held::Read(note)));
        if self.held.len() > READS_MAX {
            self.cancel_in_order(usize::MAX, session, backend);
        }
        self.tell(session, backend)
    }

    /// Tells what was held, as far as the hints before it are with the manager. True if there
    /// was something.
    fn tell(&mut self, session: &Session, backend: &mut Backend) -> bool {
        if let Some(&Held::Cancel(segments)) = self.held.front() {
            self.held.pop_front();
            self.cancel(segments, session, backend);
            return true;
        }
        let is_held_up = self.is_held_up();
        let is_there = !is_held_up || self.sent() > 0;
        let mut notes = Vec::new();
        while is_there
            && notes.len() < TELL_MAX
            && let Some(&Held::Read(note)) = self.held.front()
            && !(is_held_up && self.is_finding(note.file))
        {
            notes.push(note);
            self.held.pop_front();
        }
        if !notes.is_empty() {
            backend.read(&notes);
        }
        !notes.is_empty()
    }

    /// Cancels behind the reads that are held, or everything.
    fn cancel_in_order(&mut self, segments: usize, session: &Session, backend: &mut Backend) {
        if segments >= session.outstanding() {
            self.held.clear();
        }
        if self.held.is_empty() {
            self.cancel(segments, session, backend);
        } else {
            self.held.push_back(Held::Cancel(segments));
        }
    }

    fn cancel(&mut self, segments: usize, session: &Session, backend: &mut Backend) {
        // What is consumed by now is not there to be cancelled.
        self.receive(session, backend);
        let in_engine = segments.min(self.sent());
        if in_engine > 0 {
            self.cancelling += in_engine;
            backend.cancel(in_engine as u32);
        }
        let mut left = segments - in_engine;
        while left > 0 {
            let Some(piece) = self.waiting.front_mut() else { break };
            let dropped = left.min(piece.len());
            for _ in 0..dropped {
                piece.pop_front();
            }
            if piece.len() == 0 {
                self.waiting.pop_front();
            }
            left -= dropped;
            session.outstanding.fetch_sub(dropped, Ordering::AcqRel);
        }
    }

    /// Sends hints on, as many as the manager takes and in order: those of a file that is
    /// not looked up yet hold up the ones behind them. True if there were some.
    fn feed(&mut self, session: &Session, backend: &mut Backend) -> bool {
        let mut fed = false;
        while self.credit > 0
            && let Some(piece) = self.waiting.front_mut()
        {
            while self.ready.len() < self.credit
                && let Some(segment) = piece.front()
                && self.files.get(segment.file as usize).is_some_and(|&file| file.is_settled())
            {
                self.ready.push(segment);
                piece.pop_front();
            }
            if self.ready.is_empty()
                && let Some(segment) = piece.front()
            {
                self.find_lost(segment.file, session);
                break;
            }
            if piece.len() == 0
                && let Some(empty) = self.waiting.pop_front()
            {
                locked(&session.inbox).keep(empty);
            }
            fed |= !self.ready.is_empty();
            self.credit -= self.ready.len();
            backend.disclose(&self.ready);
            self.ready.clear();
        }
        fed
    }

    /// Looks a file up anew that could not be opened again, as it is hinted once more.
    fn find_lost(&mut self, number: u32, session: &Session) {
        if self.files.get(number as usize) == Some(&Found::Lost) {
            let source = locked(&session.inbox).sources.get(number as usize).cloned();
            if let Some(source) = source {
                self.look_again(number, source);
            }
        }
    }

    /// Takes what the manager decided; room for more hints at once. True if there was
    /// something.
    fn receive(&mut self, session: &Session, backend: &mut Backend) -> bool {
        let actions = backend.take_actions();
        let news = !actions.is_empty();
        for action in actions {
            match action {
                Action::Credit(segments) => self.credited(segments as usize, session),
                other => self.actions.push(other),
            }
        }
        news
    }

    fn credited(&mut self, segments: usize, session: &Session) {
        self.credit += segments;
        if self.granted {
            self.cancelling = self.cancelling.saturating_sub(segments);
            let consumed = segments.min(session.outstanding());
            session.outstanding.fetch_sub(consumed, Ordering::AcqRel);
        }
        self.granted = true;
    }

    /// Does what the manager decided, and reports what is done. True if there was something.
    fn act(&mut self, session: &Session, backend: &mut Backend) -> bool {
        let mut news = false;
        loop {
            let done = self.actor.take_done();
            let decided = self.receive(session, backend) || !self.actions.is_empty();
            if done.is_empty() && !decided {
                let fed = self.feed(session, backend);
                if fed || self.tell(session, backend) {
                    news = true;
                    continue;
                }
                self.actor.close_unused();
                return news;
            }
            news = true;
            for one in done {
                match one {
                    Done::Prefetched(tag, report) => backend.done(tag, report),
                    Done::Lost(tag, number, report) => {
                        backend.done(tag, report);
                        if let Some(file @ Found::Yes) = self.files.get_mut(number as usize) {
                            *file = Found::Lost;
                        }
                    }
                    Done::Found(number, Ok(opened)) => {
                        let info = &opened.info;
                        locked(&session.inbox).found(number, info);
                        backend.file(number, info);
                        self.actor.keep(number, &opened);
                        self.resolved(number, Found::Yes);
                    }
                    Done::Found(number, Err(_)) => {
                        locked(&session.inbox).missing.insert(number, Instant::now());
                        self.resolved(number, Found::No);
                    }
                }
            }
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Prefetch { tag, file, offset, length } => {
                        self.actor.prefetch(tag, file, offset, length);
                    }
                    Action::Release { file, offset, length } => {
                        self.actor.release(file, offset, length);
                    }
                    Action::Credit(segments) => self.credited(segments as usize, session),
                }
            }
            self.feed(session, backend);
            self.tell(session, backend);
        }
    }

    fn resolved(&mut self, number: u32, found: Found) {
        if let Some(file) = self.files.get_mut(number as usize) {
            *file = found;
        }
        while self
            .files
            .get(self.next_unresolved as usize)
            .is_some_and(|&file| file != Found::Finding)
        {
            self.next_unresolved += 1;
        }
    }
}

/// All signals blocked in this thread, and so in those that it starts.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn all() -> Self {
        let mut all = std::mem::MaybeUninit::uninit();
        let mut before = std::mem::MaybeUninit::uninit();
        // SAFETY: both sets are filled by the calls before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is what the kernel gave before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// What mode of the engine a mode of hinting is.
pub(crate) fn engine_mode(mode: HintMode) -> Mode {
    match mode {
        HintMode::Full => Mode::Full,
        HintMode::PrefetchOnly => Mode::PrefetchOnly,
        HintMode::NoHints => Mode::NoHints,
    }
}

#[cfg(test)]
mod tests;
