//! The logs that program and copies share (`protocol::log`): an empty one for
//! each copy, and what the program writes into it for the copy to know.

use super::learnt;
use crate::arch::processor;
use crate::arena::{self, Part};
use crate::config::{CONFIG, LOGS};
use crate::import::desk;
use crate::state::State;
use crate::sys;
use core::sync::atomic::Ordering::{Relaxed, Release};
use runahead_policy::horizon::horizon;
use runahead_protocol::log::{Log, life};
use runahead_protocol::stats::{Counter, Park};

/// One copy in so many lists all of the program's mappings, whatever earlier
/// ones have found: no hook sees a mapping that a program makes by a system
/// call of its own.
const LISTED_EVERY: u32 = 16;

/// An empty log that nobody else uses, or `None`.
pub fn fresh_log(state: &State, consumed: u64) -> Option<&'static Log> {
    let epoch = state.epoch.load(Relaxed).wrapping_add(1);
    let cell = CONFIG.logs.get(epoch as usize % LOGS)?;
    if cell.load(Relaxed).is_null() {
        map_logs()?;
    }
    // SAFETY: mapped above or before, never unmapped in this process; zeroed
    // memory and whatever a rogue copy leaves there are valid atomics.
    let log = unsafe { cell.load(Relaxed).as_ref()? };
    state.epoch.store(epoch, Relaxed);
    if let Some(desk) = desk() {
        desk.at_horizon.store(0, Relaxed);
    }
    log.epoch.store(epoch, Relaxed);
    carry(log, epoch);
    log.large_changes.store(state.large_changes.load(Relaxed), Relaxed);
    let serves = !epoch.is_multiple_of(LISTED_EVERY);
    let without_files = if serves { state.without_files.load(Relaxed) } else { 0 };
    log.without_files.store(without_files, Relaxed);
    log.opening.store(state.opening.load(Relaxed), Relaxed);
    log.unpredicted.store(0, Relaxed);
    log.consumed.store(consumed, Relaxed);
    log.pages.tail.store(0, Relaxed);
    log.pages.consumed.store(0, Relaxed);
    log.directories.clear();
    log.wake_at.store(u64::MAX, Relaxed);
    log.tail.store(0, Relaxed);
    log.shares.store(0, Relaxed);
    log.looks.store(0, Relaxed);
    log.park_reason.store(Park::Unknown as u32, Relaxed);
    log.park_call.store(-1, Relaxed);
    log.prefetches.store(0, Relaxed);
    log.prefetched_bytes.store(0, Relaxed);
    log.read_bytes.store(0, Relaxed);
    log.depth.store(state.depth.load(Relaxed), Relaxed);
    log.latency_ns.store(state.latency_ns.load(Relaxed), Relaxed);
    log.bytes_per_s.store(state.bytes_per_s.load(Relaxed), Relaxed);
    log.processor_plus1.store(processor() + 1, Relaxed);
    log.life.store(life::STARTING, Release);
    revise_horizon(state, log);
    Some(log)
}

/// The log of the last copy that was made, whether it is still there or not.
pub fn latest(state: &State) -> Option<&'static Log> {
    let epoch = state.epoch.load(Relaxed);
    let cell = CONFIG.logs.get(epoch as usize % LOGS).filter(|_| epoch != 0)?;
    // SAFETY: null, or mapped as in `fresh_log`.
    unsafe { cell.load(Relaxed).as_ref() }
}

/// What the last copy knew of what was given back behind the program.
fn carry(log: &Log, epoch: u32) {
    let before = CONFIG.logs.get(epoch.wrapping_sub(1) as usize % LOGS);
    // SAFETY: mapped with all others, see above.
    let before = before.and_then(|cell| unsafe { cell.load(Relaxed).as_ref() });
    if let Some(before) = before {
        log.behind.carry(&before.behind);
    }
}

/// Maps all logs at once: each mapping more is one that every clone copies.
fn map_logs() -> Option<()> {
    if !Part::Logs.share() {
        return None;
    }
    for (number, cell) in CONFIG.logs.iter().enumerate() {
        cell.store(arena::log(number) as *mut Log, Relaxed);
    }
    Some(())
}

/// How often a program says that it prefetches, and looks who else does, in
/// ns.
pub const SHARE_NS: u64 = 20_000_000;

/// Tells the copy how many programs it shares the device with. The aide does
/// so, too, where the program finds all of its pages and has no slow path.
pub fn share(state: &State, log: &Log, now_ns: u64) {
    let dev = state.device.load(Relaxed);
    if dev == 0 || now_ns.saturating_sub(state.shared_ns.load(Relaxed)) < SHARE_NS {
        return;
    }
    state.shared_ns.store(now_ns, Relaxed);
    if let Some(table) = learnt::table(state) {
        log.sharers.store(table.share(dev, state.pid.load(Relaxed), now_ns), Relaxed);
    }
}

/// Works out the prefetch horizon from what has been measured.
pub fn revise_horizon(state: &State, log: &Log) {
    let since_ns = state.since_ns.load(Relaxed);
    let reads = state.consumed.load(Relaxed);
    if since_ns != 0 && reads >= 16 {
        let passed_ns = sys::now_ns().saturating_sub(since_ns);
        let think_ns = passed_ns.saturating_sub(state.stalled_ns.load(Relaxed)) / reads;
        state.think_ns.store(think_ns.max(1), Relaxed);
    }
    let think_ns = state.think_ns.load(Relaxed);
    log.think_ns.store(think_ns, Relaxed);
    let asked_for = CONFIG.horizon.load(Relaxed);
    let horizon = match asked_for {
        0 => horizon(log.latency_ns.load(Relaxed), think_ns, log.depth.load(Relaxed).min(1024)),
        fixed => fixed,
    };
    log.horizon.store(horizon, Relaxed);
    if let Some(slot) = state.slot() {
        slot.set(Counter::DeviceHorizon, horizon);
    }
}
