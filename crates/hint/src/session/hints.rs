//! The process's list of hints, in the order of disclosure: those that wait here, and how many
//! the manager has. It takes so many as it gave credit for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use runahead_manager::Segment;
use runahead_manager::engine::CREDIT;

use super::resolution::Resolution;
use super::{Session, locked};
use crate::backend::Backend;
use crate::piece::Piece;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Hints {
    waiting: VecDeque<Piece>,
    /// Segments on their way to the manager; empty between two.
    ready: Vec<Segment>,
    credit: usize,
    granted: bool,
    /// Segments that were cancelled at the manager, which has not said so yet.
    cancelling: usize,
}

impl Hints {
    /// Takes what was disclosed, behind all others. Those of a program that reads after each
    /// few hints come in small pieces, which are joined.
    pub(super) fn push(&mut self, mut segments: Piece) {
        if let Some(last) = self.waiting.back_mut()
            && !segments.is_large()
        {
            last.append(&mut segments);
            if segments.len() > 0 {
                let mut next = Piece::new(segments.len(), Some(last));
                next.append(&mut segments);
                self.waiting.push_back(next);
            }
        }
        if segments.len() > 0 {
            self.waiting.push_back(segments);
        }
    }

    /// Bytes that the hints take that wait.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(|piece| piece.capacity() + size_of::<Piece>()).sum()
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() && self.credit > 0
    }

    /// Segments that the manager has, as far as it has said.
    pub(super) fn sent(&self) -> usize {
        if !self.granted {
            return 0;
        }
        (CREDIT as usize).saturating_sub(self.credit).saturating_sub(self.cancelling)
    }

    /// Whether the first hint that waits does so for something else than that others are
    /// consumed.
    pub(super) fn is_held_up(&mut self, files: &Resolution) -> bool {
        let first = self.waiting.front_mut().and_then(Piece::front);
        first.is_some_and(|segment| !self.granted || !files.is_settled(segment.file))
    }

    /// The file of the first hint that waits, where the manager would take it.
    pub(super) fn next_file(&mut self) -> Option<u32> {
        let first = self.waiting.front_mut().and_then(Piece::front)?;
        (self.credit > 0).then_some(first.file)
    }

    /// Sends hints on, as many as the manager takes and in order: those of a file that is
    /// not looked up yet hold up the ones behind them. True if there were some.
    pub(super) fn feed(
        &mut self,
        files: &Resolution,
        session: &Session,
        backend: &mut Backend,
    ) -> bool {
        let mut fed = false;
        while self.credit > 0
            && let Some(piece) = self.waiting.front_mut()
        {
            while self.ready.len() < self.credit
                && let Some(segment) = piece.front()
                && files.is_settled(segment.file)
            {
                self.ready.push(segment);
                piece.pop_front();
            }
            if self.ready.is_empty() && piece.len() > 0 {
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

    /// Cancels the first segments, those that the manager has before those that wait.
    pub(super) fn cancel(
        &mut self,
        segments: usize,
        outstanding: &AtomicUsize,
        backend: &mut Backend,
    ) {
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
            outstanding.fetch_sub(dropped, Ordering::AcqRel);
        }
    }

    /// The manager takes so many more; after its first word, since so many were consumed.
    pub(super) fn credited(&mut self, segments: usize, outstanding: &AtomicUsize) {
        self.credit += segments;
        if self.granted {
            self.cancelling = self.cancelling.saturating_sub(segments);
            let consumed = segments.min(outstanding.load(Ordering::Acquire));
            outstanding.fetch_sub(consumed, Ordering::AcqRel);
        }
        self.granted = true;
    }
}
