//! Reads: resident bytes are copied, missing ones leave the buffer exactly
//! as it was and are prefetched, and the call returns what the normal
//! process would get (Fraser and Chang, section 4.1.2).

use crate::abi::*;
use crate::arch::nr;
use crate::context::{Context, address_of};
use crate::descriptors::{FileId, Kind};
use crate::kernel::Kernel;
use crate::outcome::{Answer, Stop, errno, from_kernel, park};
use crate::residency::{self, Method, Methods, Oracle, PAGES_MAX};
use runahead_protocol::log::{FLAG_BEHIND, FLAG_PREFETCHED, Prediction};
use runahead_protocol::stats::Park;

/// What one `RWF_NOWAIT` miss starts at least, in bytes: Linux's default
/// `read_ahead_kb`.
const NOWAIT_WINDOW_BYTES: u64 = 128 * 1024;

/// Most bytes in one `readahead(2)`: the kernel silently cuts longer ones
/// (1280 KiB seen with `read_ahead_kb` 128; less where `max_sectors_kb` is).
const CHUNK_MAX_BYTES: u64 = 512 * 1024;

/// Most bytes prefetched for one call of the program.
const CALL_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Reads up to this long are searched for resident bytes behind the first
/// missing one.
const SEARCHED_MAX_BYTES: u64 = 64 * 1024;

/// Pieces in which they are searched.
const PIECES: u64 = 4;

/// Run in which a sequential stream is prefetched where the kernel's own
/// readahead does not do it, in bytes.
const RUN_BYTES: u64 = 256 * 1024;

/// The same for the first read of a file.
const FIRST_RUN_BYTES: u64 = 64 * 1024;

/// Testing: how far beside the truth a wrong prediction lies, in bytes.
const WRONG_BYTES: u64 = 64 * 1024;

/// A buffer, or several, of the program.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    /// Address of the `struct iovec`s.
    vector: usize,
    count: usize,
    /// Address of the buffer where there is one only.
    single: Option<usize>,
    pub(crate) len: u64,
}

/// What a read found.
struct Copied {
    /// What the call returns.
    result: u64,
    /// Part of the range that was not resident.
    missing: Option<(u64, u64)>,
    /// The prefetch of at least [`NOWAIT_WINDOW_BYTES`] of it has begun.
    begun: bool,
}

impl Copied {
    fn all(result: u64) -> Copied {
        Copied { result, missing: None, begun: false }
    }
}

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn read(&mut self, a: [usize; 6]) -> Answer {
        self.read_single(a, None)
    }

    pub(crate) fn pread64(&mut self, a: [usize; 6]) -> Answer {
        self.read_single(a, Some(a[3] as u64))
    }

    pub(crate) fn readv(&mut self, a: [usize; 6]) -> Answer {
        self.read_vector(a, None)
    }

    pub(crate) fn preadv(&mut self, a: [usize; 6]) -> Answer {
        self.read_vector(a, Some(a[3] as u64))
    }

    pub(crate) fn preadv2(&mut self, a: [usize; 6]) -> Answer {
        let offset = (a[3] as i64 != -1).then_some(a[3] as u64);
        if a[5] & RWF_NOWAIT != 0 {
            return self.read_if_resident(a, offset);
        }
        if a[5] != 0 {
            return self.read_unlogged(a, offset);
        }
        self.read_vector(a, offset)
    }

    /// The program itself asks what is resident: EAGAIN is the answer that
    /// it is prepared for, and what it would get on a cold file.
    fn read_if_resident(&mut self, a: [usize; 6], offset: Option<u64>) -> Answer {
        let buffers = self.vector(a[1], a[2])?;
        let id = self.readable(a[0], offset)?;
        let file = *self.e.table.file(id);
        if file.kind != Kind::Regular {
            return errno(EOPNOTSUPP);
        }
        let real = self.real(id)?;
        let at = offset.unwrap_or(file.offset);
        let arguments = [real, buffers.vector, buffers.count, at as usize, 0, RWF_NOWAIT];
        let result = self.on_program(nr::PREADV2, arguments)?;
        if offset.is_none() {
            self.e.table.file_mut(id).offset = at.saturating_add(result as u64);
        }
        Ok(result)
    }

    /// Reads with flags of their own are rare, and the normal side leaves
    /// them alone: bytes are given up, nothing is logged.
    fn read_unlogged(&mut self, a: [usize; 6], offset: Option<u64>) -> Answer {
        let id = self.readable(a[0], offset)?;
        let buffers = self.vector(a[1], a[2])?;
        if !self.e.table.file(id).is_file() {
            return park(Park::Unanswerable);
        }
        let at = offset.unwrap_or(self.e.table.file(id).offset);
        let result = self.read_elsewhere(a[0], id, (at, buffers.len), false)?;
        if offset.is_none() {
            self.e.table.file_mut(id).offset = at.saturating_add(result);
        }
        Ok(result as usize)
    }

    fn read_single(&mut self, a: [usize; 6], offset: Option<u64>) -> Answer {
        // In the kernel's order: EINVAL, EBADF, EFAULT.
        if offset.is_some_and(|at| at as i64 <= -1) {
            return errno(EINVAL);
        }
        let id = self.readable(a[0], offset)?;
        let len = (a[2] as u64).min(RW_MAX_BYTES);
        self.ready(a[1], len as usize)?;
        let vector = [a[1], len as usize];
        let vector = address_of(&vector);
        self.read_into(a[0], id, Buffers { vector, count: 1, single: Some(a[1]), len }, offset)
    }

    fn read_vector(&mut self, a: [usize; 6], offset: Option<u64>) -> Answer {
        if offset.is_some_and(|at| at as i64 <= -1) {
            return errno(EINVAL);
        }
        let id = self.readable(a[0], offset)?;
        let buffers = self.vector(a[1], a[2])?;
        if buffers.len == 0 && !self.e.table.file(id).is_file() {
            return Ok(0);
        }
        self.read_into(a[0], id, buffers, offset)
    }

    fn readable(&self, fd: usize, at: Option<u64>) -> Result<FileId, Stop> {
        let id = self.id(fd)?;
        let file = self.e.table.file(id);
        file.seekable_if(at.is_some())?;
        if file.readable() { Ok(id) } else { errno(EBADF) }
    }

    /// Reads the program's vector and makes its buffers ready.
    fn vector(&mut self, vector: usize, count: usize) -> Result<Buffers, Stop> {
        if count > IOV_MAX {
            return errno(EINVAL);
        }
        let mut buffers = Buffers { vector, count, single: None, len: 0 };
        for index in 0..count {
            let [address, len] = self.load_words(vector.wrapping_add(index * 16))?;
            self.ready(address as usize, len as usize)?;
            buffers.len = buffers.len.saturating_add(len);
            buffers.single = (count == 1).then_some(address as usize);
        }
        if buffers.len > RW_MAX_BYTES { errno(EINVAL) } else { Ok(buffers) }
    }

    fn read_into(&mut self, fd: usize, id: FileId, into: Buffers, at: Option<u64>) -> Answer {
        let file = *self.e.table.file(id);
        let beyond = at.unwrap_or(file.offset).saturating_add(into.len) > i64::MAX as u64;
        match file.kind {
            kind if beyond && kind.has_offset() => return errno(EINVAL),
            Kind::Regular | Kind::Sink => {}
            Kind::Null => return Ok(0),
            Kind::Zero => return self.read_zeros(&into),
            Kind::Random => return self.read_random(&into),
            Kind::Directory | Kind::SinkDirectory => return errno(EISDIR),
            _ if into.len == 0 => return Ok(0),
            _ => return park(Park::NeedsInput),
        }
        let offset = at.unwrap_or(file.offset);
        // The page cache is not what O_DIRECT waits for; the normal side
        // leaves it alone, too.
        let result = if file.direct {
            into.len.min(self.size_now(id)?.saturating_sub(offset))
        } else {
            self.read_file(fd, id, &into, offset)?
        };
        let file = self.e.table.file_mut(id);
        if at.is_none() {
            file.offset = offset.saturating_add(result);
        }
        file.stream_next = offset.saturating_add(result);
        Ok(result as usize)
    }

    fn read_zeros(&mut self, into: &Buffers) -> Answer {
        let zeros = [0u8; 256];
        let Some(address) = into.single else { return park(Park::Unanswerable) };
        let mut done = 0;
        while done < into.len {
            let len = (into.len - done).min(zeros.len() as u64);
            self.store(
                address.wrapping_add(done as usize),
                zeros.get(..len as usize).unwrap_or(&[]),
            )?;
            done += len;
        }
        Ok(into.len as usize)
    }

    fn read_random(&mut self, into: &Buffers) -> Answer {
        let Some(address) = into.single else { return park(Park::Unanswerable) };
        self.on_program(nr::GETRANDOM, [address, into.len as usize, 0, 0, 0, 0])
    }

    /// One logged read of a file.
    fn read_file(
        &mut self,
        fd: usize,
        id: FileId,
        into: &Buffers,
        offset: u64,
    ) -> Result<u64, Stop> {
        self.reopen_or_lose(id)?;
        self.throttle(id, offset, into.len)?;
        let behind = self.is_behind();
        self.share_size(id);
        let copied = if self.e.table.file(id).kind == Kind::Sink {
            Copied::all(into.len.min(self.e.table.file(id).size.saturating_sub(offset)))
        } else {
            self.copy(id, into, offset)?
        };
        if self.e.always_wrong {
            self.spoil(into, copied.result)?;
            return self.predict_wrongly(fd, id, (offset, into.len), copied, behind);
        }
        self.predict(fd, id, (offset, into.len), &copied, behind);
        Ok(copied.result)
    }

    /// Testing: inverts the first bytes that a read has brought, so that the
    /// program computes on what is not there.
    fn spoil(&mut self, into: &Buffers, len: u64) -> Result<(), Stop> {
        let Some(address) = into.single else { return Ok(()) };
        let mut bytes = [0u8; 64];
        let Some(bytes) = bytes.get_mut(..len.min(64) as usize) else { return Ok(()) };
        if !self.k.load(address, bytes) {
            return park(Park::BadPointer);
        }
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        self.store(address, bytes)
    }

    /// Testing: logs and prefetches another range than the one read.
    fn predict_wrongly(
        &mut self,
        fd: usize,
        id: FileId,
        (offset, len): (u64, u64),
        mut copied: Copied,
        behind: bool,
    ) -> Result<u64, Stop> {
        let wrong = offset ^ WRONG_BYTES;
        copied.missing = Some((wrong, wrong.saturating_add(len.clamp(1, WRONG_BYTES))));
        copied.begun = false;
        self.predict(fd, id, (wrong, len), &copied, behind);
        Ok(copied.result)
    }

    /// Logs a read that the kernel would refuse, for the count's sake.
    pub(crate) fn log_refused(&mut self, fd: usize, len: u64) {
        let flags = if self.is_behind() { FLAG_BEHIND } else { 0 };
        self.e.counters.reads += 1;
        self.log.push(Prediction { offset: 0, len, fd: fd as i32, flags, prefetched_len: 0 });
    }

    /// Waits for the prefetch horizon, and for the device where this read
    /// may go there.
    fn throttle(&mut self, id: FileId, offset: u64, len: u64) -> Result<(), Stop> {
        if self.is_behind() {
            return Ok(());
        }
        self.wait_for_horizon()?;
        let file = self.e.table.file(id);
        let end = offset.saturating_add(len).min(file.size);
        let under_way = offset == file.stream_next && end <= file.prefetched_to;
        if file.kind == Kind::Regular && offset < file.size && !under_way {
            self.wait_for_device();
        }
        Ok(())
    }

    /// Logs a read, and prefetches what it missed.
    fn predict(
        &mut self,
        fd: usize,
        id: FileId,
        (offset, len): (u64, u64),
        copied: &Copied,
        behind: bool,
    ) {
        let mut flags = if behind { FLAG_BEHIND } else { 0 };
        let mut prefetched_len = 0;
        self.e.counters.reads += 1;
        if behind {
            self.e.counters.reads_behind += 1;
        }
        match copied.missing {
            None => self.e.counters.reads_resident += 1,
            Some((start, end)) if !behind => {
                self.prefetch_missing(id, offset, (start, end), copied.begun);
                flags |= FLAG_PREFETCHED;
                prefetched_len = end - start;
                let number = self.read_number();
                self.e.prefetcher.went_ahead(number);
            }
            Some(_) => {}
        }
        self.log.push(Prediction { offset, len, fd: fd as i32, flags, prefetched_len });
    }

    /// Copies what is resident.
    fn copy(&mut self, id: FileId, into: &Buffers, offset: u64) -> Result<Copied, Stop> {
        let real = match self.real(id) {
            // The normal process has closed it meanwhile, so it is past this
            // read: go on without the bytes rather than not at all. On a fast
            // device that is how many a speculation begins.
            Err(Stop::Park(Park::Reopen)) if self.e.table.file(id).kind == Kind::Regular => {
                let result = into.len.min(self.e.table.file(id).size.saturating_sub(offset));
                return Ok(Copied { result, missing: None, begun: false });
            }
            other => other?,
        };
        if self.e.table.file(id).oracle.method == Method::Unasked {
            let dev = self.e.table.file(id).dev;
            self.e.table.file_mut(id).oracle.method = self.e.methods.get(dev);
        }
        let file = *self.e.table.file(id);
        let wanted = into.len.min(file.size.saturating_sub(offset));
        if matches!(file.oracle.method, Method::Unasked | Method::NoWait) {
            if let Some(copied) = self.copy_nowait(id, real, into, offset)? {
                return Ok(copied);
            }
            let method = residency::refused_nowait(self.k, &mut self.e.methods, real, file.dev);
            self.e.table.file_mut(id).oracle.method = method;
        }
        match self.e.table.file(id).oracle.method {
            Method::MadeUp => self.copy_made_up(id, real, into, offset),
            Method::Delicate => park(Park::Unanswerable),
            _ => self.copy_pages(id, real, into, offset, wanted),
        }
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
        self.copy_later_pages(real, into, offset, (done, wanted));
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
    /// have none, so the last page decides whether to look further.
    fn copy_later_pages(&mut self, real: usize, into: &Buffers, offset: u64, range: (u64, u64)) {
        let (done, wanted) = range;
        let Some(buffer) = into.single else { return };
        let start = (offset + done) / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
        let end = offset + wanted;
        if end - offset > SEARCHED_MAX_BYTES || start >= end {
            return;
        }
        let last = (end - 1) / PAGE_BYTES * PAGE_BYTES;
        let mut copy = |from: u64, to: u64| {
            let vector = [buffer.wrapping_add((from - offset) as usize), (to - from) as usize];
            let vector = address_of(&vector);
            self.k.call(nr::PREADV2, [real, vector, 1, from as usize, 0, RWF_NOWAIT])
        };
        if copy(last, end) <= 0 || last == start {
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
        let mut oracle: Oracle = self.e.table.file(id).oracle;
        let mut pages = [0u8; PAGES_MAX];
        let known = match oracle.method {
            Method::Blind => None,
            _ => residency::resident_pages(self.k, &mut oracle, real, offset, wanted, &mut pages),
        };
        self.e.table.file_mut(id).oracle = oracle;
        let Some(count) = known else { return Ok(missing_all) };
        let seen = pages.get(..count).unwrap_or(&[]);
        let all_seen = (offset / PAGE_BYTES + count as u64) * PAGE_BYTES >= end;
        if all_seen && seen.iter().all(|page| page & 1 == 1) {
            let arguments = [real, into.vector, into.count, offset as usize, 0, 0];
            let got = self.on_program(nr::PREADV2, arguments)? as u64;
            return Ok(Copied::all(got.max(wanted)));
        }
        if let Some(buffer) = into.single {
            self.copy_runs(real, buffer, (offset, end), seen);
        }
        let first_missing = seen.iter().position(|page| page & 1 == 0).unwrap_or(count) as u64;
        let start = ((offset / PAGE_BYTES + first_missing) * PAGE_BYTES).min(end - 1).max(offset);
        Ok(Copied { result: wanted, missing: Some((start, end)), begun: false })
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

    /// Starts the read of a missing range, as far as it has not begun, and
    /// watches it.
    fn prefetch_missing(&mut self, id: FileId, offset: u64, range: (u64, u64), begun: bool) {
        let (start, end) = (range.0, range.1.min(range.0.saturating_add(CALL_MAX_BYTES)));
        let file = *self.e.table.file(id);
        let sequential = offset == file.stream_next;
        if begun {
            self.prefetch_begun(id, &file, sequential, (start, end));
            return;
        }
        // Alone with readahead(2): exactly the range, or a longer run of a
        // sequential stream.
        let mut from = start;
        let mut to = end;
        if sequential {
            // The first read of a file is a stream's beginning or a header.
            let run = if offset == 0 { FIRST_RUN_BYTES } else { RUN_BYTES };
            from = from.max(file.prefetched_to);
            if end.saturating_add(run / 2) > file.prefetched_to {
                to = from.saturating_add(run).max(end).min(file.size.max(end));
            }
        }
        if from < to {
            self.prefetch(id, from, to);
        }
        self.e.table.file_mut(id).prefetched_to =
            if sequential { to.max(file.prefetched_to) } else { end };
    }

    /// After a `RWF_NOWAIT` miss, which lets the kernel's own readahead
    /// work: it reads a sequential stream in windows of its own.
    fn prefetch_begun(
        &mut self,
        id: FileId,
        file: &crate::descriptors::File,
        sequential: bool,
        (start, end): (u64, u64),
    ) {
        if sequential && end <= file.prefetched_to {
            return;
        }
        let first_end = end.min(start.saturating_add(NOWAIT_WINDOW_BYTES));
        self.started(id, first_end - 1, first_end - start);
        if first_end < end {
            self.prefetch(id, first_end, end);
        }
        let window_end = start.saturating_add(NOWAIT_WINDOW_BYTES).min(file.size);
        self.e.table.file_mut(id).prefetched_to =
            if sequential { end.max(window_end) } else { end };
    }

    /// Prefetches a range with `readahead(2)`, in chunks that the kernel does
    /// not cut, each as the device permits.
    pub(crate) fn prefetch(&mut self, id: FileId, from: u64, to: u64) {
        let Ok(real) = self.real(id) else { return };
        let mut at = from;
        while at < to {
            if at != from {
                self.wait_for_device();
            }
            let len = (to - at).min(CHUNK_MAX_BYTES);
            if self.k.call(nr::READAHEAD, [real, at as usize, len as usize, 0, 0, 0]) != 0 {
                return;
            }
            self.started(id, at + len - 1, len);
            at += len;
        }
    }

    /// A read of `len` bytes at `offset` whose data goes elsewhere than into
    /// the program's memory (sendfile, copy_file_range, splice): logged and
    /// prefetched. Gives its result.
    pub(crate) fn read_elsewhere(
        &mut self,
        fd: usize,
        id: FileId,
        (offset, len): (u64, u64),
        logged: bool,
    ) -> Result<u64, Stop> {
        self.reopen_or_lose(id)?;
        self.throttle(id, offset, len)?;
        let behind = self.is_behind();
        self.share_size(id);
        let file = *self.e.table.file(id);
        let result = len.min(RW_MAX_BYTES).min(file.size.saturating_sub(offset));
        let mut copied = Copied::all(result);
        if result > 0 && file.kind == Kind::Regular {
            let real = self.real(id)?;
            let mut oracle = self.e.table.file(id).oracle;
            let at = (real, file.dev);
            let answer =
                residency::question(self.k, &mut self.e.methods, &mut oracle, at, offset, result);
            self.e.table.file_mut(id).oracle = oracle;
            if answer != residency::Resident::All {
                copied.missing = Some((offset, offset + result));
            }
        }
        if logged {
            self.predict(fd, id, (offset, len), &copied, behind);
        } else if let Some(missing) = copied.missing {
            self.prefetch_missing(id, offset, missing, false);
        }
        self.e.table.file_mut(id).stream_next = offset.saturating_add(result);
        Ok(result)
    }
}

const _: () = assert!(size_of::<Methods>() < 512);
