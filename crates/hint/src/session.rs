//! One process's hints: what the program's threads put in, and the thread that passes it on
//! to a manager and does what that decides.
//!
//! The program's side takes a lock and appends. It wakes the manager's thread only where that
//! sleeps for long, so that a hint costs no system call.
//!
//! From here it goes one way: [`inbox`], [`server`] (which has files [looked up](resolution),
//! keeps [hints](hints) until the manager takes them and [reads](consumption) until it has
//! the hints that they are of), the [`Backend`](crate::backend::Backend).

mod consumption;
mod hints;
mod inbox;
mod resolution;
mod server;
mod thread;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use runahead_manager::actor::Source;
use runahead_manager::{ReadNote, Segment, Stats};

use self::inbox::{Event, Hinted, Inbox};
use crate::disclosure::{Error, Range, SEGMENTS_MAX};
use crate::status::{self, look};

/// Reads after which the manager's thread is woken before its time.
const READS_WAKE: usize = 32;
/// Most reads that wait for the manager's thread, and again for the hints that they are of. A
/// program that is further ahead than that has lost its hints.
const READS_MAX: usize = 1 << 20;
/// Most bytes that one read counts for: of a block device the size is not looked at, and the
/// policy goes through them block by block.
const NOTE_BYTES_MAX: u64 = 64 << 30;

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

    /// Whether a manager takes the hints.
    pub fn is_served(&self) -> bool {
        !self.absent.load(Ordering::Acquire)
    }

    /// Segments disclosed and not consumed yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    /// What the manager counted. Of a machine's manager it is known what it had this process
    /// do, no more: all else is 0.
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
    /// [`Error::TooManyFiles`], [`Error::NotAFile`].
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
        // It was closed, or had lost its name, when it was looked for; here it is.
        let is_missing = inbox.missing.contains_key(&number);
        drop(inbox);
        // It is not kept open: where the descriptor that it was hinted by is closed, this one
        // serves.
        let is_closed = by.is_some_and(|by| by != fd && status::identity(by) != Some(identity));
        if is_missing || is_closed || before != state {
            locked(&self.inbox).renew(Hinted { number, state }, identity, source);
        }
        Ok(number)
    }

    /// The segments of several open files, each of which is looked at once.
    ///
    /// # Errors
    /// Those of [`Self::fd_number`].
    pub(crate) fn across(
        &self,
        ranges: impl Iterator<Item = (i32, Range)>,
    ) -> Result<Vec<Segment>, Error> {
        let mut numbers = HashMap::new();
        let numbered = ranges.map(|(fd, Range { offset, length })| {
            let file = match numbers.entry(fd) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => *new.insert(self.fd_number(fd)?),
            };
            Ok(Segment { file, offset, length })
        });
        numbered.collect()
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
                    inbox.add_piece(segments.len());
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
            match inbox.events.back_mut() {
                Some(Event::Cancel(before)) => *before = before.saturating_add(segments),
                _ => inbox.events.push_back(Event::Cancel(segments)),
            }
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
            _ => inbox.events.push_back(Event::Reads(vec![note])),
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
}

#[cfg(test)]
mod tests;
