//! What the program has put in, and the manager's thread has not taken yet; and the files'
//! numbers, which the program's side gives out.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use runahead_manager::actor::Source;
use runahead_manager::engine::FILES_MAX;
use runahead_manager::{FileInfo, ReadNote};

use crate::disclosure::Error;
use crate::piece::Piece;
use crate::status::State;

/// Emptied pieces of the queue that are kept, 64 KiB each.
const SPARE_PIECES: usize = 4;
/// Until a file is looked for again that was not there and is hinted once more.
const MISSING_AGAIN: Duration = Duration::from_secs(1);
/// Latest events among which one is looked for that says the same as a new one.
const LATEST_EVENTS: usize = 64;

pub(super) enum Event {
    Segments(Piece),
    Reads(Vec<ReadNote>),
    Cancel(usize),
    /// The file with this number is to be looked up anew.
    Again(u32, Source),
}

/// A file whose identity is known.
#[derive(Clone, Copy)]
pub(super) struct Hinted {
    pub number: u32,
    /// What it was like when it was looked at last.
    pub state: State,
}

#[derive(Default)]
pub(super) struct Inbox {
    pub events: VecDeque<Event>,
    pub reads: usize,
    /// More were noted than are kept.
    pub overrun: bool,
    pub sources: Vec<Source>,
    /// By absolute paths.
    pub by_path: HashMap<PathBuf, u32>,
    pub by_identity: HashMap<(u64, u64), Hinted>,
    /// Later numbers of files, by names that they have, too, and their first ones.
    pub aliases: HashMap<u32, u32>,
    /// Files that were not there when they were looked for, and when that was.
    pub missing: HashMap<u32, Instant>,
    /// Emptied pieces, whose memory need not be touched for the first time again.
    pub spare: Vec<Piece>,
}

impl Inbox {
    /// Makes room for so many segments, or for the first of them.
    pub(super) fn add_piece(&mut self, segments: usize) {
        let piece = self.spare.pop().unwrap_or_else(|| {
            let last = match self.events.back() {
                Some(Event::Segments(full)) => Some(full),
                _ => None,
            };
            Piece::new(segments, last)
        });
        self.events.push_back(Event::Segments(piece));
    }

    /// Keeps a piece that is empty, if it is worth it.
    pub(super) fn keep(&mut self, mut piece: Piece) {
        if piece.is_large() && self.spare.len() < SPARE_PIECES {
            piece.clear();
            self.spare.push(piece);
        }
    }

    pub(super) fn add(&mut self, source: Source) -> Result<u32, Error> {
        let number = self.sources.len() as u32;
        if number > FILES_MAX {
            return Err(Error::TooManyFiles);
        }
        self.sources.push(source);
        Ok(number)
    }

    /// Has a file looked up again that was not there, if that was not just now.
    pub(super) fn look_for_missing(&mut self, number: u32) {
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
    pub(super) fn descriptor(&self, number: u32) -> Option<i32> {
        match self.sources.get(number as usize) {
            Some(Source::Descriptor { fd, .. }) => Some(*fd),
            _ => None,
        }
    }

    /// A file was found: from now on reads of it are of this number, if it has none yet.
    pub(super) fn found(&mut self, number: u32, info: &FileInfo) {
        let state = State { born_ns: info.born_ns, bytes: info.bytes };
        let known = self.by_identity.entry((info.device, info.inode));
        let known = known.or_insert(Hinted { number, state });
        if known.state.born_ns != state.born_ns {
            // That one is gone.
            *known = Hinted { number, state };
        } else if known.number != number {
            self.aliases.insert(number, known.number);
        }
    }

    /// Has a file looked up again, by another descriptor where it was found by one, or is not
    /// there any more by its name.
    pub(super) fn renew(&mut self, hinted: Hinted, identity: (u64, u64), source: Source) {
        let Some(known) = self.sources.get_mut(hinted.number as usize) else { return };
        let is_missing = self.missing.remove(&hinted.number).is_some();
        if (is_missing || matches!(known, Source::Descriptor { .. }))
            && let Source::Path(path) = std::mem::replace(known, source)
        {
            // What has that name from now on is another file.
            self.by_path.remove(&path);
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
