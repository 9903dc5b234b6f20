//! Counters, in the terms of the thesis's tables 6.2 to 6.14.

/// What a manager has counted since it was made. Blocks unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests for blocks.
    pub requests: u64,
    /// Requests that matched a hint.
    pub hinted_requests: u64,
    /// Blocks prefetched: informed, clustered and readahead.
    pub prefetched_blocks: u64,
    /// I/Os that prefetched them.
    pub prefetch_ios: u64,
    /// Of `prefetched_blocks`, those that readahead fetched.
    pub readahead_blocks: u64,
    /// Of `prefetched_blocks`, those added to a cluster around another prefetch.
    pub clustered_blocks: u64,
    /// Hits on a block that had been requested before.
    pub reuse_hits: u64,
    /// Hits only because the block had been prefetched.
    pub prefetch_hits: u64,
    /// Of both kinds of hits, those that had to wait for the I/O under way.
    pub partial_hits: u64,
    /// Requests for blocks that were not in the cache.
    pub misses: u64,
    /// I/Os that read them.
    pub miss_ios: u64,
    /// Buffers taken from one block for another.
    pub evictions: u64,
    /// Of those, prefetched blocks that were never requested.
    pub unused_prefetches: u64,
    /// Blocks written.
    pub written_blocks: u64,
    /// I/Os that wrote them.
    pub write_ios: u64,
    /// Bids that the allocator refused.
    pub refused_bids: u64,
    /// Rounds of picking in the search for the min-max buffer.
    pub picks: u64,
    /// Picked blocks that another estimator saved.
    pub saves: u64,
    /// Most accesses of one process resolved at one time.
    pub resolved_peak: u64,
    /// Accesses resolved.
    pub resolved: u64,
}
