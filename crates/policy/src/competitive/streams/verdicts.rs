//! What streams have turned out to be, and so what others are taken for: ones
//! that go on to the ends of their files, ones that are longer than the
//! competitive depth.

use super::Stream;

/// One of so many streams is read without trusting the end of its file, to
/// see whether streams still get there: when one of the last eight samples did
/// not, at first, and when this many in a row have.
const SAMPLE_WARY: u32 = 2;
const SAMPLE: u32 = 8;
const SAMPLE_SURE: u32 = 32;

/// A stream that begins is taken for a long one where this many of the last
/// [`BEGUN`] that began in such a place were. Beginning with the whole depth
/// costs a short one the transfer of that, as long as one switch, and spares a
/// long one the two switches of the kernel's first windows: more than a third.
pub(super) const BEGUN_LONG_MIN: u32 = 6;
pub(super) const BEGUN: u8 = 16;

/// Streams are taken to go on to the ends of their files where this many of the
/// last [`ENDS`] did.
pub(super) const ENDS_MIN: u32 = 7;
pub(super) const ENDS: u8 = 8;

/// What the last streams of which something has been seen did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdicts {
    /// One bit each, the last one lowest.
    history: u16,
    /// How many of these bits are verdicts.
    judged: u8,
}

impl Verdicts {
    pub(super) const NONE: Verdicts = Verdicts { history: 0, judged: 0 };

    pub(super) fn judge(&mut self, verdict: bool) {
        self.history = self.history << 1 | u16::from(verdict);
        self.judged = (self.judged + 1).min(u16::BITS as u8);
    }

    /// The last stream of which it was said that it had stopped goes on.
    pub(super) fn withdraw(&mut self) {
        let place = self.history.trailing_ones();
        if place < self.judged.into() {
            let later = self.history & ((1 << place) - 1);
            self.history = (self.history >> place >> 1 << place) | later;
            self.judged -= 1;
        }
    }

    /// Whether at least `least` of the last `of` verdicts are true.
    pub(super) fn are(self, least: u32, of: u8) -> bool {
        let last = self.history & (u16::MAX >> (u16::BITS - u32::from(of)));
        self.judged >= of && last.count_ones() >= least
    }

    /// One of so many streams is a sample. What is known from eight streams
    /// may be chance; from eight samples more it hardly is, and each sample
    /// pays all its switches.
    pub(super) fn sample(self) -> u32 {
        match (self.judged, self.history.trailing_ones()) {
            (0..8, _) => SAMPLE,
            (_, 0..8) => SAMPLE_WARY,
            (_, 16) => SAMPLE_SURE,
            _ => SAMPLE,
        }
    }
}

/// Where a stream began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Inside a file, far from what its thread has read of it.
    #[default]
    Inside,
    /// At the beginning of its file.
    AtStart,
    /// Where its thread came to from before: who skips much may do so again.
    Skipped,
}

/// Of streams by where they began: an index that is looked up at random is not
/// the files that are read beside it, and a list of which parts are skipped not
/// the one that is read through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByBeginning([Verdicts; 3]);

impl ByBeginning {
    pub(super) const NONE: ByBeginning = ByBeginning([Verdicts::NONE; 3]);

    /// Those of streams that began where this one did.
    pub(super) fn of(&mut self, stream: &Stream) -> &mut Verdicts {
        let [inside, at_start, skipped] = &mut self.0;
        match stream.beginning {
            Beginning::Inside => inside,
            Beginning::AtStart => at_start,
            Beginning::Skipped => skipped,
        }
    }

    /// The same, to be read.
    pub(super) fn seen(&self, stream: &Stream) -> Verdicts {
        let mut all = *self;
        *all.of(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_that_were_wrong_are_withdrawn() {
        let mut verdicts = Verdicts::NONE;
        for verdict in [true, false, true, true, false] {
            verdicts.judge(verdict);
        }
        verdicts.withdraw();
        assert_eq!((verdicts.history, verdicts.judged), (0b1011, 4));
        verdicts.withdraw();
        assert_eq!((verdicts.history, verdicts.judged), (0b111, 3));
        verdicts.withdraw();
        assert_eq!((verdicts.history, verdicts.judged), (0b111, 3), "none was false");
        for _ in 0..20 {
            verdicts.judge(true);
        }
        verdicts.withdraw();
        assert_eq!((verdicts.history, verdicts.judged), (u16::MAX, 16));
        assert!(verdicts.are(16, 16));
        verdicts.judge(false);
        assert!(verdicts.are(7, 8) && !verdicts.are(8, 8));
        assert_eq!(Verdicts::NONE.sample(), SAMPLE);
        assert_eq!(verdicts.sample(), SAMPLE_WARY);
    }
}
