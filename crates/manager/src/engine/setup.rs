//! How the policy is set up for a machine.

use runahead_policy::tip::{Config, Extensions, Parameters, Tip, Valuation};

use super::types::{CREDIT, Mode, Options};
use crate::geometry::Geometry;
use crate::layout::LiveLayout;
use crate::{BLOCK_BYTES, CLUSTER_BLOCKS};

pub(super) fn parameters(options: &Options, t_driver_ns: u64, t_disk_ns: u64) -> Parameters {
    let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX).max(1);
    Parameters {
        t_hit_us: options.t_hit_us.max(1),
        t_driver_us: us(t_driver_ns),
        t_disk_us: us(t_disk_ns),
    }
}

/// Accesses that are resolved at a time, by all processes of an engine together: each takes
/// some 180 bytes, all of them 90 MB.
pub(super) const RESOLVED_MAX: u64 = 500_000;

/// P̂ is bounded by what the array can use: at twice the prefetches that are outstanding at
/// a time, full clusters, its queues never run empty and CSCAN has some to sort.
fn horizon_max(options: &Options, geometry: &Geometry, buffers: u32) -> u64 {
    let in_flight = u64::from(geometry.disks) * u64::from(options.outstanding_per_disk);
    let useful = (2 * in_flight * u64::from(CLUSTER_BLOCKS)).max(64);
    useful.min(u64::from(buffers / 4)).max(1)
}

pub(super) fn make_tip(options: &Options, buffers: u32, geometry: &Geometry) -> Tip<LiveLayout> {
    let horizon_max = horizon_max(options, geometry, buffers);
    let mode = match options.mode {
        Mode::Full => runahead_policy::tip::Mode::CostBenefit,
        Mode::PrefetchOnly => {
            runahead_policy::tip::Mode::Static { depth: horizon_max, cluster_slack: 16 }
        }
        Mode::NoHints => runahead_policy::tip::Mode::NoPrefetch,
    };
    let config = Config {
        parameters: parameters(options, 5_000, u64::from(geometry.latency_us) * 1000),
        buffers,
        block_bytes: BLOCK_BYTES as u32,
        cluster_blocks: CLUSTER_BLOCKS,
        mode,
        valuation: Valuation::Tiptoe,
        extensions: Extensions { finite_disks: true, post_hint: true, process_horizon: false },
        // The kernel's own readahead serves unhinted reads.
        readahead: None,
        resolved_max: (u64::from(buffers) * 4).clamp(10_000, RESOLVED_MAX),
        resolved_total: RESOLVED_MAX,
        segments_max: 2 * CREDIT as usize,
        // Programs of today have caches of their own in front (Postgres had, section 3.4.7).
        match_window: 256,
        reserve: 16.min(buffers / 4),
        horizon_max,
        // A gap costs less than positioning; on an array its blocks lie on other disks.
        island_blocks: if geometry.disks == 1 { 2 * CLUSTER_BLOCKS } else { 0 },
        report_evictions: true,
        ..Config::thesis()
    };
    Tip::new(config, LiveLayout::new(geometry))
}
