//! What a manager is set up with.

use super::estimates::Parameters;
use super::readahead::ReadaheadConfig;

/// Which use is made of hints: the systems that the thesis measures (section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Full TIP: prefetching, clustering and caching by cost and benefit.
    CostBenefit,
    /// "TIP, no caching" (NC): hints are used out to a fixed prefetch depth, and for
    /// clusters out to `cluster_slack` accesses more; never to keep blocks for reuse. At
    /// depth 0 a missed block is still read with its neighbours.
    Static {
        /// Accesses ahead to prefetch, from 0.
        depth: u64,
        /// Accesses past the depth that a cluster may reach (16 in the thesis).
        cluster_slack: u64,
    },
    /// "TIP, no prefetch" (NP): hints only turn readahead and clustering off.
    NoPrefetch,
}

/// The shape of the values by which hint estimators bid for and defend buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Valuation {
    /// Eqs 4.24 and 4.31.
    Tip,
    /// As `Tip`, with deep prefetching from, and dearer ejection towards, constrained disks:
    /// TIPTOE (Tomkins 1997; Eqs 7.6 and 7.8).
    Tiptoe,
    /// Prefetch exactly P̂ ahead, eject what is used farthest ahead (section 7.3.1).
    FixedHorizon,
    /// Whenever a disk is free prefetch its next missing block, if some buffer's next use
    /// lies farther ahead (Cao 1995, in batches as in Cao 1996; section 7.3.1).
    Aggressive,
    /// Fixed horizon, and aggressive from the disks that are constrained (Kimbrel 1996).
    Forestall,
}

/// What came after the thesis's implementation; each can be switched on by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Value hinted blocks by the stall that a finite array leaves (Eq 7.5), with measured
    /// T_app and service times.
    pub finite_disks: bool,
    /// Keep consumed hinted blocks in an LRU queue of their own (section 7.4.3).
    pub post_hint: bool,
    /// Bound prefetching by each process's own horizon, P(T_app) of Eq 4.11, from measured
    /// T_app (section 7.2), where that is lower than P̂ and the disks are not constrained.
    pub process_horizon: bool,
}

/// Everything that a [`Tip`](super::Tip) is set up with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The model's parameters, measured on the machine.
    pub parameters: Parameters,
    /// Buffers in the cache, at least 2 (1536 in the thesis).
    pub buffers: u32,
    /// Bytes per block, a power of two (8192 in the thesis).
    pub block_bytes: u32,
    /// The most blocks in one I/O (8, a stripe unit, in the thesis).
    pub cluster_blocks: u32,
    /// Target size of the LRU queue's first, active segment (236 in the thesis).
    pub active_segment: u32,
    /// Target size of its other segments (100 in the thesis).
    pub segment: u32,
    /// Use made of hints.
    pub mode: Mode,
    /// Shape of hint estimates.
    pub valuation: Valuation,
    /// Extensions.
    pub extensions: Extensions,
    /// Readahead for unhinted reads; `None` for none.
    pub readahead: Option<ReadaheadConfig>,
    /// Bound of the caching horizon, in accesses per process (10,000 in section 6.6.3).
    pub resolved_max: u64,
    /// Bound of all processes' caching horizons together: each has an equal part of it, but
    /// at least P̂. Headers take memory.
    pub resolved_total: u64,
    /// Most segments stored per process; further hints are refused with an error.
    pub segments_max: usize,
    /// How many segments at the head of the hint list a read is matched against. 1 is the
    /// thesis's strict order; with more, a read that skips hinted segments cancels them.
    pub match_window: usize,
    /// Buffers that prefetching leaves for demand misses. With at least one for each process
    /// that can wait at the same time, a demand miss never finds every buffer busy. With fewer,
    /// some are [`ReadOutcome::Uncached`](super::ReadOutcome::Uncached).
    pub reserve: u32,
    /// System-wide accesses per period of the moving averages (1024 in the thesis).
    pub rate_period: u32,
    /// Most prefetch I/Os outstanding at a disk when prefetching past the horizon (16, the
    /// batch of Cao 1996).
    pub deep_batch: u32,
    /// Upper bound of P̂ beyond Eq 4.23, in accesses, at least 1: where T_hit is a
    /// hundredth of the thesis's, T_disk/T_hit is more than any array can use.
    pub horizon_max: u64,
    /// With a block that is ejected, eject the blocks between it and the next missing one of
    /// its file, if they are at most so many and hinted only far ahead: to fetch two pieces
    /// with a gap between them costs a disk's positioning more than to fetch the gap. 0 is
    /// the thesis's way.
    pub island_blocks: u32,
    /// Remember the blocks whose buffers were taken, for [`Tip::take_evicted`]: an
    /// environment that has to give them back itself drains that list.
    ///
    /// [`Tip::take_evicted`]: super::Tip::take_evicted
    pub report_evictions: bool,
}

impl Config {
    /// The thesis's machine and system: 1536 buffers of 8 KiB, sections 5.3.3 and 6.1.
    pub fn thesis() -> Self {
        Self {
            parameters: Parameters::THESIS,
            buffers: 1536,
            block_bytes: 8192,
            cluster_blocks: 8,
            active_segment: 236,
            segment: 100,
            mode: Mode::CostBenefit,
            valuation: Valuation::Tip,
            extensions: Extensions::default(),
            readahead: Some(ReadaheadConfig::default()),
            resolved_max: 10_000,
            resolved_total: u64::MAX,
            segments_max: 1_000_000,
            match_window: 1,
            reserve: 16,
            rate_period: 1024,
            deep_batch: 16,
            horizon_max: u64::MAX,
            island_blocks: 0,
            report_evictions: false,
        }
    }
}
