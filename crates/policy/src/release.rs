//! Giving back early what lies behind a program.
//!
//! Fraser and Chang (2003, section 8) suppose that speculation could say what
//! a program will not need soon, as compilers do (Mowry, Demke and Krieger
//! 1996; Brown and Mowry 2000, who insert release hints): a copy that runs
//! ahead has read all that the program reads next, so what the program has
//! consumed and the copy has not read again is not needed within what can be
//! foreseen.
//!
//! A range is given back where all of this holds:
//!
//! * speculation brought it in, whole: without it the pages would not be there;
//! * the program has read it whole, once, as predicted ([`Ranges`]);
//! * the copy, which is ahead, has read none of it again ([`Ranges`]);
//! * memory is tight: pages that were evicted are read in again ([`Pressure`]);
//! * what was given back before has stayed away ([`Evidence`]).
//!
//! Fraser and Chang only look as far as the copy is ahead, Brown and Mowry's
//! compiler at a whole loop. A loop over more than the copy foresees looks like
//! a stream, so little is given back at first, and nothing for ever longer times
//! where it is read again after all.

/// Ranges that are followed at a time. Their files are kept open.
pub const RANGES_MAX: usize = 128;

/// Consumed ranges that are kept: the kernel holds the newest pages in lists of
/// its processors, and would empty those of all processors to drop one.
const KEPT_RANGES: usize = 2;

/// Time between two looks at memory, in ns.
pub const LOOK_EVERY_NS: u64 = 250_000_000;

/// Pages that must be read in again for each [`LOOK_EVERY_NS`] for memory to be
/// tight: 1 MiB/s.
const REFAULTS_MIN: u64 = 64;

/// Memory counts as tight for so long after that, in ns: while pages are given
/// back none need to be evicted, and none come back.
const TIGHT_NS: u64 = 10_000_000_000;

/// Pages that are given back at first, and twice as many each time after.
const WINDOW_MIN_PAGES: u64 = 256;
const WINDOW_MAX_PAGES: u64 = 1 << 20;

/// Time after which a window's pages are believed not to be missed, in ns.
const JUDGED_NS: u64 = 250_000_000;

/// Files that are remembered because pages of them were read again.
const FILES_MAX: usize = 8;

/// One of so many pages may be read again.
const RETURNED_PART: u64 = 16;
/// With fewer pages read again, in all or of a file, nothing is decided.
pub const RETURNED_MIN_PAGES: u64 = 32;
/// Age at which what was given back is looked at: whether others have read it
/// in again, in ns.
pub const SAMPLED_AFTER_NS: u64 = 50_000_000;
/// One of so many pages of a sample may be back.
const SAMPLED_PART: u64 = 8;

/// Time for which nothing is given back after too much of it was read again, in
/// ns; twice as long each time.
const REST_MIN_NS: u64 = 1_000_000_000;
const REST_MAX_NS: u64 = 1024 * REST_MIN_NS;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Which file, as the caller numbers them.
    pub file: u16,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
}

impl Range {
    fn overlaps(&self, other: &Range) -> bool {
        self.file == other.file && self.start < other.end && other.start < self.end
    }
}

/// What has become of a followed range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    /// The slot is free.
    #[default]
    None,
    /// It is read, or will be.
    Followed,
    /// It is not for giving back; nobody has been told yet.
    Dropped,
}

#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    fate: Fate,
    range: Range,
    /// The copy has read it from its start up to here.
    covered: u64,
    /// Numbers of the first and the last of these reads.
    first: u64,
    last: u64,
}

impl Followed {
    /// Whether the copy has read all of it, and the program is `consumed` reads
    /// along. It counts a read when it begins it, so one more is asked for.
    fn is_passed(&self, consumed: u64) -> bool {
        self.fate == Fate::Followed
            && self.covered == self.range.end
            && consumed.checked_sub(2).is_some_and(|over| self.last <= over)
    }
}

/// Ranges that a copy has prefetched, until the program has passed them.
/// All-zero is empty.
#[derive(Clone, Debug)]
pub struct Ranges {
    slots: [Followed; RANGES_MAX],
    /// The oldest, which the next one replaces.
    next: u16,
    used: u16,
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges { slots: [Followed::default(); RANGES_MAX], next: 0, used: 0 }
    }
}

impl Ranges {
    /// Whether none is followed.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Nothing of a range is in memory, and the copy is about to bring it in.
    /// Gives the range that is no longer followed instead, if any.
    pub fn prefetched(&mut self, range: Range) -> Option<Range> {
        let (next, covered) = (self.next, range.start);
        let slot = self.slots.get_mut(next as usize)?;
        let before = core::mem::take(slot);
        *slot = Followed { fate: Fate::Followed, range, covered, first: u64::MAX, last: 0 };
        self.next = (next + 1) % RANGES_MAX as u16;
        if before.fate != Fate::None {
            return Some(before.range);
        }
        self.used += 1;
        None
    }

    /// The copy has made its read `number`.
    pub fn read(&mut self, read: Range, number: u64) {
        for slot in &mut self.slots {
            if slot.fate != Fate::Followed || !slot.range.overlaps(&read) {
                continue;
            }
            let begins = slot.covered == slot.range.start;
            if read.start == slot.covered || (begins && read.start < slot.covered) {
                slot.covered = read.end.min(slot.range.end);
                slot.first = slot.first.min(number);
                slot.last = number;
            } else {
                // It is read again, or not whole.
                slot.fate = Fate::Dropped;
            }
        }
    }

    /// What speculation has not brought in after all is not followed.
    pub fn forget(&mut self, read: Range) {
        for slot in &mut self.slots {
            if slot.fate == Fate::Followed && slot.range.overlaps(&read) {
                slot.fate = Fate::Dropped;
            }
        }
    }

    /// Of the program's reads before `consumed` one was not as predicted:
    /// nobody knows whether it has read what the copy has until then.
    pub fn mispredicted(&mut self, consumed: u64) {
        for slot in &mut self.slots {
            if slot.fate == Fate::Followed && slot.first < consumed {
                slot.fate = Fate::Dropped;
            }
        }
    }

    /// The oldest range that the program has passed, being `consumed` reads
    /// along, unless it is one of the newest of these. It is followed no more.
    pub fn take_passed(&mut self, consumed: u64) -> Option<Range> {
        let next = self.next as usize;
        let (newer, older) = self.slots.split_at_mut_checked(next)?;
        let mut passed = older.iter_mut().chain(newer).filter(|slot| slot.is_passed(consumed));
        let oldest = passed.next()?;
        passed.nth(KEPT_RANGES - 1)?;
        self.used = self.used.saturating_sub(1);
        Some(core::mem::take(oldest).range)
    }

    /// Any range that is followed; it is no more.
    pub fn take_any(&mut self) -> Option<Range> {
        let slot = self.slots.iter_mut().find(|slot| slot.fate != Fate::None)?;
        self.used = self.used.saturating_sub(1);
        Some(core::mem::take(slot).range)
    }

    /// A range that is not followed any more, of which nobody was told.
    pub fn take_dropped(&mut self) -> Option<Range> {
        let slot = self.slots.iter_mut().find(|slot| slot.fate == Fate::Dropped)?;
        self.used = self.used.saturating_sub(1);
        Some(core::mem::take(slot).range)
    }
}

/// Whether memory is tight. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// When it was looked at last; 0: never.
    looked_ns: u64,
    /// Pages read in again until then, plus 1; 0: not known.
    refaults_plus1: u64,
    tight_until_ns: u64,
}

impl Pressure {
    /// Whether it is time to look. Not in the first interval of a process:
    /// most have ended by then.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        if self.looked_ns == 0 {
            self.looked_ns = now_ns;
        }
        now_ns.saturating_sub(self.looked_ns) >= LOOK_EVERY_NS
    }

    /// So many pages have been read in again after their eviction, ever, where
    /// the program's memory is limited; `None`: nobody says.
    pub fn look(&mut self, refaults: Option<u64>, now_ns: u64) {
        let intervals = (now_ns.saturating_sub(self.looked_ns) / LOOK_EVERY_NS).max(1);
        self.looked_ns = now_ns;
        let before = self.refaults_plus1;
        self.refaults_plus1 = refaults.map_or(0, |refaults| refaults.wrapping_add(1));
        if before != 0 && self.refaults_plus1.saturating_sub(before) / intervals >= REFAULTS_MIN {
            self.tight_until_ns = now_ns.saturating_add(TIGHT_NS);
        }
    }

    /// Whether memory is tight.
    pub fn is_tight(&self, now_ns: u64) -> bool {
        // It may be noise that a copy left behind.
        self.tight_until_ns.checked_sub(now_ns).is_some_and(|left| (1..=TIGHT_NS).contains(&left))
    }
}

/// Whether what was given back stays away. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Pages given back, and of these those that were read again; of each
    /// window half of what was known before is kept.
    released: u64,
    returned: u64,
    /// Pages that may be given back in this window; 0: the smallest.
    window: u64,
    used: u64,
    began_ns: u64,
    resting_until_ns: u64,
    rest_ns: u64,
}

impl Evidence {
    /// Whether nothing is given back for a while.
    pub fn rests(&self, now_ns: u64) -> bool {
        (1..=REST_MAX_NS).contains(&self.resting_until_ns.saturating_sub(now_ns))
    }

    /// Pages that may be given back now.
    pub fn room(&mut self, now_ns: u64) -> u64 {
        if self.rests(now_ns) {
            return 0;
        }
        self.window = self.window.clamp(WINDOW_MIN_PAGES, WINDOW_MAX_PAGES);
        if self.used >= self.window {
            if now_ns.saturating_sub(self.began_ns) < JUDGED_NS {
                return 0;
            }
            self.window = (self.window * 2).min(WINDOW_MAX_PAGES);
            self.used = 0;
            self.released /= 2;
            self.returned /= 2;
        }
        self.window - self.used
    }

    /// So many pages have been given back.
    pub fn released(&mut self, pages: u64, now_ns: u64) {
        if self.used == 0 {
            self.began_ns = now_ns;
        }
        self.used = self.used.saturating_add(pages);
        self.released = self.released.saturating_add(pages);
    }

    /// So many pages that had been given back are read again.
    pub fn returned(&mut self, pages: u64, now_ns: u64) {
        self.returned = self.returned.saturating_add(pages);
        if self.returned >= RETURNED_MIN_PAGES
            && self.returned.saturating_mul(RETURNED_PART) > self.released
        {
            self.rest(now_ns);
        }
    }

    /// Of `pages` pages that had been given back a while ago, and that this
    /// program has not read since, `back` are there: others want them.
    pub fn sampled(&mut self, back: u64, pages: u64, now_ns: u64) {
        if back.saturating_mul(SAMPLED_PART) > pages {
            self.rest(now_ns);
        }
    }

    fn rest(&mut self, now_ns: u64) {
        let rest_ns = self.rest_ns.saturating_mul(2).clamp(REST_MIN_NS, REST_MAX_NS);
        let resting_until_ns = now_ns.saturating_add(rest_ns);
        *self = Evidence { resting_until_ns, rest_ns, ..Evidence::default() };
    }
}

/// Files of which pages were read again after they had been given back: the
/// last ones. What a program reads again and again is left alone, whatever else
/// it reads once. All-zero is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files([Reread; FILES_MAX]);

/// A file's name, and its pages that were read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reread {
    name: u64,
    pages: u64,
}

impl Files {
    /// Whether nothing of a file is given back.
    pub fn are_left_alone(&self, name: u64) -> bool {
        self.0.iter().any(|file| file.name == name && file.pages >= RETURNED_MIN_PAGES)
    }

    /// So many pages of a file are read again. Whether that says anything about
    /// other files: not where this one is left alone already.
    pub fn returned(&mut self, name: u64, pages: u64) -> bool {
        if self.are_left_alone(name) {
            return false;
        }
        if let Some(file) = self.0.iter_mut().find(|file| file.name == name) {
            file.pages = file.pages.saturating_add(pages);
            return true;
        }
        let mut newest = Reread { name, pages };
        for file in &mut self.0 {
            core::mem::swap(file, &mut newest);
        }
        true
    }
}

/// All that one copy leaves to the next. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knowledge {
    /// Whether memory is tight.
    pub pressure: Pressure,
    /// Whether what is given back stays away.
    pub evidence: Evidence,
    /// What does not.
    pub files: Files,
}

/// Words of a [`Knowledge`].
pub const WORDS: usize = 10 + 2 * FILES_MAX;

impl Knowledge {
    fn cells(&mut self) -> impl Iterator<Item = &mut u64> {
        let Pressure { looked_ns, refaults_plus1, tight_until_ns } = &mut self.pressure;
        let Evidence { released, returned, window, used, began_ns, resting_until_ns, rest_ns } =
            &mut self.evidence;
        let pressure = [looked_ns, refaults_plus1, tight_until_ns];
        let evidence = [released, returned, window, used, began_ns, resting_until_ns, rest_ns];
        let files = self.files.0.iter_mut().flat_map(|file| [&mut file.name, &mut file.pages]);
        pressure.into_iter().chain(evidence).chain(files)
    }

    /// As words.
    pub fn words(mut self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words.iter_mut().zip(self.cells()).for_each(|(word, cell)| *word = *cell);
        words
    }

    /// The other way round. Any words will do: they are bounded where they are
    /// used.
    pub fn from_words(words: &[u64; WORDS]) -> Knowledge {
        let mut knowledge = Knowledge::default();
        knowledge.cells().zip(words).for_each(|(cell, word)| *cell = *word);
        knowledge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn range(start: u64, end: u64) -> Range {
        Range { file: 7, start, end }
    }

    /// A stream: each range comes with two reads.
    fn stream(ranges: &mut Ranges, count: u64) {
        for n in 0..count {
            let start = n * 100;
            assert_eq!(ranges.prefetched(range(start, start + 100)), None);
            ranges.read(range(start, start + 60), 2 * n);
            ranges.read(range(start + 60, start + 100), 2 * n + 1);
        }
    }

    #[test]
    fn what_the_program_has_passed_is_given_back_from_the_oldest_on() {
        let mut ranges = Ranges::default();
        assert!(ranges.is_empty());
        stream(&mut ranges, 10);
        assert_eq!(ranges.take_passed(0), None);
        // Six reads made and one begun: three ranges, of which two are kept.
        assert_eq!(ranges.take_passed(6), None, "the sixth read is still going on");
        assert_eq!(ranges.take_passed(7), Some(range(0, 100)));
        assert_eq!(ranges.take_passed(7), None);
        assert_eq!(ranges.take_passed(9), Some(range(100, 200)));
        assert!(!ranges.is_empty());
        assert_eq!(ranges.take_dropped(), None);
    }

    #[test]
    fn what_the_copy_has_read_again_is_kept() {
        let mut ranges = Ranges::default();
        stream(&mut ranges, 10);
        ranges.read(range(150, 160), 20);
        assert_eq!(ranges.take_passed(40), Some(range(0, 100)));
        assert_eq!(ranges.take_passed(40), Some(range(200, 300)));
        assert_eq!(ranges.take_dropped(), Some(range(100, 200)));
        assert_eq!(ranges.take_dropped(), None);
        // Another file's bytes are others.
        ranges.read(Range { file: 8, start: 0, end: 10_000 }, 21);
        assert_eq!(ranges.take_passed(40), Some(range(300, 400)));
        // Nor what the program has brought in itself.
        ranges.forget(range(450, 460));
        assert_eq!(ranges.take_passed(40), Some(range(500, 600)));
        assert_eq!(ranges.take_dropped(), Some(range(400, 500)));
    }

    #[test]
    fn what_was_not_read_whole_is_kept() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.prefetched(range(0, 100)), None);
        ranges.read(range(0, 90), 0);
        assert_eq!(ranges.prefetched(range(100, 200)), None);
        ranges.read(range(110, 200), 1);
        assert_eq!(ranges.prefetched(range(200, 300)), None);
        // One read over the end of what is there and all of a range is whole.
        ranges.read(range(190, 310), 2);
        let dropped = [ranges.take_dropped(), ranges.take_dropped()];
        assert_eq!(dropped, [Some(range(100, 200)), None]);
        stream(&mut ranges, 0);
        for n in 10..12 {
            ranges.prefetched(range(n * 100, n * 100 + 100));
            ranges.read(range(n * 100, n * 100 + 100), n);
        }
        assert_eq!(ranges.take_passed(100), Some(range(200, 300)));
        assert_eq!(ranges.take_passed(100), None);
    }

    #[test]
    fn what_the_program_may_not_have_read_is_kept() {
        let mut ranges = Ranges::default();
        stream(&mut ranges, 10);
        // Of its first five reads one was another: the third range's first
        // read was among them.
        ranges.mispredicted(5);
        assert_eq!(ranges.take_passed(40), Some(range(300, 400)));
        let dropped = core::iter::from_fn(|| ranges.take_dropped());
        assert!(dropped.eq([range(0, 100), range(100, 200), range(200, 300)]));
    }

    #[test]
    fn more_ranges_than_there_is_room_for_replace_the_oldest() {
        let mut ranges = Ranges::default();
        stream(&mut ranges, RANGES_MAX as u64);
        assert_eq!(ranges.prefetched(range(1 << 20, 2 << 20)), Some(range(0, 100)));
        assert_eq!(ranges.take_passed(1000), Some(range(100, 200)));
        let mut left = 0;
        while ranges.take_passed(u64::MAX).is_some() {
            left += 1;
        }
        assert_eq!(left, RANGES_MAX - 2 - KEPT_RANGES, "the newest has not been read");
    }

    #[test]
    fn memory_is_tight_where_evicted_pages_are_read_in_again() {
        let mut pressure = Pressure::default();
        assert!(!pressure.is_due(S), "the first interval");
        assert!(!pressure.is_due(S + LOOK_EVERY_NS - 1));
        assert!(pressure.is_due(S + LOOK_EVERY_NS));
        pressure.look(Some(1 << 30), 2 * S);
        assert!(!pressure.is_tight(2 * S), "what was before is nobody's");
        pressure.look(Some((1 << 30) + 2 * REFAULTS_MIN), 3 * S);
        assert!(!pressure.is_tight(3 * S), "too few in four intervals");
        pressure.look(Some((1 << 30) + 8 * REFAULTS_MIN), 4 * S);
        assert!(pressure.is_tight(4 * S) && pressure.is_tight(13 * S));
        assert!(!pressure.is_tight(14 * S), "none since");
        pressure.look(None, 20 * S);
        pressure.look(Some(1 << 40), 21 * S);
        assert!(!pressure.is_tight(21 * S), "not known what was before");
    }

    /// Gives back as much as is permitted in the next `seconds`.
    fn release(evidence: &mut Evidence, now_ns: &mut u64, seconds: u64) -> u64 {
        let mut pages = 0;
        for _ in 0..100 * seconds {
            *now_ns += S / 100;
            let room = evidence.room(*now_ns);
            evidence.released(room, *now_ns);
            pages += room;
        }
        pages
    }

    #[test]
    fn little_is_given_back_at_first_and_more_while_nothing_is_read_again() {
        let (mut evidence, mut now_ns) = (Evidence::default(), S);
        assert_eq!(evidence.room(now_ns), WINDOW_MIN_PAGES);
        let first = release(&mut evidence, &mut now_ns, 1);
        assert!(first <= 16 * WINDOW_MIN_PAGES, "{first}");
        assert!(release(&mut evidence, &mut now_ns, 3) > 16 * first);
        release(&mut evidence, &mut now_ns, 60);
        assert!(evidence.window == WINDOW_MAX_PAGES);
    }

    #[test]
    fn nothing_is_given_back_for_ever_longer_where_it_is_read_again() {
        let (mut evidence, mut now_ns) = (Evidence::default(), S);
        let mut pages_in_all = 0;
        let mut rest_ns = REST_MIN_NS;
        // A loop: all that is given back in a second is read again.
        for _ in 0..6 {
            let pages = release(&mut evidence, &mut now_ns, 1);
            pages_in_all += pages;
            evidence.returned(pages, now_ns);
            assert_eq!(evidence.room(now_ns + rest_ns - 1), 0, "after {rest_ns} ns");
            assert_eq!(evidence.room(now_ns + rest_ns), WINDOW_MIN_PAGES);
            now_ns += rest_ns;
            rest_ns *= 2;
        }
        assert!(now_ns > 60 * S);
        assert!(pages_in_all < 6 * 16 * WINDOW_MIN_PAGES, "{pages_in_all}");
    }

    #[test]
    fn a_small_share_may_be_read_again() {
        let (mut evidence, mut now_ns) = (Evidence::default(), S);
        for _ in 0..20 {
            let pages = release(&mut evidence, &mut now_ns, 1);
            assert!(pages > 0);
            evidence.returned(pages / 64, now_ns);
        }
    }

    #[test]
    fn what_others_have_brought_back_is_wanted() {
        let mut evidence = Evidence::default();
        evidence.sampled(8, 64, S);
        assert_ne!(evidence.room(S), 0, "a part that happens");
        evidence.sampled(9, 64, S);
        assert_eq!(evidence.room(S), 0);
    }

    #[test]
    fn a_file_that_is_read_again_says_little_about_others() {
        let mut files = Files::default();
        assert!(!files.are_left_alone(1));
        assert!(files.returned(1, RETURNED_MIN_PAGES - 1));
        assert!(!files.are_left_alone(1), "a little happens");
        assert!(files.returned(1, 1));
        assert!(files.are_left_alone(1) && !files.are_left_alone(2));
        assert!(!files.returned(1, 1000), "it is known");
        for name in 2..2 + FILES_MAX as u64 {
            assert!(files.returned(name, RETURNED_MIN_PAGES));
        }
        assert!(!files.are_left_alone(1) && files.are_left_alone(2), "the oldest is forgotten");
    }

    #[test]
    fn words_say_all_and_noise_is_bounded() {
        let (mut knowledge, mut now_ns) = (Knowledge::default(), S);
        release(&mut knowledge.evidence, &mut now_ns, 2);
        knowledge.pressure.is_due(S);
        knowledge.files.returned(7, 8);
        assert_eq!(Knowledge::from_words(&knowledge.words()), knowledge);
        for noise in [u64::MAX, u64::MAX / 2, 1 << 63, 12345] {
            let words = [noise; WORDS];
            let Knowledge { mut pressure, mut evidence, mut files } = Knowledge::from_words(&words);
            assert_eq!(Knowledge { pressure, evidence, files }.words(), words);
            assert!(!pressure.is_tight(S));
            pressure.is_due(S);
            pressure.look(Some(noise), S);
            assert!(evidence.room(S) <= WINDOW_MAX_PAGES);
            evidence.released(noise, S);
            evidence.returned(noise, S);
            evidence.sampled(noise, noise, S);
            files.returned(noise, noise);
        }
    }
}
