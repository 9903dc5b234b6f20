//! Does one side's slowest call exceed plain's, or does plain exceed itself as
//! often?
//!
//! The slowest of thousands of calls is made by the scheduler and by whoever
//! else uses the machine, and differs by many milliseconds from one plain run
//! to the next. So a round is three runs: plain, plain again (the control), and
//! Runahead, in changing order. Where one of the three exceeds both others by
//! more than what is allowed, the round is odd. If Runahead did nothing, each
//! of the three would be equally often the odd one, however calls are
//! distributed and whatever slows one round as a whole; so what the odd rounds
//! show is a matter of the binomial distribution with one third.

use serde::{Deserialize, Serialize};

/// Taken for proof where chance alone would show as much less often than this.
const PROOF: f64 = 0.01;

/// The slowest call of each side in one round, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Plain.
    pub plain_ns: u64,
    /// Plain again.
    pub control_ns: u64,
    /// Under Runahead.
    pub runahead_ns: u64,
}

impl Round {
    /// Whether one side's slowest call is more than `allowed_ns` slower than
    /// both others', and whether that side is Runahead's.
    fn odd(&self, allowed_ns: u64) -> Option<bool> {
        let mut sides = [self.plain_ns, self.control_ns, self.runahead_ns];
        sides.sort_unstable();
        let [_, second, slowest] = sides;
        let odd = slowest > second.saturating_add(allowed_ns);
        odd.then_some(slowest == self.runahead_ns)
    }
}

/// What the rounds say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Runahead is the odd one no more often than one of three sides is.
    Kept,
    /// More often, and that may be chance.
    Undecided,
    /// More often than chance explains.
    Broken,
}

/// How often one side was slower than both others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excess {
    /// Rounds.
    pub rounds: usize,
    /// Rounds in which one side was.
    pub odd: usize,
    /// Rounds in which that was Runahead.
    pub runahead: usize,
    /// How probable that many or more of the odd rounds are by chance.
    pub chance: f64,
}

impl Excess {
    /// Counts.
    pub fn of(rounds: &[Round], allowed_ns: u64) -> Self {
        let odd: Vec<bool> = rounds.iter().filter_map(|round| round.odd(allowed_ns)).collect();
        let runahead = odd.iter().filter(|is_runahead| **is_runahead).count();
        Self {
            rounds: rounds.len(),
            odd: odd.len(),
            runahead,
            chance: at_least(runahead, odd.len()),
        }
    }

    /// What that means.
    pub fn verdict(&self) -> Verdict {
        match self {
            _ if 3 * self.runahead <= self.odd => Verdict::Kept,
            _ if self.chance < PROOF => Verdict::Broken,
            _ => Verdict::Undecided,
        }
    }
}

/// The probability of `count` or more of `of` events that have one third each.
fn at_least(count: usize, of: usize) -> f64 {
    const THIRD: f64 = 1.0 / 3.0;
    let mut exactly = (1.0 - THIRD).powi(i32::try_from(of).unwrap_or(i32::MAX));
    let mut fewer = 0.0;
    for k in 0..count {
        fewer += exactly;
        exactly *= (of - k) as f64 / (k + 1) as f64 * THIRD / (1.0 - THIRD);
    }
    (1.0 - fewer).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const ALLOWED_NS: u64 = 5_000_000;

    fn round(plain_ms: u64, control_ms: u64, runahead_ms: u64) -> Round {
        let [plain_ns, control_ns, runahead_ns] =
            [plain_ms, control_ms, runahead_ms].map(|ms| ms * 1_000_000);
        Round { plain_ns, control_ns, runahead_ns }
    }

    /// Slowest calls as they are measured: some 10 ms, one in ten twice that.
    fn noise(rng: &mut Rng) -> u64 {
        let usual = 8_000_000 + rng.below(3_000_000);
        if rng.below(10) == 0 { 2 * usual } else { usual }
    }

    fn verdict(rounds: usize, seed: u64, late: impl Fn(&mut Rng, u64) -> u64) -> Verdict {
        let mut rng = Rng::new(seed, "rounds");
        let rounds: Vec<Round> = (0..rounds)
            .map(|_| {
                let [plain_ns, control_ns, runahead_ns] = [(); 3].map(|()| noise(&mut rng));
                let runahead_ns = late(&mut rng, runahead_ns);
                Round { plain_ns, control_ns, runahead_ns }
            })
            .collect();
        Excess::of(&rounds, ALLOWED_NS).verdict()
    }

    #[test]
    fn the_odd_one_is_slower_than_both_others() {
        assert_eq!(round(10, 10, 15).odd(ALLOWED_NS), None, "5 ms are allowed");
        assert_eq!(round(10, 10, 16).odd(ALLOWED_NS), Some(true));
        assert_eq!(round(10, 20, 20).odd(ALLOWED_NS), None, "plain is as slow once");
        assert_eq!(round(10, 16, 10).odd(ALLOWED_NS), Some(false));
        assert_eq!(round(16, 16, 10).odd(ALLOWED_NS), None);
    }

    #[test]
    fn chances_are_the_binomial_distribution() {
        assert_eq!(at_least(0, 0), 1.0);
        assert!((at_least(1, 1) - 1.0 / 3.0).abs() < 1e-12);
        assert!((at_least(5, 5) - 1.0 / 243.0).abs() < 1e-12);
        assert!((at_least(2, 3) - 7.0 / 27.0).abs() < 1e-12);
    }

    #[test]
    fn few_odd_rounds_prove_nothing_and_five_alike_do() {
        let verdict = |rounds: &[Round]| Excess::of(rounds, ALLOWED_NS).verdict();
        assert_eq!(verdict(&[round(1, 1, 1); 5]), Verdict::Kept);
        assert_eq!(verdict(&[round(1, 1, 99)]), Verdict::Undecided);
        assert_eq!(verdict(&[round(1, 1, 7); 5]), Verdict::Broken);
        let mut mixed = vec![round(1, 1, 7), round(1, 7, 1), round(7, 1, 1)];
        assert_eq!(verdict(&mixed), Verdict::Kept);
        mixed.extend([round(1, 1, 7); 9]);
        assert_eq!(verdict(&mixed), Verdict::Broken);
    }

    /// Equal sides are not accused, however noisy; one that is later is found.
    #[test]
    fn noise_is_no_proof_and_lateness_is_found() {
        let broken = |rounds, late: fn(&mut Rng, u64) -> u64| {
            (0..200).filter(|seed| verdict(rounds, *seed, late) == Verdict::Broken).count()
        };
        assert!(broken(40, |_, usual| usual) <= 4);
        assert_eq!(broken(10, |_, usual| usual + 12_000_000), 200);
        assert!(broken(40, |_, usual| usual + 8_000_000) >= 195);
        // Late in one run of four.
        let rarely = |rng: &mut Rng, usual| match rng.below(4) {
            0 => usual + 20_000_000,
            _ => usual,
        };
        assert!(broken(40, rarely) >= 100);
    }
}
