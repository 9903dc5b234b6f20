//! A process's hints, their access sequence, and its estimator (sections 5.2.7 and 5.3.1).

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::buffers::BufId;
use super::rates::{MeanTime, MovingAverage};
use super::{Block, FileId, ProcessId};

/// A disclosed byte range: contiguous, read from its start to its end (section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 means to the end of the file.
    pub length: u64,
}

/// Why hints were not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintError {
    /// The process has as many outstanding segments as are stored for one; the ones from
    /// this position of the batch on were dropped. Consume or cancel some first.
    TooMany {
        /// Segments of the batch that were stored.
        stored: usize,
    },
    /// The process is not known.
    NoSuchProcess,
}

/// A stored segment, as given: resolved lazily.
#[derive(Clone, Copy, Debug)]
struct Stored {
    file: FileId,
    start: u64,
    end: u64,
    /// Index of the access to its first block.
    first_index: u64,
}

impl Stored {
    fn first_block(&self, block_bytes: u32) -> u32 {
        (self.start / u64::from(block_bytes)) as u32
    }

    fn accesses(&self, block_bytes: u32) -> u64 {
        (self.end - 1) / u64::from(block_bytes) - self.start / u64::from(block_bytes) + 1
    }

    fn end_index(&self, block_bytes: u32) -> u64 {
        self.first_index + self.accesses(block_bytes)
    }
}

/// What a matched read consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// All accesses with lower indices are consumed (the new conIndex + 1).
    pub(super) next_index: u64,
    /// The index of the access, when the read is the first to its block; otherwise it reads
    /// on in the block of an access consumed before.
    pub(super) consumed: Option<u64>,
}

/// One hinting process's sequence and lists.
#[derive(Debug)]
pub(super) struct HintEstimator {
    pub(super) process: ProcessId,
    stored: VecDeque<Stored>,
    /// Byte up to which the head segment has been read.
    head_read_to: u64,
    /// Index after the last stored access.
    end_index: u64,
    /// conIndex + 1: index of the next access to be consumed.
    next_index: u64,
    /// Headers of the resolved accesses from `next_index` on: the nexuses.
    window: VecDeque<BufId>,
    /// The next segment to resolve (in `stored`) and the next access in it.
    resolve_segment: usize,
    resolve_in_segment: u64,
    /// Indices of tracked accesses; the last is the least valuable.
    pub(super) tracking: BTreeSet<u64>,
    /// The prefetch list's head: no access before it needs checking.
    pub(super) prefetch_index: u64,
    /// The same for each disk, for prefetching past the horizon.
    pub(super) deep_index: Vec<u64>,
    /// The stall that prefetching cannot hide, by the finite-disk model.
    pub(super) t_stall_us: u32,
    /// P(T_app) of this process.
    pub(super) own_horizon: u64,
    /// r_h: hinted accesses per period.
    pub(super) rate: MovingAverage,
    /// Measured T_app.
    pub(super) t_app: MeanTime,
    /// Computed since the last consumed access; reads within its block do not count as one.
    pub(super) t_app_pending_us: u32,
    block_bytes: u32,
}

impl HintEstimator {
    pub(super) fn new(process: ProcessId, block_bytes: u32, rate: u64, disks: usize) -> Self {
        Self {
            process,
            stored: VecDeque::new(),
            head_read_to: 0,
            end_index: 0,
            next_index: 0,
            window: VecDeque::new(),
            resolve_segment: 0,
            resolve_in_segment: 0,
            tracking: BTreeSet::new(),
            prefetch_index: 0,
            deep_index: alloc::vec![0; disks],
            t_stall_us: 0,
            own_horizon: u64::MAX >> 1,
            rate: MovingAverage::starting_at(rate),
            t_app: MeanTime::starting_at(0),
            t_app_pending_us: 0,
            block_bytes,
        }
    }

    /// Appends a segment; an empty one is nothing to read.
    pub(super) fn store(&mut self, segment: Segment, file_bytes: u64) {
        let end = match segment.length {
            0 => file_bytes,
            length => segment.offset.saturating_add(length).min(file_bytes),
        };
        if segment.offset >= end {
            return;
        }
        if self.stored.is_empty() {
            self.head_read_to = segment.offset;
        }
        let stored =
            Stored { file: segment.file, start: segment.offset, end, first_index: self.end_index };
        self.end_index = stored.end_index(self.block_bytes);
        self.stored.push_back(stored);
    }

    pub(super) fn segments(&self) -> usize {
        self.stored.len()
    }

    /// r_h for normalisation; never 0, so that a process that paused can start again.
    pub(super) fn normal(&self) -> u64 {
        self.rate.average().max(1)
    }

    /// x or y of an access: how many accesses ahead of the last consumed one.
    pub(super) fn distance(&self, index: u64) -> u64 {
        debug_assert!(index >= self.next_index);
        index - self.next_index + 1
    }

    pub(super) fn next_index(&self) -> u64 {
        self.next_index
    }

    /// Index after the last resolved access.
    pub(super) fn resolved_end(&self) -> u64 {
        self.next_index + self.window.len() as u64
    }

    pub(super) fn outstanding(&self) -> u64 {
        self.end_index - self.next_index
    }

    /// The header of a resolved access.
    pub(super) fn header(&self, index: u64) -> BufId {
        self.window[(index - self.next_index) as usize]
    }

    /// The next access to resolve: what was consumed unresolved is passed over.
    pub(super) fn next_unresolved(&mut self) -> Option<Block> {
        let target = self.resolved_end();
        let segment = loop {
            let segment = *self.stored.get(self.resolve_segment)?;
            if segment.end_index(self.block_bytes) > target {
                break segment;
            }
            self.resolve_segment += 1;
        };
        self.resolve_in_segment = target - segment.first_index;
        let number = segment.first_block(self.block_bytes) + self.resolve_in_segment as u32;
        Some(Block { file: segment.file, number })
    }

    /// Records the header of the access that [`Self::next_unresolved`] named; returns the
    /// access's index.
    pub(super) fn resolve(&mut self, id: BufId) -> u64 {
        let segment = self.stored[self.resolve_segment];
        self.window.push_back(id);
        segment.first_index + self.resolve_in_segment
    }

    /// Takes the access farthest ahead out of the window, if that holds more than `most`: it
    /// is to be resolved again when its turn comes. Its index and header.
    pub(super) fn unresolve(&mut self, most: u64) -> Option<(u64, BufId)> {
        let is_over = self.window.len() as u64 > most;
        let header = is_over.then(|| self.window.pop_back()).flatten()?;
        let end = self.resolved_end();
        self.resolve_segment = 0;
        self.prefetch_index = self.prefetch_index.min(end);
        for deep in &mut self.deep_index {
            *deep = (*deep).min(end);
        }
        Some((end, header))
    }

    /// Matches a read of bytes of one block against the first `match_window` segments.
    /// Segments before the matching one are thereby cancelled.
    pub(super) fn match_read(
        &mut self,
        file: FileId,
        offset: u64,
        length: u64,
        match_window: usize,
    ) -> Option<Match> {
        let at = (0..match_window.min(self.stored.len())).find(|&i| {
            let segment = &self.stored[i];
            let read_to = if i == 0 { self.head_read_to } else { segment.start };
            segment.file == file && offset >= read_to && offset < segment.end
        })?;
        for _ in 0..at {
            self.drop_head_segment();
        }
        let head = self.stored[0];
        let number = offset / u64::from(self.block_bytes);
        let in_segment = number - u64::from(head.first_block(self.block_bytes));
        let index = head.first_index + in_segment;
        let consumed = (index >= self.next_index).then_some(index);
        let next_index = self.next_index.max(index + 1);
        self.head_read_to = offset + length;
        if self.head_read_to >= head.end {
            self.drop_head_segment();
        }
        Some(Match { next_index, consumed })
    }

    /// Index up to which accesses end when the head segment is cancelled; drops it.
    pub(super) fn cancel_head(&mut self) -> Option<u64> {
        let end = self.stored.front()?.end_index(self.block_bytes);
        self.drop_head_segment();
        Some(end)
    }

    fn drop_head_segment(&mut self) {
        self.stored.pop_front();
        self.resolve_segment = self.resolve_segment.saturating_sub(1);
        self.head_read_to = self.stored.front().map_or(0, |segment| segment.start);
    }

    /// Takes the next resolved access before `end` out of the sequence: its index and header.
    /// If there is none, those left before `end` are out at once, however many they are: a hint
    /// for a sparse file stands for billions.
    pub(super) fn advance(&mut self, end: u64) -> Option<(u64, BufId)> {
        let index = self.next_index;
        let header = (index < end).then(|| self.window.pop_front()).flatten();
        self.next_index = if header.is_some() { index + 1 } else { index.max(end) };
        self.prefetch_index = self.prefetch_index.max(self.next_index);
        header.map(|id| (index, id))
    }

    /// estPick: the least valuable tracked access is the one farthest ahead.
    pub(super) fn pick(&mut self) -> Option<u64> {
        self.tracking.pop_last()
    }

    /// An access whose block was ejected is to be checked by the prefetcher again.
    pub(super) fn relist(&mut self, index: u64, disk: u16) {
        self.prefetch_index = self.prefetch_index.min(index);
        let deep = &mut self.deep_index[usize::from(disk)];
        *deep = (*deep).min(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FileId = FileId(3);

    fn estimator(segments: &[(u64, u64)]) -> HintEstimator {
        let mut est = HintEstimator::new(ProcessId(1), 8192, 1024, 1);
        for &(offset, length) in segments {
            est.store(Segment { file: F, offset, length }, 100 * 8192);
        }
        est
    }

    #[test]
    fn an_access_is_a_reference_to_a_block_within_a_range() {
        // Figure 5.3: a range touching three blocks is three accesses, however it is read;
        // two ranges in one block are two accesses.
        let est = estimator(&[(100, 20_000), (30_000, 10), (30_100, 10), (0, 0)]);
        assert_eq!(est.outstanding(), 3 + 1 + 1 + 100);
    }

    #[test]
    fn reads_consume_by_byte_range_in_order() {
        let mut est = estimator(&[(100, 20_000), (30_000, 10)]);
        assert_eq!(est.match_read(F, 50, 10, 1), None, "before the range");
        let m = est.match_read(F, 100, 4000, 1).unwrap();
        assert_eq!(m, Match { next_index: 1, consumed: Some(0) });
        est.advance(1);
        let m = est.match_read(F, 4100, 4092, 1).unwrap();
        assert_eq!(m, Match { next_index: 1, consumed: None }, "reads on in the block");
        assert_eq!(est.match_read(F, 30_000, 10, 1), None, "not yet at the head");
        let m = est.match_read(F, 16_384, 3716, 1).unwrap();
        assert_eq!(m, Match { next_index: 3, consumed: Some(2) }, "a skipped block is consumed");
        est.advance(3);
        assert_eq!(est.match_read(F, 30_000, 10, 1).unwrap().consumed, Some(3));
        assert_eq!(est.segments(), 0);
    }

    #[test]
    fn a_wider_window_cancels_what_was_skipped() {
        let mut est = estimator(&[(0, 8192), (50_000, 10), (70_000, 10)]);
        assert_eq!(est.match_read(F, 70_000, 10, 2), None);
        let m = est.match_read(F, 70_000, 10, 3).unwrap();
        assert_eq!(m, Match { next_index: 3, consumed: Some(2) });
        assert_eq!(est.segments(), 0);
    }

    #[test]
    fn a_second_pass_over_the_same_range_matches_its_own_segment() {
        let mut est = estimator(&[(0, 10_000), (0, 10_000)]);
        for (offset, length) in [(0, 8192), (8192, 1808)] {
            let m = est.match_read(F, offset, length, 1).unwrap();
            while est.advance(m.next_index).is_some() {}
        }
        assert_eq!(est.match_read(F, 0, 8192, 1).unwrap().consumed, Some(2));
    }

    /// A million outstanding segments in 64 MiB: unresolved ones cost what is stored here.
    #[test]
    fn a_million_segments_fit_in_64_mib() {
        let mut est = estimator(&[]);
        for i in 0..1_000_000 {
            est.store(Segment { file: F, offset: i % 100 * 8192, length: 10 }, 100 * 8192);
        }
        let bytes = est.stored.capacity() * core::mem::size_of::<Stored>();
        assert!(bytes <= 64 << 20, "{bytes}");
        assert_eq!(est.outstanding(), 1_000_000);
    }

    /// What is passed over unresolved costs nothing: else a read at the end of a hinted sparse
    /// file of 16 TiB took minutes.
    #[test]
    fn billions_of_accesses_are_passed_over_at_once() {
        let blocks = u64::from(u32::MAX);
        let mut est = HintEstimator::new(ProcessId(1), 8192, 1024, 1);
        for _ in 0..1000 {
            est.store(Segment { file: F, offset: 0, length: 0 }, blocks * 8192);
        }
        for pass in 1..=1000 {
            let m = est.match_read(F, (blocks - 1) * 8192, 8192, 1).unwrap();
            assert_eq!(m.next_index, pass * blocks);
            assert_eq!(est.advance(m.next_index), None);
            assert_eq!((est.next_index(), est.prefetch_index), (m.next_index, m.next_index));
        }
        assert_eq!(est.outstanding(), 0);
    }

    #[test]
    fn what_is_unresolved_is_resolved_again() {
        let mut est = estimator(&[(0, 3 * 8192), (40_960, 8192), (81_920, 2 * 8192)]);
        let resolve = |est: &mut HintEstimator| {
            let mut named = Vec::new();
            while let Some(block) = est.next_unresolved() {
                named.push((est.resolve(block.number), block.number));
            }
            named
        };
        let all = resolve(&mut est);
        assert_eq!(all.len(), 6);
        est.advance(1);
        (est.prefetch_index, est.deep_index[0]) = (6, 5);
        let taken: Vec<_> = core::iter::from_fn(|| est.unresolve(2)).collect();
        assert_eq!(taken, [(5, 11), (4, 10), (3, 5)]);
        assert_eq!((est.resolved_end(), est.prefetch_index, est.deep_index[0]), (3, 3, 3));
        assert_eq!(resolve(&mut est), all[3..]);
    }

    #[test]
    fn cancel_drops_the_segment_at_the_head() {
        let mut est = estimator(&[(0, 3 * 8192), (40_960, 8192)]);
        assert_eq!(est.cancel_head(), Some(3));
        assert_eq!(est.segments(), 1);
        while est.advance(3).is_some() {}
        assert_eq!(est.next_index(), 3);
        assert_eq!(est.match_read(F, 40_960, 8192, 1).unwrap().consumed, Some(3));
        assert_eq!(est.cancel_head(), None);
    }
}
