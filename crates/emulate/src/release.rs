//! Giving back what lies behind the program, where memory is tight: when, says
//! `policy::release`; here is what it is told, and how.
//!
//! POSIX_FADV_DONTNEED drops pages of the page cache that are clean and that
//! nobody has mapped or locked: it changes what is in memory and nothing else.
//! Of dirty pages it begins the write, so it is not given where there are any.
//! Only ranges of which nothing was in memory before speculation brought them in
//! are given back, and afterwards samples tell whether somebody else has read
//! them in again. Both is asked by cachestat(2) (Linux 6.5, and only of files
//! that the user owns or may write; on overlayfs it says nothing): without it
//! nothing is given back.

use crate::abi::PAGE_BYTES;
use crate::arch::nr;
use crate::context::{Context, address_of, address_of_mut};
use crate::descriptors::{File, FileId, Kind};
use crate::kernel::Kernel;
use crate::residency::Method;
use core::sync::atomic::Ordering;
use runahead_policy::release::{
    Knowledge, RETURNED_MIN_PAGES, Range, Ranges, SAMPLED_AFTER_NS, WORDS,
};

const POSIX_FADV_DONTNEED: usize = 4;

/// Reads between two looks at the clock, for whether to look at memory.
const CLOCK_READS: u64 = 16;

/// A stream is looked at so far ahead: further than readahead reaches, the
/// copy's own and the kernel's for it.
const AHEAD_BYTES: u64 = 1 << 20;
/// So much at a time,
const LOOK_BYTES: u64 = 2 << 20;
/// and given back in pieces of so much.
const PIECE_BYTES: u64 = 512 << 10;

/// Ranges that are given back at one read.
const GIVEN_BACK_MAX: usize = 4;

/// Zero bytes are a valid start.
#[derive(Debug, Default)]
pub(crate) struct Release {
    enabled: bool,
    tight: bool,
    knowledge: Knowledge,
    ranges: Ranges,
    /// Reads of the program that were not as predicted, until the last look.
    unpredicted: u64,
    /// Given back last, for a sample; empty: none.
    sample: Range,
    sample_ns: u64,
}

impl Release {
    /// Begins with what an earlier copy came to; `None`: nothing is given back.
    pub(crate) fn start(&mut self, words: Option<[u64; WORDS]>) {
        self.enabled = words.is_some();
        self.knowledge = Knowledge::from_words(&words.unwrap_or_default());
    }
}

/// Whole pages of a range, and of a file's last page its beginning, as the
/// kernel drops them: the first byte and the one behind the last.
fn whole_pages((start, end): (u64, u64), size: u64) -> (u64, u64) {
    let first = start.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
    let last = if end >= size { size } else { end / PAGE_BYTES * PAGE_BYTES };
    (first, last.max(first))
}

/// Pages of the page cache, of a range.
struct Cached {
    pages: u64,
    /// Dirty, or being written.
    unwritten: u64,
}

impl<K: Kernel> Context<'_, K> {
    /// Before the copy makes a read: asks what of it, and of what comes after it
    /// in a stream, is in memory. What is not comes there by speculation, be it
    /// by its prefetches or by the kernel's readahead for it.
    pub(crate) fn look_before(&mut self, id: FileId, (start, end): (u64, u64)) {
        if !self.e.release.tight {
            return;
        }
        let mut file = *self.e.table.file(id);
        if file.oracle.method == Method::Unasked {
            file.oracle.method = self.e.methods.get(file.dev);
        }
        if !self.may_be_given_back(&file) {
            return;
        }
        let is_first = start == 0 && file.stream_next == 0 && file.prefetched_to == 0;
        let (from, to) = if is_first {
            (0, LOOK_BYTES)
        } else if !file.goes_on_at(start) {
            self.e.table.file_mut(id).looked_to = 0;
            return self.follow_absent((start, end), id, &file);
        } else {
            // Before readahead comes there.
            let near = end.saturating_add(AHEAD_BYTES);
            if near <= file.looked_to {
                return;
            }
            let from = file.looked_to.max(near.next_multiple_of(PAGE_BYTES));
            (from, from.saturating_add(LOOK_BYTES))
        };
        self.e.table.file_mut(id).looked_to = to;
        self.follow_absent((from, to), id, &file);
    }

    /// Follows a range of which nothing is in memory.
    fn follow_absent(&mut self, (from, to): (u64, u64), id: FileId, file: &File) {
        let to = to.min(file.size);
        let (first, last) = whole_pages((from, to), file.size);
        let is_absent = first < last
            && self.real(id).is_ok()
            && self.cached(id, (first, last)).is_some_and(|cached| cached.pages == 0);
        let mut at = from;
        while is_absent && at < to {
            let end = at.saturating_add(PIECE_BYTES).min(to);
            let replaced = self.e.release.ranges.prefetched(Range { file: id.0, start: at, end });
            // Its file stays open until then.
            let file = self.e.table.file_mut(id);
            file.in_flight = file.in_flight.saturating_add(1);
            if let Some(replaced) = replaced {
                self.let_go(&replaced);
            }
            at = end;
        }
    }

    /// The copy makes a read, which comes to `len` bytes.
    pub(crate) fn goes_on(&mut self, id: FileId, (offset, len): (u64, u64), behind: bool) {
        if !self.e.release.enabled {
            return;
        }
        let number = self.read_number();
        if number.is_multiple_of(CLOCK_READS) {
            self.look_at_memory();
        }
        let end = offset.saturating_add(len);
        self.look_for_returns(id, (offset, end));
        if !self.e.release.tight {
            return self.follow_nothing();
        }
        if self.e.release.ranges.is_empty() {
            return;
        }
        let read = Range { file: id.0, start: offset, end };
        if behind {
            // The program itself has brought it in.
            self.e.release.ranges.forget(read);
        } else {
            self.e.release.ranges.read(read, number);
        }
        self.give_back();
    }

    fn look_at_memory(&mut self) {
        let now_ns = self.k.now_ns();
        if self.e.release.knowledge.pressure.is_due(now_ns) {
            let refaults = self.k.refaults();
            self.e.release.knowledge.pressure.look(refaults, now_ns);
        }
        let Knowledge { pressure, evidence, .. } = &self.e.release.knowledge;
        self.e.release.tight = pressure.is_tight(now_ns) && !evidence.rests(now_ns);
        self.keep_release();
    }

    /// Nothing is given back for now: the files are kept open no longer, which
    /// the program may have closed, and removes.
    pub(crate) fn follow_nothing(&mut self) {
        while let Some(range) = self.e.release.ranges.take_any() {
            self.let_go(&range);
        }
        self.forget_sample();
    }

    fn forget_sample(&mut self) {
        let sample = core::mem::take(&mut self.e.release.sample);
        if sample != Range::default() {
            self.let_go(&sample);
        }
    }

    /// For the next copy.
    fn keep_release(&mut self) {
        let words = self.e.release.knowledge.words();
        for (cell, word) in self.log.behind.words.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    /// Whether a read comes to what was given back.
    fn look_for_returns(&mut self, id: FileId, (start, end): (u64, u64)) {
        if self.log.behind.is_empty() {
            return;
        }
        let name = name(self.e.table.file(id));
        let pages = self.log.behind.take(name, start, end).div_ceil(PAGE_BYTES);
        if pages > 0 {
            self.log.behind.returned.fetch_add(pages, Ordering::Relaxed);
            let now_ns = self.k.now_ns();
            let Knowledge { evidence, files, .. } = &mut self.e.release.knowledge;
            if files.returned(name, pages) {
                evidence.returned(pages, now_ns);
            }
            self.keep_release();
            // It would find what this program itself has brought back.
            let sample = self.e.release.sample;
            if self::name(self.e.table.file(FileId(sample.file))) == name {
                self.forget_sample();
            }
        }
    }

    fn give_back(&mut self) {
        let consumed = self.log.consumed.load(Ordering::Acquire);
        // What is told before `consumed` is.
        let unpredicted = self.log.unpredicted.load(Ordering::Relaxed);
        let release = &mut self.e.release;
        if unpredicted != release.unpredicted {
            release.unpredicted = unpredicted;
            release.ranges.mispredicted(consumed);
        }
        while let Some(dropped) = self.e.release.ranges.take_dropped() {
            self.let_go(&dropped);
        }
        let now_ns = self.k.now_ns();
        for _ in 0..GIVEN_BACK_MAX {
            let release = &mut self.e.release;
            if !release.tight || release.knowledge.evidence.room(now_ns) == 0 {
                return;
            }
            let Some(range) = release.ranges.take_passed(consumed) else { return };
            if !self.give_back_range(&range, now_ns) {
                self.let_go(&range);
            }
        }
    }

    /// Gives a range back; whether its file is kept for a sample.
    fn give_back_range(&mut self, range: &Range, now_ns: u64) -> bool {
        let id = FileId(range.file);
        let file = *self.e.table.file(id);
        let (start, end) = whole_pages((range.start, range.end), file.size);
        self.look_at_sample(now_ns);
        let Some(real) = file.real().filter(|_| start < end && self.may_be_given_back(&file))
        else {
            return false;
        };
        let Some(before) = self.cached(id, (start, end)).filter(|cached| cached.unwritten == 0)
        else {
            return false;
        };
        // Asking about it once more would bring it back.
        self.drop_in_flight(id, (start, end), now_ns);
        let args = [real, start as usize, (end - start) as usize, POSIX_FADV_DONTNEED, 0, 0];
        if self.k.call(nr::FADVISE64, args) != 0 {
            return false;
        }
        let left = self.cached(id, (start, end)).map_or(0, |cached| cached.pages);
        let pages = before.pages.saturating_sub(left);
        self.log.behind.released.fetch_add(pages, Ordering::Relaxed);
        self.log.behind.push(name(&file), start, end);
        self.e.release.knowledge.evidence.released(pages, now_ns);
        if left > before.pages / 2 {
            // Somebody has mapped it. To find that out the kernel has emptied the
            // lists of all processors: not for each of its ranges.
            self.e.release.knowledge.files.returned(name(&file), left.max(RETURNED_MIN_PAGES));
        }
        self.keep_release();
        // Of what somebody else has mapped a sample says nothing.
        if left > 0 || self.e.release.sample != Range::default() {
            return false;
        }
        self.e.release.sample = Range { file: range.file, start, end };
        self.e.release.sample_ns = now_ns;
        true
    }

    /// Asks whether what was given back a while ago is there again.
    fn look_at_sample(&mut self, now_ns: u64) {
        let sample = self.e.release.sample;
        let age_ns = now_ns.saturating_sub(self.e.release.sample_ns);
        if sample == Range::default() || age_ns < SAMPLED_AFTER_NS {
            return;
        }
        self.e.release.sample = Range::default();
        if let Some(back) = self.cached(FileId(sample.file), (sample.start, sample.end)) {
            let pages = (sample.end - sample.start).div_ceil(PAGE_BYTES);
            self.log.behind.returned.fetch_add(back.pages, Ordering::Relaxed);
            self.e.release.knowledge.evidence.sampled(back.pages, pages, now_ns);
        }
        self.let_go(&sample);
    }

    fn may_be_given_back(&self, file: &File) -> bool {
        file.kind == Kind::Regular
            && !file.dirty
            && !file.direct
            && !file.writable()
            && matches!(file.oracle.method, Method::NoWait | Method::Cachestat)
            && !self.e.release.knowledge.files.are_left_alone(name(file))
    }

    /// A range is not followed any more.
    fn let_go(&mut self, range: &Range) {
        let id = FileId(range.file);
        let file = self.e.table.file_mut(id);
        file.in_flight = file.in_flight.saturating_sub(1);
        self.close_if_unused(id);
    }

    /// What the page cache holds of a range, where the kernel says.
    fn cached(&mut self, id: FileId, (start, end): (u64, u64)) -> Option<Cached> {
        let real = self.e.table.file(id).real()?;
        let range = [start, end.checked_sub(start)?];
        let mut cached = [0u64; 5];
        let args = [real, address_of(&range), address_of_mut(&mut cached), 0, 0, 0];
        if self.k.call(nr::CACHESTAT, args) != 0 {
            return None;
        }
        let [pages, dirty, writeback, _, _] = cached;
        Some(Cached { pages, unwritten: dirty | writeback })
    }
}

/// A file's name in the list of what was given back.
fn name(file: &File) -> u64 {
    file.dev.rotate_left(32) ^ file.ino
}
