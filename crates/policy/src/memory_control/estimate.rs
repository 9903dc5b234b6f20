//! Cost, benefit and overhead of one speculative process.

use super::STALL;

/// How an [`Estimate`] decides. Zero means the default, so that all-zero is a
/// valid value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// α of section 6.1: weight of the last interval, in 1/1024; 1 to 1024.
    /// 0: a quarter, so that a second of four intervals says most.
    pub alpha: u64,
    /// Overhead above which speculation is disabled, in [`STALL`]s per
    /// interval ("non-negligible" in the paper). 0: two stalls.
    pub threshold: u64,
}

impl Parameters {
    const ALPHA: u64 = 256;
    const THRESHOLD: u64 = 2 * STALL;

    /// A threshold that bounds the time lost: `per_mille` thousandths of an
    /// interval of `interval_ns`, where a stall takes `stall_ns`. Never below
    /// one stall: single stalls are noise.
    pub fn bounding(per_mille: u64, interval_ns: u64, stall_ns: u64) -> Parameters {
        let lost_ns = interval_ns / 1000 * per_mille;
        let threshold = lost_ns.saturating_mul(STALL) / stall_ns.max(1);
        Parameters { alpha: 0, threshold: threshold.clamp(STALL, 1 << 40) }
    }

    fn alpha(&self) -> u64 {
        if self.alpha == 0 { Self::ALPHA } else { self.alpha.clamp(1, STALL) }
    }

    fn threshold(&self) -> i64 {
        let threshold = if self.threshold == 0 { Self::THRESHOLD } else { self.threshold };
        i64::try_from(threshold).unwrap_or(i64::MAX)
    }
}

/// What is to be done with a speculative process after an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It may go on running.
    Run,
    /// Its overhead is not negligible any more: mark it non-runnable and
    /// reclaim its memory.
    Disable,
    /// It stays stopped.
    Wait,
    /// Its overhead has worn off: it may run again.
    Enable,
}

/// Most stalls reckoned with in one interval: beyond it counters are noise.
const STALLS_MAX: u64 = 1 << 40;

/// The account of one speculative process. All-zero is a valid start:
/// enabled, nothing known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Cost_p(t), in [`STALL`]s: per interval while enabled, their sum while
    /// disabled.
    cost: u64,
    /// Benefit_p(t), likewise.
    benefit: u64,
    /// t − s: intervals since it was stopped; 0 while it is enabled.
    stopped_intervals: u64,
}

impl Estimate {
    /// Ends an interval in which speculation of this process added `added`
    /// and removed `removed` stalls (in [`STALL`]s).
    pub fn end_interval(&mut self, added: u64, removed: u64, parameters: &Parameters) -> Action {
        let (added, removed) = (added.min(STALLS_MAX), removed.min(STALLS_MAX));
        if self.stopped_intervals == 0 {
            self.cost = decayed(self.cost, added, parameters.alpha());
            self.benefit = decayed(self.benefit, removed, parameters.alpha());
            if self.overhead() <= parameters.threshold() {
                return Action::Run;
            }
            self.stopped_intervals = 1;
            return Action::Disable;
        }
        // While it is stopped nothing is decayed: stalls add up, since what
        // it pushed out is missed for a while yet, and are spread over the
        // time since.
        self.cost = self.cost.saturating_add(added).min(STALLS_MAX << 1);
        self.benefit = self.benefit.saturating_add(removed).min(STALLS_MAX << 1);
        self.stopped_intervals = self.stopped_intervals.saturating_add(1);
        // A quarter of the threshold is negligible; between the two there is
        // room to be wrong without switching at each interval.
        if self.overhead() > parameters.threshold() / 4 {
            return Action::Wait;
        }
        // Both formulas agree at the passage: what was spread stays spread.
        self.cost /= self.stopped_intervals;
        self.benefit /= self.stopped_intervals;
        self.stopped_intervals = 0;
        Action::Enable
    }

    /// Overhead_p(t), in [`STALL`]s per interval: Cost_p − Benefit_p, and
    /// while stopped that over t − s.
    pub fn overhead(&self) -> i64 {
        let net = self.cost as i64 - self.benefit as i64;
        net / (self.stopped_intervals.max(1) as i64)
    }

    /// The overhead at a time within an interval that has seen `added` and
    /// `removed` stalls so far ("and any accumulated stall counts since the
    /// last interval"). Above the threshold there is no need to wait for its
    /// end.
    pub fn overhead_now(&self, added: u64, removed: u64, parameters: &Parameters) -> i64 {
        let mut ended = *self;
        ended.end_interval(added, removed, parameters);
        ended.overhead()
    }

    /// Whether it may run.
    pub fn is_enabled(&self) -> bool {
        self.stopped_intervals == 0
    }
}

/// (1 − α) × old + α × last, α in 1/1024.
fn decayed(old: u64, last: u64, alpha: u64) -> u64 {
    (old.saturating_mul(STALL - alpha) + last.saturating_mul(alpha)) / STALL
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const HALF: Parameters = Parameters { alpha: 512, threshold: 4 * STALL };

    #[test]
    fn cost_and_benefit_decay_as_in_the_paper() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.end_interval(4 * STALL, 2 * STALL, &HALF), Action::Run);
        assert_eq!((estimate.cost, estimate.benefit), (2 * STALL, STALL));
        assert_eq!(estimate.end_interval(6 * STALL, 0, &HALF), Action::Run);
        // (1 − α)·2 + α·6 and (1 − α)·1 + α·0.
        assert_eq!((estimate.cost, estimate.benefit), (4 * STALL, STALL / 2));
        assert_eq!(estimate.overhead(), (3 * STALL + STALL / 2) as i64);
    }

    #[test]
    fn overhead_above_the_threshold_disables_and_wears_off() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.end_interval(20 * STALL, 0, &HALF), Action::Disable);
        assert!(!estimate.is_enabled());
        // 10 stalls over t − s = 2, 3, … intervals; a quarter of 4 at the 10th.
        let actions: Vec<Action> = (2..=10).map(|_| estimate.end_interval(0, 0, &HALF)).collect();
        let (last, before) = actions.split_last().unwrap();
        assert!(before.iter().all(|action| *action == Action::Wait), "{actions:?}");
        assert_eq!(*last, Action::Enable);
        assert_eq!(estimate.overhead(), STALL as i64, "continuous at the passage");
    }

    #[test]
    fn stalls_that_linger_keep_it_stopped() {
        let run = |lingering: u64| {
            let mut estimate = Estimate::default();
            estimate.end_interval(20 * STALL, 0, &HALF);
            (0..10_000)
                .take_while(|_| estimate.end_interval(lingering, 0, &HALF) == Action::Wait)
                .count()
        };
        assert!(run(STALL / 2) > run(0));
        assert_eq!(run(2 * STALL), 10_000, "as long as it costs more than is negligible");
    }

    #[test]
    fn benefit_outweighs_any_cost_below_it() {
        let mut estimate = Estimate::default();
        for interval in 0..1000 {
            let added = interval % 50 * STALL;
            assert_eq!(estimate.end_interval(added, 50 * STALL, &HALF), Action::Run);
        }
    }

    #[test]
    fn a_look_within_an_interval_changes_nothing() {
        let mut estimate = Estimate::default();
        estimate.end_interval(STALL, STALL, &HALF);
        let before = estimate;
        assert!(estimate.overhead_now(100 * STALL, 0, &HALF) > 4 * STALL as i64);
        assert_eq!(estimate, before);
    }

    #[test]
    fn the_threshold_bounds_lost_time() {
        // 1% of 250 ms are 25 stalls of 100 µs.
        let parameters = Parameters::bounding(10, 250_000_000, 100_000);
        assert_eq!(parameters.threshold, 25 * STALL);
        assert_eq!(Parameters::bounding(10, 250_000_000, 10_000_000).threshold, STALL);
        let unknown = Parameters::bounding(10, 250_000_000, 0);
        assert_eq!(unknown, Parameters::bounding(10, 250_000_000, 1));
    }

    #[test]
    fn wild_counts_never_overflow() {
        let mut estimate = Estimate::default();
        let mut seed = 7u64;
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let wild = Parameters { alpha: seed >> 3, threshold: seed.rotate_left(9) };
            estimate.end_interval(seed.rotate_left(17), seed.rotate_left(40), &wild);
            estimate.overhead();
        }
    }
}
