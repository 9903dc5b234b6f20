//! What a read copies: the resident bytes, by whatever the file system lets
//! us ask, and nothing else.

use crate::abi::*;
use crate::arch::nr;
use crate::context::{Context, address_of};
use crate::descriptors::{File, FileId, Kind};
use crate::kernel::Kernel;
use crate::outcome::{Stop, from_kernel, park};
use crate::read::{Buffers, Copied};
use crate::residency::{self, Method, Oracle, PAGES_MAX};
use runahead_protocol::stats::Park;

/// Reads up to this long are searched for resident bytes behind the first
/// missing one.
const SEARCHED_MAX_BYTES: u64 = 64 * 1024;

/// Pieces in which they are searched.
const PIECES: u64 = 4;

/// After so many misses in a row with nothing behind the first missing page,
/// only every so manieth is searched: the device's data is cold.
const MISSES_WHOLE_MAX: u32 = 16;

/// Files in a row of which nothing was there when they were first read, after
/// which only every so manieth is asked about, where asking takes a mapping.
const FILES_COLD: u32 = 16;
const FILES_COLD_ASKED: u32 = 4;

impl<K: Kernel> Context<'_, K> {
    /// Copies what is resident.
    pub(crate) fn copy(&mut self, id: FileId, into: &Buffers, offset: u64) -> Result<Copied, Stop> {
        let real = self.real(id)?;
        if self.e.table.file(id).oracle.method == Method::Unasked {
            let dev = self.e.table.file(id).dev;
            self.e.table.file_mut(id).oracle.method = self.e.methods.get(dev);
        }
        let file = *self.e.table.file(id);
        let wanted = into.len.min(file.size.saturating_sub(offset));
        if self.ends_here(&file, offset) {
            self.e.table.file_mut(id).ended = true;
            return Ok(Copied::all(0));
        }
        if matches!(file.oracle.method, Method::Unasked | Method::NoWait) {
            if let Some(copied) = self.copy_nowait(id, real, into, offset)? {
                return Ok(copied);
            }
            let method = residency::refused_nowait(self.k, &mut self.e.methods, real, file.dev);
            self.e.table.file_mut(id).oracle.method = method;
        }
        match self.e.table.file(id).oracle.method {
            Method::MadeUp => self.copy_made_up(id, real, into, offset),
            Method::Sysfs | Method::Delicate | Method::Unopened => park(Park::Unanswerable),
            _ => self.copy_pages(id, real, into, offset, wanted),
        }
    }

    /// Whether a read at `offset` is the one by which programs find the end
    /// that they have come to. Its answer needs no call: the size was asked
    /// for at the open. Only the first time, because who reads there again
    /// waits for the file to grow, and only where sizes say something.
    fn ends_here(&self, file: &File, offset: u64) -> bool {
        file.oracle.method == Method::NoWait
            && file.kind == Kind::Regular
            && file.inherited_plus1 == 0
            && !file.dirty
            && !file.ended
            && offset > 0
            && offset == file.size
            && offset == file.stream_next
    }

    /// By `RWF_NOWAIT`: copies and starts the read of the rest in one call.
    /// `None`: refused by this file system.
    fn copy_nowait(
        &mut self,
        id: FileId,
        real: usize,
        into: &Buffers,
        offset: u64,
    ) -> Result<Option<Copied>, Stop> {
        const EAGAIN_RESULT: isize = -(EAGAIN as isize);
        const EOPNOTSUPP_RESULT: isize = -(EOPNOTSUPP as isize);
        let arguments = [real, into.vector, into.count, offset as usize, 0, RWF_NOWAIT];
        let got = match self.k.call(nr::PREADV2, arguments) {
            EOPNOTSUPP_RESULT => return Ok(None),
            EAGAIN_RESULT => None,
            result => Some(from_kernel(result)? as u64),
        };
        self.learn_nowait(id);
        let mut size = self.e.table.file(id).size;
        if got.is_none() && offset >= size {
            // It has grown since it was opened.
            size = size.max(self.stat_real(real).map_or(0, |stat| stat.size));
            self.e.table.file_mut(id).size = size;
        }
        let wanted = into.len.min(size.saturating_sub(offset));
        let done = got.unwrap_or(0);
        // Nothing at all means that the file ends here, whatever its size in
        // appearance.
        if done >= wanted || got == Some(0) {
            return Ok(Some(Copied::all(done.max(wanted))));
        }
        if done == 0 {
            self.blank_what_is_no_text(into, wanted)?;
        }
        // Behind what was prefetched and is still on its way is no more.
        let file = self.e.table.file(id);
        if !file.goes_on_at(offset) || offset + done >= file.prefetched_to {
            self.copy_later_pages(real, into, offset, (done, wanted));
        }
        let missing = Some((offset + done, offset + wanted));
        Ok(Some(Copied { result: wanted, missing, begun: true }))
    }

    fn learn_nowait(&mut self, id: FileId) {
        let file = self.e.table.file_mut(id);
        if file.oracle.method == Method::Unasked {
            file.oracle.method = Method::NoWait;
            self.e.methods.set(file.dev, Method::NoWait);
        }
    }

    /// Looks for resident bytes behind the first missing one. Most misses
    /// have none, so the last page decides whether to look further, and
    /// nothing is asked most of the time where it never has any.
    fn copy_later_pages(&mut self, real: usize, into: &Buffers, offset: u64, range: (u64, u64)) {
        let (done, wanted) = range;
        let Some(buffer) = into.single else { return };
        let start = (offset + done) / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
        let end = offset + wanted;
        if end - offset > SEARCHED_MAX_BYTES || start >= end {
            return;
        }
        let misses_whole = &mut self.e.misses_whole;
        if *misses_whole >= MISSES_WHOLE_MAX && !misses_whole.is_multiple_of(MISSES_WHOLE_MAX) {
            *misses_whole += 1;
            return;
        }
        let last = (end - 1) / PAGE_BYTES * PAGE_BYTES;
        let mut copy = |from: u64, to: u64| {
            let vector = [buffer.wrapping_add((from - offset) as usize), (to - from) as usize];
            let vector = address_of(&vector);
            self.k.call(nr::PREADV2, [real, vector, 1, from as usize, 0, RWF_NOWAIT])
        };
        if copy(last, end) <= 0 {
            *misses_whole = misses_whole.wrapping_add(1);
            return;
        }
        *misses_whole = 0;
        if last == start {
            return;
        }
        let piece = ((last - start) / PIECES).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        let mut from = start;
        while from < last {
            let to = (from + piece).min(last);
            copy(from, to);
            from = to;
        }
    }

    /// Files that are made up as they are read: their size says nothing.
    fn copy_made_up(
        &mut self,
        id: FileId,
        real: usize,
        into: &Buffers,
        offset: u64,
    ) -> Result<Copied, Stop> {
        // Those that only root may read may be queues, like /proc/kmsg.
        if self.e.table.file(id).mode & 0o044 == 0 {
            return park(Park::Unanswerable);
        }
        let arguments = [real, into.vector, into.count, offset as usize, 0, 0];
        Ok(Copied::all(self.on_program(nr::PREADV2, arguments)? as u64))
    }

    /// By a look at the pages first, where `RWF_NOWAIT` is refused.
    fn copy_pages(
        &mut self,
        id: FileId,
        real: usize,
        into: &Buffers,
        offset: u64,
        wanted: u64,
    ) -> Result<Copied, Stop> {
        if wanted == 0 {
            return Ok(Copied::all(0));
        }
        let end = offset + wanted;
        let missing_all = Copied { result: wanted, missing: Some((offset, end)), begun: false };
        if self.is_cold(id, offset) {
            self.blank_what_is_no_text(into, wanted)?;
            return Ok(missing_all);
        }
        let mut oracle: Oracle = self.e.table.file(id).oracle;
        let mut pages = [0u8; PAGES_MAX];
        let known = match oracle.method {
            Method::Blind => None,
            _ => residency::resident_pages(self.k, &mut oracle, real, offset, wanted, &mut pages),
        };
        self.e.table.file_mut(id).oracle = oracle;
        let Some(count) = known else {
            self.blank_what_is_no_text(into, wanted)?;
            return Ok(missing_all);
        };
        let seen = pages.get(..count).unwrap_or(&[]);
        if seen.iter().any(|page| page & 1 == 1) {
            self.e.files_cold = 0;
        }
        let all_seen = (offset / PAGE_BYTES + count as u64) * PAGE_BYTES >= end;
        if all_seen && seen.iter().all(|page| page & 1 == 1) {
            let arguments = [real, into.vector, into.count, offset as usize, 0, 0];
            let got = self.on_program(nr::PREADV2, arguments)? as u64;
            return Ok(Copied::all(got.max(wanted)));
        }
        if seen.first().is_none_or(|page| page & 1 == 0) {
            self.blank_what_is_no_text(into, wanted)?;
        }
        if let Some(buffer) = into.single {
            self.copy_runs(real, buffer, (offset, end), seen);
        }
        let first_missing = seen.iter().position(|page| page & 1 == 0).unwrap_or(count) as u64;
        let start = ((offset / PAGE_BYTES + first_missing) * PAGE_BYTES).min(end - 1).max(offset);
        Ok(Copied { result: wanted, missing: Some((start, end)), begun: false })
    }

    /// Whether the first read of a file is taken for missing unasked, because
    /// those of the files before were: on overlayfs the question costs a
    /// mapping, half of what the prefetch itself does. One that is there is
    /// found at one of the next.
    fn is_cold(&mut self, id: FileId, offset: u64) -> bool {
        let file = self.e.table.file(id);
        let first = offset == 0 && file.stream_next == 0 && file.prefetched_to == 0;
        if file.oracle.method != Method::Mincore || file.inherited_plus1 != 0 || !first {
            return false;
        }
        self.e.files_cold = self.e.files_cold.saturating_add(1);
        let files_cold = self.e.files_cold;
        files_cold > FILES_COLD && !files_cold.is_multiple_of(FILES_COLD_ASKED)
    }

    /// Copies each run of resident pages.
    fn copy_runs(&mut self, real: usize, buffer: usize, (offset, end): (u64, u64), pages: &[u8]) {
        let first = offset / PAGE_BYTES;
        let mut run_start = None;
        for (index, page) in pages.iter().chain(&[0]).enumerate() {
            let at = (first + index as u64) * PAGE_BYTES;
            match (run_start, page & 1 == 1) {
                (None, true) => run_start = Some(at.max(offset)),
                (Some(from), false) => {
                    let len = at.min(end) - from;
                    let vector = [buffer.wrapping_add((from - offset) as usize), len as usize];
                    let vector = address_of(&vector);
                    self.k.call(nr::PREADV2, [real, vector, 1, from as usize, 0, 0]);
                    run_start = None;
                }
                _ => {}
            }
        }
    }
}
