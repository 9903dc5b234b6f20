//! The eviction list (section 6.1, Figure 4): the pages that would most
//! likely be in memory if no speculative execution had taken place.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Number of a speculative process, from 0.
pub type Process = usize;

/// Why a page is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It would be there without speculation, too.
    Normal,
    /// Only because this process prefetched it or made it.
    Speculative(Process),
}

/// What a page that is asked for means for the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Nothing: it would have gone the same way without speculation.
    Same,
    /// A disk read that speculation is to blame for.
    AddedStall,
    /// A disk read that this process made unnecessary.
    RemovedStall(Process),
}

/// The eviction list and the counts of speculative pages. A page is named by
/// `P`: its place on the disk.
#[derive(Clone, Debug)]
pub struct EvictionList<P> {
    /// Pages that were evicted, oldest first. An entry whose stamp is not in
    /// `stamps` any more has been taken out.
    fifo: VecDeque<(P, u64)>,
    stamps: BTreeMap<P, u64>,
    next_stamp: u64,
    /// Pages in memory only because of speculation, and whose.
    speculative: BTreeMap<P, Process>,
    /// Speculative pages of each process, its own memory included.
    pages: Vec<u64>,
}

impl<P: Copy + Ord> EvictionList<P> {
    /// For `processes` speculative processes.
    pub fn new(processes: usize) -> Self {
        Self {
            fifo: VecDeque::new(),
            stamps: BTreeMap::new(),
            next_stamp: 0,
            speculative: BTreeMap::new(),
            pages: alloc::vec![0; processes],
        }
    }

    /// A process has read `page` from disk, for the program's own need.
    pub fn read_by_normal(&mut self, page: P) -> Reference {
        if self.take(page) { Reference::AddedStall } else { Reference::Same }
    }

    /// A speculative process has brought `page` in. Where that only brings
    /// back what speculation had pushed out, it is no speculative page, and
    /// using it will be no removed stall.
    pub fn prefetched(&mut self, page: P, by: Process) -> Origin {
        if self.take(page) {
            return Origin::Normal;
        }
        if self.speculative.insert(page, by).is_none() {
            self.count(by, 1);
        }
        Origin::Speculative(by)
    }

    /// The program has used `page`, which was in memory.
    pub fn used_by_normal(&mut self, page: P) -> Reference {
        match self.speculative.remove(&page) {
            Some(by) => {
                self.count(by, -1);
                Reference::RemovedStall(by)
            }
            None => Reference::Same,
        }
    }

    /// `page` has left memory. A page that only speculation had brought in
    /// would not have been there, and is not remembered.
    pub fn evicted(&mut self, page: P) -> Origin {
        if let Some(by) = self.speculative.remove(&page) {
            self.count(by, -1);
            return Origin::Speculative(by);
        }
        self.next_stamp += 1;
        self.stamps.insert(page, self.next_stamp);
        self.fifo.push_back((page, self.next_stamp));
        self.shorten();
        Origin::Normal
    }

    /// Process `of` has made (or, negative, given back) `pages` pages of its
    /// own: copies of written pages, its stack, its heap.
    pub fn own_memory(&mut self, of: Process, pages: i64) {
        self.count(of, pages);
    }

    /// SpecPages_p.
    pub fn pages_of(&self, process: Process) -> u64 {
        self.pages.get(process).copied().unwrap_or(0)
    }

    /// TotSpecPages: also the most entries that the list may have.
    pub fn pages_of_all(&self) -> u64 {
        self.pages.iter().sum()
    }

    /// Entries of the list.
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    fn count(&mut self, process: Process, pages: i64) {
        if let Some(count) = self.pages.get_mut(process) {
            *count = count.saturating_add_signed(pages);
        }
        if pages < 0 {
            self.shorten();
        }
    }

    /// Takes an entry out of the list; whether there was one.
    fn take(&mut self, page: P) -> bool {
        self.stamps.remove(&page).is_some()
    }

    /// As many entries as there are speculative pages: so many more would be
    /// in memory without them.
    fn shorten(&mut self) {
        let room = self.pages_of_all();
        while self.stamps.len() as u64 > room {
            let Some((page, stamp)) = self.fifo.pop_front() else { return };
            if self.stamps.get(&page) == Some(&stamp) {
                self.stamps.remove(&page);
            }
        }
        while let Some((page, stamp)) = self.fifo.front() {
            if self.stamps.get(page) == Some(stamp) {
                break;
            }
            self.fifo.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_4_normal_reads() {
        let mut list = EvictionList::new(1);
        list.prefetched(100, 0);
        assert_eq!(list.evicted(1), Origin::Normal);
        assert_eq!(list.read_by_normal(1), Reference::AddedStall);
        assert_eq!(list.read_by_normal(1), Reference::Same, "the entry is used up");
        assert_eq!(list.read_by_normal(7), Reference::Same, "never evicted");
    }

    #[test]
    fn figure_4_uses_of_prefetched_pages() {
        let mut list = EvictionList::new(2);
        assert_eq!(list.prefetched(5, 1), Origin::Speculative(1));
        assert_eq!(list.pages_of(1), 1);
        assert_eq!(list.used_by_normal(5), Reference::RemovedStall(1));
        assert_eq!(list.pages_of_all(), 0);
        assert_eq!(list.used_by_normal(5), Reference::Same, "only the first use counts");
    }

    #[test]
    fn figure_4_bringing_back_is_no_removed_stall() {
        let mut list = EvictionList::new(1);
        list.prefetched(100, 0);
        list.evicted(1);
        assert_eq!(list.prefetched(1, 0), Origin::Normal);
        assert_eq!(list.pages_of(0), 1, "page 1 is no speculative page");
        assert_eq!(list.used_by_normal(1), Reference::Same);
        // Evicted once more it is again a page that should have been there.
        list.evicted(1);
        assert_eq!(list.read_by_normal(1), Reference::AddedStall);
    }

    #[test]
    fn figure_4_evictions_of_speculative_pages() {
        let mut list = EvictionList::new(1);
        list.prefetched(5, 0);
        assert_eq!(list.evicted(5), Origin::Speculative(0));
        assert_eq!(list.read_by_normal(5), Reference::Same, "it would not have been there");
        assert!(list.is_empty());
    }

    #[test]
    fn the_list_is_as_long_as_there_are_speculative_pages() {
        let mut list = EvictionList::new(1);
        list.own_memory(0, 3);
        for page in 0..10 {
            list.evicted(page);
        }
        assert_eq!(list.len(), 3);
        assert_eq!(list.read_by_normal(6), Reference::Same, "pushed out of the list");
        assert_eq!(list.read_by_normal(9), Reference::AddedStall);
        list.own_memory(0, -2);
        assert_eq!(list.len(), 1, "it shrinks with them");
        assert_eq!(list.read_by_normal(8), Reference::AddedStall);
        list.own_memory(0, -5);
        assert_eq!(list.pages_of_all(), 0);
    }
}
