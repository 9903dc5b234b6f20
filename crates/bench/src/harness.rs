//! Measures one case: both sides in one run, alternating, the caches emptied
//! before each, every output compared with the plain one's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::apps::{Case, Metadata, Setup};
use crate::ideal::{Demand, Ideal};
use crate::in_memory;
use crate::launch::{Launch, Measured, Side};
use crate::place::Place;
use crate::process;
use crate::progress::Progress;
use crate::results::{CaseResult, Mismatch, Run};
use crate::stranger::Stranger;
use crate::summary::quantile;

/// Longest time of a plain run: the longest case takes a few minutes.
const PLAIN_LIMIT: Duration = Duration::from_secs(3600);
/// A run under Runahead that takes longer than so many plain ones, and a
/// minute, hangs.
const HANG_FACTOR: f64 = 10.0;
const HANG_EXTRA: Duration = Duration::from_secs(60);

/// A case that takes less than this is timed under Runahead as a user starts
/// it, and counted in another run: where processors are busy, waits as short as
/// on flash, or the copy has all that a processor gives (small files through
/// overlayfs: 0.12 s in place of 0.10), collecting statistics takes time that is
/// seen. Of a minute it takes nothing that is.
const APART_BELOW: Duration = Duration::from_secs(30);

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Method<'a> {
    /// The `runahead` executable.
    pub runahead: &'a Path,
    /// Who runs the programs, if not this process's user.
    pub stranger: Option<&'a Stranger>,
    /// Further options of `runahead run`.
    pub run_options: &'a [String],
    /// Runs of each side, at least 1.
    pub runs: usize,
    /// Where outputs that differ are kept.
    pub keep: &'a Path,
}

/// What is being measured.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Where its data lies.
    pub place: &'a Place,
    /// What its data was made with.
    pub setup: &'a Setup,
    /// Name of the application.
    pub app: &'a str,
    /// Whether it reads through mapped memory, too.
    pub maps_data: bool,
    /// State of the metadata at the start of each run.
    pub metadata: Metadata,
}

/// Measures a case: one observed run for the plain side's stalls, then
/// `runs` of each side, alternating; which one is first alternates too, so
/// that neither always follows the other.
///
/// # Errors
/// If a run cannot be made at all, or the first fails by itself. Outputs that differ are no error: they are
/// in the result.
pub fn measure(
    case: &dyn Case,
    subject: &Subject<'_>,
    method: &Method<'_>,
    progress: &Progress,
) -> Result<CaseResult> {
    let mut result = CaseResult::new(subject, case);
    let mut limit = PLAIN_LIMIT;
    let mut reference: Option<Measured> = None;
    let mut ideals = Vec::new();
    let mut is_short = false;
    for index in 0..method.runs {
        let plain_first = [Side::Plain, Side::Runahead];
        let mut sides = plain_first.to_vec();
        // The first run is plain: the others are compared with it.
        if index % 2 == 1 {
            sides.reverse();
        }
        if index == 0 {
            sides.insert(1, Side::Observe);
        }
        for side in sides {
            progress.step(&format!("{} {:?} {}", result.title(), side, index + 1));
            let apart = is_short && side == Side::Runahead;
            let once = |counts| {
                run_once(case, subject, method, (side, counts), limit)
                    .with_context(|| format!("{}, {side:?} run {}", result.title(), index + 1))
            };
            let (mut measured, mut pages_in_memory) = once(!apart)?;
            if reference.is_none() && !case.is_good(&measured.digest) {
                let last_words = measured.output.last_words();
                return Err(process::failed(&measured.digest.status, &last_words));
            }
            if apart {
                let counted;
                (counted, pages_in_memory) = once(true)?;
                compare(&mut result, reference.as_ref(), &counted, side, index, method.keep)?;
                measured.statistics = counted.statistics;
            }
            compare(&mut result, reference.as_ref(), &measured, side, index, method.keep)?;
            let run = Run { pages_in_memory, ..Run::of(&measured) };
            if side == Side::Plain {
                ideals.push(ideal(case, subject.place, &measured)?);
                limit = Duration::from_secs_f64(measured.elapsed_s * HANG_FACTOR) + HANG_EXTRA;
                is_short = measured.elapsed_s < APART_BELOW.as_secs_f64();
                if index == 0 {
                    result.pages_read = pages_read(case, subject, method, limit)
                        .with_context(|| format!("{}, recorded", result.title()))?;
                }
            }
            result.add(side, run);
            if reference.is_none() {
                reference = Some(measured);
            }
        }
    }
    result.ideal = median_ideal(ideals);
    result.ratio = result.speedup();
    Ok(result)
}

/// One run on cold caches, and the pages of its data that are in memory then;
/// whether it counts is the second part of `side`.
fn run_once(
    case: &dyn Case,
    subject: &Subject<'_>,
    method: &Method<'_>,
    (side, counts): (Side, bool),
    limit: Duration,
) -> Result<(Measured, Option<u64>)> {
    subject.place.cold()?;
    if subject.metadata == Metadata::Warm {
        subject.place.warm_metadata(&subject.setup.directory)?;
    }
    let measured = case.run(&launch(subject, method, side, limit, counts, false))?;
    let directory = &subject.setup.directory;
    let in_memory = || in_memory::pages_in_memory(directory);
    // A program that maps data uses pages that nobody sees it use.
    let pages = if subject.maps_data { None } else { subject.place.untimed(in_memory)? };
    Ok((measured, pages))
}

/// Pages of the data that the program reads, from a run of which the reads are
/// recorded; the caches need not be cold. None where that does not show all of
/// them, or the program's user may not write where it is recorded.
fn pages_read(
    case: &dyn Case,
    subject: &Subject<'_>,
    method: &Method<'_>,
    limit: Duration,
) -> Result<Option<u64>> {
    if subject.maps_data || method.stranger.is_some() {
        return Ok(None);
    }
    let recorded = case.run(&launch(subject, method, Side::Observe, limit, false, true))?;
    let Some(recording) = recorded.recording else { return Ok(None) };
    in_memory::pages_read(&subject.setup.directory, &recording)
}

fn launch<'a>(
    subject: &Subject<'a>,
    method: &Method<'a>,
    side: Side,
    limit: Duration,
    counts: bool,
    records: bool,
) -> Launch<'a> {
    let Method { runahead, stranger, run_options, .. } = *method;
    let place = subject.place;
    Launch { side, runahead, stranger, run_options, counts, records, place, limit }
}

/// Compares a run's output with the first plain run's; where they differ, both
/// are kept for inspection.
fn compare(
    result: &mut CaseResult,
    reference: Option<&Measured>,
    measured: &Measured,
    side: Side,
    index: usize,
    keep: &Path,
) -> Result<()> {
    let Some(reference) = reference else { return Ok(()) };
    let differences = reference.digest.differences(&measured.digest);
    if differences.is_empty() {
        return Ok(());
    }
    let name = result.title().replace([' ', '/'], "-");
    let directory = keep.join(format!("mismatch-{name}-{side:?}-{}", index + 1));
    for (from, run) in [(reference, "plain"), (measured, "this")] {
        let to = directory.join(run);
        std::fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
        for stream in ["stdout", "stderr"] {
            std::fs::copy(from.output.path(stream), to.join(stream))
                .with_context(|| format!("keep the output in {}", to.display()))?;
        }
    }
    result.mismatches.push(Mismatch { side, run: index + 1, differences, kept: directory });
    Ok(())
}

fn ideal(case: &dyn Case, place: &Place, measured: &Measured) -> Result<Ideal> {
    let demand = Demand {
        cpu_s: measured.usage.cpu_s,
        first_thread_s: measured.first_thread.map(|thread| thread.running_s),
        elapsed_s: Some(measured.elapsed_s),
        device_cpu_s: measured.counts.device_cpu_ns as f64 / 1e9,
        reads: measured.counts.reads as f64,
        bytes: measured.counts.bytes_read as f64,
        busy_s: measured.counts.busy_ns.map(|ns| ns as f64 / 1e9),
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Ideal::in_phases(&demand, &place.device(), cpus, &case.phases(measured)?))
}

/// The ideal whose time is the median.
fn median_ideal(mut ideals: Vec<Ideal>) -> Option<Ideal> {
    ideals.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let ranks: Vec<f64> = (0..ideals.len()).map(|rank| rank as f64).collect();
    let middle = quantile(&ranks, 0.5)?.floor() as usize;
    ideals.get(middle).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ideal::Bound;

    #[test]
    fn the_middle_ideal_is_taken() {
        let ideal = |seconds| Ideal {
            seconds,
            cpu_s: 0.0,
            bandwidth_s: 0.0,
            latency_s: seconds,
            bound: Bound::Latency,
        };
        let of = |times: &[f64]| median_ideal(times.iter().map(|t| ideal(*t)).collect());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]).unwrap().seconds, 2.0);
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).unwrap().seconds, 2.0);
    }
}
