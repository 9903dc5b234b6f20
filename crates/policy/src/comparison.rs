//! Whether like processes are the faster for their copies, where a wait takes
//! milliseconds.
//!
//! Fraser and Chang take each stall that a prefetch removes for time saved
//! (section 6.1). On a disk with an arm it need not be: where the order of the
//! program's own reads is that of the disk, a copy that leaves out what depends on
//! missing data makes the arm go over it twice (`readelf -S` on 48 objects, 1.6 times
//! plain's time, for 78 hits beside 25 stalls). What the one of two like processes took
//! that had copies, and the other that had none, tells. So where not many more stalls
//! were removed than left, the next process of the executable is left alone, and the
//! two are compared.

use crate::learning::magnitude;
use crate::ration::FIRST_STALLS;

/// Shortest mean stall of a process that is compared, in ns: on anything without an
/// arm a stall that is removed is time saved.
const STALL_MIN_NS: u64 = 2_000_000;

/// Fewest stalls of one.
const STALLS_MIN: u32 = 4;

/// A process is compared that waits for this part of its time or more.
const WAITED_PART: u64 = 4;

/// Copies of which the program has found so many times as much as it waited for all the
/// same are believed. `readelf` came to 4.6 times as much, and to 1.6 times plain's time.
const HITS_TIMES: u64 = 8;

/// The one with copies is the slower where the other took less by more than this part.
const SLOWER_PART: u32 = 16;

/// Processes that are left alone, or have their copies, after a comparison. Twice as
/// many each time that it comes out as the last one, up to so many times.
const ALONE: u8 = 4;
/// See [`ALONE`].
const BELIEVED: u8 = 8;
/// See [`ALONE`].
const DOUBLINGS_MAX: u8 = 3;

/// Processes that wait, one of which has to be like the one before: else it was the last
/// of its kind.
const TRIES: u8 = 4;

/// A process that was left alone, and of which nobody has seen that it waited much (for
/// what stat(2) reads nobody looks), has all the same where it lived for this part of what
/// the other did: what it read was not in memory.
const COLD_PART: u32 = 2;

/// Like processes differ in what they moved by so much at most, as [`likeness`] has it:
/// an eighth. The agent's own reads are among it, and more of them where there are copies
/// (a tenth of what `readelf` reads).
const UNLIKE: u16 = 6;

/// What is to become of the next process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// It has copies, and may be compared.
    #[default]
    Open = 0,
    /// It is left alone, and compared with the one before.
    Compared = 1,
    /// It is left alone: copies made it slower.
    Alone = 2,
    /// It has copies: they made it faster, or nobody can say.
    Believed = 3,
}

/// What is remembered of an executable. All-zero: nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    phase: Phase,
    /// Processes for which that still holds.
    left: u8,
    /// Comparisons in a row that came out alike, and whether the copies lost.
    alike: u8,
    lost: bool,
    /// How long the process lived that had copies, in µs.
    aided_us: u32,
    /// The bytes that it moved, as [`likeness`] has them.
    moved: u16,
}

/// What a process came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// How long it lived, in ns.
    pub life_ns: u64,
    /// Stalls that it waited for.
    pub stalls: u32,
    /// Time of them, in ns.
    pub stalled_ns: u64,
    /// Copies that were made.
    pub copies: u32,
    /// Ranges that they had prefetched and the program has found.
    pub hits: u64,
    /// Bytes that it read and wrote itself (`rchar` and `wchar` of proc_pid_io(5)); two of
    /// which that is the same are like each other. 0: not asked for, or not known.
    pub moved_bytes: u64,
}

impl Lived {
    /// Whether it says anything: it waited for an arm, for a good part of its time.
    fn waited_long(&self) -> bool {
        self.stalls >= STALLS_MIN
            && self.stalled_ns / u64::from(self.stalls) >= STALL_MIN_NS
            && self.stalled_ns >= self.life_ns / WAITED_PART
    }

    /// Whether its copies are not simply believed: never where like ones have `lost`.
    fn is_in_doubt(&self, lost: bool) -> bool {
        self.copies > 0 && (lost || self.hits < u64::from(self.stalls) * HITS_TIMES)
    }
}

impl Comparison {
    /// From the bits of [`Comparison::bits`]; anything at all is a valid one.
    pub fn from_bits(bits: u64) -> Comparison {
        let [state, left, r0, r1, a0, a1, a2, a3] = bits.to_le_bytes();
        Comparison {
            phase: match state & 3 {
                0 => Phase::Open,
                1 => Phase::Compared,
                2 => Phase::Alone,
                _ => Phase::Believed,
            },
            lost: state & 4 != 0,
            alike: (state >> 3).min(DOUBLINGS_MAX),
            left,
            moved: u16::from_le_bytes([r0, r1]),
            aided_us: u32::from_le_bytes([a0, a1, a2, a3]),
        }
    }

    /// To be kept.
    pub fn bits(&self) -> u64 {
        let state = self.phase as u8 | u8::from(self.lost) << 2 | self.alike << 3;
        let [r0, r1] = self.moved.to_le_bytes();
        let [a0, a1, a2, a3] = self.aided_us.to_le_bytes();
        u64::from_le_bytes([state, self.left, r0, r1, a0, a1, a2, a3])
    }

    /// Whether the next process is to have no copies.
    pub fn leaves_alone(&self) -> bool {
        matches!(self.phase, Phase::Compared | Phase::Alone)
    }

    /// Whether the bytes that a process has moved make a difference: they cost a file's
    /// reading.
    pub fn asks(&self, lived: &Lived) -> bool {
        match self.phase {
            Phase::Open => lived.waited_long() && lived.is_in_doubt(self.lost),
            Phase::Compared => lived.copies == 0 && lived.stalls > FIRST_STALLS,
            Phase::Alone | Phase::Believed => false,
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, lived: &Lived) {
        let life_us = u32::try_from(lived.life_ns / 1000).unwrap_or(u32::MAX);
        let moved = likeness(lived.moved_bytes);
        let is_known = lived.moved_bytes != 0;
        match self.phase {
            Phase::Open => {
                if is_known && lived.waited_long() && lived.is_in_doubt(self.lost) {
                    (self.phase, self.left) = (Phase::Compared, TRIES);
                    (self.aided_us, self.moved) = (life_us, moved);
                }
            }
            Phase::Compared if lived.copies == 0 => {
                let is_like = is_known && self.moved.abs_diff(moved) <= UNLIKE;
                let was_cold = lived.waited_long() || life_us >= self.aided_us / COLD_PART;
                if is_like && was_cold {
                    let lost = life_us < self.aided_us - self.aided_us / SLOWER_PART;
                    let alike = lost == self.lost;
                    self.alike = if alike { (self.alike + 1).min(DOUBLINGS_MAX) } else { 0 };
                    self.lost = lost;
                    (self.phase, self.left) = Self::verdict(lost, self.alike);
                } else if self.is_last(lived) {
                    // As it came out last.
                    (self.phase, self.left) = Self::verdict(self.lost, 0);
                }
            }
            Phase::Alone | Phase::Believed => {
                let is_as_decided = (lived.copies == 0) == (self.phase == Phase::Alone);
                if is_as_decided && self.is_last(lived) {
                    self.phase = Phase::Open;
                }
            }
            Phase::Compared => {}
        }
    }

    fn verdict(lost: bool, alike: u8) -> (Phase, u8) {
        let (phase, least) = if lost { (Phase::Alone, ALONE) } else { (Phase::Believed, BELIEVED) };
        (phase, least << alike)
    }

    /// Whether this was the last of the processes for which a phase holds: those count
    /// that have waited.
    fn is_last(&mut self, lived: &Lived) -> bool {
        self.left = self.left.saturating_sub(u8::from(lived.stalls > FIRST_STALLS));
        self.left == 0
    }
}

/// Binary logarithm of so many bytes, in 32nds.
fn likeness(bytes: u64) -> u16 {
    let bytes = bytes.max(1);
    let whole = u16::from(magnitude(bytes));
    let fraction = (bytes << bytes.leading_zeros() << 1) >> 59;
    whole * 32 + fraction as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `readelf -S` on a disk, alone.
    const ALONE: Lived = Lived {
        life_ns: 250_000_000,
        stalls: 90,
        stalled_ns: 230_000_000,
        copies: 0,
        hits: 0,
        moved_bytes: 900_000,
    };
    /// The same with copies.
    const SLOWED: Lived = Lived {
        life_ns: 400_000_000,
        stalls: 60,
        stalled_ns: 370_000_000,
        copies: 3,
        hits: 50,
        ..ALONE
    };
    const HELPED: Lived = Lived { life_ns: 200_000_000, ..SLOWED };

    /// `count` processes, each of which is as the one or the other: how many had copies.
    fn aided(comparison: &mut Comparison, count: usize, aided: Lived, alone: Lived) -> usize {
        let run = |_: &usize| {
            let has_copies = !comparison.leaves_alone();
            let lived = if has_copies { aided } else { alone };
            *comparison = Comparison::from_bits(comparison.bits());
            let moved_bytes = if comparison.asks(&lived) { lived.moved_bytes } else { 0 };
            comparison.ended(&Lived { moved_bytes, ..lived });
            has_copies
        };
        (0..count).filter(run).count()
    }

    #[test]
    fn one_that_copies_make_slower_is_left_alone() {
        let mut comparison = Comparison::default();
        assert_eq!(aided(&mut comparison, 2, SLOWED, ALONE), 1, "each once");
        assert_eq!(aided(&mut comparison, 4, SLOWED, ALONE), 0);
        assert_eq!(aided(&mut comparison, 1000, SLOWED, ALONE), 31);
        // One that is not like the others changes nothing.
        let other = Lived { moved_bytes: 2 * ALONE.moved_bytes, ..ALONE };
        assert!(aided(&mut comparison, 100, SLOWED, other) <= 100 / 4);
        // Until they help.
        assert!(aided(&mut comparison, 1000, HELPED, ALONE) > 800);
    }

    /// However much they have found: an arm that goes over the disk twice brings it all.
    #[test]
    fn where_copies_have_lost_none_is_believed_unseen() {
        let found_much = Lived { stalls: 14, stalled_ns: 300_000_000, hits: 112, ..SLOWED };
        let mut comparison = Comparison::default();
        assert_eq!(aided(&mut comparison, 20, found_much, ALONE), 20, "nothing in doubt");
        assert_eq!(aided(&mut comparison, 6, SLOWED, ALONE), 1);
        assert_eq!(aided(&mut comparison, 1000, found_much, ALONE), 31);
    }

    #[test]
    fn one_that_they_help_has_them() {
        let mut comparison = Comparison::default();
        let helped = aided(&mut comparison, 1000, HELPED, ALONE);
        assert!((980..1000).contains(&helped), "{helped}");
        // Much more found than waited for is not in doubt.
        let much = Lived { hits: 480, ..HELPED };
        assert_eq!(aided(&mut Comparison::default(), 1000, much, ALONE), 1000);
    }

    #[test]
    fn what_is_not_alike_says_nothing() {
        let other = Lived { moved_bytes: 1_200_000, ..ALONE };
        let kept = aided(&mut Comparison::default(), 1000, SLOWED, other);
        assert!(kept > 600, "{kept}");
        let unknown = Lived { moved_bytes: 0, ..SLOWED };
        assert_eq!(aided(&mut Comparison::default(), 1000, unknown, ALONE), 1000);
    }

    #[test]
    fn what_has_not_waited_for_an_arm_says_nothing() {
        let short = Lived { stalls: 3, stalled_ns: 9_000_000, life_ns: 9_000_000, ..SLOWED };
        let flash = Lived { stalls: 400, stalled_ns: 40_000_000, life_ns: 60_000_000, ..SLOWED };
        let computes = Lived { life_ns: 4_000_000_000, ..SLOWED };
        for lived in [short, flash, computes] {
            assert_eq!(aided(&mut Comparison::default(), 100, lived, ALONE), 100);
        }
        // Warm: it is compared with the next that is not.
        let mut comparison = Comparison::default();
        let warm = Lived { stalls: 0, stalled_ns: 0, life_ns: 5_000_000, ..ALONE };
        assert_eq!(aided(&mut comparison, 9, SLOWED, warm), 1);
        // Of which nobody sees how long it waits.
        let unseen = Lived { stalls: 9, stalled_ns: 4_000_000, ..ALONE };
        assert_eq!(aided(&mut comparison, 1, SLOWED, unseen), 0);
        assert!(comparison.lost && comparison.phase == Phase::Alone);
    }

    #[test]
    fn nothing_holds_for_ever_where_others_wait_for_something_else() {
        let flash = Lived { stalls: 400, stalled_ns: 40_000_000, life_ns: 60_000_000, ..ALONE };
        let mut comparison = Comparison::default();
        assert_eq!(aided(&mut comparison, 3, SLOWED, ALONE), 1);
        let its_copies = Lived { copies: 1, hits: 100, ..flash };
        assert_eq!(aided(&mut comparison, 100, its_copies, flash), 97);
    }

    #[test]
    fn processes_are_like_each_other_that_move_about_the_same() {
        let alike = |one: u64, other: u64| likeness(one).abs_diff(likeness(other)) <= UNLIKE;
        assert!(alike(900_000, 900_000) && alike(900_000, 990_000) && alike(1 << 20, 960_000));
        assert!(!alike(900_000, 1_100_000) && !alike(1 << 20, 1 << 21));
        assert_eq!((likeness(0), likeness(1), likeness(u64::MAX)), (0, 0, 64 * 32 - 1));
    }

    #[test]
    fn any_bits_are_one() {
        for bits in [0, u64::MAX, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa] {
            let mut comparison = Comparison::from_bits(bits);
            for lived in [SLOWED, ALONE, HELPED] {
                comparison.ended(&lived);
                assert_eq!(Comparison::from_bits(comparison.bits()), comparison);
            }
        }
    }
}
