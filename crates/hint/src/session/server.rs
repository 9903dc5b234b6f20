//! The manager's thread's own part: between the inbox, the manager and who acts for it.

use std::collections::VecDeque;
use std::time::Instant;

use runahead_manager::actor::{Actor, Done};
use runahead_manager::engine::Action;

use super::consumption::Held;
use super::hints::Hints;
use super::inbox::Event;
use super::resolution::{Found, Resolution};
use super::{Session, locked};
use crate::backend::Backend;

/// See the [module](self).
pub(super) struct Server {
    pub(super) actor: Actor,
    pub(super) hints: Hints,
    /// Reads whose hints are not with the manager yet, and what is cancelled behind them.
    pub(super) held: VecDeque<Held>,
    /// Bytes that were observed to be read before any of their hints were there.
    pub(super) observed: u64,
    pub(super) files: Resolution,
    /// What is to be done.
    actions: Vec<Action>,
}

impl Server {
    pub(super) fn new(actor: Actor) -> Self {
        Self {
            actor,
            hints: Hints::default(),
            held: VecDeque::new(),
            observed: 0,
            files: Resolution::default(),
            actions: Vec::new(),
        }
    }

    /// Takes what the program put in. True if there was something.
    pub(super) fn take(&mut self, session: &Session, backend: &mut Backend) -> bool {
        let (events, sources) = {
            let mut inbox = locked(&session.inbox);
            inbox.reads = 0;
            if std::mem::take(&mut inbox.overrun) {
                inbox.events.push_back(Event::Cancel(usize::MAX));
            }
            let sources = self.files.due(&inbox.sources).to_vec();
            (std::mem::take(&mut inbox.events), sources)
        };
        let mut news = !sources.is_empty();
        for source in sources {
            self.files.look_up(source, &mut self.actor);
        }
        for event in events {
            // Hints that wait for credit behind others are no news: the thread may sleep.
            news |= match event {
                Event::Segments(segments) => {
                    self.hints.push(segments);
                    self.feed(session, backend)
                }
                Event::Reads(notes) => self.note(&notes, session, backend),
                Event::Cancel(segments) => {
                    self.cancel_in_order(segments, session, backend);
                    true
                }
                Event::Again(number, source) => {
                    self.files.look_again(number, source, &mut self.actor);
                    true
                }
            };
        }
        news
    }

    /// Sends hints on, and has the file looked up that they wait for where it could not be
    /// opened again. True if there were some.
    fn feed(&mut self, session: &Session, backend: &mut Backend) -> bool {
        let fed = self.hints.feed(&self.files, session, backend);
        if let Some(number) = self.hints.next_file()
            && self.files.is_lost(number)
        {
            let source = locked(&session.inbox).sources.get(number as usize).cloned();
            if let Some(source) = source {
                self.files.look_again(number, source, &mut self.actor);
            }
        }
        fed
    }

    /// Takes what the manager decided; room for more hints at once. True if there was
    /// something.
    pub(super) fn receive(&mut self, session: &Session, backend: &mut Backend) -> bool {
        let actions = backend.take_actions();
        let news = !actions.is_empty();
        for action in actions {
            match action {
                Action::Credit(segments) => {
                    self.hints.credited(segments as usize, &session.outstanding);
                }
                other => self.actions.push(other),
            }
        }
        news
    }

    /// Does what the manager decided, and reports what is done. True if there was something.
    pub(super) fn act(&mut self, session: &Session, backend: &mut Backend) -> bool {
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
                self.report(one, session, backend);
            }
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Prefetch { tag, file, offset, length } => {
                        self.actor.prefetch(tag, file, offset, length);
                    }
                    Action::Release { file, offset, length } => {
                        self.actor.release(file, offset, length);
                    }
                    Action::Credit(segments) => {
                        self.hints.credited(segments as usize, &session.outstanding);
                    }
                }
            }
            self.feed(session, backend);
            self.tell(session, backend);
        }
    }

    /// Reports what was done.
    fn report(&mut self, done: Done, session: &Session, backend: &mut Backend) {
        match done {
            Done::Prefetched(tag, report) => backend.done(tag, report),
            Done::Lost(tag, number, report) => {
                backend.done(tag, report);
                self.files.lost(number);
                // To the manager it is one file, which nobody can read: by another number it
                // may be found.
                if let Some(&first) = locked(&session.inbox).aliases.get(&number) {
                    self.files.lost(first);
                }
            }
            Done::Found(number, Ok(opened)) => {
                let info = &opened.info;
                locked(&session.inbox).found(number, info);
                backend.file(number, info);
                self.actor.keep(number, &opened);
                self.files.resolved(number, Found::Yes);
            }
            Done::Found(number, Err(_)) => {
                locked(&session.inbox).missing.insert(number, Instant::now());
                self.files.resolved(number, Found::No);
            }
        }
    }
}
