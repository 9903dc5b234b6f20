//! When a stall is worth a synchronisation.
//!
//! Fraser and Chang synchronise at every unpredicted stall (section 4.1.2)
//! and find (section 4.2) that this costs some programs half of their time.
//! The cost of a synchronisation and what its speculative process saved are
//! both measured here, and where the one is not worth the other, the program
//! waits unaided first, twice as long each time. A program whose reads depend
//! on missing bytes is so left alone after a few attempts, and asked again at
//! a cost that vanishes.

use crate::learning::{Ended, Start};

/// Up to here what is waited unaided between two attempts is doubled, in stalls
/// of the length that they had at the first of them.
pub const PASS_OVER_MAX: u64 = 1024;

/// But no longer than this, in ns, or than [`PASS_OVER_MAX`] costs of an
/// attempt: on a disk a program of a thousand stalls would be given up for what
/// its first dozen showed (a selection by a PostgreSQL backend, which reads its
/// catalogues first: 1 ms to an attempt, 11 ms to a stall).
const PASS_OVER_MAX_NS: u64 = 1_000_000_000;

/// What an attempt cost beyond what it saved has to be at most this part of
/// what is waited before the next one: a program of a few hundred stalls has
/// ended before doubling alone has made the attempts few (a merge join of
/// PostgreSQL, 2 ms to an attempt, 0.7 ms to a stall: 0.89 of its speed).
const WAITED_PER_LOSS: u64 = 32;

/// The same where the copies so far have paid, taken together: what one of
/// them lost has been earned before, and the next may earn more.
const WAITED_PER_LOSS_WHERE_PAID: u64 = 8;

/// Up to so much, in ns, a copy may cost a process that has waited for next to nothing
/// yet: one of 600 MB.
const COST_FREE_NS: u64 = 10_000_000;

/// Stalls that a speculative process may lag behind before it is given up,
/// beyond those that it saves: on flash the two are neck and neck for a while,
/// now the one ahead, now the other.
pub const BEHIND_STALLS_MAX: u32 = 64;

/// The same where it has made up half of what it lagged behind at most: it is
/// about to come to the front.
pub const CATCHING_UP_STALLS_MAX: u32 = 256;

/// How long one may be behind of which nothing has come true, in stalls: a
/// program that computes between two stalls as long as its copy does would be
/// slowed by it (both work on one memory), and not be saved anything. One that
/// does little else than wait comes to [`BEHIND_STALLS_MAX`] before.
const BEHIND_TIMES_MAX: u64 = 2 * BEHIND_STALLS_MAX as u64;

/// How many pages such a one may import (section 5.1), those beside a page that
/// it touches among them: importing, it is slower than its program as long as it
/// comes to pages that it has not. In its whole life a copy that saves something
/// imports about as much (FFTPDE some 1300 pages, MATVEC 130).
const BEHIND_IMPORTS_MAX: u64 = 1024;

/// But as long as this, in stalls, it may take, whatever it imports: on a disk it
/// comes to the front with the next stall or the one after.
const BEHIND_TIMES_MIN: u64 = 8;

/// Stalls at which a process is left alone at first: many processes of a
/// `make` or an `xargs` read a file or two and end, and would pay for a copy
/// that has nothing left to predict.
pub const FIRST_STALLS: u32 = 2;

/// Stalls of this length, in ns, are worth a copy from the second one on: a
/// process that is short in time may still wait for an object store.
pub const LONG_STALL_NS: u64 = 5_000_000;

/// Hits below which a copy made after a page fault has not paid. That wait was
/// over, and hid nothing of the synchronisation; and a copy that comes one page
/// far and then computes on zeros slows down what it was to speed up (SQLite
/// through a mapping, each page naming the next: 0.69 of its speed).
pub const HITS_AFTER_FAULT_MIN: u64 = 2;

/// Hits below which a copy whose first prediction was waited for has not paid:
/// the wait is up to two stalls, and of what is read in sequence the kernel's
/// readahead would have saved most (a merge join of PostgreSQL, ten hits to a
/// copy: 0.82 of its speed).
pub const HITS_AWAITED_MIN: u64 = 16;

/// How often a copy for what is expected may come to nothing in a process: each
/// costs as much as one at a wait, and hides less.
const EXPECTED_IN_VAIN_MAX: u32 = 2;

/// Shorter stalls than this, in ns, are those of flash: there a copy is
/// charged with what its program waited for other things than storage. On
/// anything slower what a copy costs is little beside a stall, and names that
/// are not in memory are waited for as well.
pub const SHORT_STALL_NS: u64 = 200_000;

/// What of its saving a copy is charged with for each unit of such a wait. One
/// says only how much was saved in vain; the rest of its processor time still
/// delays those who are waited for.
const CHARGED_PER_WAIT: u64 = 2;

/// A copy that falls short of what it is charged with by less than this part of
/// the time is kept: it may yet catch up.
const TOLERATED_PART: u64 = 16;

/// Most that waits for something else count against copies to come, in ns.
const OWED_NS_MAX: u64 = 20_000_000;

/// Processor time that copies may take for each unit of waiting that they
/// saved: beyond it, what is gained is below a sixteenth of what is spent.
pub const CPU_PER_BENEFIT: u64 = 16;

/// What part of the processor time of a copy counts as lost. It is idle time, but
/// not free: a random walk through memory took 15% longer beside another, in the
/// mean of ten.
const CPU_PER_LOSS: u64 = 8;

/// Most that processor time counts as lost, in ns: after a copy that ran for
/// long a second is waited unaided, not ten.
const SPENT_MAX_NS: u64 = PASS_OVER_MAX_NS / WAITED_PER_LOSS;

/// Processor time of copies that is not asked about, in ns: a copy is still
/// on its way when the last one is judged.
pub const CPU_FREE_NS: u64 = 100_000_000;

/// What is known of the speculative process at a stall that it did not
/// predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none, or it has parked.
    None,
    /// It has not come to this read yet.
    Behind,
    /// It predicted something else for this read.
    OffTrack,
}

/// Whether a processor would be idle during a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processors {
    /// One is.
    Idle,
    /// None seems to be at this moment; over a longer time nothing is known.
    BusyNow,
    /// None has been for a while.
    Busy,
}

/// What to do at an unpredicted stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make a speculative process here, ending the one that there is.
    Synchronise,
    /// Wait for the data and leave things as they are.
    PassOver,
    /// End the one that there is and make none.
    GiveUp,
}

/// The ration of one normal process. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ration {
    /// Stalls so far, up to [`FIRST_STALLS`].
    first_stalls: u32,
    /// Stalls at which the present one was behind.
    behind_stalls: u32,
    /// Hits of the speculative process that [`Ration::stands`] has heard of.
    hits: u64,
    /// Reads that it lagged behind at the last of them, and at most.
    lag: u64,
    /// See `lag`.
    lag_max: u64,
    /// Smoothed time of a stall (weight 1/8), in ns.
    stall_ns: u64,
    /// The same, of which one long one among many makes little (weight 1/64).
    usual_ns: u64,
    /// Smoothed cost of a synchronisation to the normal process (weight
    /// 1/4), in ns.
    cost_ns: u64,
    /// Cost of the last one, in ns.
    last_cost_ns: u64,
    /// Whether the speculative process of the last synchronisation has still
    /// to be accounted for.
    open: bool,
    /// Whether a copy is made at the first stall: those of others have paid. Until then.
    at_once: bool,
    /// Whether the present one was.
    is_at_once: bool,
    /// Whether that one came to nothing.
    hasty: bool,
    /// Whether it was made for what is expected.
    expects: bool,
    /// How often that came to nothing.
    expected_in_vain: u32,
    /// Whether it was made after a page fault.
    after_fault: bool,
    /// Time that its thread has waited for something else since, in ns.
    elsewhere_ns: u64,
    /// The same beside copies before, as far as they did not save as much.
    owed_ns: u64,
    /// Whether the program waits for the first prediction of its copies.
    awaits: bool,
    /// What is still to be waited unaided, in ns: stalls are passed over. Time
    /// and not a number, because those to come may be longer than those so far
    /// (directories of a FUSE file system 0.1 ms, its files 30 ms).
    unaided_ns: u64,
    /// What was to be waited after the last attempt, in ns; 0 where it paid.
    unaided_last_ns: u64,
    /// Copies accounted for, what they saved and what they cost, in ns.
    copies: u32,
    /// Ranges of theirs that the program has found.
    found: u64,
    benefits_ns: u64,
    costs_ns: u64,
    /// Processor time of copies that have ended, in ns.
    cpu_ns: u64,
    /// Processor time that the copy of the last synchronisation took while the
    /// program did not wait, in ns.
    last_cpu_ns: u64,
    /// What a page saves that a copy for what is expected has prefetched, in ns.
    unseen_ns: u64,
}

impl Ration {
    /// Begins as processes of this executable have shown to be right.
    pub fn begin(&mut self, start: Start) {
        match start {
            Start::Unknown => {}
            Start::AtOnce => (self.first_stalls, self.at_once) = (FIRST_STALLS, true),
            Start::Second => self.first_stalls = FIRST_STALLS - 1,
            Start::Later(ns) => {
                self.first_stalls = FIRST_STALLS;
                self.unaided_ns = ns;
            }
        }
    }

    /// Whether a copy may be made for `bytes` that are about to be waited for,
    /// of whose waits nobody will tell: those count as waited for, a byte in a
    /// nanosecond.
    pub fn may_expect(&self, bytes: u64) -> bool {
        self.expected_in_vain < EXPECTED_IN_VAIN_MAX && self.unaided_ns <= bytes
    }

    /// Pages that a copy may import after it has predicted anything last: one for
    /// what is expected ends then by itself, since no stall may come at which it
    /// would be given up.
    pub fn imports_max(expects: bool) -> u32 {
        if expects { BEHIND_IMPORTS_MAX as u32 } else { u32::MAX }
    }

    /// The last synchronisation was for what is expected.
    pub fn expected(&mut self) {
        self.expects = true;
    }

    /// The program waited `ns` for storage, not counting a synchronisation.
    pub fn stalled(&mut self, ns: u64) {
        let smoothed = |old_ns: u64, weight: u64| match old_ns {
            0 => ns.max(1),
            old_ns => (old_ns - old_ns / weight + ns / weight).max(1),
        };
        self.at_once = false;
        self.stall_ns = smoothed(self.stall_ns, 8);
        self.usual_ns = smoothed(self.usual_ns, 64);
        self.unaided_ns = self.unaided_ns.saturating_sub(ns.max(1));
    }

    /// `stalls` more, of `ns` each, were waited for without a question whether
    /// a synchronisation is worth it: they count as passed over.
    pub fn unnoticed(&mut self, stalls: u32, ns: u64) {
        self.unaided_ns = self.unaided_ns.saturating_sub(u64::from(stalls).saturating_mul(ns));
    }

    /// The program waited `ns` in reads that nobody asked about, however often.
    pub fn timed(&mut self, ns: u64) {
        self.unaided_ns = self.unaided_ns.saturating_sub(ns);
    }

    /// How long stalls are still passed over, whatever is asked about them, in
    /// ns.
    pub fn unaided_ns(&self) -> u64 {
        self.unaided_ns
    }

    /// A synchronisation took `ns` of the normal process's time, after a page
    /// fault or during the wait of a read.
    pub fn synchronised(&mut self, ns: u64, after_fault: bool) {
        self.after_fault = after_fault;
        self.cost_ns = match self.cost_ns {
            0 => ns.max(1),
            old => (old - old / 4 + ns / 4).max(1),
        };
        self.last_cost_ns = ns;
        self.behind_stalls = 0;
        (self.hits, self.lag, self.lag_max) = (0, 0, 0);
        self.elsewhere_ns = 0;
        self.last_cpu_ns = 0;
        self.open = true;
        self.expects = false;
    }

    /// Its data came before the copy was there (section 5.1: preemptible): there is
    /// nothing to judge it by.
    pub fn given_up(&mut self) {
        (self.open, self.is_at_once) = (false, false);
    }

    /// Since the last synchronisation its thread has waited `ns` in all for
    /// something else than storage: a pipe, a socket, a process, a processor.
    ///
    /// Of several processes that hand data on to each other one is the slowest,
    /// and what the others no longer wait for storage they wait for that one
    /// (the sender of rsync, of which the receiver fills a processor: copies that
    /// saved a third of its stalls made the whole slower by a thirtieth).
    pub fn waited_elsewhere(&mut self, ns: u64) {
        self.elsewhere_ns = ns;
    }

    /// What `hits` ranges, `partial` of them still in flight, have saved, in ns.
    /// By the last few stalls, of which one may have been long, a copy that saved
    /// a thousand would have saved more time than has passed.
    fn saved_ns(&self, hits: u64, partial: u64) -> u64 {
        let halves = hits.saturating_mul(2).saturating_sub(partial);
        let stall_ns = match self.stall_ns {
            0 if self.expects => self.unseen_ns,
            stall_ns if self.expects => self.unseen_ns.min(stall_ns),
            stall_ns if self.is_charged() => stall_ns.min(self.usual_ns),
            stall_ns => stall_ns,
        };
        stall_ns.saturating_mul(halves) / 2
    }

    /// What the copy is charged with for what its thread waited for elsewhere, in
    /// ns.
    fn charged_ns(&self) -> u64 {
        if self.is_charged() { self.elsewhere_ns.saturating_mul(CHARGED_PER_WAIT) } else { 0 }
    }

    /// Whether copies are charged with such waits: stalls are those of flash, and
    /// the last copy was not made after a page fault.
    pub fn is_charged(&self) -> bool {
        self.usual_ns < SHORT_STALL_NS && !self.after_fault
    }

    /// Whether the speculative process, of which so much has come true in
    /// `passed_ns`, has saved its thread about as much as it is charged with.
    pub fn gains(&self, hits: u64, partial: u64, passed_ns: u64) -> bool {
        let short_ns = self.charged_ns().saturating_sub(self.saved_ns(hits, partial));
        !self.open || short_ns <= passed_ns / TOLERATED_PART
    }

    /// The copy of the last synchronisation has cost the normal process `ns`
    /// more since.
    pub fn cost_more(&mut self, ns: u64) {
        if self.open {
            self.cost_ns = self.cost_ns.saturating_add(ns / 4);
            self.last_cost_ns = self.last_cost_ns.saturating_add(ns);
        }
    }

    /// The speculative process since the last synchronisation is at its end,
    /// or is about to be replaced: the program found `hits` ranges that it
    /// had prefetched, `partial` of them still in flight.
    ///
    /// A complete prefetch saved a stall; one in flight is counted as half.
    ///
    /// `shares`: the copy found memory that the program shares with others. It
    /// sees that as it is when it touches it, so where it begins after the
    /// stall it comes to nothing. The next ones are then waited for.
    pub fn outcome(&mut self, hits: u64, partial: u64, shares: bool) {
        if !core::mem::take(&mut self.open) {
            return;
        }
        let was_at_once = core::mem::take(&mut self.is_at_once);
        self.found = self.found.saturating_add(hits);
        let awaited = self.awaits;
        self.awaits |= shares && hits == 0;
        if self.awaits && !awaited {
            return;
        }
        let saved_ns = self.saved_ns(hits, partial);
        let charged_ns = self.owed_ns.saturating_add(self.charged_ns());
        self.owed_ns = charged_ns.saturating_sub(saved_ns).min(OWED_NS_MAX);
        let benefit_ns = saved_ns.saturating_sub(charged_ns);
        // What the normal process pays is partly hidden by the wait, but the
        // copy's own cycles and the copy-on-write faults are not: count all.
        let ran_ahead = (!self.after_fault || hits >= HITS_AFTER_FAULT_MIN)
            && (!awaited || hits >= HITS_AWAITED_MIN);
        let before_ns = self.benefits_ns;
        self.benefits_ns = before_ns.saturating_add(benefit_ns);
        let pays = ran_ahead && self.pays(benefit_ns);
        if self.expects && !pays {
            // It says little of copies at waits.
            self.expected_in_vain += 1;
            self.benefits_ns = before_ns;
            return;
        }
        self.hasty |= was_at_once && hits == 0;
        self.copies = self.copies.saturating_add(1);
        self.costs_ns = self.costs_ns.saturating_add(self.cost_ns);
        if !pays {
            let spent_ns = (self.last_cpu_ns / CPU_PER_LOSS).min(SPENT_MAX_NS);
            let lost_ns = self.last_cost_ns.saturating_add(spent_ns).saturating_sub(benefit_ns);
            let stall_ns = self.stall_ns.max(1);
            let bound_ns = self.cost_ns.saturating_mul(PASS_OVER_MAX).max(PASS_OVER_MAX_NS);
            let most_ns = stall_ns.saturating_mul(PASS_OVER_MAX).min(bound_ns);
            let doubled_ns = self.unaided_last_ns.saturating_mul(2).min(most_ns);
            let least_ns = lost_ns.saturating_mul(self.waited_per_loss()).max(stall_ns);
            self.unaided_ns = doubled_ns.max(least_ns);
            self.unaided_last_ns = self.unaided_ns;
        }
    }

    /// Whether anything is left undone because the copy of the last synchronisation
    /// was judged to be in vain.
    pub fn holds_back(&self) -> bool {
        self.unaided_ns != 0 || self.expects && self.expected_in_vain != 0
    }

    /// Whether the copy of the last synchronisation is still to be judged.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Since the copy of the last synchronisation was judged to be in vain, `hits`
    /// more of the pages that it had prefetched have come true: whether it has
    /// paid after all, and stalls are passed over no more.
    ///
    /// A program may meet first what a copy left out because it depends on what
    /// is missing, and what that predicted only then (a get from LMDB: the
    /// copy prefetches the inner pages of the next sixty, the program waits for
    /// the leaf of the first).
    pub fn came_true(&mut self, hits: u64) -> bool {
        let benefit_ns = self.saved_ns(hits, 0);
        if self.open || hits < HITS_AFTER_FAULT_MIN {
            return false;
        }
        let before_ns = self.benefits_ns;
        self.benefits_ns = before_ns.saturating_add(benefit_ns);
        if self.pays(benefit_ns) {
            self.hasty = false;
            return true;
        }
        self.benefits_ns = before_ns;
        false
    }

    /// Whether what a copy saved is worth what one costs; where it is, no stall is
    /// passed over.
    fn pays(&mut self, benefit_ns: u64) -> bool {
        let pays = benefit_ns > self.cost_ns.saturating_mul(2) && !self.is_too_dear();
        if pays {
            (self.unaided_ns, self.unaided_last_ns) = (0, 0);
            if self.expects {
                self.expected_in_vain = 0;
            }
        }
        pays
    }

    /// Whether a copy that is going to cost the normal process `cost_ns` may be made of
    /// one that has waited `waited_ns` so far: before copies have paid, that is lost if it
    /// comes to nothing, and of a process of many gigabytes it may be a second.
    pub fn bears(&self, cost_ns: u64, waited_ns: u64) -> bool {
        cost_ns <= COST_FREE_NS
            || self.have_paid()
            || cost_ns <= waited_ns / WAITED_PER_LOSS_WHERE_PAID
    }

    /// Whether the copies so far have, taken together: as a single copy is judged, and the
    /// next process's beginning.
    fn have_paid(&self) -> bool {
        self.benefits_ns > self.costs_ns.saturating_mul(2)
    }

    fn waited_per_loss(&self) -> u64 {
        if self.have_paid() { WAITED_PER_LOSS_WHERE_PAID } else { WAITED_PER_LOSS }
    }

    /// Whether the program waits for the first prediction of its copies.
    pub fn awaits(&self) -> bool {
        self.awaits
    }

    /// A copy that has ended took `ns` of processor time.
    pub fn spent(&mut self, ns: u64) {
        self.cpu_ns = self.cpu_ns.saturating_add(ns);
    }

    /// A page that the program finds saves `ns`, where it goes through many in
    /// order and nobody is told of its waits.
    pub fn unseen(&mut self, ns: u64) {
        self.unseen_ns = ns;
    }

    /// The one of the last synchronisation has taken `ns` of it so far beside the
    /// program, as far as that did not wait.
    pub fn took(&mut self, ns: u64) {
        self.last_cpu_ns = ns;
    }

    /// Whether copies take more processor time than what they save is worth,
    /// idle or not: it is energy, and a neighbour's cache.
    fn is_too_dear(&self) -> bool {
        let allowed_ns = self.benefits_ns.saturating_mul(CPU_PER_BENEFIT);
        self.cpu_ns > allowed_ns.saturating_add(CPU_FREE_NS)
    }

    /// Whether a speculative process that is behind is to be given up if nothing
    /// that it predicted has come true in the `age_ns` since it was made, in which
    /// it imported so many pages.
    pub fn is_hopeless(&self, age_ns: u64, imported: u64) -> bool {
        let imports = imported > BEHIND_IMPORTS_MAX;
        let most = if imports { BEHIND_TIMES_MIN } else { BEHIND_TIMES_MAX };
        self.stall_ns != 0 && age_ns > self.stall_ns.saturating_mul(most)
    }

    /// How the speculative process stands at a stall at which it is behind, by
    /// `lag` reads: the program has found `hits` ranges so far that it had
    /// prefetched, and each makes up for one such stall.
    pub fn stands(&mut self, hits: u64, lag: u64) {
        let more = hits.saturating_sub(core::mem::replace(&mut self.hits, hits));
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.behind_stalls = self.behind_stalls.saturating_sub(more);
        self.lag = lag;
        self.lag_max = self.lag_max.max(lag);
    }

    fn behind_stalls_max(&self) -> u32 {
        let catches_up = self.lag_max > 0 && self.lag <= self.lag_max / 2;
        if catches_up { CATCHING_UP_STALLS_MAX } else { BEHIND_STALLS_MAX }
    }

    /// Whether a stall is waited for unaided as one of the first of its process, whatever
    /// else is found out about it.
    pub fn is_among_first(&self) -> bool {
        self.first_stalls < FIRST_STALLS && self.stall_ns < LONG_STALL_NS
    }

    /// Decides at a stall that was not predicted. `standing` is how the
    /// speculative process stands.
    pub fn decide(&mut self, standing: Standing, processors: Processors) -> Decision {
        if standing == Standing::Behind {
            // It is merely slow: do not chase it. It may catch up, since it
            // never waits for data; but not without a processor.
            self.behind_stalls += 1;
            if processors != Processors::Busy && self.behind_stalls < self.behind_stalls_max() {
                return Decision::PassOver;
            }
            self.behind_stalls = 0;
            return Decision::GiveUp;
        }
        if self.is_among_first() {
            self.first_stalls += 1;
            return Decision::PassOver;
        }
        if self.unaided_ns > 0 {
            return if standing == Standing::OffTrack {
                Decision::GiveUp
            } else {
                Decision::PassOver
            };
        }
        let is_idle = processors == Processors::Idle;
        self.is_at_once = self.at_once && is_idle;
        if is_idle { Decision::Synchronise } else { Decision::PassOver }
    }

    /// What a process that waited `stalls` times for `stalled_ns` in all came
    /// to; each of its copies must have been accounted for.
    pub fn ended(&self, stalls: u32, stalled_ns: u64) -> Ended {
        Ended {
            stalls,
            stalled_ns,
            copies: self.copies,
            hits: self.found,
            benefit_ns: self.benefits_ns,
            cost_ns: self.costs_ns,
            unaided_ns: self.unaided_last_ns,
            hasty: self.hasty,
            below: false,
            maps: false,
            brief: false,
            lack: None,
        }
    }

    /// Stalls that are still passed over, as long as those so far.
    pub fn passes_over(&self) -> u64 {
        self.unaided_ns / self.stall_ns.max(1)
    }

    /// Smoothed time of a stall, in ns; 0: none seen.
    pub fn stall_ns(&self) -> u64 {
        self.stall_ns
    }
}

#[cfg(test)]
mod tests;
