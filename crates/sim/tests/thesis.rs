//! The simulator against the thesis's figures, at one seed.

use runahead_sim::Report;
use runahead_sim::scenario::{Policy, Scenario};
use runahead_sim::tables::{SWEEP_DEPTHS, pairs, singles, sweep};
use runahead_sim::thesis::{DISKS, PAIRS};
use runahead_sim::workload::App;

const SEED: u64 = 1;

fn run(app: App, policy: Policy, disks: u16) -> Report {
    Scenario::single(app, policy, disks, SEED).run()
}

/// Table 6.25: seven applications × five arrays × NC and TIP.
#[test]
fn fractions_of_no_hints_are_near_table_6_25() {
    let policies = [Policy::Nc { depth: 73 }, Policy::Tip];
    let found = singles(&App::ALL, &policies, &DISKS, &[SEED], |_, _| {});
    assert_eq!(found.cells.iter().filter(|cell| cell.thesis.is_some()).count(), 70);
    assert!(found.mean_difference <= 0.05, "mean {}", found.mean_difference);
    assert!(found.worst_difference <= 0.15, "worst {}", found.worst_difference);
}

/// Table 6.26: three pairs × five arrays × who hints.
#[test]
fn pairs_are_near_table_6_26() {
    let found = pairs(Policy::Tip, &DISKS, &[SEED], |_, _| {});
    assert_eq!(found.cells.iter().filter(|cell| cell.thesis.is_some()).count(), 45);
    assert!(found.mean_difference <= 0.08, "mean {}", found.mean_difference);
}

/// "P̂ = 73 captures nearly all stall reduction in every sweep": at least four fifths of what
/// depths up to 256 reach in each, nineteen twentieths on average.
#[test]
fn depth_sweeps_flatten_at_the_horizon() {
    let mut all = Vec::new();
    for app in App::ALL {
        for disks in DISKS {
            let points = sweep(app, disks, &SWEEP_DEPTHS, SEED);
            let stall = |depth| points.iter().find(|point| point.depth == depth).unwrap().stall_s;
            let least = points.iter().map(|point| point.stall_s).fold(f64::INFINITY, f64::min);
            let reduction = stall(0) - least;
            if reduction > 0.05 * stall(0) {
                let captured = (stall(0) - stall(73)) / reduction;
                assert!(captured > 0.8, "{app} on {disks}: {captured:.2} of the reduction at 73");
                all.push(captured);
            }
        }
    }
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    assert!(all.len() > 30 && mean > 0.95, "{mean:.3} in {} sweeps", all.len());
}

/// With the extensions no cell is slower than 1.02 of TIP, and constrained disks are faster.
#[test]
fn the_extensions_do_no_harm_and_help_where_disks_are_scarce() {
    let mut cells: Vec<Vec<(App, bool)>> = App::ALL.iter().map(|&app| vec![(app, true)]).collect();
    for row in &PAIRS {
        for hints in [(true, false), (false, true), (true, true)] {
            cells.push(vec![(row.apps.0, hints.0), (row.apps.1, hints.1)]);
        }
    }
    let (mut log_sum_one_disk, mut one_disk) = (0.0_f64, 0.0);
    for apps in cells {
        for disks in DISKS {
            let us = |policy| {
                let seeds = [1, 2, 3];
                runahead_sim::tables::elapsed_us(&apps, policy, disks, &seeds)
            };
            let ratio = us(Policy::Extended) / us(Policy::Tip);
            assert!(ratio <= 1.02, "{apps:?} on {disks} disks: {ratio:.3}");
            if disks == 1 {
                log_sum_one_disk += ratio.ln();
                one_disk += 1.0;
            }
        }
    }
    let mean: f64 = (log_sum_one_disk / one_disk).exp();
    assert!(mean < 0.95, "on one disk {mean:.3} of TIP's time");
}

/// Section 6.3.1: caching keeps a part of Davidson's matrix that LRU cannot keep.
#[test]
fn caching_multiplies_the_reuse_of_davidson() {
    let no_hints = run(App::Davidson, Policy::Nh, 1).stats;
    let tip = run(App::Davidson, Policy::Tip, 1).stats;
    // Table 6.2: 21,381 and 96,159 with the faults; 124,879 and 50,845 prefetched.
    assert!(tip.reuse_hits > 4 * no_hints.reuse_hits);
    assert!((45_000..57_000).contains(&tip.prefetched_blocks), "{}", tip.prefetched_blocks);
    assert!((118_000..131_000).contains(&no_hints.prefetched_blocks));
}

/// Tables 6.14 and 6.15: clusters are larger with all hints than within the horizon.
#[test]
fn clustering_and_scheduling_serve_postgres() {
    let no_depth = run(App::Postgres80, Policy::Nc { depth: 0 }, 1);
    let static_depth = run(App::Postgres80, Policy::Nc { depth: 73 }, 1);
    let tip = run(App::Postgres80, Policy::Tip, 1);
    let cluster = |r: &Report| r.stats.prefetched_blocks as f64 / r.stats.prefetch_ios as f64;
    assert!(cluster(&static_depth) < 1.15 && cluster(&tip) > 1.6);
    let per_block = |r: &Report| r.disk_total().busy_us as f64 / r.disk_total().blocks as f64;
    assert!(per_block(&static_depth) < 0.85 * per_block(&no_depth));
    assert!(per_block(&tip) < 0.85 * per_block(&static_depth));
}

/// No policy fetches less than Belady's or runs faster than the bound.
#[test]
fn nothing_beats_the_offline_bounds() {
    for app in App::ALL {
        for policy in Policy::ALL {
            let scenario = Scenario::single(app, policy, 4, SEED);
            let report = scenario.run();
            let bounds = scenario.bounds();
            let fetched = report.stats.prefetched_blocks + report.stats.misses;
            assert!(fetched >= bounds.min_fetches, "{app} {policy}: {fetched} {bounds:?}");
            assert!(report.elapsed_us >= bounds.elapsed_us, "{app} {policy}: {bounds:?}");
        }
    }
}
