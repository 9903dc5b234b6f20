//! Estimators against numbers whose answer is known.

use super::*;
use crate::random::Random;

fn exact(value: f64) -> Mean {
    Mean { value, variance: 1.0, count: 20 }
}

#[test]
fn trimming_takes_outliers_away() {
    let mut samples: Vec<f64> = (0..100).map(|i| 1000.0 + f64::from(i % 10)).collect();
    samples[3] = 1e9;
    samples[50] = 1e8;
    let mean = Mean::trimmed(&samples).unwrap();
    assert!((mean.value - 1004.5).abs() < 1.0, "{mean:?}");
    let estimate = mean.estimate();
    assert!(estimate.low < 1004.5 && 1004.5 < estimate.high, "{estimate:?}");
    assert_eq!(Mean::trimmed(&[]), None);
    assert_eq!(Mean::trimmed(&[7.0]).unwrap().value, 7.0);
}

#[test]
fn intervals_hold_what_they_promise() {
    let mut random = Random::new(1);
    let rounds = 2000;
    let covered = (0..rounds)
        .filter(|_| {
            let samples: Vec<f64> = (0..20).map(|_| random.share()).collect();
            let estimate = Mean::trimmed(&samples).unwrap().estimate();
            estimate.low <= 0.5 && 0.5 <= estimate.high
        })
        .count();
    // 95% of 2000 is 1900; the standard deviation of that count is 10.
    assert!((1840..=1960).contains(&covered), "{covered} of {rounds}");
}

#[test]
fn student_is_near_the_tables() {
    for (degrees, table) in [(2, 4.303), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)] {
        assert!((student(degrees) / table - 1.0).abs() < 0.006, "{degrees}: {}", student(degrees));
    }
}

#[test]
fn a_line_is_found_exactly() {
    let points = [1.0, 2.0, 5.0, 9.0].map(|x| (x, exact(3.0 + 2.0 * x)));
    let fit = line(&points, |_| 1.0).unwrap();
    assert!((fit.intercept.value - 3.0).abs() < 1e-9 && (fit.slope.value - 2.0).abs() < 1e-9);
    assert_eq!(line(&points[..1], |_| 1.0), None);
    assert_eq!(line(&[], |_| 1.0), None);
}

#[test]
fn requests_served_in_parts_are_left_out_of_the_line() {
    // 1 ms and 5 ns a byte up to 256 KiB, above that two servers.
    let time = |bytes: f64| 1e6 + 5.0 * if bytes > 262_144.0 { bytes / 2.0 } else { bytes };
    let points = [4096.0, 65_536.0, 131_072.0, 262_144.0, 524_288.0, 1_048_576.0]
        .map(|x| (x, exact(time(x))));
    let fit = requests(&points).unwrap();
    assert_eq!((fit.fitted, fit.larger), (4, Some(Larger::InParallel)));
    assert!((fit.line.intercept.value / 1e6 - 1.0).abs() < 1e-6);
    assert!((fit.line.slope.value - 5.0).abs() < 1e-6);
}

#[test]
fn requests_cut_into_pieces_are_left_out_of_the_line() {
    // 30 ms and 20 ns a byte, in pieces of 1 MiB one after the other.
    let piece = f64::from(1 << 20);
    let time = |bytes: f64| (bytes / piece).ceil() * 3e7 + 20.0 * bytes;
    let sizes = [4096.0, 65_536.0, 262_144.0, piece, 2.0 * piece, 4.0 * piece];
    let fit = requests(&sizes.map(|x| (x, exact(time(x))))).unwrap();
    assert_eq!((fit.fitted, fit.larger), (4, Some(Larger::InTurn)));
    assert!((fit.line.intercept.value / 3e7 - 1.0).abs() < 1e-6);
    assert!((fit.line.slope.value - 20.0).abs() < 1e-6);
    let fit = requests(&sizes.map(|x| (x, exact(3e7 + 20.0 * x)))).unwrap();
    assert_eq!((fit.fitted, fit.larger), (6, None), "all on one line");
}

fn disk_jumps(seed: u64) -> Vec<Jump> {
    let mut random = Random::new(seed);
    let mut jump = || {
        let distance = (random.share() - random.share()).abs();
        (distance, 8e5 + 1.2e7 * distance.sqrt() + 6e6 * random.share())
    };
    (0..600).map(|_| jump()).collect()
}

#[test]
fn the_seek_curve_comes_back() {
    let mean = 8e5 + 1.2e7 * 8.0 / 15.0;
    let mut covered = 0;
    for seed in 0..100 {
        let fit = seek(&disk_jumps(seed), Estimate::new(3e6, 0.0)).unwrap();
        assert!((fit.mean_ns.value / mean - 1.0).abs() < 0.05, "{fit:?}");
        assert!((fit.stroke_ns.value / 1.2e7 - 1.0).abs() < 0.15, "{fit:?}");
        covered += u32::from(fit.mean_ns.low < mean && mean < fit.mean_ns.high);
    }
    assert!(covered >= 85, "{covered} of 100 intervals hold the mean");
    let rereads = [6e6, 6.01e6, 6e6, 1.2e7, 5.99e6];
    assert!((revolution(&rereads, &disk_jumps(1)).unwrap().value / 6e6 - 1.0).abs() < 0.01);
}

#[test]
fn what_does_not_turn_has_no_curve() {
    let mut random = Random::new(4);
    let fixed: Vec<Jump> =
        (0..400).map(|_| (random.share(), 1.2e7 + 1e5 * random.share())).collect();
    assert_eq!(seek(&fixed, Estimate::default()), None);
    assert_eq!(revolution(&[1.2e7; 20], &fixed), None, "positioning is fixed");
    let jumps: Vec<Jump> = (0..400).map(|_| (0.5, 6e6 * random.share())).collect();
    assert_eq!(revolution(&[1e5; 20], &jumps), None, "a cache answered");
}

#[test]
fn the_rate_of_a_loop_leaves_out_its_ends() {
    // 8 readers of 1 ms each in lockstep, the last ones late.
    let mut completions: Vec<u64> = (0..800).map(|i| (i / 8 + 1) * 1_000_000).collect();
    completions[799] = 1_000_000_000;
    let rate = rate(&completions, 8).unwrap();
    assert!((rate.value / 8000.0 - 1.0).abs() < 0.02, "{rate:?}");
    assert_eq!(super::rate(&[1, 2, 3], 8), None);
}

#[test]
fn the_knee_is_where_more_brings_little() {
    let rates = [(1, 100.0), (2, 200.0), (4, 390.0), (8, 400.0), (16, 401.0)]
        .map(|(depth, rate)| (depth, Estimate::new(rate, 1.0)));
    assert_eq!(knee(&rates, 0.9), Some(4));
    assert_eq!(knee(&[], 0.9), None);
}
