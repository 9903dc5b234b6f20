//! Two programs at once, each on a processor of its own.

use anyhow::{Result, ensure};

use super::run_once;
use crate::process::{CommandSpec, Output};

/// Two processors of this session; none where there is one only.
pub fn two_processors() -> Option<[usize; 2]> {
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes a set of this size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return None;
    }
    // SAFETY: numbers within the set.
    let mut ours =
        (0..libc::CPU_SETSIZE as usize).filter(|&it| unsafe { libc::CPU_ISSET(it, &set) });
    Some([ours.next()?, ours.next()?])
}

/// This thread, and what it starts, stay on a processor.
fn stay_on(processor: usize) -> Result<()> {
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a number of `two_processors`.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the kernel reads a set of this size; concerns this thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    ensure!(result == 0, "stay on processor {processor}: {}", std::io::Error::last_os_error());
    Ok(())
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
