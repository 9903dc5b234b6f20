//! Reads: resident bytes are copied, missing ones leave the buffer exactly
//! as it was and are prefetched, and the call returns what the normal
//! process would get (Fraser and Chang, section 4.1.2).

use crate::abi::*;
use crate::arch::nr;
use crate::context::{Context, address_of};
use crate::descriptors::{FileId, Kind};
use crate::kernel::Kernel;
use crate::outcome::{Answer, Stop, errno, park};
use crate::residency;
use runahead_protocol::log::{FLAG_BEHIND, FLAG_END, FLAG_PREFETCHED, Prediction};
use runahead_protocol::stats::Park;

/// Testing: how far beside the truth a wrong prediction lies, in bytes.
const WRONG_BYTES: u64 = 64 * 1024;

/// Files that a program must have read in one piece, and then found the end of
/// by one more read, before the next ones end at once.
const WHOLE_FILES_SEEN: u32 = 2;

/// The same for files that it reads in several pieces of one length, and most
/// pieces.
const PIECES_MAX: u64 = 8;

/// A buffer, or several, of the program.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    /// Address of the `struct iovec`s.
    pub(crate) vector: usize,
    pub(crate) count: usize,
    /// Address of the buffer where there is one only.
    pub(crate) single: Option<usize>,
    pub(crate) len: u64,
}

/// What a read found.
pub(crate) struct Copied {
    /// What the call returns.
    pub(crate) result: u64,
    /// Part of the range that was not resident.
    pub(crate) missing: Option<(u64, u64)>,
    /// The kernel's own readahead has begun with it.
    pub(crate) begun: bool,
}

impl Copied {
    pub(crate) fn all(result: u64) -> Copied {
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

    /// What a read at `at`, or by the position, reads from.
    fn readable(&mut self, fd: usize, at: Option<u64>) -> Result<FileId, Stop> {
        let id = self.id(fd)?;
        let file = self.e.table.file(id);
        file.seekable_if(at.is_some())?;
        if !file.readable() {
            return errno(EBADF);
        }
        if at.is_none() && file.kind != Kind::Directory {
            self.placed(id)?;
        }
        Ok(id)
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
        let mut result = if file.direct {
            into.len.min(self.size_now(id)?.saturating_sub(offset))
        } else {
            self.read_file(fd, id, &into, offset)?
        };
        let mut next = offset.saturating_add(result);
        if at.is_none() && self.ends_at_once(fd, id, offset, into.len, result) {
            result = 0;
            next = self.e.table.file(id).size;
        }
        let file = self.e.table.file_mut(id);
        if at.is_none() {
            file.offset = next;
        }
        file.has_read(offset, next);
        Ok(result as usize)
    }

    /// Whether the first read of a file that is not there is told the file's
    /// end at once, and the reads by which the program would come to it are
    /// logged, and what they miss prefetched.
    ///
    /// What a program does with data that is missing (it hashes, compresses or
    /// searches what its buffer held before) is half of a copy's time for
    /// sha256sum, and says nothing about its next read. Not for a program that
    /// asks for no more than the file has: that one takes an early end for an
    /// error.
    fn ends_at_once(&mut self, fd: usize, id: FileId, offset: u64, len: u64, result: u64) -> bool {
        let file = *self.e.table.file(id);
        if !file.whole {
            return false;
        }
        let seen = match file.piece > file.size {
            true => &mut self.e.whole_files,
            false => &mut self.e.pieced_files,
        };
        if offset == file.size && result == 0 {
            *seen = seen.saturating_add(1);
            self.e.table.file_mut(id).whole = false;
            return false;
        }
        if offset != 0 || len != file.piece {
            // One more piece of a stream, or something else.
            let goes_on = offset == file.stream_next && len == file.piece;
            self.e.table.file_mut(id).whole = goes_on;
            return false;
        }
        let learnt = *seen >= WHOLE_FILES_SEEN && !self.e.always_wrong;
        if !learnt || len.saturating_mul(PIECES_MAX) <= file.size {
            return false;
        }
        let mut at = len;
        while at < file.size {
            let result = len.min(file.size - at);
            let missing = Some((at, at + result));
            self.e.table.file_mut(id).stream_next = at;
            let behind = self.is_behind();
            let copied = Copied { result, missing, begun: false };
            self.predict(fd, id, (at, len), &copied, behind);
            at += len;
        }
        let flags = FLAG_END | if self.is_behind() { FLAG_BEHIND } else { 0 };
        self.e.counters.reads += 1;
        let file = self.e.table.file_mut(id);
        (file.ended, file.whole) = (true, false);
        let (offset, file) = (file.size, file.ino);
        self.log.push(Prediction { offset, len, fd: fd as i32, flags, prefetched_len: 0, file });
        true
    }

    fn read_zeros(&mut self, into: &Buffers) -> Answer {
        let Some(address) = into.single else { return park(Park::Unanswerable) };
        self.write_over(address, into.len as usize, &[0; 256])?;
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
        if !behind {
            self.take_over(id, offset);
        }
        // Asking begins to bring it in.
        self.look_before(id, (offset, offset.saturating_add(into.len)));
        let copied = if self.e.table.file(id).kind == Kind::Sink {
            let len = into.len.min(self.e.table.file(id).size.saturating_sub(offset));
            self.blank_what_is_no_text(into, len)?;
            Copied::all(len)
        } else {
            self.copy(id, into, offset)?
        };
        if self.e.always_wrong {
            self.spoil(into, copied.result)?;
            return self.predict_wrongly(fd, id, (offset, into.len), copied, behind);
        }
        self.predict(fd, id, (offset, into.len), &copied, behind);
        let file = self.e.table.file_mut(id);
        let opened_here = file.inherited_plus1 == 0 && !file.dirty;
        let beginning = into.len.min(file.size);
        if opened_here && beginning > 0 && copied.missing == Some((0, beginning)) {
            (file.whole, file.piece) = (true, into.len);
        }
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
        let fd = fd as i32;
        self.log.push(Prediction { offset: 0, len, fd, flags, prefetched_len: 0, file: 0 });
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
        let under_way = file.goes_on_at(offset) && end <= file.prefetched_to;
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
            Some((start, end)) if !behind && !self.is_repeat(id, offset, (start, end)) => {
                let requests = self.e.counters.prefetches;
                self.prefetch_missing(id, offset, (start, end), copied.begun);
                flags |= FLAG_PREFETCHED;
                prefetched_len = end - start;
                let number = self.read_number();
                let requested = self.e.counters.prefetches != requests;
                self.e.prefetcher.went_ahead(number, requested);
            }
            Some(_) => {}
        }
        self.goes_on(id, (offset, copied.result), behind);
        let (fd, file) = (fd as i32, self.e.table.file(id).ino);
        self.log.push(Prediction { offset, len, fd, flags, prefetched_len, file });
    }

    /// Whether what a read misses is coming already, because it was read
    /// before. The pieces of a stream, of which one prefetch brings several,
    /// are no repeats.
    fn is_repeat(&self, id: FileId, offset: u64, missing: (u64, u64)) -> bool {
        !self.e.table.file(id).goes_on_at(offset) && self.is_coming(id, missing)
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
        self.e.table.file_mut(id).has_read(offset, offset.saturating_add(result));
        Ok(result)
    }
}
