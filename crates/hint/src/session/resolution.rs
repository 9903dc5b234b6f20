//! Which of the hinted files are looked up: only hints of those that are found, or known not
//! to be there, may go to the manager. Files are looked up in the order in which they were
//! first hinted, some ahead of the one whose hints come next (section 5.3.1: hints are resolved
//! when their turn comes near).

use runahead_manager::actor::{Actor, Source};

/// Files that are looked up ahead of the one whose hints come next.
const FIND_AHEAD: u32 = 128;

/// Where a file stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
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

/// See the [module](self). Files go by their numbers.
#[derive(Default)]
pub(super) struct Resolution {
    files: Vec<Found>,
    next_find: u32,
    next_unresolved: u32,
}

impl Resolution {
    /// Those of all files that are to be looked up now.
    pub(super) fn due<'a>(&self, sources: &'a [Source]) -> &'a [Source] {
        let limit = (self.next_unresolved + FIND_AHEAD).min(sources.len() as u32);
        let from = self.next_find.min(limit);
        &sources[from as usize..limit as usize]
    }

    /// Has the next file looked up.
    pub(super) fn look_up(&mut self, source: Source, actor: &mut Actor) {
        self.files.push(Found::Finding);
        actor.find(self.next_find, source);
        self.next_find += 1;
    }

    /// Looks a file up anew; one whose turn to be looked up has not come will be anyway.
    pub(super) fn look_again(&mut self, number: u32, source: Source, actor: &mut Actor) {
        if let Some(file) = self.files.get_mut(number as usize) {
            *file = Found::Finding;
            actor.find(number, source);
        }
    }

    /// Whether hints of a file may go to the manager.
    pub(super) fn is_settled(&self, number: u32) -> bool {
        self.files.get(number as usize).is_some_and(|file| file.is_settled())
    }

    pub(super) fn is_finding(&self, number: u32) -> bool {
        self.files.get(number as usize).is_none_or(|&file| file == Found::Finding)
    }

    pub(super) fn is_lost(&self, number: u32) -> bool {
        self.files.get(number as usize) == Some(&Found::Lost)
    }

    /// A file that was there could not be opened again.
    pub(super) fn lost(&mut self, number: u32) {
        if let Some(file @ Found::Yes) = self.files.get_mut(number as usize) {
            *file = Found::Lost;
        }
    }

    pub(super) fn resolved(&mut self, number: u32, found: Found) {
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
