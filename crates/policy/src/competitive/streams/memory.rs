//! Memory contention (Li et al., section 4): the depth falls where prefetched
//! pages are evicted before they are read.

/// Runs after which the depth recovers by a half, if few of them are evicted.
const RECOVERY_RUNS: u32 = 64;

/// The depth falls where more than one of so many runs is evicted before it is
/// read. One that is costs its switch and transfer once more, each as long as the
/// other: with a share f of them a depth's worth of data takes 2 (1 + f)
/// switches, with half the depth, though nothing were evicted, 3.
const EVICTED_ONE_OF: u32 = 2;

/// So many evictions more than that: memory that is short for a moment is so for
/// many streams at once.
const EVICTED_MIN: u32 = 8;

/// Most halvings of the depth for evictions.
const SHRINK_MAX: u32 = 4;

/// All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Halvings of the depth because prefetched pages were evicted.
    pub(super) shrink: u32,
    /// Runs since the last change of `shrink`.
    runs: u32,
    /// [`EVICTED_ONE_OF`] for each eviction, less one for each run.
    evictions: u32,
}

impl Memory {
    /// Nothing was evicted: all zero.
    pub(super) const AMPLE: Memory = Memory { shrink: 0, runs: 0, evictions: 0 };

    /// A run, or what stands for one, is issued.
    pub(super) fn issued(&mut self) {
        self.runs = self.runs.saturating_add(1);
        self.evictions = self.evictions.saturating_sub(1);
        if self.runs >= RECOVERY_RUNS && self.shrink > 0 && self.evictions < EVICTED_ONE_OF {
            self.shrink -= 1;
            self.runs = 0;
        }
    }

    /// Pages of a run have been evicted before they were read.
    pub(super) fn evicted(&mut self) {
        self.evictions = self.evictions.saturating_add(EVICTED_ONE_OF);
        if self.evictions > EVICTED_MIN * EVICTED_ONE_OF {
            self.evictions = 0;
            self.shrink = (self.shrink + 1).min(SHRINK_MAX);
            self.runs = 0;
        }
    }
}
