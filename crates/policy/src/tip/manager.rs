//! The manager: what happens at each event.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::buffers::{BufId, Buffers, Nexus, State};
use super::config::Config;
use super::constrained::DiskView;
use super::estimates::Parameters;
use super::hints::{HintError, HintEstimator, Segment};
use super::lru::LruEstimator;
use super::orphan::OrphanEstimator;
use super::readahead::Readahead;
use super::stats::Stats;
use super::writes::DirtyRun;
use super::{Block, FileId, Io, ProcessId};

/// What a manager must know of files and where they lie.
pub trait Layout {
    /// The file's size in bytes; 0 once it is deleted.
    fn file_bytes(&self, file: FileId) -> u64;
    /// Whether the next block of the file follows this one on the disk, within the same
    /// stripe unit, so that one I/O may fetch both (section 5.2.2).
    fn next_is_contiguous(&self, block: Block) -> bool;
    /// The disk that holds the block, less than `disks()`.
    fn disk(&self, block: Block) -> u16;
    /// Disks in the array, at least 1.
    fn disks(&self) -> u16;
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The block is in the cache.
    Hit,
    /// Its I/O is under way: wait for it.
    Pending,
    /// It was not there; a demand I/O was appended: wait for it.
    Miss,
    /// It was not there, and every buffer is busy: it is read past the cache.
    Uncached,
}

/// The TIP manager; see the [module](super).
#[derive(Debug)]
pub struct Tip<L> {
    pub(super) config: Config,
    pub(super) layout: L,
    pub(super) buffers: Buffers,
    /// The LRU estimator, and the post-hint estimator.
    pub(super) lru: [LruEstimator; 2],
    pub(super) hints: Vec<Option<HintEstimator>>,
    pub(super) orphans: OrphanEstimator,
    pub(super) disks: Vec<DiskView>,
    pub(super) horizon: u64,
    pub(super) stats: Stats,
    pub(super) readahead: Readahead,
    accesses: u32,
    /// Blocks that may be ejected as islands until the next read.
    pub(super) island_credit: u32,
    pub(super) dirty_runs: Vec<DirtyRun>,
    pub(super) evicted: Vec<Block>,
    /// See [`Tip::pause`].
    pub(super) paused: BTreeSet<ProcessId>,
    /// See [`Tip::bound_resolving`].
    resolve_left: u64,
}

impl<L: Layout> Tip<L> {
    /// A manager with an empty cache.
    ///
    /// # Panics
    ///
    /// If the configuration has fewer than 2 buffers or a block size that is no power of 2.
    pub fn new(mut config: Config, layout: L) -> Self {
        config.parameters = config.parameters.bounded();
        assert!(config.buffers >= 2, "a cache has at least 2 buffers");
        assert!(config.block_bytes.is_power_of_two(), "a block's size is a power of 2");
        let queue = |i, first| LruEstimator::new(i, config.buffers, first, config.segment);
        let disks = (0..layout.disks()).map(|_| DiskView::new(config.parameters.t_disk_us));
        Self {
            buffers: Buffers::new(config.buffers),
            lru: [queue(0, config.active_segment), queue(1, config.segment)],
            hints: Vec::new(),
            orphans: OrphanEstimator::default(),
            disks: disks.collect(),
            horizon: horizon(&config),
            stats: Stats::default(),
            readahead: Readahead::default(),
            accesses: 0,
            island_credit: 0,
            dirty_runs: Vec::new(),
            evicted: Vec::new(),
            paused: BTreeSet::new(),
            resolve_left: u64::MAX,
            config,
            layout,
        }
    }

    /// What has been counted so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The layout it was given.
    pub fn layout(&self) -> &L {
        &self.layout
    }

    /// The layout it was given, to tell it of new or deleted files.
    pub fn layout_mut(&mut self) -> &mut L {
        &mut self.layout
    }

    /// Whether a block's data is in the cache, read completely.
    pub fn is_cached(&self, block: Block) -> bool {
        self.buffers
            .find(block)
            .is_some_and(|id| !matches!(self.buffers.get(id).state, State::Ghost | State::Reading))
    }

    /// Whether a block occupies a buffer: its data is in the cache or being read.
    pub fn has_buffer(&self, block: Block) -> bool {
        self.buffers.find(block).is_some_and(|id| self.buffers.get(id).state != State::Ghost)
    }

    /// Whether a block is being prefetched and nobody has read it meanwhile: an I/O that has
    /// not begun is still worth beginning.
    pub fn is_ahead(&self, block: Block) -> bool {
        self.buffers.find(block).is_some_and(|id| {
            let buf = self.buffers.get(id);
            buf.state == State::Reading && !buf.release
        })
    }

    /// Buffers that are in use.
    pub fn buffers_in_use(&self) -> u32 {
        self.buffers.in_use
    }

    /// P̂ in use, in accesses.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Takes the blocks whose buffers were taken since the last call, if the configuration
    /// has `report_evictions`. One of them may have a buffer again.
    pub fn take_evicted(&mut self) -> Vec<Block> {
        core::mem::take(&mut self.evicted)
    }

    /// Changes the number of buffers: those that are too many are ejected, cheapest first.
    /// At least as many stay as are busy now and in reserve, so that a demand miss finds one.
    pub fn set_buffers(&mut self, buffers: u32) {
        let least = self.buffers.busy.saturating_add(self.config.reserve).saturating_add(2);
        self.buffers.total = buffers.max(least);
        while self.buffers.in_use > self.buffers.total && self.eject_cheapest() {}
    }

    /// Changes the model's parameters to newly measured ones, P̂ with them.
    pub fn set_parameters(&mut self, parameters: Parameters) {
        self.config.parameters = parameters.bounded();
        self.horizon = horizon(&self.config);
    }

    /// A block's data went from the cache without this manager's doing: somebody else gave it
    /// back, or the kernel reclaimed it. Hinted accesses to it are listed for the prefetcher.
    pub fn lost(&mut self, block: Block, ios: &mut Vec<Io>) {
        let Some(id) = self.buffers.find(block) else { return };
        if !self.buffers.get(id).replaceable() {
            return;
        }
        if let Some(links) = self.buffers.get(id).lru {
            self.lru[usize::from(links.queue)].remove(&mut self.buffers, id);
        }
        self.orphans.remove(&mut self.buffers, id);
        self.untrack_everywhere(id);
        self.buffers.set_state(id, State::Ghost);
        self.buffers.drop_if_useless(id);
        self.prefetch(ios);
    }

    /// Nothing is prefetched for a process until [`Self::resume`]: nobody would act for it.
    pub fn pause(&mut self, process: ProcessId) {
        self.paused.insert(process);
    }

    /// Ends what [`Self::pause`] began.
    pub fn resume(&mut self, process: ProcessId, ios: &mut Vec<Io>) {
        if self.paused.remove(&process) {
            self.prefetch(ios);
        }
    }

    /// From now on at most so many accesses are resolved, until the next call: an environment
    /// that serves many processes bounds what one event costs. What is left is resolved at
    /// the process's next events.
    pub fn bound_resolving(&mut self, accesses: u64) {
        self.resolve_left = accesses;
    }

    /// Accesses of all processes that are resolved now.
    pub fn resolved(&self) -> u64 {
        self.hints.iter().flatten().map(|est| est.resolved_end() - est.next_index()).sum()
    }

    /// Outstanding segments of a process.
    pub fn outstanding_segments(&self, process: ProcessId) -> usize {
        self.estimator_of(process).map_or(0, |e| self.hint(e).segments())
    }

    /// Outstanding hinted accesses of a process.
    pub fn outstanding(&self, process: ProcessId) -> u64 {
        self.estimator_of(process).map_or(0, |e| self.hint(e).outstanding())
    }

    /// Appends segments to the process's hint list, in the order in which it will read them
    /// (TIPIO_SEG, TIPIO_MFD_SEG). The process's first hint creates its estimator
    /// (estCreate).
    ///
    /// # Errors
    ///
    /// [`HintError::TooMany`] when the list is full; what was stored before stays.
    pub fn disclose(
        &mut self,
        process: ProcessId,
        segments: &[Segment],
        ios: &mut Vec<Io>,
    ) -> Result<(), HintError> {
        let estimator = self.estimator_of(process).unwrap_or_else(|| self.create(process));
        let room = self.config.segments_max - self.hint(estimator).segments();
        let stored = segments.len().min(room);
        for &segment in &segments[..stored] {
            let file_bytes = self.layout.file_bytes(segment.file);
            self.hint_mut(estimator).store(segment, file_bytes);
        }
        self.resolve(estimator);
        self.prefetch(ios);
        if stored < segments.len() { Err(HintError::TooMany { stored }) } else { Ok(()) }
    }

    /// Cancels the segment at the head of the process's hint list (TIPIO_CANCEL).
    ///
    /// # Errors
    ///
    /// [`HintError::NoSuchProcess`] when the process has no outstanding segment.
    pub fn cancel(&mut self, process: ProcessId, ios: &mut Vec<Io>) -> Result<(), HintError> {
        self.cancel_first(process, 1, ios)
    }

    /// Cancels so many segments from the head of the process's hint list, or all of them. What
    /// follows is resolved once, not after each.
    ///
    /// # Errors
    ///
    /// [`HintError::NoSuchProcess`] when the process has no outstanding segment.
    pub fn cancel_first(
        &mut self,
        process: ProcessId,
        segments: u32,
        ios: &mut Vec<Io>,
    ) -> Result<(), HintError> {
        let estimator = self.estimator_of(process).ok_or(HintError::NoSuchProcess)?;
        let est = self.hint_mut(estimator);
        let end = (0..segments).map_while(|_| est.cancel_head()).last();
        self.consume_to(estimator, end.ok_or(HintError::NoSuchProcess)?);
        self.resolve(estimator);
        self.prefetch(ios);
        Ok(())
    }

    /// Reads `length` bytes at `offset`, all within one block, on the way to `call_end`, where
    /// the read call ends: missed blocks up to there are read in the same cluster. The block
    /// is held until [`Self::release`]. `t_app_us` is the CPU time that the process used
    /// since its last read; 0 if unknown.
    pub fn read(&mut self, read: &Read, ios: &mut Vec<Io>) -> ReadOutcome {
        let block = self.block_at(read.file, read.offset);
        debug_assert_eq!(block, self.block_at(read.file, read.offset + read.length.max(1) - 1));
        let id = self.buffers.find_or_ghost(block);
        self.buffers.hold(id, true);
        let hinted = self.match_hints(read);
        self.take_off_lru(id, hinted);
        self.buffers.get_mut(id).post_hint = hinted && self.config.extensions.post_hint;
        let outcome = match self.buffers.get(id).state {
            State::Ghost => match self.demand_fetch(id, hinted, read, ios) {
                true => ReadOutcome::Miss,
                false => ReadOutcome::Uncached,
            },
            State::Reading => {
                self.buffers.get_mut(id).release = true;
                ReadOutcome::Pending
            }
            State::Clean | State::Dirty | State::Writing => {
                self.release_to_lru(id);
                ReadOutcome::Hit
            }
        };
        self.count_request(id, hinted, outcome);
        self.end_access();
        if hinted {
            self.prefetch(ios);
        } else {
            self.read_ahead(read, block, ios);
        }
        outcome
    }

    /// Ends the hold of a [`Self::read`] after copy-out (positive hand-off, section 5.1).
    pub fn release(&mut self, block: Block) {
        if let Some(id) = self.buffers.find(block) {
            self.buffers.hold(id, false);
            self.adopt_if_untracked(id);
        }
    }

    /// An I/O is complete. `service_us` is what the disk needed for it, if known.
    pub fn io_done(&mut self, io: &Io, service_us: Option<u32>, ios: &mut Vec<Io>) {
        let disk = usize::from(self.layout.disk(io.first));
        self.disks[disk].done(io, service_us);
        for i in 0..io.blocks {
            let block = Block { number: io.first.number + i, ..io.first };
            let Some(id) = self.buffers.find(block) else { continue };
            match (io.write, self.buffers.get(id).state) {
                (false, State::Reading) => self.read_done(id),
                (true, State::Writing) => self.buffers.set_state(id, State::Clean),
                _ => {}
            }
            self.adopt_if_untracked(id);
        }
        self.prefetch(ios);
    }

    /// The process has ended: its hints are freed, its estimator destroyed (estDestroy), what
    /// only it valued is orphaned, what it wrote is sent to disk.
    pub fn exit(&mut self, process: ProcessId, ios: &mut Vec<Io>) {
        self.readahead.forget_process(process);
        while let Some(i) = self.dirty_runs.iter().position(|run| run.process == process) {
            let run = self.dirty_runs.swap_remove(i);
            self.flush(run, ios);
        }
        if let Some(estimator) = self.estimator_of(process) {
            let end = self.hint(estimator).resolved_end();
            self.consume_to(estimator, end);
            self.hints[usize::from(estimator)] = None;
        }
        self.paused.remove(&process);
        self.prefetch(ios);
    }

    /// The file is deleted or its data is no longer valid (estInval). Blocks whose I/O is
    /// under way or that are being copied stay until replaced in the ordinary way.
    pub fn invalidate(&mut self, file: FileId) {
        self.readahead.forget_file(file);
        let ids: Vec<BufId> =
            self.buffers.ids().filter(|&id| self.buffers.get(id).block.file == file).collect();
        for id in ids {
            let buf = self.buffers.get(id);
            let idle = matches!(buf.state, State::Clean | State::Dirty) && buf.holds == 0;
            if idle || buf.state == State::Ghost {
                if let Some(links) = buf.lru {
                    self.lru[usize::from(links.queue)].remove(&mut self.buffers, id);
                }
                self.orphans.remove(&mut self.buffers, id);
                self.untrack_everywhere(id);
                self.buffers.set_state(id, State::Ghost);
                self.buffers.drop_if_useless(id);
            }
        }
    }

    pub(super) fn block_at(&self, file: FileId, offset: u64) -> Block {
        Block { file, number: (offset / u64::from(self.config.block_bytes)) as u32 }
    }

    pub(super) fn estimator_of(&self, process: ProcessId) -> Option<u16> {
        self.hints
            .iter()
            .position(|est| est.as_ref().is_some_and(|est| est.process == process))
            .map(|i| i as u16)
    }

    pub(super) fn hint(&self, estimator: u16) -> &HintEstimator {
        self.hints[usize::from(estimator)].as_ref().expect("nexuses die with their estimator")
    }

    pub(super) fn hint_mut(&mut self, estimator: u16) -> &mut HintEstimator {
        self.hints[usize::from(estimator)].as_mut().expect("nexuses die with their estimator")
    }

    fn create(&mut self, process: ProcessId) -> u16 {
        let rate = u64::from(self.config.rate_period);
        let est = HintEstimator::new(process, self.config.block_bytes, rate, self.disks.len());
        let place = match self.hints.iter().position(Option::is_none) {
            Some(i) => {
                self.hints[i] = Some(est);
                i as u16
            }
            None => {
                self.hints.push(Some(est));
                (self.hints.len() - 1) as u16
            }
        };
        self.keep_to_parts();
        place
    }

    /// Each process has a smaller part now of what may be resolved: what others have resolved
    /// beyond theirs, farthest ahead, is given up.
    fn keep_to_parts(&mut self) {
        let most = self.resolved_part();
        for estimator in 0..self.hints.len() as u16 {
            while let Some(est) = &mut self.hints[usize::from(estimator)]
                && let Some((index, id)) = est.unresolve(most)
            {
                self.free_nexus(Nexus { estimator, index }, id);
            }
        }
    }

    /// Matches a read against the process's hints, consuming the accesses up to it.
    fn match_hints(&mut self, read: &Read) -> bool {
        let Some(estimator) = self.estimator_of(read.process) else { return false };
        let window = self.config.match_window;
        let est = self.hint_mut(estimator);
        let Some(found) = est.match_read(read.file, read.offset, read.length, window) else {
            return false;
        };
        est.t_app_pending_us = est.t_app_pending_us.saturating_add(read.t_app_us);
        if found.consumed.is_some() {
            est.rate.count();
            est.t_app.add(core::mem::take(&mut est.t_app_pending_us));
        }
        self.consume_to(estimator, found.next_index);
        self.resolve(estimator);
        if found.consumed.is_some() {
            self.examine(estimator);
        }
        true
    }

    /// Takes the accesses before `end` out of the sequence and frees their nexuses.
    fn consume_to(&mut self, estimator: u16, end: u64) {
        while let Some((index, id)) = self.hint_mut(estimator).advance(end) {
            self.free_nexus(Nexus { estimator, index }, id);
        }
    }

    fn free_nexus(&mut self, gone: Nexus, id: BufId) {
        let tracked = self.hint_mut(gone.estimator).tracking.remove(&gone.index);
        let buf = self.buffers.get_mut(id);
        buf.nexuses.retain(|&nexus| nexus != gone);
        buf.hint_trackers -= u32::from(tracked);
        self.adopt_if_untracked(id);
    }

    /// Resolves stored hints out to the caching horizon (section 5.3.1).
    fn resolve(&mut self, estimator: u16) {
        let limit = self.resolve_limit(estimator);
        while self.resolve_left > 0 && self.hint(estimator).resolved_end() < limit {
            let Some(block) = self.hint_mut(estimator).next_unresolved() else { break };
            let id = self.buffers.find_or_ghost(block);
            self.count_rehint(id);
            let index = self.hint_mut(estimator).resolve(id);
            self.buffers.get_mut(id).nexuses.push(Nexus { estimator, index });
            self.resolve_left -= 1;
            self.stats.resolved += 1;
        }
        let est = self.hint(estimator);
        let resolved = est.resolved_end() - est.next_index();
        self.stats.resolved_peak = self.stats.resolved_peak.max(resolved);
    }

    /// A hint for a block that only the post-hint queue remembers is a hit of that queue.
    fn count_rehint(&mut self, id: BufId) {
        let buf = self.buffers.get(id);
        if let Some(links) = buf.lru.filter(|links| links.queue == 1 && buf.nexuses.is_empty()) {
            self.lru[1].count_hit(links);
        }
    }

    /// Takes a block out of the LRU queue it is in, counting the hit if it is one.
    pub(super) fn take_off_lru(&mut self, id: BufId, hinted: bool) {
        let buf = self.buffers.get(id);
        let Some(links) = buf.lru else { return };
        // The first read of a block that readahead brought in is a hit of the place that its
        // ghost had in the LRU queue, as in the thesis (section 6.3.6). The post-hint queue,
        // which is not the thesis's, takes no credit for what readahead finds without it.
        let place = match buf.referenced || buf.state == State::Ghost {
            true => Some(links),
            false => buf.ghost_place.filter(|place| place.queue == 0),
        };
        if let Some(place) = place.filter(|_| !hinted) {
            self.lru[usize::from(place.queue)].count_hit(place);
        }
        self.lru[usize::from(links.queue)].remove(&mut self.buffers, id);
    }

    fn count_request(&mut self, id: BufId, hinted: bool, outcome: ReadOutcome) {
        debug_assert!(outcome != ReadOutcome::Miss || !self.buffers.get(id).referenced);
        let buf = self.buffers.get_mut(id);
        let first_use = !buf.referenced;
        let prefetched = buf.prefetched;
        buf.referenced = true;
        let stats = &mut self.stats;
        stats.requests += 1;
        stats.hinted_requests += u64::from(hinted);
        stats.partial_hits += u64::from(outcome == ReadOutcome::Pending);
        match (first_use, prefetched) {
            (true, true) => stats.prefetch_hits += 1,
            // Also what the same call's missing block before it brought along.
            (true, false) => stats.misses += 1,
            (false, _) => stats.reuse_hits += 1,
        }
    }

    /// Every `rate_period` accesses the averages and costs are refreshed (section 5.3.2).
    fn end_access(&mut self) {
        self.accesses += 1;
        self.island_credit = (self.island_credit + 1).min(self.config.island_blocks);
        if self.accesses < self.config.rate_period {
            return;
        }
        self.accesses = 0;
        for queue in &mut self.lru {
            queue.end_period(&self.config.parameters);
        }
        for est in self.hints.iter_mut().flatten() {
            est.rate.end_period();
        }
    }

    fn read_done(&mut self, id: BufId) {
        self.buffers.set_state(id, State::Clean);
        if core::mem::take(&mut self.buffers.get_mut(id).release) {
            if let Some(links) = self.buffers.get(id).lru {
                self.buffers.get_mut(id).ghost_place = Some(links);
                self.lru[usize::from(links.queue)].remove(&mut self.buffers, id);
            }
            self.release_to_lru(id);
        }
    }

    pub(super) fn release_to_lru(&mut self, id: BufId) {
        let post_hint = self.config.extensions.post_hint;
        let [main, post] = &mut self.lru;
        main.release_to_tail(&mut self.buffers, id, post_hint.then_some(post));
    }

    /// Whatever becomes replaceable and is tracked by nobody goes to the orphans, so that no
    /// buffer is lost (section 5.3.4).
    pub(super) fn adopt_if_untracked(&mut self, id: BufId) {
        let buf = self.buffers.get(id);
        if buf.replaceable() && !buf.tracked() {
            self.orphans.adopt(&mut self.buffers, id);
        }
        self.buffers.drop_if_useless(id);
    }
}

fn horizon(config: &Config) -> u64 {
    config.parameters.prefetch_horizon().min(config.horizon_max).max(1)
}

/// A read of bytes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Who reads.
    pub process: ProcessId,
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1, not past the end of the block.
    pub length: u64,
    /// Where the read call that this is part of begins and ends.
    pub call_start: u64,
    /// See `call_start`.
    pub call_end: u64,
    /// CPU time of the process since its last read, in microseconds; 0 if unknown.
    pub t_app_us: u32,
}
