//! Whether reads are asked about while no synchronisation can follow.
//!
//! Fraser and Chang ask at each read whether it would wait (section 4.1.2),
//! because a synchronisation may follow. Where no processor is idle, or the
//! ration passes the stalls over ([`crate::ration`]), none does: asking serves
//! streams and whole files alone. On busy processors nothing hides what it
//! takes, and a program pays for it twice; a program that reads what the
//! kernel's readahead brings from flash makes ten reads in the time of one
//! question at a stall. So it may take a small share of the waiting since it
//! last served something: on a disk that is each stall, on flash a few, and
//! then one now and then.

/// Time of asking that is free, in ns: some forty stalls, two for each of a
/// server's streams until they are recognised.
pub const FREE_NS: u64 = 300_000;

/// The same on busy processors: ten stalls. A program that is over in 30 ms would
/// take a hundredth longer for the rest.
pub const FREE_BUSY_NS: u64 = 80_000;

/// Asking may take one of so many parts of the waiting, where a processor is
/// idle.
pub const SHARE_IDLE: u64 = 64;

/// And on busy ones.
pub const SHARE_BUSY: u64 = 512;

/// Most that asking may have taken beyond its share, in ns. While copies are
/// made every read is asked about, whatever that takes; were all of it owed
/// once they pay no more, a stream that begins then would not be recognised
/// for a long time.
const OVERDRAWN_NS_MAX: u64 = FREE_NS;

/// Most that one question counts, in ns: beyond it another program had the
/// processor.
const QUESTION_NS_MAX: u64 = 50_000;

/// Time since asking last served something. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// Spent on questions, in ns.
    pub asked_ns: u64,
    /// Waited for storage, in ns.
    pub waited_ns: u64,
}

impl Asking {
    /// A question took `ns`.
    #[must_use]
    pub fn asked(self, ns: u64) -> Asking {
        let share_ns = FREE_NS.saturating_add(self.waited_ns / SHARE_IDLE);
        let asked_ns = self.asked_ns.saturating_add(ns.min(QUESTION_NS_MAX));
        Asking { asked_ns: asked_ns.min(share_ns.saturating_add(OVERDRAWN_NS_MAX)), ..self }
    }

    /// What came of a question saved a wait of about `ns`: asking may take up
    /// to half of that.
    #[must_use]
    pub fn saved(self, ns: u64) -> Asking {
        Asking { asked_ns: self.asked_ns.saturating_sub(ns / 2), ..self }
    }

    /// Whether reads are left unasked.
    pub fn rests(self, is_busy: bool) -> bool {
        let (free_ns, share) =
            if is_busy { (FREE_BUSY_NS, SHARE_BUSY) } else { (FREE_NS, SHARE_IDLE) };
        self.asked_ns > free_ns.saturating_add(self.waited_ns / share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Questions of 8 µs at `stalls` stalls of `stall_ns`, of which every
    /// `fruit`th serves something.
    fn questions(stalls: u64, stall_ns: u64, fruit: u64) -> u64 {
        let (mut asking, mut questions) = (Asking::default(), 0);
        for stall in 1..=stalls {
            if !asking.rests(true) {
                questions += 1;
                asking = asking.asked(8_000);
            }
            asking.waited_ns += stall_ns;
            if stall % fruit == 0 {
                asking = Asking::default();
            }
        }
        questions
    }

    #[test]
    fn on_flash_a_small_share_is_spent_on_questions() {
        let asked = questions(10_000, 100_000, u64::MAX);
        let share_ns = FREE_BUSY_NS + 10_000 * 100_000 / SHARE_BUSY;
        // All of it, and not more: it never stops for good.
        assert!((share_ns - 8_000..=share_ns + 8_000).contains(&(asked * 8_000)), "{asked}");
        assert!(questions(60, 100_000, u64::MAX) < 15);
    }

    #[test]
    fn on_slow_devices_and_where_it_serves_every_stall_is_asked_about() {
        assert_eq!(questions(10_000, 10_000_000, u64::MAX), 10_000);
        assert_eq!(questions(10_000, 100_000, 10), 10_000);
    }

    #[test]
    fn what_it_saves_keeps_it_going() {
        let rests_after = |stall_ns: u64| {
            (0..10_000).fold(Asking::default(), |asking, _| asking.asked(8_000).saved(stall_ns))
        };
        assert!(!rests_after(20_000).rests(true));
        assert!(rests_after(10_000).rests(true));
    }

    #[test]
    fn what_is_overdrawn_is_soon_made_up_for() {
        let asked = (0..1_000_000).fold(Asking::default(), |asking, _| asking.asked(8_000));
        assert!(asked.rests(false));
        let waited = |ns| Asking { waited_ns: ns, ..asked };
        assert!(waited(OVERDRAWN_NS_MAX * SHARE_IDLE - SHARE_IDLE).rests(false));
        assert!(!waited(OVERDRAWN_NS_MAX * SHARE_IDLE).rests(false));
    }

    #[test]
    fn a_question_during_which_others_ran_counts_little() {
        assert!(!Asking::default().asked(u64::MAX).rests(true));
        assert!((0..10).fold(Asking::default(), |asking, _| asking.asked(u64::MAX)).rests(true));
    }
}
