//! From samples to parameters. Pure: no I/O, no clock.
//!
//! Samples of a live system have outliers, always upwards: means are trimmed
//! by a tenth on either side. Intervals are 95%, from the variance of the
//! samples and Student's t; they say how well the samples agree, not whether
//! the machine was quiet.

use serde::{Deserialize, Serialize};

/// A value with its 95% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// Best estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// A value and half the width of its interval.
    pub fn new(value: f64, half_width: f64) -> Self {
        Self { value, low: value - half_width, high: value + half_width }
    }

    /// Half the width of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The estimate of the value multiplied by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self::new(self.value * factor, self.half_width() * factor.abs())
    }

    /// The difference of two independent estimates.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self::new(self.value - other.value, self.half_width().hypot(other.half_width()))
    }

    /// The product of two independent estimates.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let relative = self.relative().hypot(other.relative());
        let value = self.value * other.value;
        Self::new(value, (value * relative).abs())
    }

    /// The quotient of two independent estimates.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        let relative = self.relative().hypot(other.relative());
        let value = self.value / other.value;
        Self::new(value, (value * relative).abs())
    }

    /// The reciprocal.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self::new(1.0, 0.0).over(self)
    }

    /// Half width as a share of the value.
    pub fn relative(&self) -> f64 {
        if self.value == 0.0 { 0.0 } else { (self.half_width() / self.value).abs() }
    }

    /// Never below zero: for quantities that cannot be.
    #[must_use]
    pub fn at_least_zero(self) -> Self {
        Self { value: self.value.max(0.0), low: self.low.max(0.0), high: self.high.max(0.0) }
    }
}

/// Mean of samples, and the variance of that mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Variance of the mean (not of a sample).
    pub variance: f64,
    /// Samples that it is made of.
    pub count: usize,
}

impl Mean {
    /// Mean without the lowest and the highest tenth; `None` without samples.
    ///
    /// The variance of a trimmed mean is that of the winsorised samples
    /// divided by (1 − 2·0.1)²·n (Tukey and McLaughlin 1963).
    pub fn trimmed(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let cut = count / 10;
        let (first, last) = (*sorted.get(cut)?, *sorted.get(count - 1 - cut)?);
        let kept = &sorted[cut..count - cut];
        let value = kept.iter().sum::<f64>() / kept.len() as f64;
        let winsorised: Vec<f64> = sorted.iter().map(|sample| sample.clamp(first, last)).collect();
        let center = winsorised.iter().sum::<f64>() / count as f64;
        let squares: f64 = winsorised.iter().map(|sample| (sample - center).powi(2)).sum();
        let share_kept = kept.len() as f64 / count as f64;
        let variance = squares / (count.max(2) - 1) as f64 / count as f64 / share_kept.powi(2);
        Some(Self { value, variance, count })
    }

    /// With its interval.
    pub fn estimate(&self) -> Estimate {
        Estimate::new(self.value, student(self.count.saturating_sub(1)) * self.variance.sqrt())
    }
}

/// Two-sided 95% quantile of Student's t; within 0.5% of the tables from 2
/// degrees of freedom on (Cornish-Fisher expansion around 1.96).
pub fn student(degrees: usize) -> f64 {
    match degrees {
        0 | 1 => 12.706,
        2 => 4.303,
        3 => 3.182,
        4 => 2.776,
        5 => 2.571,
        _ => {
            let (z, n) = (1.959_964_f64, degrees as f64);
            z + (z.powi(3) + z) / (4.0 * n)
                + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        }
    }
}

/// y = intercept + slope·x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// y at x = 0.
    pub intercept: Estimate,
    /// Change of y with x.
    pub slope: Estimate,
}

/// A point of a fit: x, and the mean of y there.
pub type Point = (f64, Mean);

/// Least squares over means, each weighted by `weight`.
///
/// Points differ in their own noise, so the intervals come from the variance
/// of each point, passed on through the solution, and not from the residuals.
/// `None` with fewer than two different x.
pub fn line(points: &[Point], weight: impl Fn(&Point) -> f64) -> Option<Line> {
    let weights: Vec<f64> = points.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let center = points.iter().zip(&weights).map(|((x, _), w)| w * x).sum::<f64>() / total;
    let spread: f64 = points.iter().zip(&weights).map(|((x, _), w)| w * (x - center).powi(2)).sum();
    if spread <= 0.0 || spread.is_nan() {
        return None;
    }
    let (mut slope, mut slope_variance) = (0.0, 0.0);
    let (mut intercept, mut intercept_variance) = (0.0, 0.0);
    for ((x, mean), w) in points.iter().zip(&weights) {
        let to_slope = w * (x - center) / spread;
        let to_intercept = w / total - center * to_slope;
        slope += to_slope * mean.value;
        slope_variance += to_slope.powi(2) * mean.variance;
        intercept += to_intercept * mean.value;
        intercept_variance += to_intercept.powi(2) * mean.variance;
    }
    let samples: usize = points.iter().map(|(_, mean)| mean.count).sum();
    let t = student(samples.saturating_sub(2));
    Some(Line {
        intercept: Estimate::new(intercept, t * intercept_variance.sqrt()),
        slope: Estimate::new(slope, t * slope_variance.sqrt()),
    })
}

/// Latency and bandwidth of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFit {
    /// Time of a request of no bytes, ns, and ns per byte.
    pub line: Line,
    /// Number of points, from the smallest size on, that the line fits.
    pub fitted: usize,
    /// What becomes of larger requests; `None` where all lie on the line.
    pub larger: Option<Larger>,
}

/// What becomes of requests that are too large to be served as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Larger {
    /// Served in parts, at the same time.
    InParallel,
    /// Served in pieces, one after the other.
    InTurn,
}

/// A point must be this much below the line (or the line below it), and this
/// many standard errors, to count as served in parts.
const SPLIT_SHARE: f64 = 0.93;
const SPLIT_ERRORS: f64 = 3.0;
/// Points that the line begins with.
const FIT_POINTS_MIN: usize = 3;

/// Fits time over size (ns over bytes, ascending), from the smallest size as
/// far as the points stay on a line.
///
/// A request above the stripe unit of an array, or above what the kernel or
/// the network passes on in one piece, is served by several servers at once
/// and takes less than the line says; or, where the pieces follow each other
/// (a file system in user space), more: those points show another parameter
/// and would spoil both of these. Weights are 1/y²: equal relative errors.
pub fn requests(points: &[Point]) -> Option<RequestFit> {
    let weight = |point: &Point| 1.0 / point.1.value.max(1.0).powi(2);
    let mut fitted = points.len().min(FIT_POINTS_MIN);
    let mut larger = None;
    while let Some((x, mean)) = points.get(fitted) {
        let so_far = line(&points[..fitted], weight)?;
        let predicted = so_far.intercept.value + so_far.slope.value * x;
        // How uncertain the prediction is: nearly all of it is the slope's.
        let error = (mean.variance + (so_far.slope.half_width() * x / 2.0).powi(2)).sqrt();
        let is_sure = (predicted - mean.value).abs() > SPLIT_ERRORS * error;
        if is_sure && mean.value < SPLIT_SHARE * predicted {
            larger = Some(Larger::InParallel);
            break;
        }
        if is_sure && predicted < SPLIT_SHARE * mean.value {
            larger = Some(Larger::InTurn);
            break;
        }
        fitted += 1;
    }
    Some(RequestFit { line: line(&points[..fitted], weight)?, fitted, larger })
}

/// A random read: how far from the end of the last one, as a share of the
/// whole, and its time in ns.
pub type Jump = (f64, f64);

/// Seek time a + b·√distance, and the rotation that comes on top.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekFit {
    /// a: shortest seek, ns.
    pub shortest_ns: Estimate,
    /// b: a full stroke is a + b, ns.
    pub stroke_ns: Estimate,
    /// Mean over two independent places, a + b·8/15, ns.
    pub mean_ns: Estimate,
}

/// Fits the positioning time of jumps, of which `fixed_ns` (mean rotation and
/// transfer) is no seek. `None` where the time does not depend on the distance.
pub fn seek(jumps: &[Jump], fixed_ns: Estimate) -> Option<SeekFit> {
    let groups = by_distance(jumps, 16);
    let fit = line(&groups, |_| 1.0)?;
    let mean_ns = groups.iter().map(|(_, mean)| mean.value).sum::<f64>() / groups.len() as f64;
    if fit.slope.low <= 0.0 || fit.slope.value < 0.1 * mean_ns {
        return None;
    }
    // E[√|u − v|] of two uniform places is 8/15.
    let at_mean: Vec<Point> = groups.iter().map(|(x, mean)| (x - 8.0 / 15.0, *mean)).collect();
    let mean = line(&at_mean, |_| 1.0)?.intercept;
    Some(SeekFit {
        shortest_ns: fit.intercept.minus(fixed_ns).at_least_zero(),
        stroke_ns: fit.slope,
        mean_ns: mean.minus(fixed_ns).at_least_zero(),
    })
}

/// Jumps in `count` groups of equal √distance: (mean √distance, mean time).
pub fn by_distance(jumps: &[Jump], count: usize) -> Vec<Point> {
    let mut groups = vec![(Vec::new(), Vec::new()); count];
    for (distance, time) in jumps {
        let root = distance.clamp(0.0, 1.0).sqrt();
        let group = ((root * count as f64) as usize).min(count - 1);
        groups[group].0.push(root);
        groups[group].1.push(*time);
    }
    // The spread of the rotation cannot be told from one or two samples.
    groups
        .iter()
        .filter(|(roots, _)| roots.len() >= 3)
        .filter_map(|(roots, times)| {
            let root = roots.iter().sum::<f64>() / roots.len() as f64;
            Some((root, Mean::trimmed(times)?))
        })
        .collect()
}

/// Time of one revolution, from the times between completions of reads of the
/// same place and the spread of random reads. `None` where nothing turns, or
/// where a cache in the device answers the second read.
///
/// A disk serves a place again after exactly one revolution, and random reads
/// then spread by as much (uniformly: the middle half of them by half of it).
/// Storage whose positioning takes a fixed time shows the first, not the second.
pub fn revolution(rereads_ns: &[f64], jumps: &[Jump]) -> Option<Estimate> {
    let period = median(rereads_ns)?;
    let near = rereads_ns.iter().filter(|time| (*time / period - 1.0).abs() < 0.1);
    let spread = spread(jumps)?;
    if near.clone().count() * 2 < rereads_ns.len() || spread < period / 3.0 || period < 5e5 {
        return None;
    }
    let near: Vec<f64> = near.copied().collect();
    Some(Mean::trimmed(&near)?.estimate())
}

/// Width of the middle half of the times that remain when the dependence on
/// distance is taken out, ns.
fn spread(jumps: &[Jump]) -> Option<f64> {
    let times: Vec<Point> = jumps
        .iter()
        .map(|(distance, time)| (distance.sqrt(), Mean { value: *time, variance: 0.0, count: 1 }))
        .collect();
    let fit = line(&times, |_| 1.0)?;
    let mut rest: Vec<f64> =
        times.iter().map(|(x, mean)| mean.value - fit.slope.value * x).collect();
    rest.sort_by(f64::total_cmp);
    Some(rest.get(rest.len() * 3 / 4)? - rest.get(rest.len() / 4)?)
}

/// Middle value; the lower of two.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Requests per second of a closed loop of `depth` readers, from the times of
/// completion in ns. The first and the last `depth` completions are left out:
/// then not all of the readers were at work. Batch means give the interval.
pub fn rate(completions_ns: &[u64], depth: usize) -> Option<Estimate> {
    const BATCHES: usize = 4;
    let mut sorted = completions_ns.to_vec();
    sorted.sort_unstable();
    let steady = sorted.get(depth.saturating_sub(1)..sorted.len().checked_sub(depth)?)?;
    let count = steady.len().checked_sub(1).filter(|count| *count > 0)?;
    let span_ns = (steady[count] - steady[0]).max(1);
    let value = count as f64 * 1e9 / span_ns as f64;
    let batch = count / BATCHES;
    if batch == 0 {
        return Some(Estimate::new(value, value / (count as f64).sqrt()));
    }
    let rates: Vec<f64> = (0..BATCHES)
        .map(|index| {
            let span_ns = (steady[(index + 1) * batch] - steady[index * batch]).max(1);
            batch as f64 * 1e9 / span_ns as f64
        })
        .collect();
    let mean = rates.iter().sum::<f64>() / BATCHES as f64;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    let error = (squares / (BATCHES - 1) as f64 / BATCHES as f64).sqrt();
    Some(Estimate::new(value, student(BATCHES - 1) * error))
}

/// Smallest depth that reaches `share` of the highest rate.
pub fn knee(rates: &[(u32, Estimate)], share: f64) -> Option<u32> {
    let best = rates.iter().map(|(_, rate)| rate.value).fold(0.0, f64::max);
    rates.iter().find(|(_, rate)| rate.value >= share * best).map(|(depth, _)| *depth)
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
