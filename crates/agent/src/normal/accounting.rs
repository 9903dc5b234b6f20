//! What a speculative process came to: for the ration, which decides about the
//! next one, and for the statistics.

use super::{faults, logs};
use crate::import::desk;
use crate::speculative::STREAM_MAX;
use crate::state::{Rations, State};
use crate::sys;
use crate::usage;
use core::sync::atomic::Ordering::Relaxed;
use runahead_policy::ration::Ration;
use runahead_protocol::log::{Log, PAGES_MAX};
use runahead_protocol::stats::{Counter, Park};

/// Tells the ration what the speculative process came to, once.
pub fn account(state: &State, rations: &mut Rations) {
    look_at_pages(state);
    let served = are_served(rations);
    let Rations { synchronisations: ration, refork, .. } = rations;
    ration.spent(state.copies_cpu_us.swap(0, Relaxed).saturating_mul(1000));
    let took_ns = match state.speculative.load(Relaxed) {
        0 => state.copy_took_ns.load(Relaxed),
        copy => sys::process_cpu_ns(copy as u32),
    };
    // What the copy took while the program waited, it took from nobody.
    let passed_ns = sys::now_ns().saturating_sub(state.since_ns.load(Relaxed));
    ration.took(took_ns.min(passed_ns.saturating_sub(state.stalled_ns.load(Relaxed))));
    let before = state.faults_at_copy.swap(0, Relaxed);
    if before != 0 {
        // What the program would have faulted anyway is among them; a copy
        // that runs for long is not blamed for that.
        let faults = (usage::of_self().minor_faults + 1).saturating_sub(before);
        let since_ns = sys::now_ns().saturating_sub(state.since_ns.load(Relaxed));
        let cow_ns = faults.saturating_mul(COW_NS).min(since_ns / 2);
        ration.cost_more(cow_ns);
        // An importing one leaves the large regions out, but no others.
        if state.made_full.load(Relaxed) != 0 {
            refork.copied_on_write(cow_ns);
        }
    }
    look_elsewhere(state, ration);
    state.cpu_at_copy_ns.store(0, Relaxed);
    let (hits, partial) = found(state, served);
    let shares = state.log().is_some_and(|log| log.shares.load(Relaxed) != 0);
    if ration.is_open() {
        let used = state.log().map_or(0, |log| log.pages.consumed.load(Relaxed));
        state.used_when_judged.store(used, Relaxed);
        ration.unseen(state.log().map_or(0, page_ns));
    }
    ration.outcome(hits, partial, shares);
}

/// Ranges that the program has found prefetched and did not wait for in full, and
/// those of them that were still in flight. `served`: those in streams are not a
/// copy's doing ([`are_served`]).
pub fn found(state: &State, served: bool) -> (u64, u64) {
    let late = state.late.load(Relaxed);
    let streamed = if served { state.streamed.load(Relaxed) } else { 0 };
    let hits = state.hits.load(Relaxed).saturating_sub(streamed);
    let hits = hits.saturating_add(pages_used(state)).saturating_sub(late);
    (hits, state.partial.load(Relaxed).saturating_sub(late))
}

/// Whether the kernel's readahead does for streams what a copy would: stalls are
/// those of flash, and no stream has been seen to wait for half of its time.
pub fn are_served(rations: &Rations) -> bool {
    rations.synchronisations.is_charged() && !rations.readahead.wait()
}

/// Whether all that a copy has saved lately the kernel's readahead would have, too
/// ([`runahead_policy::readahead`]): it was made for something else, and has come to
/// a stream.
pub fn only_streams(state: &State, rations: &Rations) -> bool {
    let now = [&state.hits, &state.streamed].map(|counter| counter.load(Relaxed));
    let [hits, streamed] = [0, 1].map(|at| {
        let (Some(now), Some(before)) = (now.get(at), state.compared.get(at)) else { return 0 };
        now.saturating_sub(before.swap(*now, Relaxed))
    });
    hits >= STREAMED_MIN && hits == streamed && are_served(rations)
}

/// Hits from one look to the next that tell a stream, of as many reads.
const STREAMED_MIN: u64 = 32;

/// Whether the speculative process, made `passed_ns` ago, has saved this thread,
/// whose copy it is, about as much as it is charged with.
pub fn gains(state: &State, rations: &mut Rations, passed_ns: u64) -> bool {
    let served = are_served(rations);
    let ration = &mut rations.synchronisations;
    look_elsewhere(state, ration);
    let (hits, partial) = found(state, served);
    ration.gains(hits, partial, passed_ns) || {
        look_at_pages(state);
        let (hits, partial) = found(state, served);
        ration.gains(hits, partial, passed_ns)
    }
}

/// Tells the ration how long this thread has waited for other things than
/// storage since its copy was made: what of the time it neither computed nor
/// stalled. Waits for the names of files and for writes are among them. Not
/// beside a scout, where such waits are the rule, nor beside a copy that has
/// parked: what the program does then, it does not do because of it (a server
/// that waits for its next request).
fn look_elsewhere(state: &State, ration: &mut Ration) {
    let before_ns = state.cpu_at_copy_ns.load(Relaxed);
    let owned = state.owner.load(Relaxed) == crate::arch::thread_pointer();
    let lives = state.copy_lives();
    let scouts = state.scouts.load(Relaxed) != 0;
    if before_ns == 0 || !owned || !lives || scouts || !ration.is_charged() {
        return;
    }
    let passed_ns = sys::now_ns().saturating_sub(state.since_ns.load(Relaxed));
    // Not getrusage(2), which is a tick behind.
    let cpu_ns = sys::thread_cpu_ns() + 1;
    // Less than before: another thread, with a dead one's thread pointer.
    let Some(computed_ns) = cpu_ns.checked_sub(before_ns) else { return };
    let spent_ns = state.stalled_ns.load(Relaxed).saturating_add(computed_ns);
    ration.waited_elsewhere(passed_ns.saturating_sub(spent_ns));
}

/// Latency of a device that is believed, in ns.
const LATENCY_MAX_NS: u64 = 1_000_000_000;

/// What a page saves a program that goes through what it has mapped: its part of the
/// wait for a window, and no more than what the device takes to bring it, which is
/// not inflated by a copy that comes seldom to look whether something has come.
fn page_ns(log: &Log) -> u64 {
    let by_window_ns = log.latency_ns.load(Relaxed).min(LATENCY_MAX_NS) / STREAM_MAX as u64;
    let page_ns = sys::PAGE_SIZE as u64 * 1_000_000_000;
    let bytes_per_s = log.bytes_per_s.load(Relaxed);
    page_ns.checked_div(bytes_per_s).map_or(by_window_ns, |ns| ns.min(by_window_ns))
}

/// What a fault for a page that is shared with a copy costs the program, in
/// ns.
const COW_NS: u64 = 1500;

/// Pages asked about when a copy is accounted for.
pub const LOOKS: u64 = 16;

/// Where the copy has not looked for long: how far the program has come in
/// the sequence of predicted pages, by its own page map.
pub fn look_at_pages(state: &State) {
    let Some(log) = state.log() else { return };
    let tail = log.pages.tail.load(Relaxed);
    let used = log.pages.consumed.load(Relaxed);
    let span = tail.saturating_sub(used).min(PAGES_MAX as u64);
    if span == 0 {
        return;
    }
    let last = faults::with_pagemap(|pagemap| {
        spread(tail, span).rev().find(|&number| {
            let page = log.pages.get(number);
            page.is_some_and(|page| faults::is_present(pagemap, page))
        })
    });
    if let Some(Some(last)) = last {
        log.pages.consumed.store(last + 1, Relaxed);
    }
}

/// Numbers of up to [`LOOKS`] predicted pages, evenly spread over the `span` before
/// number `tail`, the last of them among these.
pub fn spread(tail: u64, span: u64) -> impl DoubleEndedIterator<Item = u64> {
    let looks = span.min(LOOKS);
    let upto = move |look: u64| (span * look).checked_div(looks).unwrap_or(span);
    (1..=looks).map(move |look| tail.wrapping_sub(span).wrapping_add(upto(look)).wrapping_sub(1))
}

/// [`State::since_judged`] once the copy judged last is known to have paid.
const PAID: u32 = u32::MAX;

/// At a fault for the page at `address` that nobody predicted, while no copy
/// runs: looks whether so much of what the last one predicted has come true since
/// it was judged that it has paid, and tells the ration. At the first such fault,
/// the second, the fourth, and so on.
pub fn judge_again(state: &State, ration: &mut Ration, address: usize) {
    let faults = state.since_judged.load(Relaxed);
    if faults == PAID || state.copy_lives() || !ration.holds_back() {
        return;
    }
    let Some(log) = logs::latest(state) else { return };
    state.since_judged.store(faults.saturating_add(1).min(PAID - 1), Relaxed);
    if log.pages.contains((address / sys::PAGE_SIZE) as u64) {
        // It was still on its way.
        state.late_since_judged.fetch_add(1, Relaxed);
    }
    if !(faults + 1).is_power_of_two() {
        return;
    }
    let present = come_true_since(log, state.used_when_judged.load(Relaxed));
    if ration.came_true(present.saturating_sub(state.late_since_judged.load(Relaxed))) {
        state.since_judged.store(PAID, Relaxed);
    }
}

/// Whether the copy judged last has paid after all.
pub fn is_known_to_have_paid(state: &State) -> bool {
    state.since_judged.load(Relaxed) == PAID
}

/// About how many of the pages that a copy predicted, from number `first` on, the
/// program has mapped by now.
fn come_true_since(log: &Log, first: u64) -> u64 {
    let tail = log.pages.tail.load(Relaxed);
    let span = tail.saturating_sub(first).min(PAGES_MAX as u64);
    let looks = span.min(LOOKS);
    if looks == 0 {
        return 0;
    }
    let present = faults::with_pagemap(|pagemap| {
        spread(tail, span)
            .filter_map(|number| log.pages.get(number))
            .filter(|&page| faults::is_present(pagemap, page))
            .count()
    })
    .unwrap_or(0);
    (span * present as u64).checked_div(looks).unwrap_or(0)
}

/// Prefetched pages and directories that the program has used, as the
/// speculative process saw it; noise at worst, and bounded.
pub fn pages_used(state: &State) -> u64 {
    state.log().map_or(0, |log| {
        let used = log.pages.consumed.load(Relaxed);
        used.min(log.pages.tail.load(Relaxed)).min(1 << 40).saturating_add(directories_used(log))
    })
}

fn directories_used(log: &Log) -> u64 {
    log.directories.used.load(Relaxed).min(log.directories.tail.load(Relaxed)).min(1 << 40)
}

/// Adds what a speculative process did to the statistics, and keeps what it
/// found out about the device for the next one.
pub fn book(state: &State, log: &Log, reason: Park) {
    // Values from the log may be noise: bound them.
    state.depth.store(log.depth.load(Relaxed).min(4096), Relaxed);
    state.latency_ns.store(log.latency_ns.load(Relaxed).min(100_000_000_000), Relaxed);
    state.bytes_per_s.store(log.bytes_per_s.load(Relaxed), Relaxed);
    // What it has read is added to what this process has when it is reaped.
    sys::count_own_read(log.read_bytes.load(Relaxed).min(1 << 50) as isize);
    // Of this copy only: the next starts from nothing.
    let [prefetched, consumed, imported] = desk().map_or([0; 3], |desk| {
        [&desk.prefetched, &desk.consumed, &desk.imported]
            .map(|counter| counter.swap(0, Relaxed).min(1 << 40))
    });
    let Some(slot) = state.slot() else { return };
    let pages = log.pages.tail.load(Relaxed).min(1 << 40);
    let used = log.pages.consumed.load(Relaxed).min(pages);
    let hits = state.hits.load(Relaxed).saturating_add(used);
    let hits = hits.saturating_add(directories_used(log));
    let partial = state.partial.load(Relaxed);
    let issued = log.prefetches.load(Relaxed).min(1 << 40);
    slot.add(Counter::SwapPrefetches, prefetched);
    // Where all pages were of swapped memory, the last look says more.
    let consumed = if prefetched >= pages { used } else { consumed };
    slot.add(Counter::SwapPrefetchesUsed, consumed.min(prefetched));
    slot.add(Counter::PagesImported, imported);
    slot.add(Counter::PrefetchesIssued, issued);
    slot.add(Counter::PrefetchedBytes, log.prefetched_bytes.load(Relaxed).min(1 << 50));
    slot.add(Counter::PrefetchesFull, hits.saturating_sub(partial));
    slot.add(Counter::PrefetchesPartial, partial);
    slot.add(Counter::PrefetchesUnused, issued.saturating_sub(hits));
    let released = log.behind.released.load(Relaxed).min(1 << 40);
    slot.add(Counter::PagesReleased, released);
    slot.add(Counter::PagesReturned, log.behind.returned.load(Relaxed).min(1 << 40));
    slot.add(Counter::ReadsPredicted, state.predicted.load(Relaxed));
    slot.set(Counter::DeviceLatencyNs, state.latency_ns.load(Relaxed));
    slot.set(Counter::DeviceBytesPerS, state.bytes_per_s.load(Relaxed));
    slot.set(Counter::DeviceParallelism, u64::from(state.depth.load(Relaxed)));
    slot.park(reason, log.park_call.load(Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::nr;
    use crate::sys::call;
    use runahead_policy::ration::SHORT_STALL_NS;
    use runahead_policy::readahead::Stalled;
    use runahead_protocol::log::life;
    use std::boxed::Box;
    use std::time::Duration;

    #[test]
    fn pages_that_come_true_after_a_copy_has_ended_are_seen() {
        const PAGES: usize = 40;
        let memory = sys::map_anonymous(PAGES * sys::PAGE_SIZE, sys::MAP_PRIVATE);
        assert_ne!(memory, 0);
        // SAFETY: zeroed memory is a valid log.
        let log: Box<Log> = unsafe { Box::new_zeroed().assume_init() };
        let page = |at: usize| memory + at * sys::PAGE_SIZE;
        (0..PAGES).for_each(|at| log.pages.push((page(at) / sys::PAGE_SIZE) as u64));
        let touch = |at: usize| {
            // SAFETY: a page of the mapping above.
            unsafe { (page(at) as *mut u8).write_volatile(1) };
        };
        assert_eq!(come_true_since(&log, 0), 0);
        (20..PAGES).for_each(touch);
        assert_eq!(come_true_since(&log, 0), 20);
        assert_eq!(come_true_since(&log, 20), 20, "of those that it had not come to");
        assert_eq!(come_true_since(&log, PAGES as u64), 0);
        // SAFETY: the mapping above.
        unsafe { call(nr::MUNMAP, &[memory, PAGES * sys::PAGE_SIZE]) };
    }

    /// What the kernel's readahead does for a stream on flash is not a copy's doing.
    #[test]
    fn what_is_found_in_streams_counts_where_these_wait() {
        let state = crate::state::zeroed();
        state.hits.store(50, Relaxed);
        state.streamed.store(48, Relaxed);
        let hits = |stall_ns| {
            let hits = state.try_locked(|rations, _| {
                rations.synchronisations = Ration::default();
                rations.synchronisations.stalled(stall_ns);
                found(&state, are_served(rations)).0
            });
            hits.unwrap()
        };
        assert_eq!(hits(SHORT_STALL_NS - 1), 2);
        assert_eq!(hits(SHORT_STALL_NS), 50, "anything slower than flash");
        // Windows of a stream that each wait for nine tenths of the time.
        state.try_locked(|rations, _| {
            (0..40).for_each(|window| {
                rations.readahead.may_gain(&Stalled {
                    fd: 3,
                    offset: window << 17,
                    size: 1 << 30,
                    stall_ns: SHORT_STALL_NS,
                    waited_ns: window * 900_000,
                    stalls: window as u32,
                    now_ns: 1_000_000_000 + window * 1_000_000,
                    unseen: 0,
                });
            });
        });
        assert_eq!(hits(SHORT_STALL_NS - 1), 50);
    }

    #[test]
    fn a_thread_that_sleeps_beside_its_copy_waits_elsewhere() {
        let state = crate::state::zeroed();
        // SAFETY: zeroed memory is a valid log.
        let log: &Log = Box::leak(unsafe { Box::new_zeroed().assume_init() });
        state.log.store(core::ptr::from_ref(log).cast_mut(), Relaxed);
        log.life.store(life::RUNNING, Relaxed);
        state.speculative.store(i32::MAX, Relaxed);
        state.owner.store(crate::arch::thread_pointer(), Relaxed);
        state.hits.store(50, Relaxed);
        // 50 stalls of 50 us are half of what it sleeps, and that counts twice.
        let gains = || {
            let gains = state.try_locked(|rations, _| {
                rations.synchronisations = Ration::default();
                rations.synchronisations.stalled(50_000);
                rations.synchronisations.synchronised(100_000, false);
                state.cpu_at_copy_ns.store(sys::thread_cpu_ns() + 1, Relaxed);
                state.since_ns.store(sys::now_ns(), Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                gains(&state, rations, 0)
            });
            gains.unwrap()
        };
        assert!(!gains());
        // All of it was a wait for storage.
        state.stalled_ns.store(u64::MAX, Relaxed);
        assert!(gains());
        state.stalled_ns.store(0, Relaxed);
        log.life.store(life::PARKED, Relaxed);
        assert!(gains(), "the copy has parked");
        log.life.store(life::RUNNING, Relaxed);
        state.scouts.store(1, Relaxed);
        assert!(gains(), "it is a scout");
        state.scouts.store(0, Relaxed);
        state.owner.store(0, Relaxed);
        assert!(gains(), "another thread's");
    }
}
