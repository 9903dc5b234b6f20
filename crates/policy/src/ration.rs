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

/// Stalls that a speculative process may lag behind before it is given up,
/// beyond those that it saves: on flash the two are neck and neck for a while,
/// now the one ahead, now the other.
pub const BEHIND_STALLS_MAX: u32 = 64;

/// The same where it has made up half of what it lagged behind at most: it is
/// about to come to the front.
pub const CATCHING_UP_STALLS_MAX: u32 = 256;

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
    benefits_ns: u64,
    costs_ns: u64,
    /// Processor time of copies that have ended, in ns.
    cpu_ns: u64,
}

impl Ration {
    /// Begins as processes of this executable have shown to be right.
    pub fn begin(&mut self, start: Start) {
        match start {
            Start::Unknown => {}
            Start::AtOnce => self.first_stalls = FIRST_STALLS,
            Start::Later(ns) => {
                self.first_stalls = FIRST_STALLS;
                self.unaided_ns = ns;
            }
        }
    }

    /// The program waited `ns` for storage, not counting a synchronisation.
    pub fn stalled(&mut self, ns: u64) {
        let smoothed = |old_ns: u64, weight: u64| match old_ns {
            0 => ns.max(1),
            old_ns => (old_ns - old_ns / weight + ns / weight).max(1),
        };
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
        self.open = true;
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
        let bounded_ns = self.stall_ns.min(self.usual_ns);
        let stall_ns = if self.is_charged() { bounded_ns } else { self.stall_ns };
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
        let awaited = self.awaits;
        self.awaits |= shares && hits == 0;
        if self.awaits && !awaited {
            return;
        }
        let saved_ns = self.saved_ns(hits, partial);
        let charged_ns = self.owed_ns.saturating_add(self.charged_ns());
        self.owed_ns = charged_ns.saturating_sub(saved_ns).min(OWED_NS_MAX);
        let benefit_ns = saved_ns.saturating_sub(charged_ns);
        self.copies = self.copies.saturating_add(1);
        self.benefits_ns = self.benefits_ns.saturating_add(benefit_ns);
        self.costs_ns = self.costs_ns.saturating_add(self.cost_ns);
        // What the normal process pays is partly hidden by the wait, but the
        // copy's own cycles and the copy-on-write faults are not: count all.
        let ran_ahead = (!self.after_fault || hits >= HITS_AFTER_FAULT_MIN)
            && (!awaited || hits >= HITS_AWAITED_MIN);
        if ran_ahead && benefit_ns > self.cost_ns.saturating_mul(2) && !self.is_too_dear() {
            self.unaided_ns = 0;
            self.unaided_last_ns = 0;
        } else {
            let lost_ns = self.last_cost_ns.saturating_sub(benefit_ns);
            let stall_ns = self.stall_ns.max(1);
            let bound_ns = self.cost_ns.saturating_mul(PASS_OVER_MAX).max(PASS_OVER_MAX_NS);
            let most_ns = stall_ns.saturating_mul(PASS_OVER_MAX).min(bound_ns);
            let doubled_ns = self.unaided_last_ns.saturating_mul(2).min(most_ns);
            let least_ns = lost_ns.saturating_mul(self.waited_per_loss()).max(stall_ns);
            self.unaided_ns = doubled_ns.max(least_ns);
            self.unaided_last_ns = self.unaided_ns;
        }
    }

    fn waited_per_loss(&self) -> u64 {
        // As a single copy is judged, and the next process's beginning.
        let paid = self.benefits_ns > self.costs_ns.saturating_mul(2);
        if paid { WAITED_PER_LOSS_WHERE_PAID } else { WAITED_PER_LOSS }
    }

    /// Whether the program waits for the first prediction of its copies.
    pub fn awaits(&self) -> bool {
        self.awaits
    }

    /// A copy that has ended took `ns` of processor time.
    pub fn spent(&mut self, ns: u64) {
        self.cpu_ns = self.cpu_ns.saturating_add(ns);
    }

    /// Whether copies take more processor time than what they save is worth,
    /// idle or not: it is energy, and a neighbour's cache.
    fn is_too_dear(&self) -> bool {
        let allowed_ns = self.benefits_ns.saturating_mul(CPU_PER_BENEFIT);
        self.cpu_ns > allowed_ns.saturating_add(CPU_FREE_NS)
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
        if self.first_stalls < FIRST_STALLS && self.stall_ns < LONG_STALL_NS {
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
        if processors == Processors::Idle { Decision::Synchronise } else { Decision::PassOver }
    }

    /// What a process that waited `stalls` times for `stalled_ns` in all came
    /// to; each of its copies must have been accounted for.
    pub fn ended(&self, stalls: u32, stalled_ns: u64) -> Ended {
        Ended {
            stalls,
            stalled_ns,
            copies: self.copies,
            benefit_ns: self.benefits_ns,
            cost_ns: self.costs_ns,
            unaided_ns: self.unaided_last_ns,
        }
    }

    /// Smoothed time of a stall, in ns; 0: none seen.
    pub fn stall_ns(&self) -> u64 {
        self.stall_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ration that has its first stalls behind it.
    fn begun() -> Ration {
        Ration { first_stalls: FIRST_STALLS, ..Ration::default() }
    }

    fn attempts(stalls: u32, hits: u64) -> u32 {
        let mut ration = begun();
        let mut attempts = 0;
        for _ in 0..stalls {
            ration.outcome(hits, 0, false);
            if ration.decide(Standing::None, Processors::Idle) == Decision::Synchronise {
                ration.synchronised(100_000, false);
                attempts += 1;
            }
            ration.stalled(1_000_000);
        }
        attempts
    }

    #[test]
    fn a_program_that_gains_is_synchronised_at_every_stall() {
        assert_eq!(attempts(1000, 40), 1000);
    }

    #[test]
    fn a_program_that_does_not_is_left_alone() {
        assert!(attempts(100_000, 0) < 120, "{}", attempts(100_000, 0));
    }

    #[test]
    fn on_a_disk_a_program_is_asked_again_after_a_second() {
        let mut ration = begun();
        for _ in 0..20 {
            ration.stalled(11_000_000);
            ration.synchronised(1_000_000, false);
            ration.outcome(0, 0, false);
        }
        assert_eq!(ration.unaided_ns(), 1_024_000_000, "a thousandth of it is attempts");
        ration.synchronised(100_000, false);
        ration.outcome(0, 0, false);
        assert_eq!(ration.unaided_ns(), 1_000_000_000);
    }

    #[test]
    fn attempts_that_cost_much_are_few_in_a_short_program() {
        // A merge join: 300 stalls of 0.7 ms, 2 ms to an attempt, half of them
        // waited for; one hit to a copy.
        let attempts = |cost_ns: u64| {
            let mut ration = begun();
            let mut attempts = 0;
            for _ in 0..300 {
                ration.stalled(700_000);
                ration.outcome(1, 0, false);
                if ration.decide(Standing::None, Processors::Idle) == Decision::Synchronise {
                    ration.synchronised(cost_ns / 2, true);
                    ration.cost_more(cost_ns / 2);
                    attempts += 1;
                }
            }
            attempts
        };
        let lost_ns = attempts(2_000_000) * 1_300_000;
        assert!(lost_ns * WAITED_PER_LOSS <= 300 * 700_000 + 4 * 1_300_000 * WAITED_PER_LOSS);
        assert!(attempts(2_000_000) <= 3, "{}", attempts(2_000_000));
        assert_eq!(attempts(700_000), 9, "nothing lost: doubling alone");
    }

    #[test]
    fn where_copies_have_paid_the_next_attempt_comes_sooner() {
        let stalls_passed_over = |hits| {
            let mut ration = begun();
            ration.stalled(1_000_000);
            ration.synchronised(2_000_000, false);
            ration.outcome(hits, 0, false);
            ration.synchronised(2_000_000, false);
            ration.outcome(0, 0, false);
            ration.unaided_ns / 1_000_000
        };
        assert_eq!(stalls_passed_over(100), 2 * WAITED_PER_LOSS_WHERE_PAID);
        assert!(stalls_passed_over(1) >= 2 * WAITED_PER_LOSS);
    }

    /// An object store through FUSE: the copy of a walk's first directories came
    /// to nothing, and 270 of its 400 files were then waited for unaided.
    #[test]
    fn a_loss_at_short_stalls_is_soon_outweighed_by_long_ones() {
        let mut ration = begun();
        for _ in 0..3 {
            ration.stalled(60_000);
        }
        ration.synchronised(400_000, false);
        ration.outcome(0, 0, false);
        let mut passed_over = 0;
        while ration.decide(Standing::None, Processors::Idle) == Decision::PassOver {
            ration.stalled(30_000_000);
            passed_over += 1;
        }
        assert_eq!(passed_over, 1, "12.8 ms are one stall");
    }

    #[test]
    fn what_an_attempt_loses_is_outweighed_however_short_stalls_are() {
        let mut ration = begun();
        ration.stalled(60_000);
        ration.synchronised(35_000_000, false);
        ration.outcome(0, 0, false);
        let mut waited_ns = 0;
        while ration.decide(Standing::None, Processors::Idle) == Decision::PassOver {
            ration.stalled(60_000);
            waited_ns += 60_000;
        }
        assert!(waited_ns >= 35_000_000 * WAITED_PER_LOSS, "{waited_ns}");
    }

    #[test]
    fn stalls_that_nobody_asked_about_are_passed_over() {
        let mut ration = begun();
        ration.stalled(1_000_000);
        for _ in 0..4 {
            ration.synchronised(10_000, false);
            ration.outcome(0, 0, false);
        }
        ration.unnoticed(7, 1_000_000);
        let idle = Processors::Idle;
        assert_eq!(ration.decide(Standing::None, idle), Decision::PassOver, "8 ms were left");
        ration.stalled(1_000_000);
        assert_eq!(ration.decide(Standing::None, idle), Decision::Synchronise);
    }

    #[test]
    fn stalls_that_were_only_timed_end_the_passing_over() {
        let mut ration = begun();
        ration.stalled(80_000);
        assert_eq!(ration.unaided_ns(), 0);
        for _ in 0..2 {
            ration.synchronised(100_000, false);
            ration.outcome(0, 0, false);
        }
        let left_ns = ration.unaided_ns;
        assert!(left_ns > 80_000);
        ration.timed(left_ns - 1);
        assert_eq!(ration.unaided_ns(), 1);
        ration.timed(80_000);
        assert_eq!(ration.unaided_ns(), 0);
        // A long wait among many short ones counts, as they do.
        ration.begin(Start::Later(20_000_000));
        ration.timed(300 * 30_000 + 10_000_000);
        assert_eq!(ration.unaided_ns(), 1_000_000);
    }

    #[test]
    fn copies_that_save_one_fault_each_are_soon_left() {
        let attempts = |after_fault| {
            let mut ration = begun();
            let mut attempts = 0;
            for _ in 0..2000 {
                ration.outcome(1, 0, false);
                if ration.decide(Standing::None, Processors::Idle) == Decision::Synchronise {
                    ration.synchronised(100_000, after_fault);
                    attempts += 1;
                }
                ration.stalled(2_000_000);
            }
            attempts
        };
        assert_eq!(attempts(false), 2000);
        assert!(attempts(true) < 20, "{}", attempts(true));
    }

    #[test]
    fn a_slow_copy_is_not_chased() {
        let mut ration = begun();
        assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::Synchronise);
        ration.synchronised(50_000, false);
        for _ in 1..BEHIND_STALLS_MAX {
            assert_eq!(ration.decide(Standing::Behind, Processors::Idle), Decision::PassOver);
        }
        assert_eq!(ration.decide(Standing::Behind, Processors::Idle), Decision::GiveUp);
    }

    #[test]
    fn a_copy_that_saves_as_many_stalls_as_it_misses_is_kept() {
        let mut ration = begun();
        ration.synchronised(50_000, false);
        for hits in 0..10 * u64::from(BEHIND_STALLS_MAX) {
            ration.stands(hits, 1);
            assert_eq!(ration.decide(Standing::Behind, Processors::Idle), Decision::PassOver);
        }
        // From here on it saves nothing more; what it once saved is no credit.
        let left = (0..).take_while(|_| {
            ration.stands(10 * u64::from(BEHIND_STALLS_MAX), 1);
            ration.decide(Standing::Behind, Processors::Idle) == Decision::PassOver
        });
        assert_eq!(left.count() as u32, BEHIND_STALLS_MAX - 1);
    }

    #[test]
    fn a_copy_that_catches_up_is_given_longer() {
        let passed_over = |lag: fn(u64) -> u64| {
            let mut ration = begun();
            ration.synchronised(50_000, false);
            let passed = (0..).take_while(|stall| {
                ration.stands(0, lag(*stall));
                ration.decide(Standing::Behind, Processors::Idle) == Decision::PassOver
            });
            passed.count() as u32 + 1
        };
        assert_eq!(passed_over(|_| 20), BEHIND_STALLS_MAX, "as far behind as ever");
        assert_eq!(passed_over(|stall| stall + 1), BEHIND_STALLS_MAX, "ever farther");
        assert_eq!(passed_over(|stall| 40u64.saturating_sub(stall)), CATCHING_UP_STALLS_MAX);
    }

    #[test]
    fn a_process_of_a_stall_or_two_is_left_alone() {
        let mut ration = Ration::default();
        for _ in 0..FIRST_STALLS {
            assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::PassOver);
            ration.stalled(100_000);
        }
        assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::Synchronise);
    }

    #[test]
    fn long_stalls_are_worth_a_copy_at_once() {
        let mut ration = Ration::default();
        assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::PassOver);
        ration.stalled(30_000_000);
        assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::Synchronise);
    }

    #[test]
    fn copies_that_compute_too_long_are_rationed() {
        let attempts = |cpu_ns: u64| {
            let mut ration = begun();
            let mut attempts = 0;
            for _ in 0..1000 {
                ration.outcome(40, 0, false);
                if ration.decide(Standing::None, Processors::Idle) == Decision::Synchronise {
                    ration.synchronised(100_000, false);
                    ration.spent(cpu_ns);
                    attempts += 1;
                }
                ration.stalled(1_000_000);
            }
            attempts
        };
        // 40 stalls of 1 ms are 40 ms saved.
        assert_eq!(attempts(40_000_000 * (CPU_PER_BENEFIT - 1)), 1000);
        assert!(attempts(40_000_000 * (CPU_PER_BENEFIT + 1)) < 100);
    }

    #[test]
    fn what_is_waited_for_elsewhere_instead_is_not_saved() {
        let attempts = |stall_ns: u64, elsewhere_ns: u64| {
            let mut ration = begun();
            let mut attempts = 0;
            for _ in 0..2000 {
                ration.stalled(stall_ns);
                ration.waited_elsewhere(elsewhere_ns);
                assert!(ration.gains(40, 0, 0));
                ration.outcome(40, 0, false);
                if ration.decide(Standing::None, Processors::Idle) == Decision::Synchronise {
                    ration.synchronised(200_000, false);
                    attempts += 1;
                }
            }
            attempts
        };
        let flash_ns = SHORT_STALL_NS / 4;
        assert_eq!(attempts(flash_ns, 0), 2000);
        assert_eq!(attempts(flash_ns, 10 * flash_ns), 2000, "half of it is left");
        assert!(attempts(flash_ns, 20 * flash_ns) < 20);
        // On a disk a program also waits for names.
        let mut ration = begun();
        ration.stalled(SHORT_STALL_NS);
        ration.synchronised(200_000, false);
        ration.waited_elsewhere(u64::MAX);
        assert!(ration.gains(1, 0, 0));
        // Nor soon after flash, of which there was much.
        let mut ration = begun();
        (0..1000).for_each(|_| ration.stalled(50_000));
        ration.stalled(10_000_000);
        ration.synchronised(200_000, false);
        ration.waited_elsewhere(u64::MAX);
        assert!(ration.gains(1, 0, 0));
    }

    #[test]
    fn a_copy_is_not_ended_for_a_little_nor_for_what_others_owe() {
        let mut ration = begun();
        ration.stalled(50_000);
        for _ in 0..2 {
            ration.synchronised(200_000, false);
            ration.waited_elsewhere(5_000_000);
            assert!(!ration.gains(100, 0, 16_000_000), "5 of 10 ms, and 1 is tolerated");
            assert!(ration.gains(180, 0, 16_000_000));
            assert!(!ration.gains(179, 0, 16_000_000));
            ration.outcome(0, 0, false);
        }
        ration.synchronised(200_000, false);
        ration.waited_elsewhere(0);
        assert!(ration.gains(0, 0, 5_000_000), "its predecessors owe 20 ms");
    }

    #[test]
    fn what_is_waited_for_elsewhere_counts_beside_the_copies_to_come() {
        let mut ration = begun();
        let benefit_ns = |ration: &mut Ration, elsewhere_ns| {
            let before_ns = ration.benefits_ns;
            ration.stalled(50_000);
            ration.synchronised(10_000, false);
            ration.waited_elsewhere(elsewhere_ns);
            ration.outcome(100, 0, false);
            ration.benefits_ns - before_ns
        };
        assert_eq!(benefit_ns(&mut ration, 4_500_000), 0);
        assert_eq!(benefit_ns(&mut ration, 0), 1_000_000, "4 of 5 ms are owed");
        assert_eq!(benefit_ns(&mut ration, 0), 5_000_000);
        assert_eq!(benefit_ns(&mut ration, u64::MAX), 0);
        let owed = (0..100).take_while(|_| benefit_ns(&mut ration, 0) == 0).count() as u64;
        assert_eq!(owed, OWED_NS_MAX / 5_000_000, "not for ever");
    }

    #[test]
    fn a_long_stall_among_many_does_not_make_the_saving_longer() {
        let mut ration = begun();
        ration.stalled(50_000);
        ration.stalled(5_000_000);
        ration.synchronised(10_000, false);
        ration.waited_elsewhere(65_000_000);
        assert!(!ration.gains(1000, 0, 1_000_000), "at most 127 ms of 130");
    }

    #[test]
    fn a_process_begins_as_its_like_ended() {
        let decide = |start, stalls_before: u32| {
            let mut ration = Ration::default();
            ration.begin(start);
            for _ in 0..stalls_before {
                assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::PassOver);
                ration.stalled(100_000);
            }
            ration.decide(Standing::None, Processors::Idle)
        };
        assert_eq!(decide(Start::AtOnce, 0), Decision::Synchronise);
        assert_eq!(decide(Start::Later(1_000_000), 10), Decision::Synchronise);
        assert_eq!(decide(Start::Unknown, FIRST_STALLS), Decision::Synchronise);
    }

    #[test]
    fn a_process_tells_what_its_copies_came_to() {
        let mut ration = begun();
        for hits in [10, 0] {
            ration.stalled(1_000_000);
            ration.synchronised(100_000, false);
            ration.outcome(hits, 0, false);
            ration.outcome(hits, 0, false);
        }
        let ended = ration.ended(7, 9_000_000);
        assert_eq!((ended.copies, ended.benefit_ns, ended.cost_ns), (2, 10_000_000, 200_000));
        assert_eq!((ended.stalls, ended.stalled_ns), (7, 9_000_000));
        assert_eq!(ended.unaided_ns, ration.unaided_ns, "the last one did not pay");
        assert!(ended.unaided_ns > 0);
    }

    #[test]
    fn copies_that_make_the_program_fault_are_left_alone() {
        let mut ration = begun();
        let mut attempts = 0;
        for _ in 0..10_000 {
            ration.cost_more(3_000_000);
            ration.outcome(1, 0, false);
            if ration.decide(Standing::None, Processors::Idle) == Decision::Synchronise {
                ration.synchronised(100_000, false);
                attempts += 1;
            }
            ration.stalled(1_000_000);
        }
        assert!(attempts < 40, "{attempts}");
    }

    #[test]
    fn busy_processors_make_no_copies() {
        let mut ration = begun();
        assert_eq!(ration.decide(Standing::None, Processors::Busy), Decision::PassOver);
        assert_eq!(ration.decide(Standing::OffTrack, Processors::Idle), Decision::Synchronise);
    }

    #[test]
    fn copies_that_share_memory_and_fail_are_waited_for_and_must_bring_more() {
        let mut ration = Ration::default();
        ration.begin(Start::AtOnce);
        ration.stalled(1_000_000);
        ration.synchronised(100_000, false);
        ration.outcome(0, 0, true);
        assert!(ration.awaits());
        let next = ration.decide(Standing::None, Processors::Idle);
        assert_eq!(next, Decision::Synchronise, "the failure has a known cure");
        ration.synchronised(100_000, false);
        ration.outcome(HITS_AWAITED_MIN - 1, 0, true);
        let next = ration.decide(Standing::None, Processors::Idle);
        assert_eq!(next, Decision::PassOver);
        ration.synchronised(100_000, false);
        ration.outcome(HITS_AWAITED_MIN, 0, true);
        let next = ration.decide(Standing::None, Processors::Idle);
        assert_eq!(next, Decision::Synchronise);
        assert!(ration.awaits());
    }
}
