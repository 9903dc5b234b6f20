//! Consumption: what the program has read or cancelled. It is told to the manager in order,
//! behind the hints that it is of: told before, it would be for nothing, and the hints stay
//! for ever.

use runahead_manager::ReadNote;

use super::server::Server;
use super::{READS_MAX, Session};
use crate::backend::Backend;

/// Reads that are told at a time where hints wait behind those that they may be of: less than
/// the policy looks ahead, so that what they consume is made up for in between.
const TELL_MAX: usize = 128;

/// What waits for hints before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Read(ReadNote),
    Cancel(usize),
}

impl Server {
    /// Tells the manager what was read, or keeps it until the hints that it is of are there.
    /// True if it was told.
    pub(super) fn note(
        &mut self,
        notes: &[ReadNote],
        session: &Session,
        backend: &mut Backend,
    ) -> bool {
        if self.held.is_empty() && !self.hints.is_held_up(&self.files) {
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
    pub(super) fn tell(&mut self, session: &Session, backend: &mut Backend) -> bool {
        if let Some(&Held::Cancel(segments)) = self.held.front() {
            self.held.pop_front();
            self.cancel(segments, session, backend);
            return true;
        }
        let mut told = self.tell_observed(backend);
        let is_held_up = self.hints.is_held_up(&self.files);
        let is_there = !is_held_up || self.hints.sent() > 0;
        let mut notes = Vec::new();
        while is_there
            && notes.len() < TELL_MAX
            && let Some(&Held::Read(note)) = self.held.front()
            && !(is_held_up && self.files.is_finding(note.file))
        {
            notes.push(note);
            self.held.pop_front();
        }
        if !notes.is_empty() {
            backend.read(&notes);
            told = true;
        }
        told
    }

    /// Tells the manager how many bytes were read, or keeps them until it has the first of the
    /// hints that they are of: the file may still be looked up. True if they were told.
    pub(super) fn observe(&mut self, bytes: u64, backend: &mut Backend) -> bool {
        self.observed = self.observed.saturating_add(bytes);
        self.tell_observed(backend)
    }

    fn tell_observed(&mut self, backend: &mut Backend) -> bool {
        let is_there = self.hints.sent() > 0 || !self.hints.is_held_up(&self.files);
        if self.observed == 0 || !is_there {
            return false;
        }
        backend.observed(std::mem::take(&mut self.observed));
        true
    }

    /// Cancels behind the reads that are held, or everything.
    pub(super) fn cancel_in_order(
        &mut self,
        segments: usize,
        session: &Session,
        backend: &mut Backend,
    ) {
        if segments >= session.outstanding() {
            self.held.clear();
        }
        match self.held.back_mut() {
            None => self.cancel(segments, session, backend),
            Some(Held::Cancel(before)) => *before = before.saturating_add(segments),
            Some(Held::Read(_)) => self.held.push_back(Held::Cancel(segments)),
        }
    }

    fn cancel(&mut self, segments: usize, session: &Session, backend: &mut Backend) {
        // What is consumed by now is not there to be cancelled.
        self.receive(session, backend);
        self.hints.cancel(segments, &session.outstanding, backend);
    }
}
