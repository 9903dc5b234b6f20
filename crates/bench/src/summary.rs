//! What several runs say together: median, spread, and bounds of a ratio.

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// Resamples of the bootstrap; the bounds move by well under 1% beyond this.
const RESAMPLES: usize = 2000;

/// Median and spread of one quantity over the runs of one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Middle value; the mean of the two middle ones for an even number.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Summary {
    /// Sums up `values`; none when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { count: sorted.len(), median: quantile(&sorted, 0.5)?, min, max })
    }

    /// (max − min) / median: how far the runs lie apart, relatively.
    pub fn relative_spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median }
    }
}

/// The values in ascending order. NaN sorts last and never occurs in a time.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The `q` quantile (0 to 1) of ascending values, linear between neighbours
/// (type 7 of Hyndman and Fan 1996); none when there are no values.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let share = position - position.floor();
    Some(sorted[low] + (sorted[high] - sorted[low]) * share)
}

/// A ratio of two medians with its 95% confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the numerators over median of the denominators.
    pub value: f64,
    /// Lower bound of the 95% interval.
    pub low: f64,
    /// Upper bound of the 95% interval.
    pub high: f64,
}

impl Ratio {
    /// The ratio of the medians of two sides. The interval is a percentile
    /// bootstrap (Efron 1979) from a fixed seed, so that the same runs always
    /// give the same bounds. None when a side is empty or a median is 0.
    pub fn of(numerators: &[f64], denominators: &[f64]) -> Option<Self> {
        let value = Summary::of(numerators)?.median / Summary::of(denominators)?.median;
        if !value.is_finite() {
            return None;
        }
        let mut rng = Rng::new(0, "bootstrap");
        let mut resample = |values: &[f64]| resampled_median(&mut rng, values);
        let ratios: Vec<f64> =
            (0..RESAMPLES).map(|_| resample(numerators) / resample(denominators)).collect();
        Self::within(value, &ratios)
    }

    /// The median of the ratios of pairs that were measured side by side, or one
    /// after the other, so that what slows the machine slows both; the interval as
    /// above, of the pairs. None when there is no pair or a ratio is no number.
    pub fn of_pairs(numerators: &[f64], denominators: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = numerators.iter().zip(denominators).map(|(n, d)| n / d).collect();
        if !ratios.iter().all(|ratio| ratio.is_finite()) {
            return None;
        }
        let mut rng = Rng::new(0, "bootstrap");
        let medians: Vec<f64> =
            (0..RESAMPLES).map(|_| resampled_median(&mut rng, &ratios)).collect();
        Self::within(quantile(&sorted(&ratios), 0.5)?, &medians)
    }

    /// A value and the middle 95% of what resampling gave for it.
    fn within(value: f64, resampled: &[f64]) -> Option<Self> {
        let resampled = sorted(resampled);
        Some(Self { value, low: quantile(&resampled, 0.025)?, high: quantile(&resampled, 0.975)? })
    }
}

/// The median of as many values, drawn from these with repetition.
fn resampled_median(rng: &mut Rng, values: &[f64]) -> f64 {
    let drawn: Vec<f64> = values.iter().map(|_| *rng.pick(values)).collect();
    quantile(&sorted(&drawn), 0.5).unwrap_or(f64::NAN)
}

/// A ratio of pairs of runs, what it is at least, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedRatio {
    /// Geometric mean of the ratios of the pairs.
    pub value: f64,
    /// Lower bound that holds in 95 of 100 cases (one-sided).
    pub low: f64,
    /// Upper bound that holds in 95 of 100 cases (one-sided).
    pub high: f64,
}

impl PairedRatio {
    /// The ratio of pairs that were measured side by side, so that what
    /// disturbs both does not count. The bounds are Student's, of the logarithms.
    /// None for fewer than two pairs.
    pub fn of(numerators: &[f64], denominators: &[f64]) -> Option<Self> {
        let logs: Vec<f64> = numerators
            .iter()
            .zip(denominators)
            .map(|(numerator, denominator)| (numerator / denominator).ln())
            .filter(|log| log.is_finite())
            .collect();
        let degrees = logs.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let error = (squares / degrees as f64 / logs.len() as f64).sqrt();
        let reach = student_95(degrees) * error;
        Some(Self { value: mean.exp(), low: (mean - reach).exp(), high: (mean + reach).exp() })
    }
}

/// The 95% quantile of Student's distribution.
fn student_95(degrees: usize) -> f64 {
    const TABLE: [f64; 15] = [
        6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
        1.761, 1.753,
    ];
    // Beyond the table the last value, a little too careful.
    TABLE[degrees.clamp(1, TABLE.len()) - 1]
}

/// Order statistics of the latencies of single calls, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Number of calls.
    pub count: u64,
    /// Median.
    pub median_ns: u64,
    /// 99.9th percentile (the largest value below 1000 calls).
    pub p999_ns: u64,
    /// Largest value.
    pub max_ns: u64,
}

impl Latencies {
    /// Sums up the latencies of calls; all zero when there are none.
    pub fn of(mut calls_ns: Vec<u64>) -> Self {
        calls_ns.sort_unstable();
        // Nearest rank, so that each figure is a latency that occurred.
        let at = |share_per_mille: usize| {
            let rank = (calls_ns.len() * share_per_mille).div_ceil(1000).max(1);
            calls_ns.get(rank - 1).copied().unwrap_or(0)
        };
        Self {
            count: calls_ns.len() as u64,
            median_ns: at(500),
            p999_ns: at(999),
            max_ns: at(1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_cancel_what_slows_both() {
        let plain: Vec<f64> = (0..20).map(|i| 1.0 + f64::from(i)).collect();
        let other: Vec<f64> = plain.iter().map(|time| time * 1.02).collect();
        let ratio = Ratio::of_pairs(&other, &plain).unwrap();
        assert!((ratio.value - 1.02).abs() < 1e-9 && ratio.high - ratio.low < 1e-9, "{ratio:?}");
        let unpaired = Ratio::of(&other, &plain).unwrap();
        assert!(unpaired.high - unpaired.low > 0.5, "{unpaired:?}");
        assert_eq!(Ratio::of_pairs(&[], &[]), None);
        assert_eq!(Ratio::of_pairs(&[1.0], &[0.0]), None);
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(Summary::of(&[]), None);
        let odd = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.count, odd.median, odd.min, odd.max), (3, 2.0, 1.0, 3.0));
        assert_eq!(odd.relative_spread(), 1.0);
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn quantiles_interpolate() {
        let values = [10.0, 20.0, 30.0];
        assert_eq!(quantile(&values, 0.0), Some(10.0));
        assert_eq!(quantile(&values, 0.25), Some(15.0));
        assert_eq!(quantile(&values, 1.0), Some(30.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn ratio_has_bounds_around_it() {
        let plain = [2.0, 2.1, 1.9, 2.2, 2.0];
        let ahead = [0.5, 0.52, 0.48, 0.5, 0.51];
        let ratio = Ratio::of(&plain, &ahead).unwrap();
        assert_eq!(ratio.value, 4.0);
        assert!(ratio.low <= 4.0 && 4.0 <= ratio.high, "{ratio:?}");
        assert!(ratio.low >= 1.9 / 0.52 && ratio.high <= 2.2 / 0.48, "{ratio:?}");
        assert_eq!(Ratio::of(&plain, &ahead), Some(ratio), "not reproducible");
        let exact = Ratio::of(&[1.0; 5], &[1.0; 5]).unwrap();
        assert_eq!((exact.low, exact.high), (1.0, 1.0));
        assert_eq!(Ratio::of(&[], &ahead), None);
        assert_eq!(Ratio::of(&plain, &[0.0]), None);
    }

    #[test]
    fn pairs_bound_their_ratio() {
        // Whatever slows both of a pair does not count.
        let pairs = PairedRatio::of(&[1.1, 2.2, 11.0], &[1.0, 2.0, 10.0]).unwrap();
        assert!((pairs.value - 1.1).abs() < 1e-9 && (pairs.low - 1.1).abs() < 1e-9);
        let noisy = PairedRatio::of(&[1.0, 1.2, 1.1], &[1.0; 3]).unwrap();
        assert!(noisy.low < 1.0 && noisy.value > 1.09, "{noisy:?}");
        assert_eq!(PairedRatio::of(&[1.0], &[1.0]), None);
        assert!(student_95(100) > 1.645);
    }

    #[test]
    fn latencies_are_values_that_occurred() {
        assert_eq!(Latencies::of(vec![]), Latencies::default());
        let one = Latencies::of(vec![5]);
        assert_eq!((one.count, one.median_ns, one.p999_ns, one.max_ns), (1, 5, 5, 5));
        let many = Latencies::of((1..=10_000).rev().collect());
        assert_eq!((many.median_ns, many.p999_ns, many.max_ns), (5000, 9990, 10_000));
    }
}
