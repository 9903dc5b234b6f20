//! Synchronisation: making the speculative process a copy of this thread at
//! this point (Fraser and Chang, section 4.1.2). The read that the program
//! needs has been started before, so that its wait hides the cost.

use super::accounting::{account, found, gains, judge_again, look_at_pages, only_streams};
use super::asking::{READ_AROUND_BYTES, start_read};
use super::control::Control;
use super::directories::wants_scout;
use super::ending::{end, end_accounted, reap, runs, scout_beside, unreaped, wait};
use super::logs::{fresh_log, revise_horizon, share};
use super::processors::idle_processors;
use super::waiting::{self, await_detached, settled};
use super::{
    OFFSET_NONE, Request, areas, bars, capture, credit, direct, flushing, huge, learnt, quota,
    sequence,
};
use crate::apart;
use crate::arch::{Frame, nr};
use crate::config::{CONFIG, LOGS, stalls_always};
use crate::import::handover::{self, Side};
use crate::import::regions::{self, REGION_MIN, regions, swap_device, swap_in_use};
use crate::import::{self, aide, desk};
use crate::opening;
use crate::speculative::{self, Parent};
use crate::state::{Rations, State, readers};
use crate::status;
use crate::sys::{self, call};
use crate::usage;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use runahead_emulate::READERS_MAX;
use runahead_policy::learning::Start;
use runahead_policy::ration::{Decision, Processors, Ration, Standing};
use runahead_policy::refork::{Kind, Refork};
use runahead_protocol::log::{Log, life};
use runahead_protocol::session::{
    Mode, TEST_ALLOW_TRACER, TEST_FULL_COPIES, TEST_HANDS_OVER, TEST_IMPORTING,
};
use runahead_protocol::stats::{Counter, Loss, Park};

/// `CLONE_FILES`: the copy starts on our descriptor table and leaves it at
/// once, so that it never holds a reference to an open file.
const CLONE_FILES: usize = 0x400;
/// `CLONE_UNTRACED`: a tracer's options do not extend to the copy.
const CLONE_UNTRACED: usize = 0x0080_0000;

/// What a new speculative process does first; gives its result.
pub type Begin<'a> = &'a mut dyn FnMut(&'static Log, Parent) -> isize;

/// What the program waited for.
#[derive(Clone, Copy, Debug)]
pub enum Stall {
    /// A read, which waits still, and where the frame of its hook ends.
    Read(Request, usize),
    /// A page fault at this address, whose wait is over.
    Fault(usize),
    /// A directory by this descriptor, which has been read.
    Directory(i32),
    /// The same, where a scout is to be made and no copy.
    Names(i32),
    /// The first touch of so many bytes of a file, mapped at this address, which
    /// has yet to come.
    Mapping(usize, u64),
}

/// At a read that stalls and was not predicted. Returns the read's result in
/// the speculative process that it makes, `None` in the normal process.
pub fn at_stall(
    state: &'static State,
    frame: &mut Frame,
    request: Request,
    standing: Standing,
    now_ns: u64,
) -> Option<isize> {
    let end = core::ptr::from_ref(frame) as usize + size_of::<Frame>();
    attempt(state, &Stall::Read(request, end), standing, now_ns, &mut |log, parent| {
        speculative::begin(state, log, frame, parent)
    })
}

/// At a stall that was not predicted: makes a speculative process if it is
/// worth it. Returns there what `copy` does, and `None` in the normal process.
pub fn attempt(
    state: &'static State,
    stall: &Stall,
    standing: Standing,
    now_ns: u64,
    copy: Begin<'_>,
) -> Option<isize> {
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 || state.disabled.load(Relaxed) != 0 {
        return None;
    }
    // Another thread's speculative process is left to it while it runs; it
    // dies with its thread (PR_SET_PDEATHSIG).
    let child = state.speculative.load(Relaxed);
    let others = child != 0
        && state.owner.load(Relaxed) != crate::arch::thread_pointer()
        && state.copy_lives()
        && runs(child);
    if others || !super::own(state) {
        return None;
    }
    if waiting::threads_are_unseen() {
        state.count(Counter::SyncsDeclined, 1);
        return None;
    }
    // One that somebody has killed is not behind: it is not there.
    let gone = standing == Standing::Behind && child != 0 && !runs(child);
    let standing = if gone { Standing::None } else { standing };
    // By value: a copy reads nothing of this stack before it knows whose it is.
    let action = move |rations: &mut Rations, mask| {
        if state.begun.swap(1, Relaxed) == 0 {
            let start = learnt::start(state);
            rations.synchronisations.begin(start);
            if start == Start::ALONE {
                // What a program reads in the order of the disk, that a file's rest would
                // part, too.
                rations.whole_files.stop();
            }
            credit::begin(state, start);
        }
        tell(state, rations);
        if standing == Standing::None && makes_no_first(state, rations, stall, now_ns) {
            state.count(Counter::SyncsDeclined, 1);
            return None;
        }
        // Asked under the lock, for which whoever bars copies waits. Without room for a
        // descriptor nobody could say what must be known of the process.
        if is_barred(state) || !settled(state) || !opening::has_room() {
            state.count(Counter::SyncsDeclined, 1);
            return None;
        }
        if !rations.control.permits(state, rations.synchronisations.stall_ns(), now_ns) {
            state.count(Counter::SyncsDeclined, 1);
            end(state, &mut rations.control, Park::Disabled);
            return None;
        }
        if standing == Standing::OffTrack && comes_back(state) {
            state.count(Counter::SyncsDeclined, 1);
            return None;
        }
        // A program that has come from names to files, or to what it maps: what
        // its scout found says nothing of what a copy will.
        let of_files = matches!(stall, Stall::Read(..) | Stall::Fault(_) | Stall::Mapping(..));
        let scouted = state.scouts.load(Relaxed) != 0 && of_files;
        if scouted && wants_scout(state) && !stalls_always() {
            state.count(Counter::SyncsDeclined, 1);
            return None;
        }
        if standing != Standing::Behind && !scouted {
            account(state, rations);
        }
        match stall {
            Stall::Fault(address) => {
                judge_again(state, &mut rations.synchronisations, *address);
            }
            Stall::Mapping(_, bytes) if !sequence::pays_unhidden(state, rations, *bytes) => {
                state.count(Counter::SyncsDeclined, 1);
                return None;
            }
            _ => {}
        }
        match decide(state, &mut rations.synchronisations, stall, standing, now_ns) {
            Decision::Synchronise if !rations.control.has_room(state) => {
                state.count(Counter::SyncsDeclined, 1);
                end(state, &mut rations.control, Park::Disabled);
                None
            }
            Decision::Synchronise => synchronise(state, rations, stall, (now_ns, mask), copy),
            Decision::GiveUp => {
                state.count(Counter::SyncsDeclined, 1);
                let behind = standing == Standing::Behind;
                if behind {
                    // What it saved before is known only while it is there.
                    account(state, rations);
                }
                let reason = if behind { Park::Behind } else { Park::OffTrack };
                end_accounted(state, &mut rations.control, reason);
                None
            }
            Decision::PassOver => {
                state.count(Counter::SyncsDeclined, 1);
                if !matches!(stall, Stall::Fault(_)) && has_ended(state) {
                    end_accounted(state, &mut rations.control, Park::OffTrack);
                }
                None
            }
        }
    };
    apart::run(state, move || state.try_locked(action))??
}

/// Whether no copy comes of this stall in a process that has made none: because the first
/// are waited for unaided, or for want of a processor. Known by three system calls or by
/// none, where memory alone takes twenty, which on busy processors nothing hides, and in a
/// process that has ended after a stall or two nothing uses.
fn makes_no_first(state: &State, rations: &mut Rations, stall: &Stall, now_ns: u64) -> bool {
    let is_wait = matches!(stall, Stall::Read(..) | Stall::Directory(_) | Stall::Names(_));
    if !is_wait || state.epoch.load(Relaxed) != 0 || stalls_always() {
        return false;
    }
    let ration = &mut rations.synchronisations;
    if ration.is_among_first() {
        return ration.decide(Standing::None, Processors::Idle) == Decision::PassOver;
    }
    idle_processors(state, now_ns) != Processors::Idle
}

/// Judges this thread's copy, which is about to be ended for a reason that is not
/// its fault.
pub fn judge(state: &State) {
    if state.speculative.load(Relaxed) != 0
        && state.owner.load(Relaxed) == crate::arch::thread_pointer()
        && state.scouts.load(Relaxed) == 0
    {
        state.try_locked(|rations, _| account(state, rations));
    }
}

/// Whether the copy, which did not predict this read, has come back to the
/// program's reads after such ones before, more often than it was kept for that.
/// It leaves some out: what it misses is less than what it finds.
fn comes_back(state: &State) -> bool {
    let times = state.found_again.load(Relaxed);
    state.found_again.store(times.saturating_sub(1), Relaxed);
    times != 0 && !stalls_always() && state.copy_lives()
}

/// Tells the ration of the waits that were only timed.
pub fn tell(state: &State, rations: &mut Rations) {
    rations.synchronisations.timed(state.untold_ns.swap(0, Relaxed));
    // What was told is counted from zero again: less is left now.
    state.passes_over_ns.fetch_min(rations.synchronisations.unaided_ns(), Relaxed);
}

/// Whether this thread's copy is gone by itself, at a read that it did not
/// predict: nothing more comes of it, and for as long as it counts as there
/// each of the thread's reads is asked about. Predicted pages may still be
/// used.
pub(super) fn has_ended(state: &State) -> bool {
    state.speculative.load(Relaxed) != 0
        && state.owner.load(Relaxed) == crate::arch::thread_pointer()
        && state.log().is_some_and(|log| {
            let pages = &log.pages;
            log.life.load(Relaxed) == life::PARKED
                && pages.consumed.load(Relaxed) >= pages.tail.load(Relaxed)
        })
}

/// Whether no copy may be made for now.
fn is_barred(state: &State) -> bool {
    bars::are_up(state) || state.disabled.load(SeqCst) != 0
}

/// Whether a synchronisation is worth it. While testing, always: the tests
/// are about what it does, not what it costs.
fn decide(
    state: &State,
    ration: &mut Ration,
    stall: &Stall,
    standing: Standing,
    now_ns: u64,
) -> Decision {
    match standing {
        Standing::None | Standing::OffTrack if stalls_always() => Decision::Synchronise,
        // No look at the processors, whose cost no wait would hide.
        Standing::None if ration.unaided_ns() > 0 && matches!(stall, Stall::Fault(_)) => {
            Decision::PassOver
        }
        // What the ration says of stalls has been asked ([`sequence::pays_unhidden`]).
        Standing::None if matches!(stall, Stall::Mapping(..)) => {
            match idle_processors(state, now_ns) {
                Processors::Idle => Decision::Synchronise,
                Processors::BusyNow | Processors::Busy => Decision::PassOver,
            }
        }
        _ => {
            let processors = idle_processors(state, now_ns);
            if standing == Standing::Behind
                && let Some(log) = state.log()
            {
                let hits = state.hits.load(Relaxed);
                ration.stands(hits, log.lead().min(0).unsigned_abs());
                let age_ns = now_ns.saturating_sub(state.since_ns.load(Relaxed));
                let imported = desk().map_or(0, |desk| desk.imported.load(Relaxed));
                if ration.is_hopeless(age_ns, imported) {
                    look_at_pages(state);
                    if found(state, false).0 == 0 {
                        return Decision::GiveUp;
                    }
                }
            }
            ration.decide(standing, processors)
        }
    }
}

/// Looked at once, before the first synchronisation: nobody traces the
/// program (a debugger would be told of the copy), /proc is there, which
/// descriptors are opened again through, and a copy takes no other process's
/// place.
#[cold]
pub(super) fn permitted(state: &State) -> bool {
    let Some(status) = status::read::<{ status::AT_STALL }>() else {
        state.disable(Loss::NoProc);
        return false;
    };
    let allowed = CONFIG.test.load(Relaxed) & TEST_ALLOW_TRACER != 0;
    if !allowed && status.tracer != 0 {
        state.disable(Loss::Traced);
        return false;
    }
    if super::few_processes() {
        state.disable(Loss::ProcessLimit);
        return false;
    }
    if begins_namespace() {
        state.disable(Loss::Namespace);
        return false;
    }
    !huge::are_there(state, &status)
}

/// Whether the next child would be in another namespace of processes than this
/// one, as its first: what executed this program has unshared that.
fn begins_namespace() -> bool {
    let (mut own, mut childrens) = (sys::Stat::default(), sys::Stat::default());
    // The second is not there before there is such a child.
    sys::stat(b"/proc/self/ns/pid\0", &mut own)
        && (!sys::stat(b"/proc/self/ns/pid_for_children\0", &mut childrens)
            || own.ino != childrens.ino)
}

fn synchronise(
    state: &'static State,
    rations: &mut Rations,
    stall: &Stall,
    (now_ns, mask): (u64, u64),
    copy: Begin<'_>,
) -> Option<isize> {
    let request = match stall {
        Stall::Read(request, _) => Some(request),
        Stall::Fault(_) | Stall::Directory(_) | Stall::Names(_) | Stall::Mapping(..) => None,
    };
    // As late as here: where the ration never makes one, a look at each stall
    // would cost more than all else.
    if state.epoch.load(Relaxed) == 0 {
        if !permitted(state) {
            return None;
        }
        // From here on it is known what is taken of it.
        quota::is_spent(now_ns);
    } else if huge::came_unseen(state) {
        return None;
    }
    if is_told_of_closes(state) {
        return None;
    }
    let readers_max = if may_read_ahead(state, &mut rations.control) { READERS_MAX } else { 0 };
    if readers_max == 0 && matches!(stall, Stall::Names(_)) {
        return None;
    }
    state.count(Counter::SyncsAttempted, 1);
    end_accounted(state, &mut rations.control, Park::OffTrack);
    let ration = &mut rations.synchronisations;
    if unreaped(state) > LOGS - 2 && reap(state) > LOGS - 2 {
        // The one before the last has not died yet and may still write.
        return None;
    }
    // A stalled read is read 0 of both; a fault is over, and so is a directory.
    let consumed = u64::from(request.is_some());
    let log = fresh_log(state, consumed)?;
    let expects = matches!(stall, Stall::Mapping(..));
    log.imports_max.store(Ration::imports_max(expects), Relaxed);
    state.device.store(device(state, stall), Relaxed);
    state.awaits.store(u32::from(request.is_some() && ration.awaits()), Relaxed);
    state.shared_ns.store(0, Relaxed);
    log.sharers.store(0, Relaxed);
    share(state, log, now_ns);
    log.directories.usual_ns.store(ration.stall_ns(), Relaxed);
    log.directories.readers_max.store(readers_max, Relaxed);
    rations.refork.handed_over(state.handed_ns.swap(0, Relaxed));
    let hides_ns = if expects { 0 } else { ration.stall_ns() };
    let (kind, resident_bytes) = kind(state, &rations.refork, hides_ns);
    let cost_ns = rations.refork.cost_ns(kind, resident_bytes);
    if !stalls_always() && !ration.bears(cost_ns, state.stalls_ns.load(Relaxed)) {
        state.count(Counter::SyncsDeclined, 1);
        log.life.store(life::NONE, Relaxed);
        return None;
    }
    if let Some(request) = request
        && !request.started
        && request.offset != OFFSET_NONE
    {
        // Where asking has not started the read (Request::started): not less
        // than the kernel's readahead would, so that this read stays one.
        start_read(request.fd, request.offset, request.len.clamp(READ_AROUND_BYTES, 1 << 20));
    }
    // From here on: the look at the descriptors holds them for moments, too.
    waiting::entering(state);
    let scouts = matches!(stall, Stall::Names(_));
    let loses_direct_reads = direct::is_lost();
    if !scouts || loses_direct_reads {
        let listed = match stall {
            Stall::Directory(fd) => Some(*fd),
            _ => None,
        };
        // SAFETY: the lock is held: `ration` is what it guards.
        unsafe { capture::take(state, request, listed) };
    }
    // Whatever way a read was begun, by another thread, or by one that is over: one may
    // be in flight now.
    // SAFETY: as above.
    if loses_direct_reads && unsafe { capture::reads_directly() } {
        super::is_delicate(state);
        state.detaching.store(0, SeqCst);
        log.life.store(life::NONE, Relaxed);
        return None;
    }
    // What both kinds cost, the look at each descriptor above all, says nothing
    // of which is the cheaper.
    let copying_ns = sys::now_ns();
    // SAFETY: the ration's lock is held.
    let regions = unsafe { regions() };
    // The aide answers for mapped files, too.
    let helped = kind == Kind::Importing || state.large_mappings.load(Relaxed) != 0;
    // A scout needs nothing of what it does not get.
    let answered = scouts || helped && aide_runs(state);
    if !answered || kind == Kind::Full {
        regions.clear();
    }
    // What is left would take longer than may be with nothing to hide it.
    let unbearable = expects && kind == Kind::Importing;
    if unbearable && regions.all().is_empty() {
        state.count(Counter::SyncsDeclined, 1);
        log.life.store(life::NONE, Relaxed);
        return None;
    }
    // SAFETY: queries.
    let (tid, parent) = unsafe { (call(nr::GETTID, &[]), call(nr::GETPPID, &[])) };
    let parent = Parent {
        pid: state.pid.load(Relaxed),
        tid: tid as u32,
        parent: parent as u32,
        signal_mask: mask,
        handed: false,
        left: apart::left(),
        faulted: match stall {
            Stall::Fault(_) => state.fault_context.load(Relaxed),
            _ => 0,
        },
        returns: 0,
    };
    // SAFETY: the stack of this thread.
    let returns = unsafe { *(parent.left.returns_at() as *const usize) };
    let parent = Parent { returns, ..parent };
    let importing = !scouts && !regions.all().is_empty();
    if importing && let Some(end) = where_handed_over(stall, &mut rations.refork, ration.stall_ns())
    {
        // SAFETY: the lock is held, all signals are blocked, there are regions
        // only where this is the only thread, and `stall` settles it before it
        // leaves the hook.
        match unsafe { handover::post(state, log, end) } {
            Side::Copy => {
                let parent = Parent { handed: true, ..parent };
                speculative::stand_alone(log, &parent);
                return Some(copy(log, parent));
            }
            Side::Normal => {
                // It is never in the table.
                state.detaching.store(0, SeqCst);
                let end_ns = sys::now_ns();
                ration.synchronised(end_ns.saturating_sub(now_ns), false);
                begun(state, consumed, Kind::Importing, (now_ns, end_ns));
                reap(state);
                return None;
            }
            Side::Refused => {}
        }
    }
    if !regions.mark() {
        regions.forget();
        if unbearable {
            state.count(Counter::SyncsDeclined, 1);
            log.life.store(life::NONE, Relaxed);
            return None;
        }
    }
    // No signal can run one of the program's handlers in the copy: all are
    // blocked (`State::try_locked`).
    // SAFETY: fork-like: the child runs on a copy of this memory. It is the
    // only thread there, and `speculative::begin` puts it under its filter
    // before one instruction of the program runs.
    let child = unsafe { call(nr::CLONE, &[CLONE_FILES | CLONE_UNTRACED, 0, 0, 0, 0]) };
    if child == 0 {
        speculative::stand_alone(log, &parent);
        return Some(copy(log, parent));
    }
    regions.unmark();
    let end_ns = sys::now_ns();
    ration.synchronised(end_ns.saturating_sub(now_ns), request.is_none());
    if expects {
        ration.expected();
    }
    let made = if regions.all().is_empty() { Kind::Full } else { Kind::Importing };
    rations.refork.took(made, resident_bytes, end_ns.saturating_sub(copying_ns));
    if made == Kind::Importing {
        state.count(Counter::SyncsImporting, 1);
    }
    begun(state, consumed, made, (now_ns, end_ns));
    if child < 0 {
        log.life.store(life::NONE, Relaxed);
        state.disable(Loss::ProcessLimit);
        return None;
    }
    state.count(Counter::SyncsCompleted, 1);
    state.scouts.store(u32::from(scouts), Relaxed);
    if scouts
        && speculative::scout::shares_time(log.directories.usual_ns.load(Relaxed))
        && let Some(room) = scout_beside(state, 0)
    {
        room.store(child as i32, Relaxed);
    }
    state.owner.store(crate::arch::thread_pointer(), Relaxed);
    state.log.store(core::ptr::from_ref(log).cast_mut(), Relaxed);
    state.speculative.store(child as i32, Release);
    reap(state);
    None
}

/// Whether a file would be told that the program closes it ([`flushing`]).
fn is_told_of_closes(state: &State) -> bool {
    // The look holds them for moments.
    waiting::entering(state);
    let is_told = flushing::would_be_told(&state.told_devices);
    state.detaching.store(0, SeqCst);
    if is_told {
        state.count(Counter::SyncsDeclined, 1);
        if let Some(slot) = state.slot() {
            slot.lose(Loss::Told);
        }
    }
    is_told
}

/// Where the frame of the stall's hook ends, if the copy is the aide's to make:
/// the stall waits for longer than that takes, and nothing of the program needs
/// to be waited for that happens unseen.
///
/// Not where the read's data may come into the program's own pages, whose places the aide
/// fills anew meanwhile: FUSE's direct files, which no flag shows, do not pin them before
/// Linux 6.9. What `RWF_NOWAIT` has answered comes by way of the page cache.
fn where_handed_over(stall: &Stall, refork: &mut Refork, stall_ns: u64) -> Option<usize> {
    let Stall::Read(request, end) = stall else { return None };
    if !request.started {
        return None;
    }
    let test = CONFIG.test.load(Relaxed) & TEST_HANDS_OVER != 0;
    (!waiting::sees_too_little() && (test || refork.hands_over(stall_ns))).then_some(*end)
}

/// A copy has been made, or is being made: what it comes to is counted from
/// here. It took the program from `now_ns` to `end_ns`.
fn begun(state: &State, consumed: u64, kind: Kind, (now_ns, end_ns): (u64, u64)) {
    state.count(Counter::SyncNs, end_ns.saturating_sub(now_ns));
    state.consumed.store(consumed, Relaxed);
    let counters = [
        &state.shift,
        &state.predicted,
        &state.hits,
        &state.partial,
        &state.streamed,
        &state.late,
        &state.stalled_ns,
    ];
    state.copy_took_ns.store(0, Relaxed);
    state.adrift.store(0, Relaxed);
    state.found_again.store(0, Relaxed);
    state.since_judged.store(0, Relaxed);
    state.late_since_judged.store(0, Relaxed);
    counters.into_iter().chain(&state.compared).for_each(|counter| counter.store(0, Relaxed));
    state.faults_at_copy.store(usage::of_self().minor_faults + 1, Relaxed);
    state.cpu_at_copy_ns.store(sys::thread_cpu_ns() + 1, Relaxed);
    state.made_full.store(u32::from(kind == Kind::Full), Relaxed);
    state.since_ns.store(end_ns, Relaxed);
    state.scouts.store(0, Relaxed);
    state.served_row.store(0, Relaxed);
    state.served_waits.store(0, Relaxed);
    state.unasked.store(0, Relaxed); // Another thread's doing, if any are left.
}

/// Which kind of copy to make, and of how much resident anonymous memory; the
/// regions of an importing one have been found then.
pub(super) fn kind(state: &State, refork: &Refork, stall_ns: u64) -> (Kind, u64) {
    let changes = state.large_changes.load(Relaxed);
    // SAFETY: the ration's lock is held.
    let regions = unsafe { regions() };
    let resident_bytes = regions.resident_bytes(changes);
    let full = CONFIG.test.load(Relaxed) & TEST_FULL_COPIES != 0;
    let permitted = CONFIG.imports.load(Relaxed) != 0 && state.aide.load(Relaxed) >= 0 && !full;
    let always = CONFIG.test.load(Relaxed) & TEST_IMPORTING != 0;
    let chosen = |swapped| refork.choose(resident_bytes, stall_ns, swapped) == Kind::Importing;
    let wanted = always || chosen(false) || chosen(swap_in_use());
    if !permitted || !wanted || !regions::permitted() {
        return (Kind::Full, resident_bytes);
    }
    let shortest = if always { sys::PAGE_SIZE } else { REGION_MIN };
    let found = regions.find(shortest, changes);
    (if found { Kind::Importing } else { Kind::Full }, resident_bytes)
}

/// Whether there is an aide, which is started where there is none. Where that
/// is refused, no more is tried.
pub(super) fn aide_runs(state: &State) -> bool {
    let aide = state.aide.load(Relaxed);
    if aide > 0 {
        if runs(aide) {
            return true;
        }
        wait(state, aide, 0);
        // One that could not even begin would not the next time either.
        let began = desk().is_some_and(|desk| desk.life.load(Relaxed) != import::life::STARTING);
        state.aide.store(if began { 0 } else { -1 }, Relaxed);
    }
    let started = state.aide.load(Relaxed) == 0 && aide::start(state);
    if !started {
        state.aide.store(-1, Relaxed);
    }
    started
}

/// Sees to it that there is an aide, where copies may be made; its process id,
/// or 0.
pub fn start_aide(state: &'static State) -> i32 {
    if !super::own(state) || waiting::threads_are_unseen() {
        return 0;
    }
    state.try_locked(|_, _| {
        let first = state.aide.load(Relaxed) == 0;
        if is_barred(state) || !settled(state) || first && !permitted(state) {
            return;
        }
        if is_told_of_closes(state) {
            return;
        }
        waiting::entering(state);
        aide_runs(state);
    });
    await_detached(state);
    state.aide.load(Relaxed).max(0)
}

/// The device that a stall waits for; 0 where it is not known.
#[inline(never)]
fn device(state: &State, stall: &Stall) -> u64 {
    match stall {
        Stall::Read(request, _) => sys::device_of(request.fd),
        Stall::Directory(fd) | Stall::Names(fd) => sys::device_of(*fd),
        Stall::Fault(address) | Stall::Mapping(address, _) => {
            match areas::device(state, *address) {
                Some(0) => swap_device(),
                Some(device) => device,
                None => 0,
            }
        }
    }
}

/// Several threads wait for one disk at once: a copy of one of them would read
/// ahead in front of what the others are waiting for.
pub fn give_way(state: &State) {
    state.count(Counter::SyncsDeclined, 1);
    if state.speculative.load(Relaxed) != 0 {
        state.try_locked(|rations, _| {
            if settled(state) {
                end(state, &mut rations.control, Park::Disabled);
            }
        });
    }
}

/// At a stall that was predicted, only not early enough: the horizon may be
/// too short, or speculation costs more memory than it is worth.
pub fn at_partial_stall(state: &State, log: &Log) {
    revise_horizon(state, log);
    let now_ns = sys::now_ns();
    share(state, log, now_ns);
    state.try_locked(|rations, _| {
        let stall_ns = rations.synchronisations.stall_ns();
        if !rations.control.permits(state, stall_ns, now_ns) && settled(state) {
            end(state, &mut rations.control, Park::Disabled);
        }
    });
}

/// At a read now and then beside a copy: where the program's quota of processor time is
/// used up it is ended, and on flash where the program gains nothing by it. One that has
/// parked takes nothing any more, and what it predicted may still come true.
pub fn at_interval(state: &State, log: &Log, now_ns: u64) {
    let passed_ns = now_ns.saturating_sub(state.since_ns.load(Relaxed));
    let lives = log.life.load(Relaxed) != life::PARKED && super::own(state);
    if !lives || passed_ns < GAINS_AFTER_NS || stalls_always() {
        return;
    }
    state.try_locked(|rations, _| {
        // What such a copy takes it takes from the program, however well it predicts.
        let spends = quota::is_set() && idle_processors(state, now_ns) == Processors::Busy;
        if spends && settled(state) {
            account(state, rations);
            return end_accounted(state, &mut rations.control, Park::Disabled);
        }
        // Not by the mean wait: what waits behind the copy's own prefetches is among
        // that, and as long as many of them take.
        if !rations.synchronisations.is_charged() {
            return;
        }
        if gains(state, rations, passed_ns) && !only_streams(state, rations) || !settled(state) {
            return;
        }
        account(state, rations);
        end_accounted(state, &mut rations.control, Park::Disabled);
    });
}

/// How long a copy is not asked what it has saved, in ns.
const GAINS_AFTER_NS: u64 = 5_000_000;

/// At a directory that a scout has not read in time: it goes on only where there
/// is a processor and memory for it.
pub fn at_unread_directory(state: &State) {
    let now_ns = sys::now_ns();
    state.try_locked(|rations, _| {
        let stall_ns = rations.synchronisations.stall_ns();
        // For the moment its own readers are runnable: only a longer time counts.
        let busy = idle_processors(state, now_ns) == Processors::Busy;
        let pays = (!busy || stalls_always()) && rations.control.permits(state, stall_ns, now_ns);
        // It may have died without a word.
        let lives = runs(state.speculative.load(Relaxed));
        if !(pays && lives) && settled(state) {
            end(state, &mut rations.control, Park::Disabled);
        }
    });
}

/// Whether directories may be read ahead by threads, of which each counts as
/// one of the user's and of the cgroup's processes.
fn may_read_ahead(state: &State, control: &mut Control) -> bool {
    if state.readers.load(Relaxed) == readers::UNKNOWN {
        let few = super::few_for_readers() || control.has_few_tasks();
        state.readers.store(if few { readers::NONE } else { readers::SOME }, Relaxed);
    }
    state.readers.load(Relaxed) == readers::SOME
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    /// Where a program ends after a stall or two, nothing that is found out about memory
    /// and processors is of use.
    #[test]
    fn at_the_first_stalls_nobody_looks_around() {
        let state = crate::state::zeroed();
        let makes_none = || {
            let now_ns = 1_000_000_000;
            state
                .try_locked(|rations, _| makes_no_first(&state, rations, &Stall::Names(0), now_ns));
            (state.idle_asked_ns.load(Relaxed), state.idle_counted_ns.load(Relaxed))
        };
        for _ in 0..runahead_policy::ration::FIRST_STALLS {
            assert_eq!(makes_none(), (0, 0));
        }
        // Where there is one processor, there is nothing to look at.
        assert!(makes_none() != (0, 0) || state.cpus.load(Relaxed) == 1);
    }

    /// At a page fault no descriptor says what the program waits for.
    #[test]
    fn after_a_page_fault_the_device_is_shared_with_others() {
        let state = crate::state::zeroed();
        // SAFETY: zeroed memory is a valid log, and a valid table.
        let (log, table): (Box<Log>, Box<runahead_protocol::learnt::Table>) =
            unsafe { (Box::new_zeroed().assume_init(), Box::new_zeroed().assume_init()) };
        for (area, (start, device)) in state.areas.iter().zip([(0x10_0000, 77), (0x50_0000, 0)]) {
            area.start.store(start, Relaxed);
            area.device.store(device, Relaxed);
            area.end.store(start + 0x10_0000, Relaxed);
        }
        let of_fault = |address| device(&state, &Stall::Fault(address));
        assert_eq!(of_fault(0x10_0000 + 5), 77, "the mapped file's");
        assert_eq!(of_fault(0x50_0000 + 5), swap_device(), "anonymous memory");
        assert_eq!(of_fault(0x90_0000), 0, "nobody knows");
        let address = core::ptr::from_ref(&*table).cast_mut();
        state.learnt.store(address, Relaxed);
        state.pid.store(100, Relaxed);
        let sharers = |now_ns| {
            share(&state, &log, now_ns);
            log.sharers.load(Relaxed)
        };
        let second = 1_000_000_000;
        assert_eq!(sharers(second), 0, "no device is known");
        state.device.store(of_fault(0x10_0000), Relaxed);
        assert_eq!(sharers(second), 1);
        table.share(77, 101, second);
        assert_eq!(sharers(second + 1), 1, "not asked every time");
        assert_eq!(sharers(second + super::super::logs::SHARE_NS), 2);
    }
}
