//! Writes and everything else that would change a file: success is
//! reported, nothing is done, and sizes are kept as they would appear.

use crate::abi::*;
use crate::arch::nr;
use crate::context::Context;
use crate::descriptors::{File, FileId, Kind};
use crate::kernel::Kernel;
use crate::outcome::{Answer, Stop, errno, park};
use crate::pipes::PIPE_BYTES;
use crate::runs::NOWAIT_WINDOW_BYTES;
use runahead_protocol::stats::Park;

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn write(&mut self, a: [usize; 6]) -> Answer {
        let id = self.writable(a[0])?;
        self.wrote(id, (a[2] as u64).min(RW_MAX_BYTES), None)
    }

    pub(crate) fn pwrite64(&mut self, a: [usize; 6]) -> Answer {
        if a[3] as i64 <= -1 {
            return errno(EINVAL);
        }
        let id = self.id(a[0])?;
        self.e.table.file(id).seekable_if(true)?;
        self.writable(a[0])?;
        self.wrote(id, (a[2] as u64).min(RW_MAX_BYTES), Some(a[3] as u64))
    }

    pub(crate) fn writev(&mut self, a: [usize; 6]) -> Answer {
        let id = self.writable(a[0])?;
        let len = self.vector_len(a[1], a[2])?;
        self.wrote(id, len, None)
    }

    pub(crate) fn pwritev(&mut self, a: [usize; 6]) -> Answer {
        let id = self.writable(a[0])?;
        if (a[3] as i64) < -1 {
            return errno(EINVAL);
        }
        let len = self.vector_len(a[1], a[2])?;
        // pwritev2 takes -1 for the description's own offset.
        self.wrote(id, len, (a[3] as i64 != -1).then_some(a[3] as u64))
    }

    fn writable(&self, fd: usize) -> Result<FileId, Stop> {
        let id = self.id(fd)?;
        if self.e.table.file(id).writable() { Ok(id) } else { errno(EBADF) }
    }

    pub(crate) fn vector_len(&mut self, vector: usize, count: usize) -> Result<u64, Stop> {
        if count > IOV_MAX {
            return errno(EINVAL);
        }
        let mut len = 0u64;
        for index in 0..count {
            let [_, one] = self.load_words(vector.wrapping_add(index * 16))?;
            len = len.saturating_add(one);
        }
        if len > RW_MAX_BYTES { errno(EINVAL) } else { Ok(len) }
    }

    /// `len` bytes were written in appearance.
    pub(crate) fn wrote(&mut self, id: FileId, len: u64, at: Option<u64>) -> Answer {
        self.share_size(id);
        if at.is_none() {
            self.placed(id)?;
        }
        let file = self.e.table.file_mut(id);
        let beyond = at.unwrap_or(file.offset).saturating_add(len) > i64::MAX as u64;
        if beyond && file.kind.has_offset() {
            return errno(EINVAL);
        }
        if file.is_file() {
            let append = file.status_flags as usize & O_APPEND != 0;
            let start = if append { file.size } else { at.unwrap_or(file.offset) };
            let end = start.saturating_add(len);
            if at.is_none() {
                file.offset = end;
            }
            if len > 0 {
                file.dirty = true;
                file.size = file.size.max(end);
            }
            let (name, size) = (file.name, file.size);
            if name != 0 {
                self.e.names.set_size(name, size);
            }
        } else {
            file.seekable_if(at.is_some())?;
            if file.is_pipe() {
                let identity = (file.dev, file.ino);
                if !self.e.pipes.has_room(identity, len) {
                    // It waits until the program itself has emptied it.
                    return park(Park::NeedsOther);
                }
                self.e.pipes.put(identity, len);
            }
        }
        self.e.counters.swallowed_bytes = self.e.counters.swallowed_bytes.wrapping_add(len);
        Ok(len as usize)
    }

    pub(crate) fn ftruncate(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        let file = self.e.table.file_mut(id);
        if file.kind == Kind::Path {
            return errno(EBADF);
        }
        if a[1] as i64 <= -1 || !file.is_file() || !file.writable() {
            return errno(EINVAL);
        }
        file.dirty = true;
        file.size = a[1] as u64;
        let (name, size) = (file.name, file.size);
        if name != 0 {
            self.e.names.set_size(name, size);
        }
        Ok(0)
    }

    pub(crate) fn fallocate(&mut self, a: [usize; 6]) -> Answer {
        const FALLOC_FL_KEEP_SIZE: usize = 1;
        let id = self.writable(a[0])?;
        let end = (a[2] as u64).saturating_add(a[3] as u64);
        let file = self.e.table.file_mut(id);
        if !file.is_file() {
            return errno(ESPIPE);
        }
        if a[1] & FALLOC_FL_KEEP_SIZE == 0 {
            file.dirty = true;
            file.size = file.size.max(end);
        }
        Ok(0)
    }

    pub(crate) fn lseek(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        self.share_size(id);
        let file = *self.e.table.file(id);
        match file.kind {
            Kind::Path => return errno(EBADF),
            _ if a[2] > SEEK_HOLE => return errno(EINVAL),
            Kind::Regular | Kind::Sink => {}
            Kind::Directory => {
                // The position of a directory is the kernel's own.
                let real = self.real(id)?;
                let offset = self.on_program(nr::LSEEK, [real, a[1], a[2], 0, 0, 0])?;
                self.e.table.file_mut(id).offset = offset as u64;
                return Ok(offset);
            }
            Kind::SinkDirectory if (a[1] as i64) < 0 => return errno(EINVAL),
            Kind::Null | Kind::Zero | Kind::Random | Kind::SinkDirectory => return Ok(0),
            _ => return errno(ESPIPE),
        }
        let delta = a[1] as i64;
        let base = match a[2] {
            SEEK_SET => 0,
            SEEK_CUR => {
                self.placed(id)?;
                self.e.table.file(id).offset
            }
            SEEK_END => self.size_now(id)?,
            SEEK_DATA | SEEK_HOLE => return self.seek_data(id, a),
            _ => return errno(EINVAL),
        };
        let Some(target) = base.checked_add_signed(delta).filter(|target| *target as i64 >= 0)
        else {
            return errno(EINVAL);
        };
        self.e.table.file_mut(id).offset = target;
        Ok(target as usize)
    }

    /// Size as the program would see it now: files of databases grow under
    /// their readers.
    pub(crate) fn size_now(&mut self, id: FileId) -> Result<u64, Stop> {
        self.reopen_or_lose(id)?;
        let file = *self.e.table.file(id);
        if file.kind == Kind::Regular && !file.dirty {
            let real = self.real(id)?;
            if let Some(stat) = self.stat_real(real) {
                self.e.table.file_mut(id).size = stat.size;
            }
        }
        Ok(self.e.table.file(id).size)
    }

    fn seek_data(&mut self, id: FileId, a: [usize; 6]) -> Answer {
        let file = *self.e.table.file(id);
        let target = if file.kind == Kind::Regular && !file.dirty {
            let real = self.real(id)?;
            self.on_program(nr::LSEEK, [real, a[1], a[2], 0, 0, 0])?
        } else if a[1] as u64 >= file.size {
            return errno(ENXIO);
        } else if a[2] == SEEK_DATA {
            a[1]
        } else {
            file.size as usize
        };
        self.e.table.file_mut(id).offset = target as u64;
        Ok(target)
    }

    /// A call that needs nothing but an open descriptor.
    pub(crate) fn any_fd(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        if self.e.table.file(id).kind == Kind::Path { errno(EBADF) } else { Ok(0) }
    }

    /// `fsync` and its kin: only of what has a file system under it.
    pub(crate) fn fsync(&mut self, a: [usize; 6]) -> Answer {
        self.any_fd(a)?;
        let id = self.id(a[0])?;
        match self.e.table.file(id).kind {
            Kind::Other
            | Kind::Socket
            | Kind::Terminal
            | Kind::Null
            | Kind::Zero
            | Kind::Random => errno(EINVAL),
            _ => Ok(0),
        }
    }

    /// `sendfile(out, in, offset, count)`.
    pub(crate) fn sendfile(&mut self, a: [usize; 6]) -> Answer {
        let input = self.id(a[1])?;
        if !self.e.table.file(input).readable() {
            return errno(EBADF);
        }
        if a[2] == 0 {
            self.placed(input)?;
        }
        let file = self.e.table.file(input);
        let beyond = file.offset.saturating_add(a[3] as u64) > i64::MAX as u64;
        if a[2] == 0 && beyond && file.kind.has_offset() {
            return errno(EINVAL);
        }
        let output = self.writable(a[0])?;
        if self.e.table.file(output).status_flags as usize & O_APPEND != 0 {
            return errno(EINVAL);
        }
        if !self.e.table.file(input).is_file() {
            return park(Park::NeedsInput);
        }
        self.transfer((a[1], input, a[2]), (output, 0), a[3] as u64)
    }

    /// `copy_file_range(in, off_in, out, off_out, len, flags)`. Programs
    /// that copy try it first and go on with reads where it is refused:
    /// between file systems, above all.
    pub(crate) fn copy_file_range(&mut self, a: [usize; 6]) -> Answer {
        let (input, output) = (self.id(a[0])?, self.id(a[2])?);
        let (from, to) = (*self.e.table.file(input), *self.e.table.file(output));
        if let Err(refused) = may_copy_range(&from, &to) {
            // The normal process's attempt counts as a read there, too.
            if from.is_file() {
                self.log_refused(a[0], a[4] as u64);
            }
            return Err(refused);
        }
        self.transfer((a[0], input, a[1]), (output, a[3]), a[4] as u64)
    }

    /// `splice(in, off_in, out, off_out, len, flags)`: one side is a pipe. What
    /// goes from a file into it is a read; as much comes out again.
    pub(crate) fn splice(&mut self, a: [usize; 6]) -> Answer {
        if let Some(answer) = self.refuses_splice(a) {
            if self.id(a[0]).is_ok_and(|input| self.e.table.file(input).is_file()) {
                // The normal process's attempt counts as a read there, too.
                self.log_refused(a[0], (a[4] as u64).min(PIPE_BYTES));
            }
            return answer;
        }
        let (input, output) = (self.id(a[0])?, self.id(a[2])?);
        let (from, to) = (*self.e.table.file(input), *self.e.table.file(output));
        let len = (a[4] as u64).min(PIPE_BYTES);
        if !from.is_file() {
            let identity = (from.dev, from.ino);
            let taken = if from.is_pipe() { self.e.pipes.take(identity, len) } else { 0 };
            return match taken {
                0 => park(Park::NeedsInput),
                taken => self.delivered((output, a[3]), taken),
            };
        }
        if to.is_pipe() && self.e.table.reads_from((to.dev, to.ino)) {
            self.e.pipes.watch((to.dev, to.ino));
        }
        if !to.is_pipe() || !self.e.pipes.has_room((to.dev, to.ino), len) {
            return park(Park::NeedsInput);
        }
        self.transfer((a[0], input, a[1]), (output, a[3]), len)
    }

    /// Whether the kernel moves nothing, and what it answers, in its order
    /// (fs/splice.c, Linux 6.18).
    fn refuses_splice(&self, a: [usize; 6]) -> Option<Answer> {
        const FLAGS: usize = 0xf;
        if a[4] == 0 {
            return Some(Ok(0));
        }
        if a[5] as u32 as usize & !FLAGS != 0 {
            return Some(errno(EINVAL));
        }
        let (Ok(input), Ok(output)) = (self.id(a[0]), self.id(a[2])) else {
            return Some(errno(EBADF));
        };
        let (from, to) = (self.e.table.file(input), self.e.table.file(output));
        if from.is_pipe() && a[1] != 0 || to.is_pipe() && a[3] != 0 {
            return Some(errno(ESPIPE));
        }
        if !from.readable() || !to.writable() {
            return Some(errno(EBADF));
        }
        let no_pipe = from.is_file() && !matches!(to.kind, Kind::Other | Kind::Free);
        let appends = to.is_file() && to.status_flags as usize & O_APPEND != 0;
        let itself = to.is_pipe() && (from.dev, from.ino) == (to.dev, to.ino);
        let wrong = no_pipe || from.is_pipe() && (appends || itself);
        wrong.then_some(errno(EINVAL))
    }

    fn transfer(
        &mut self,
        (in_fd, input, in_offset): (usize, FileId, usize),
        (output, out_offset): (FileId, usize),
        len: u64,
    ) -> Answer {
        if !self.e.table.file(input).readable() {
            return errno(EBADF);
        }
        if in_offset == 0 {
            self.placed(input)?;
        }
        let file = *self.e.table.file(input);
        let at = if in_offset == 0 { file.offset } else { self.load_words::<1>(in_offset)?[0] };
        let mut done = self.read_elsewhere(in_fd, input, (at, len), true)?;
        if self.e.table.file(output).is_pipe() {
            // Page by page, of which a pipe holds so many.
            done = done.min(PIPE_BYTES - at % PAGE_BYTES);
        }
        if in_offset == 0 {
            self.e.table.file_mut(input).offset = at.saturating_add(done);
        } else {
            self.store_words(in_offset, &[at.saturating_add(done)])?;
        }
        self.delivered((output, out_offset), done)
    }

    /// So many bytes have come from elsewhere.
    fn delivered(&mut self, (output, out_offset): (FileId, usize), done: u64) -> Answer {
        if out_offset == 0 {
            return self.wrote(output, done, None);
        }
        let [out_at] = self.load_words(out_offset)?;
        self.wrote(output, done, Some(out_at))?;
        self.store_words(out_offset, &[out_at.saturating_add(done)])?;
        Ok(done as usize)
    }

    /// `readahead(fd, offset, count)` and the like are hints already.
    pub(crate) fn readahead(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        if !self.e.table.file(id).readable() {
            return errno(EBADF);
        }
        if self.e.table.file(id).kind != Kind::Regular {
            return errno(EINVAL);
        }
        self.advise_range(id, a[1] as u64, a[2] as u64);
        Ok(0)
    }

    /// Prefetches what the program itself announces, within the bound of one
    /// read.
    fn advise_range(&mut self, id: FileId, offset: u64, len: u64) {
        const ADVISED_MAX_BYTES: u64 = 2 * 1024 * 1024;
        let size = self.e.table.file(id).size;
        let end = if len == 0 { size } else { offset.saturating_add(len).min(size) };
        let end = end.min(offset.saturating_add(ADVISED_MAX_BYTES));
        if offset < end && !self.is_behind() {
            self.prefetch(id, offset, end);
        }
    }

    pub(crate) fn fadvise64(&mut self, a: [usize; 6]) -> Answer {
        const POSIX_FADV_SEQUENTIAL: usize = 2;
        const POSIX_FADV_WILLNEED: usize = 3;
        let id = self.id(a[0])?;
        match self.e.table.file(id).kind {
            Kind::Path => return errno(EBADF),
            Kind::Other if self.e.table.file(id).mode & S_IFMT == S_IFIFO => return errno(ESPIPE),
            _ if a[3] > 5 => return errno(EINVAL),
            Kind::Regular => {}
            _ => return Ok(0),
        }
        match a[3] {
            // Longer windows have nothing to bring of a file within one.
            POSIX_FADV_SEQUENTIAL if self.e.table.file(id).size <= NOWAIT_WINDOW_BYTES => {}
            0..=POSIX_FADV_SEQUENTIAL => {
                // Of the copy's own description alone, and only where it has
                // one already.
                if let Some(real) = self.e.table.file(id).real() {
                    self.k.call(nr::FADVISE64, [real, a[1], a[2], a[3], 0, 0]);
                }
            }
            POSIX_FADV_WILLNEED => self.advise_range(id, a[1] as u64, a[2] as u64),
            // DONTNEED and NOREUSE would take pages from the normal process.
            _ => {}
        }
        Ok(0)
    }
}

/// Whether the kernel would copy a range between these: EBADF, EISDIR,
/// EINVAL, EXDEV (`generic_copy_file_checks`, Linux 5.19 and later).
fn may_copy_range(from: &File, to: &File) -> Result<(), Stop> {
    if !from.readable() || !to.writable() || to.status_flags as usize & O_APPEND != 0 {
        return errno(EBADF);
    }
    if from.kind == Kind::Directory || to.kind == Kind::Directory {
        return errno(EISDIR);
    }
    if !from.is_file() || !to.is_file() {
        return errno(EINVAL);
    }
    if from.dev != to.dev && from.dev != 0 && to.dev != 0 {
        return errno(EXDEV);
    }
    Ok(())
}
