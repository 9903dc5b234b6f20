//! Two programs at once, each on a processor of its own.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::run_once;
use crate::process::{CommandSpec, Output};

/// Two processors of this session; none where there is one only.
pub fn two_processors() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut ours = (0..CpuSet::MAX_CPU).filter(|&it| allowed.is_set(it));
    Some([ours.next()?, ours.next()?])
}

/// This thread, and what it starts, stay on a processor.
fn stay_on(processor: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).with_context(|| format!("stay on processor {processor}"))
}

/// Runs two commands at once, each on a processor: what [`run_once`] says.
pub fn at_once(specs: [&CommandSpec; 2], processors: [usize; 2]) -> Result<[(f64, String); 2]> {
    let outputs = [Output::new()?, Output::new()?];
    let one = &|index: usize| {
        stay_on(processors[index])?;
        run_once(specs[index], &outputs[index])
    };
    let [first, second] = std::thread::scope(|scope| {
        [0, 1]
            .map(|index| scope.spawn(move || one(index)))
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Ok([first?, second?])
}
