//! Whether there is a processor for the speculative process: it runs on idle
//! cycles only.

use super::ending::scout_beside;
use super::{idle, quota};
use crate::arch::{nr, ticks};
use crate::config::CONFIG;
use crate::procfs;
use crate::state::State;
use crate::sys::{self, call};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use runahead_policy::ration::Processors;
use runahead_protocol::session::Mode;

/// Whether a processor would be idle while this thread waits.
///
/// Over the last [`IDLE_INTERVAL_NS`] or more, from the idle time of the processors
/// that this process may run on; before that much is known, from the number of
/// runnable threads beside the machine's processors, which is strict: whoever serves
/// the read just started is among them. What this
/// program's copies take they take from nobody, and is idle time, too, but not
/// what scouts at its own priority take. On a single processor what is left of
/// it would say nothing, so there only a copy's outcome decides. Idle where
/// unknown.
///
/// Busy, too, where the program's cgroup has a quota and most of that is taken
/// ([`quota`]): looked for when the first copy is made, which costs ten times that look.
pub fn idle_processors(state: &State, now_ns: u64) -> Processors {
    let cpus = processors(&state.cpus);
    let copies = state.epoch.load(Relaxed) != 0;
    if cpus == 1 && !(copies && quota::is_set()) {
        return Processors::Idle;
    }
    let since_ns = state.idle_asked_ns.load(Relaxed);
    let passed_ns = now_ns.saturating_sub(since_ns);
    if since_ns == 0 || is_look_due(state, now_ns) {
        let Some(idle_cs) = idle_time_cs(state) else { return Processors::Idle };
        let before_cs = state.idle_cs.swap(idle_cs, Relaxed);
        let ended_ns = state.idle_cpu_us.load(Relaxed).saturating_mul(1000);
        let copies_ns = copies_since(state, ended_ns.saturating_add(living_copy_ns(state)));
        state.idle_asked_ns.store(now_ns, Relaxed);
        state.idle_asked_ticks.store(ticks(), Relaxed);
        if since_ns != 0 {
            let idle_ns = idle_cs.saturating_sub(before_cs).saturating_mul(10_000_000);
            let idle = cpus == 1 || idle_ns.saturating_add(copies_ns) >= passed_ns / IDLE_SHARE;
            let idle = idle && !(copies && quota::is_spent(now_ns) == Some(true));
            state.idle_verdict.store(if idle { VERDICT_IDLE } else { VERDICT_BUSY }, Relaxed);
        }
    }
    match state.idle_verdict.load(Relaxed) {
        VERDICT_IDLE => Processors::Idle,
        VERDICT_BUSY => Processors::Busy,
        _ if count(state, cpus, now_ns) => Processors::BusyNow,
        _ => Processors::Idle,
    }
}

/// Processor time that copies have taken since the last look, of `total_ns` in
/// all that are known of. One that has been killed is not, until it is reaped:
/// what it took before is not counted again then.
fn copies_since(state: &State, total_ns: u64) -> u64 {
    total_ns.saturating_sub(state.idle_copies_ns.fetch_max(total_ns, Relaxed))
}

/// Processor time of the copy that there is, in ns.
fn living_copy_ns(state: &State) -> u64 {
    match state.speculative.load(Relaxed) {
        0 => 0,
        scout if scout_beside(state, scout).is_some() => 0,
        copy => sys::process_cpu_ns(copy as u32),
    }
}

/// Whether the processors were busy when they were last looked at.
pub fn are_busy(state: &State) -> bool {
    matches!(state.idle_verdict.load(Relaxed), VERDICT_BUSY | VERDICT_BUSY_NOW)
}

/// Whether they were, at a look or a count that is not to be repeated yet.
pub fn holds_busy(state: &State, now_ns: u64) -> bool {
    let counted_ns = state.idle_counted_ns.load(Relaxed);
    match state.idle_verdict.load(Relaxed) {
        VERDICT_BUSY => !is_look_due(state, now_ns),
        // The first look must be made for the second to tell anything.
        VERDICT_BUSY_NOW => {
            state.idle_asked_ns.load(Relaxed) != 0
                && !is_look_due(state, now_ns)
                && now_ns.saturating_sub(counted_ns) < count_interval_ns(state)
        }
        _ => false,
    }
}

/// The same for a process of which the first read is about to be asked about:
/// it counts who is runnable, lest the first 60 ms of a process, which are all
/// that many have, go by as if nobody were.
pub fn are_busy_at_first(state: &State) -> bool {
    let speculates = CONFIG.mode.load(Relaxed) == Mode::Speculate as u32;
    if speculates && state.idle_counted_ns.load(Relaxed) == 0 {
        let cpus = processors(&state.cpus);
        return cpus != 1 && count_undisturbed(state, cpus);
    }
    are_busy(state)
}

/// Whether more threads are runnable than there are processors, counted at
/// most once in [`count_interval_ns`]: what is believed before idle time tells.
/// Not beside a scout, whose readers would be counted; when it was made, a
/// processor was idle.
fn count(state: &State, cpus: u32, now_ns: u64) -> bool {
    if state.scouts.load(Relaxed) != 0 {
        return false;
    }
    let counted_ns = state.idle_counted_ns.load(Relaxed);
    if counted_ns == 0 || now_ns.saturating_sub(counted_ns) >= count_interval_ns(state) {
        state.idle_counted_ns.store(now_ns.max(1), Relaxed);
        state.idle_counted_ticks.store(ticks(), Relaxed);
        // They are the whole machine's, and so are the processors that they want.
        let busy = runnable().is_some_and(|threads| threads > cpus && threads > online(state));
        let counts = if busy { state.idle_counts.load(Relaxed).saturating_add(1) } else { 0 };
        state.idle_counts.store(counts, Relaxed);
        state.idle_verdict.store(if busy { VERDICT_BUSY_NOW } else { 0 }, Relaxed);
    }
    state.idle_verdict.load(Relaxed) == VERDICT_BUSY_NOW
}

/// The same where no lock is held, and signals come: a handler that left by `longjmp`, or
/// a cancellation, would leave the file open.
fn count_undisturbed(state: &State, cpus: u32) -> bool {
    sys::undisturbed(|| count(state, cpus, sys::now_ns()))
}

/// How long a count holds, in ns: twice as long after each in a row that found the
/// processors busy.
fn count_interval_ns(state: &State) -> u64 {
    let before = state.idle_counts.load(Relaxed).saturating_sub(1);
    COUNT_INTERVAL_NS << before.min(COUNT_DOUBLINGS_MAX)
}

/// Whether the last look at the processors is as old as one may be.
pub fn is_look_due(state: &State, now_ns: u64) -> bool {
    now_ns.saturating_sub(state.idle_asked_ns.load(Relaxed)) >= IDLE_INTERVAL_NS
}

/// The same by the time-stamp counter, in place of a call.
pub fn is_look_overdue(state: &State) -> bool {
    match us_since(&state.idle_asked_ticks) {
        Some(us) => us >= IDLE_INTERVAL_NS / 1000,
        None => is_look_due(state, sys::now_ns()),
    }
}

/// Whether processors that more threads wanted than there are have become idle,
/// while reads are only timed: counted where a count is due, by the time-stamp
/// counter. A program of several threads is often itself who wants them, for
/// moments.
pub fn are_idle_again(state: &State) -> bool {
    is_idle_again(state, us_since(&state.idle_counted_ticks))
}

fn is_idle_again(state: &State, counted_us: Option<u64>) -> bool {
    let due = counted_us.is_some_and(|us| us >= count_interval_ns(state) / 1000);
    state.idle_verdict.load(Relaxed) == VERDICT_BUSY_NOW
        && due
        && !count_undisturbed(state, processors(&state.cpus))
}

/// Time since `then`, in µs; `None` where the counter's rate is not known.
pub fn us_since(then: &AtomicU64) -> Option<u64> {
    let passed = ticks().wrapping_sub(then.load(Relaxed));
    passed.checked_div(CONFIG.ticks_per_us.load(Relaxed))
}

/// Of [`State::idle_verdict`].
const VERDICT_IDLE: u32 = 1;
/// Of [`State::idle_verdict`].
const VERDICT_BUSY: u32 = 2;
/// Of [`State::idle_verdict`].
const VERDICT_BUSY_NOW: u32 = 3;

/// Shortest time from one count of the runnable threads to the next, in ns: a
/// count takes as long as a few reads, and on flash there are ten stalls in so
/// much time.
const COUNT_INTERVAL_NS: u64 = 1_000_000;

/// How often it is doubled: each count goes the whole way of a stall, some thirty
/// system calls.
const COUNT_DOUBLINGS_MAX: u32 = 4;

/// Shortest interval over which idle time is judged, in ns; /proc/uptime
/// counts in 10 ms.
const IDLE_INTERVAL_NS: u64 = 60_000_000;

/// A tenth of one processor idle is enough to run ahead on.
const IDLE_SHARE: u64 = 10;

/// Processors of a machine up to which each one's times are read: /proc/stat takes 10 µs with
/// two, /proc/uptime 6, but more with each. Where there are more of them, it hardly comes to
/// pass that somebody waits for storage in every one.
const TOLD_APART_MAX: u32 = 16;

/// Idle time since boot of the processors that this process may run on, in 10 ms. One in
/// which somebody waits for storage is idle, too: with as many programs as processors that
/// wait for one device, none would be.
fn idle_time_cs(state: &State) -> Option<u64> {
    let online = online(state);
    if processors(&state.cpus) < online || online <= TOLD_APART_MAX {
        idle_time_of_own_cs()
    } else {
        idle::of_all_cs()
    }
}

/// By itself, as [`count_own`].
#[inline(never)]
fn idle_time_of_own_cs() -> Option<u64> {
    idle::of_cs(&affinity())
}

/// How many processors are online, this process's or not; 0 where that is not known.
fn online(state: &State) -> u32 {
    let known = state.online_plus1.load(Relaxed);
    if known != 0 {
        return known - 1;
    }
    let online = idle::online().unwrap_or(0).min(u32::MAX - 1);
    state.online_plus1.store(online + 1, Relaxed);
    online
}

/// Threads runnable now, this one included (proc_loadavg(5)).
fn runnable() -> Option<u32> {
    let mut text = [0u8; 64];
    // "0.20 0.18 0.12 1/80 11206": the fourth field, before the slash.
    let text = procfs::read(b"/proc/loadavg\0", &mut text)?;
    let field = text.split(|&byte| byte == b' ').nth(3)?;
    let runnable = procfs::decimal(field.split(|&byte| byte == b'/').next()?)?;
    u32::try_from(runnable).ok()
}

/// How many processors this process may run on.
pub fn processors(cache: &AtomicU32) -> u32 {
    let known = cache.load(Relaxed);
    if known != 0 { known } else { count_own(cache) }
}

/// By itself: elsewhere the stack need not have room for it.
#[inline(never)]
fn count_own(cache: &AtomicU32) -> u32 {
    let cpus = affinity().iter().map(|word| word.count_ones()).sum::<u32>().max(1);
    cache.store(cpus, Relaxed);
    cpus
}

/// Which they are (sched_getaffinity(2)).
fn affinity() -> idle::Mask {
    let mut mask = idle::Mask::default();
    let room = size_of_val(&mask);
    // SAFETY: the kernel writes at most the mask's size.
    unsafe { call(nr::SCHED_GETAFFINITY, &[0, room, mask.as_mut_ptr() as usize]) };
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine that has none online: whatever is runnable is too much.
    fn no_processors() -> std::boxed::Box<State> {
        let state = crate::state::zeroed();
        state.online_plus1.store(1, Relaxed);
        state
    }

    /// In 10 ms; what waits for storage may be taken back by the kernel (proc(5)).
    #[test]
    fn a_processor_in_which_somebody_waits_for_storage_is_idle_where_there_are_few() {
        const TAKEN_BACK_MAX: u64 = 100;
        let state = crate::state::zeroed();
        state.online_plus1.store(TOLD_APART_MAX + 1, Relaxed);
        state.cpus.store(TOLD_APART_MAX, Relaxed);
        let before = idle::of_cs(&affinity()).unwrap();
        let found = idle_time_cs(&state).unwrap();
        assert!(found.saturating_add(TAKEN_BACK_MAX) >= before, "{found} after {before}");
    }

    #[test]
    fn threads_that_others_processors_are_for_keep_none_of_this_processs_busy() {
        let state = crate::state::zeroed();
        state.online_plus1.store(u32::MAX, Relaxed);
        assert!(!count(&state, 0, 1));
        assert!(count(&no_processors(), 0, 1));
    }

    #[test]
    fn processors_that_stay_busy_are_counted_ever_more_seldom() {
        let state = no_processors();
        let counts = |from_ns: u64, upto_ns: u64, cpus: u32| {
            let before = |now_ns: &u64| {
                let counted_ns = state.idle_counted_ns.load(Relaxed);
                count(&state, cpus, *now_ns);
                counted_ns != state.idle_counted_ns.load(Relaxed)
            };
            (from_ns..upto_ns).step_by(100_000).filter(before).count()
        };
        // After 0, 1, 3, 7, 15, 31 and 47 ms.
        assert_eq!(counts(1, 60_000_000, 0), 7);
        // Once they are not, each ms again.
        assert_eq!(counts(70_000_000, 80_000_000, u32::MAX), 10);
        assert_eq!(counts(80_000_000, 86_900_000, 0), 3);
    }

    #[test]
    fn processors_that_are_idle_again_are_seen_while_reads_are_only_timed() {
        let state = no_processors();
        state.cpus.store(u32::MAX, Relaxed);
        assert!(!is_idle_again(&state, Some(u64::MAX)), "nothing was counted");
        assert!(count(&state, 0, 1));
        assert!(!is_idle_again(&state, None) && !is_idle_again(&state, Some(999)));
        assert!(is_idle_again(&state, Some(1000)));
        assert!(!are_busy(&state) && !is_idle_again(&state, Some(1000)));
    }

    #[test]
    fn what_a_copy_took_is_counted_once_while_it_dies() {
        let state = crate::state::zeroed();
        let looks = [50, 0, 50, 60].map(|total_ns| copies_since(&state, total_ns));
        assert_eq!(looks, [50, 0, 0, 10]);
    }
}
