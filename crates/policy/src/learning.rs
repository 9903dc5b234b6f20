//! What one process of an executable shows about the next.
//!
//! Fraser and Chang judge a speculative process by what it did so far
//! (section 6.1); a process of a few milliseconds has ended before anything
//! can be judged. But the next one of the same executable will mostly be like
//! it. So three things are remembered:
//!
//! * whether copies of it paid: then the next process is speculated for at
//!   its first stall, or left alone until it has waited for some time;
//! * whether notices of page faults led to copies that paid for them in a process
//!   that was over soon: where they did not, the next gets none before it has run
//!   for longer;
//! * whether its processes, and those that they execute, end after a stall or
//!   two, or so soon that there was no occasion for a copy, or in a memory cgroup
//!   that has no room for a copy, or gained nothing by one on flash and had little
//!   to gain, or before a copy was due, those of their like having failed again and
//!   again: then nothing that the agent could do pays for its start, and they are
//!   executed without it. One every few seconds still gets it, so that a change is
//!   noticed.

use crate::ration::{FIRST_STALLS, LONG_STALL_NS, SHORT_STALL_NS};

/// Short processes in a row after which executions are left alone.
pub const SHORT_MIN: u8 = 4;

/// Time between two executions that are not left alone, in ns, as far as
/// [`STAMP_NS`] tells it: 4 s. A start costs some 0.5 ms, so this is what samples
/// take of the time of whoever makes thousands of processes a second. A process that
/// makes others and lives for as long as that pays for the agent with nothing that
/// could be noticed, and is never [`Record::short`].
pub const SAMPLE_NS: u64 = 15 * STAMP_NS;

/// How often that time is doubled at most, up to 32 s: after each sample that
/// lacked memory, and each that was under way when they became samples. Under a tight
/// limit what the agent takes of it, 150 KB, costs a process more than its start (a
/// compiler in half of its working set a quarter of its time).
const SAMPLE_DOUBLINGS_MAX: u8 = 3;

/// Part of [`SAMPLE_NS`] after which one is sampled whose copies have paid, on another device
/// perhaps.
const SAMPLE_PAID_PART: u64 = 4;

/// A process that found the processors busy has run for too short to see an idle
/// one, in ns: among busy processors the agent's start, some 0.3 ms of them, makes
/// more than a hundredth of what it takes longer by.
pub const BRIEF_NS: u64 = 100_000_000;

/// What notices of page faults cost a process, in ns: asking for them 0.2 ms, or 10 ms
/// where nobody else on the machine has such a counter at that moment, and each some
/// 20 µs (`git log` of 24 ms on flash: 2.4 ms in the median, 4 ms in the mean).
const NOTICES_NS: u64 = 2_000_000;

/// Unit of [`Record::enlisted`], in ns. It comes round after five hours: an
/// executable that is run again just then is left alone for once.
const STAMP_NS: u64 = 1 << 28;

/// [`Record::idle`] in the byte of [`Record::short`].
const IDLE: u8 = 0x80;
/// [`Record::unnoticed`] in the same.
const UNNOTICED: u8 = 0x40;
/// [`Record::crowded`] in the same.
const CROWDED_SHIFT: u32 = 3;
/// Bits of it.
const CROWDED_MASK: u8 = 7;

/// [`Record::waited`] in the byte of [`Record::failed`].
const WAITED_SHIFT: u32 = 6;
/// Bits of [`Record::failed`] in it.
const FAILED_MASK: u8 = (1 << WAITED_SHIFT) - 1;

/// [`Record::waited`] of one that has waited itself, or made one that has. Of one that goes
/// on as it, it is less by one, and so on: a row of scripts to a program that waits (`sh`,
/// `env`, `bash`) is known for one, and of a few that go on as one another none is for
/// longer than so many rounds.
const WAITED_MAX: u8 = 3;

/// [`Record::hasty`] in the byte of [`Record::patience`].
const HASTY_SHIFT: u32 = 4;
/// Bits of [`Record::patience`] in it.
const PATIENCE_MASK: u8 = (1 << HASTY_SHIFT) - 1;

/// Processes that make their first copy at the second stall where one at the first came
/// to nothing, before that is tried again.
const HASTY_MAX: u8 = 15;

/// Bounds of [`Record::worth`].
const WORTH_MAX: i8 = 7;
/// See [`WORTH_MAX`].
const WORTH_MIN: i8 = -10;

/// How long a process waits unaided for each point that its executable is
/// below zero, doubling, in ns: 1 ms up to 512 ms. Time and not stalls, so that
/// what a misjudgement loses is the same on every device.
const UNAIDED_NS: u64 = 500_000;

/// Where a process is to wait for so long unaided, copies of its like have failed again and
/// again, in ns: one that ends before had no use for the agent, and made children at what a
/// fork takes longer with it (`find -exec` on a cloud volume: 50 µs for each of the 770 that
/// a `head` takes to be made and to end).
const GIVEN_UP_NS: u64 = unaided_ns(-4);

/// Part of the time to be waited unaided from which on a process that ended
/// before it was over has waited for long.
const LONG_PART: u64 = 16;

/// A process that waits for less than this part of its time gains too little to be
/// tried, once copies of its like have not paid, for what its children take longer to
/// be made (`find -exec` on flash: 8 ms of 370, and 29 ms for 336 children).
pub const WAITED_PART: u64 = 16;

/// Unit of [`Record::untried_ms`], in ns: what a process waits at least before it
/// is tried, once an attempt has failed. One that waits for less says nothing.
const UNTRIED_NS: u64 = unaided_ns(-1);

/// Most processes in a row that wait as long as one whose copies did not pay,
/// before the next attempt is nearer by a point: 1 after the first failure, and
/// twice as many after each. A linker on flash paid for a copy or two in every
/// second run, 1.03 of its time.
const PATIENCE_MAX: u8 = 8;

/// Copies that saved less than this part of what a process waited for on flash
/// have not paid, however little they cost: the next would gain as little. On
/// anything slower a small part of the waiting is worth an attempt.
const SAVED_PART: u64 = 16;

/// Points that one process takes away at most: how long it came to wait
/// unaided itself is where the next one begins, but one is no proof.
const WORTH_STEP_MAX: i8 = 3;

/// What is remembered of an executable. All-zero: nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Short processes in a row, up to [`SHORT_MIN`]: neither they nor what they
    /// made has waited, or nothing could be done about it.
    short: u8,
    /// Above 0: the last process has waited, or one that it has made or gone on as; up to
    /// [`WAITED_MAX`].
    waited: u8,
    /// The last process itself has not waited.
    idle: bool,
    /// How many in a row, once they were known to be short, lacked memory; up to
    /// [`SAMPLE_DOUBLINGS_MAX`].
    crowded: u8,
    /// Notices of page faults came to nothing in the last one that maps files.
    unnoticed: bool,
    /// When the last one got the agent or the notices for a sample, in [`STAMP_NS`],
    /// the lowest bits.
    enlisted: u16,
    /// Above 0: copies paid; below: they did not.
    worth: i8,
    /// Binary logarithm of the ns that the last process waited whose copies did
    /// not pay.
    failed: u8,
    /// Processes since then that waited for long and were not tried.
    untried: u8,
    /// See [`PATIENCE_MAX`]; 0: no attempt has failed since one paid.
    patience: u8,
    /// At its first stall a process depends on what it reads there (a compiler on the names
    /// of its headers): a copy that began at it came to nothing. So many processes more
    /// make none there.
    hasty: u8,
    /// What processes have waited since the last of the untried, none of them for
    /// long, in [`UNTRIED_NS`] each, rounded down.
    untried_ms: u8,
}

/// What a process came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Stalls that it waited for.
    pub stalls: u32,
    /// Time of them, in ns.
    pub stalled_ns: u64,
    /// Copies that were made.
    pub copies: u32,
    /// Ranges that they had prefetched and the program has found.
    pub hits: u64,
    /// What they saved, in ns.
    pub benefit_ns: u64,
    /// What they cost, in ns.
    pub cost_ns: u64,
    /// How long it was to wait unaided after the last of them, in ns; 0: that
    /// one paid.
    pub unaided_ns: u64,
    /// The first of them was made at its first stall, and nothing of it came true.
    pub hasty: bool,
    /// A process that it has made has waited, or may have.
    pub below: bool,
    /// It had notices of page faults, or would have had (it maps large files, or where
    /// there is swap space has much memory).
    pub maps: bool,
    /// It ran for less than [`BRIEF_NS`].
    pub brief: bool,
    /// What it lacked, so that no copy of it could be made or pay.
    pub lack: Option<Lack>,
}

/// What is known of the program that a process goes on as (execve(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// It does not get the agent, which was of no use to this one, whatever comes.
    LeftAlone,
    /// Its [`Record::waited`], above 0.
    Waits(u8),
    /// Nothing.
    Unknown,
    /// It is only sampled, or nobody knows yet whether it waits, which says nothing of this
    /// one: of a few programs each of which goes on as the next, by way of the same shell,
    /// each would wait for the others to be found short.
    Undecided,
}

/// What a copy could not be made for want of, or could not pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It ran for less than [`BRIEF_NS`], and no processor was idle.
    Processor,
    /// It ran for less than [`BRIEF_NS`], or waited for less than [`WAITED_PART`] of its
    /// time, and neither was a copy made, which would not have had to wait until some time
    /// was over (no processor was idle when it waited, or its waits were not of the kind), nor
    /// anything prefetched without one.
    Occasion,
    /// Its memory cgroup had no room.
    Memory,
    /// On flash, it ended within [`BRIEF_NS`], or waited for less than [`WAITED_PART`]
    /// of its time, and its copies or, where there were none, those of its like had not
    /// paid. On anything: there was none of it, because those of its like are given up
    /// ([`Start::is_given_up`]), nor anything prefetched without one.
    Worth,
}

impl Ended {
    /// Whether it, or one that it has made, has waited for more than a stall or
    /// two: the agent is worth its start in the next, too.
    fn has_waited(&self) -> bool {
        self.below || self.has_itself_waited() && self.lack.is_none()
    }

    fn has_itself_waited(&self) -> bool {
        let is_slow = self.mean_stall_ns() >= LONG_STALL_NS;
        self.stalls > FIRST_STALLS || self.copies > 0 || is_slow
    }

    /// Whether its copies, taken together, have paid: as `Ration::outcome` judges a
    /// single one.
    pub fn pays(&self) -> bool {
        let is_slow = self.mean_stall_ns() >= SHORT_STALL_NS;
        self.benefit_ns > self.cost_ns.saturating_mul(2)
            && (is_slow || self.benefit_ns >= self.stalled_ns / SAVED_PART)
    }

    fn mean_stall_ns(&self) -> u64 {
        self.stalled_ns / u64::from(self.stalls.max(1))
    }
}

/// How to begin with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As with any.
    Unknown,
    /// At the first stall: copies of its like have paid.
    AtOnce,
    /// At the second: they have, but at the first nothing was to be predicted yet.
    Second,
    /// After so many ns of stalls: they have not.
    Later(u64),
}

impl Start {
    /// Not at all: copies of its like made it slower ([`crate::comparison`]).
    pub const ALONE: Start = Start::Later(u64::MAX);

    /// Whether copies of its like have not paid.
    pub fn is_later(self) -> bool {
        matches!(self, Start::Later(_))
    }

    /// Whether they have failed so often that a process is none the better for the agent
    /// before it has waited for long. Not where they are compared with processes without
    /// ([`crate::comparison`]), of which some are to have the agent.
    pub fn is_given_up(self) -> bool {
        self != Start::ALONE && matches!(self, Start::Later(GIVEN_UP_NS..))
    }
}

impl Record {
    /// From the bits of [`Record::bits`]; anything at all is a valid record.
    pub fn from_bits(bits: u64) -> Record {
        let [state, first, second, worth, failed, untried, patience, untried_ms] =
            bits.to_le_bytes();
        let crowded = state >> CROWDED_SHIFT & CROWDED_MASK;
        Record {
            short: (state & ((1 << CROWDED_SHIFT) - 1)).min(SHORT_MIN),
            waited: failed >> WAITED_SHIFT,
            idle: state & IDLE != 0,
            unnoticed: state & UNNOTICED != 0,
            crowded: crowded.min(SAMPLE_DOUBLINGS_MAX),
            enlisted: u16::from_le_bytes([first, second]),
            worth: (worth as i8).clamp(WORTH_MIN, WORTH_MAX),
            failed: failed & FAILED_MASK,
            untried,
            patience: (patience & PATIENCE_MASK).min(PATIENCE_MAX),
            hasty: patience >> HASTY_SHIFT,
            untried_ms,
        }
    }

    /// To be kept.
    pub fn bits(&self) -> u64 {
        let &Record { short, crowded, enlisted, worth, failed, untried, .. } = self;
        let [first, second] = enlisted.to_le_bytes();
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(self.idle, IDLE) | flag(self.unnoticed, UNNOTICED);
        let state = short | crowded << CROWDED_SHIFT | flags;
        let patience = self.patience | self.hasty << HASTY_SHIFT;
        let failed = failed | self.waited << WAITED_SHIFT;
        let (worth, untried_ms) = (worth as u8, self.untried_ms);
        u64::from_le_bytes([state, first, second, worth, failed, untried, patience, untried_ms])
    }

    /// Whether its processes are executed without the agent, but for a sample.
    pub fn is_known_short(&self) -> bool {
        self.short >= SHORT_MIN
    }

    /// Above 0: the last of its processes has waited, or one that it has made or gone on as.
    pub fn waited(&self) -> u8 {
        self.waited
    }

    /// It is about to be executed at `now_ns` of the monotonic clock: whether the
    /// agent is worth its start.
    pub fn enlists(&mut self, now_ns: u64) -> bool {
        let part = if self.worth > 0 { SAMPLE_PAID_PART } else { 1 };
        !self.is_known_short() || self.samples(now_ns, (SAMPLE_NS << self.crowded) / part)
    }

    /// A process of it maps a large file at `now_ns`: whether notices of its page
    /// faults are worth what they cost before it is known to be no brief one.
    pub fn gives_notice(&mut self, now_ns: u64) -> bool {
        let since = stamp(now_ns).wrapping_sub(self.enlisted);
        // It may be executed for a sample itself.
        let is_sample = self.is_known_short() && since <= 1;
        !self.unnoticed || is_sample || self.samples(now_ns, SAMPLE_NS)
    }

    /// Whether the last sample is as old as that; then this is one.
    fn samples(&mut self, now_ns: u64, interval_ns: u64) -> bool {
        let now = stamp(now_ns);
        let passed_ns = u64::from(now.wrapping_sub(self.enlisted)) * STAMP_NS;
        let samples = passed_ns >= interval_ns;
        if samples {
            self.enlisted = now;
        }
        samples
    }

    /// A process of it goes on as one of another executable (execve(2)), `has_waited` where
    /// it, or one that it has made, has so far.
    pub fn went_on(&mut self, has_waited: bool, other: Other) {
        self.waited = match other {
            _ if has_waited => WAITED_MAX,
            Other::Waits(waited) => waited.min(WAITED_MAX).saturating_sub(1),
            _ => 0,
        };
        if has_waited || other != Other::Undecided {
            self.was_short(!has_waited && other == Other::LeftAlone);
        }
    }

    fn was_short(&mut self, short: bool) {
        self.short = if short { (self.short + 1).min(SHORT_MIN) } else { 0 };
        if !short {
            self.crowded = 0;
        }
    }

    /// A process of it has ended.
    pub fn ended(&mut self, ended: &Ended) {
        let crowded = ended.lack == Some(Lack::Memory) && self.is_known_short();
        self.crowded = if crowded { (self.crowded + 1).min(SAMPLE_DOUBLINGS_MAX) } else { 0 };
        self.waited = if ended.has_waited() { WAITED_MAX } else { 0 };
        self.was_short(self.waited == 0);
        self.idle = !ended.has_itself_waited();
        let mean_ns = ended.mean_stall_ns();
        if ended.maps {
            let paid = ended.benefit_ns > ended.cost_ns.saturating_add(NOTICES_NS);
            self.unnoticed = ended.brief && mean_ns < SHORT_STALL_NS && !paid;
        }
        self.hasty = self.hasty.saturating_sub(1);
        if ended.copies == 0 {
            self.untried(ended.stalled_ns);
            return;
        }
        let pays = ended.pays();
        // Good news counts more: it takes a good program to bring it, and any
        // busy moment brings bad news.
        (self.untried, self.untried_ms) = (0, 0);
        if pays {
            self.patience = 0;
        } else if self.worth <= 0 {
            self.patience = self.patience.saturating_mul(2).clamp(1, PATIENCE_MAX);
            self.failed = magnitude(ended.stalled_ns);
        }
        self.worth = match self.worth {
            worth if pays => worth.max(0) + 2,
            worth @ 1.. => worth / 2,
            worth => {
                let waited = (ended.unaided_ns / UNAIDED_NS).checked_ilog2().unwrap_or(0);
                let beyond = (waited.min(64) as i8).saturating_add(worth);
                worth - beyond.clamp(1, WORTH_STEP_MAX)
            }
        };
        self.worth = self.worth.clamp(WORTH_MIN, WORTH_MAX);
        // Where later ones do not pay either, it is not for the first's haste; and one that
        // waited no more had nothing left to predict.
        if self.worth <= 0 {
            self.hasty = 0;
        } else if ended.hasty && ended.stalls > FIRST_STALLS {
            self.hasty = HASTY_MAX;
        }
    }

    /// A process of it ended before it was tried, having waited so long. The next
    /// one is tried sooner, if that was long: else what was once misjudged would
    /// stay so. At once where it was longer than what an attempt failed in, which
    /// says little about it. Several that waited for less count as one that waited
    /// for as long as they did together.
    fn untried(&mut self, stalled_ns: u64) {
        if self.worth >= 0 {
            return;
        }
        let long_ns = unaided_ns(self.worth) / LONG_PART;
        let units = (stalled_ns / UNTRIED_NS).min(u64::from(u8::MAX)) as u8;
        self.untried_ms = self.untried_ms.saturating_add(units);
        if stalled_ns < long_ns && u64::from(self.untried_ms) * UNTRIED_NS < long_ns {
            return;
        }
        self.untried_ms = 0;
        // A sample is one of many.
        let counts = if self.is_known_short() { PATIENCE_MAX } else { 1 };
        self.untried = self.untried.saturating_add(counts);
        if self.untried >= self.patience || magnitude(stalled_ns) > self.failed {
            self.untried = 0;
            self.worth += 1;
        }
    }

    /// How to begin with a process of it.
    pub fn start(&self) -> Start {
        match self.worth {
            0 => Start::Unknown,
            // Others of its processes had nothing left to predict.
            1.. if self.idle => Start::Unknown,
            1.. if self.hasty > 0 => Start::Second,
            1.. => Start::AtOnce,
            below => Start::Later(unaided_ns(below)),
        }
    }
}

/// A time in [`STAMP_NS`], the lowest bits.
fn stamp(now_ns: u64) -> u16 {
    (now_ns / STAMP_NS) as u16
}

/// Binary logarithm, rounded down.
pub(crate) fn magnitude(ns: u64) -> u8 {
    ns.max(1).ilog2() as u8
}

/// How long a process waits unaided whose executable has `worth` below zero.
const fn unaided_ns(worth: i8) -> u64 {
    UNAIDED_NS << worth.unsigned_abs()
}

#[cfg(test)]
mod tests;
