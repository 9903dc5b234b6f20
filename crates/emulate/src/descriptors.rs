//! The program's descriptors as the speculative process sees them: numbers
//! equal to the normal process's, open file descriptions with offsets of
//! their own. The real descriptor table of the speculative process is empty
//! at the start and private (interception.md, section 2.4); a real
//! descriptor exists only behind a [`File`] that was needed.

use crate::abi::{EBADF, ESPIPE, S_IFDIR, S_IFIFO, S_IFMT};
use crate::outcome::{Stop, errno};
use crate::residency::Oracle;
use runahead_policy::release::RANGES_MAX;
use runahead_protocol::stats::Park;

/// Descriptors that a program may have, the lowest numbers. Equal to Linux's
/// default soft limit, so that only programs that raise theirs can exceed it.
pub const DESCRIPTORS_MAX: usize = 1024;

/// Open file descriptions. Closed ones live on while prefetches through them
/// are in flight, or may be given back, hence more than descriptors.
pub const FILES_MAX: usize = DESCRIPTORS_MAX + 256 + RANGES_MAX;

/// What an open file description stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Not in use.
    #[default]
    Free = 0,
    /// A regular file that exists; read for real, written in appearance.
    Regular,
    /// A directory that exists.
    Directory,
    /// `O_PATH`: names something, cannot be read.
    Path,
    /// A regular file that exists only in appearance (created or truncated
    /// by the speculative process).
    Sink,
    /// A directory that exists only in appearance.
    SinkDirectory,
    /// `/dev/null`: reads end at once.
    Null,
    /// `/dev/zero` or `/dev/full`: reads give zeros.
    Zero,
    /// `/dev/random` or `/dev/urandom`.
    Random,
    /// Pipe, FIFO, device, queue: writes succeed, reads park.
    Other,
    /// Socket.
    Socket,
    /// Terminal.
    Terminal,
}

impl Kind {
    /// Whether it is read and written at an offset.
    pub fn has_offset(self) -> bool {
        !matches!(self, Kind::Other | Kind::Socket | Kind::Terminal | Kind::Path | Kind::Free)
    }
}

/// Index of an open file description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(pub(crate) u16);

/// Most that a stream skips, in bytes: a request takes a device as long as so
/// much more in another one does, or longer (the machine's own flash 40 µs,
/// the emulated volume's 200 MB/s 330 µs of 1 ms).
const SKIP_MAX_BYTES: u64 = 32 * 1024;

/// Skips after which a program is taken to go on so.
const SKIPS_SEEN: u8 = 3;

/// An open file description. All-zero is a free one.
#[derive(Clone, Copy, Debug, Default)]
pub struct File {
    pub(crate) kind: Kind,
    /// The file was written, truncated or extended in appearance.
    pub(crate) dirty: bool,
    /// `O_DIRECT`: the page cache is not what its reads wait for.
    pub(crate) direct: bool,
    /// A read has been told its end by the size known.
    pub(crate) ended: bool,
    /// Of what its first read asked for nothing was there, and each since has
    /// gone on with as much.
    pub(crate) whole: bool,
    /// Skips of at most [`SKIP_MAX_BYTES`] since the last other move.
    pub(crate) skips: u8,
    /// The last read went on where the one before had ended.
    pub(crate) has_gone_on: bool,
    /// What the program had begun of the stream has been taken over.
    pub(crate) taken_over: bool,
    /// Descriptors that refer to it.
    pub(crate) descriptors: u16,
    /// Prefetches through its real descriptor that are in flight, and those
    /// that may be given back.
    pub(crate) in_flight: u16,
    /// Real descriptor plus 1; 0: none yet.
    pub(crate) real_plus1: i32,
    /// Descriptor of the normal process through which it can be opened
    /// again, plus 1; 0: it was opened by the speculative process.
    pub(crate) inherited_plus1: i32,
    /// Access mode and status flags (`F_GETFL`).
    pub(crate) status_flags: u32,
    /// File mode as `fstat` says.
    pub(crate) mode: u32,
    /// Next byte that `read` would give, or [`crate::POSITION_UNKNOWN`].
    pub(crate) offset: u64,
    /// Size as last known, or as it appears where `dirty`.
    pub(crate) size: u64,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// Identity of its name, for the shadow of names.
    pub(crate) name: u64,
    /// End of the last read: where a sequential stream goes on.
    pub(crate) stream_next: u64,
    /// End of what is known to have been prefetched of that stream.
    pub(crate) prefetched_to: u64,
    /// Up to where that stream has been looked at for what may be given back.
    pub(crate) looked_to: u64,
    /// How much its first read asked for, where `whole`.
    pub(crate) piece: u64,
    /// How its pages are asked for.
    pub(crate) oracle: Oracle,
}

impl File {
    /// An empty one, not in use.
    pub const FREE: File = File {
        kind: Kind::Free,
        dirty: false,
        direct: false,
        ended: false,
        whole: false,
        descriptors: 0,
        in_flight: 0,
        real_plus1: 0,
        inherited_plus1: 0,
        status_flags: 0,
        mode: 0,
        offset: 0,
        size: 0,
        dev: 0,
        ino: 0,
        name: 0,
        stream_next: 0,
        prefetched_to: 0,
        looked_to: 0,
        piece: 0,
        oracle: Oracle::UNASKED,
        skips: 0,
        has_gone_on: false,
        taken_over: false,
    };

    /// Whether a read at `offset` goes on with the sequential stream of this
    /// file: where the last one ended, or a little behind, where that is how
    /// the program goes through it (an archive's headers).
    pub(crate) fn goes_on_at(&self, offset: u64) -> bool {
        offset == self.stream_next || (self.skips >= SKIPS_SEEN && self.is_skip(offset))
    }

    /// Where the next run of this file's stream begins, a read of which has missed
    /// `start`: what it skipped is not left out. A copy that has no data skips what the
    /// program may need, and a hole of a few KiB costs more than to read it; a disk comes
    /// back for it when all that was asked for behind it is read.
    pub(crate) fn goes_on_from(&self, start: u64) -> u64 {
        let gap = self.prefetched_to.max(self.stream_next);
        if start.checked_sub(gap).is_some_and(|skip| skip <= SKIP_MAX_BYTES) {
            gap
        } else {
            start.max(self.prefetched_to)
        }
    }

    fn is_skip(&self, offset: u64) -> bool {
        offset.checked_sub(self.stream_next).is_some_and(|skip| skip <= SKIP_MAX_BYTES)
    }

    /// A read at `offset` has ended at `next`.
    pub(crate) fn has_read(&mut self, offset: u64, next: u64) {
        self.has_gone_on = offset == self.stream_next;
        if !self.has_gone_on {
            self.skips = if self.is_skip(offset) { self.skips.saturating_add(1) } else { 0 };
        }
        self.stream_next = next;
    }

    /// The real descriptor, where there is one.
    pub fn real(&self) -> Option<usize> {
        usize::try_from(self.real_plus1 - 1).ok()
    }

    /// Whether reads give file contents and are logged.
    pub fn is_file(&self) -> bool {
        matches!(self.kind, Kind::Regular | Kind::Sink)
    }

    /// Whether it is a pipe or a FIFO.
    pub(crate) fn is_pipe(&self) -> bool {
        // What is imaginary and no pipe (an event's descriptor) has no number.
        self.kind == Kind::Other && self.mode & S_IFMT == S_IFIFO && self.ino != 0
    }

    /// Whether it is, or names, a directory that exists in appearance only.
    pub(crate) fn is_imaginary_directory(&self) -> bool {
        let named = self.kind == Kind::Path && self.real_plus1 == 0 && self.inherited_plus1 == 0;
        self.kind == Kind::SinkDirectory || (named && self.mode & S_IFMT == S_IFDIR)
    }

    /// Fails with ESPIPE where an offset is given for something that has
    /// none, which the kernel looks at before the access mode.
    pub(crate) fn seekable_if(&self, offset_given: bool) -> Result<(), Stop> {
        let refused = offset_given && !self.kind.has_offset() && self.kind != Kind::Path;
        if refused { errno(ESPIPE) } else { Ok(()) }
    }

    /// Whether it may be read.
    pub fn readable(&self) -> bool {
        self.kind != Kind::Path
            && self.status_flags as usize & crate::abi::O_ACCMODE != crate::abi::O_WRONLY
    }

    /// Whether it may be written.
    pub fn writable(&self) -> bool {
        let access = self.status_flags as usize & crate::abi::O_ACCMODE;
        self.kind != Kind::Path && (access == crate::abi::O_WRONLY || access == crate::abi::O_RDWR)
    }
}

/// One number of the descriptor table.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// [`FileId`] plus 1; 0: closed.
    file_plus1: u16,
    cloexec: bool,
}

/// The table. All-zero is an empty one.
#[derive(Debug)]
pub struct Descriptors {
    slots: [Slot; DESCRIPTORS_MAX],
    files: [File; FILES_MAX],
    /// Where the search for a free file starts.
    next_file: u16,
    /// Numbers below are taken.
    lowest_free: u16,
    /// Taken for an index that does not exist, which cannot happen; keeps
    /// the look-ups free of panics.
    spare: File,
}

impl Descriptors {
    /// An empty table.
    pub const EMPTY: Descriptors = Descriptors {
        slots: [Slot { file_plus1: 0, cloexec: false }; DESCRIPTORS_MAX],
        files: [File::FREE; FILES_MAX],
        next_file: 0,
        lowest_free: 0,
        spare: File::FREE,
    };

    /// The description behind a descriptor; EBADF.
    pub fn id(&self, fd: usize) -> Result<FileId, Stop> {
        // The kernel looks at the low 32 bits of a descriptor.
        match self.slots.get(fd as u32 as usize) {
            Some(slot) if slot.file_plus1 != 0 => Ok(FileId(slot.file_plus1 - 1)),
            _ => errno(EBADF),
        }
    }

    /// Whether the program has the end of a pipe from which it could read, given its
    /// device and inode number.
    pub(crate) fn reads_from(&self, pipe: (u64, u64)) -> bool {
        self.slots.iter().filter(|slot| slot.file_plus1 != 0).any(|slot| {
            let file = self.file(FileId(slot.file_plus1 - 1));
            file.is_pipe() && file.readable() && (file.dev, file.ino) == pipe
        })
    }

    /// A description.
    pub fn file(&self, id: FileId) -> &File {
        self.files.get(id.0 as usize).unwrap_or(&self.spare)
    }

    /// A description, to change.
    pub fn file_mut(&mut self, id: FileId) -> &mut File {
        self.files.get_mut(id.0 as usize).unwrap_or(&mut self.spare)
    }

    /// Keeps `file` under a new index, with no descriptor yet.
    pub fn add_file(&mut self, file: File) -> Result<FileId, Stop> {
        for step in 0..FILES_MAX {
            let index = (self.next_file as usize + step) % FILES_MAX;
            if let Some(free) = self.files.get_mut(index)
                && free.kind == Kind::Free
            {
                *free = file;
                self.next_file = ((index + 1) % FILES_MAX) as u16;
                return Ok(FileId(index as u16));
            }
        }
        Err(Stop::Park(Park::TableFull))
    }

    /// Forgets a description to which nothing refers any more.
    pub fn remove_file(&mut self, id: FileId) {
        *self.file_mut(id) = File::FREE;
    }

    /// The lowest free number from `from` on, now referring to `id`, as the
    /// kernel gives it.
    pub fn add(&mut self, id: FileId, from: usize, cloexec: bool) -> Result<usize, Stop> {
        let start = from.max(self.lowest_free as usize);
        for (number, slot) in self.slots.iter_mut().enumerate().skip(start) {
            if slot.file_plus1 == 0 {
                *slot = Slot { file_plus1: id.0 + 1, cloexec };
                if from <= self.lowest_free as usize {
                    self.lowest_free = number as u16 + 1;
                }
                let file = self.file_mut(id);
                file.descriptors = file.descriptors.saturating_add(1);
                return Ok(number);
            }
        }
        Err(Stop::Park(Park::TableFull))
    }

    /// Makes the number `fd` refer to `id`; whatever it referred to must
    /// have been taken out before.
    pub fn put(&mut self, fd: usize, id: FileId, cloexec: bool) -> Result<(), Stop> {
        match self.slots.get_mut(fd) {
            Some(slot) => *slot = Slot { file_plus1: id.0 + 1, cloexec },
            None => return Err(Stop::Park(Park::TableFull)),
        }
        let file = self.file_mut(id);
        file.descriptors = file.descriptors.saturating_add(1);
        Ok(())
    }

    /// Closes a number and gives the description it referred to; EBADF.
    pub fn take(&mut self, fd: usize) -> Result<FileId, Stop> {
        let id = self.id(fd)?;
        let number = fd as u32 as usize;
        if let Some(slot) = self.slots.get_mut(number) {
            *slot = Slot::default();
        }
        self.lowest_free = self.lowest_free.min(number as u16);
        let file = self.file_mut(id);
        file.descriptors = file.descriptors.saturating_sub(1);
        Ok(id)
    }

    /// The close-on-exec flag; EBADF.
    pub fn cloexec(&self, fd: usize) -> Result<bool, Stop> {
        self.id(fd)?;
        Ok(self.slots.get(fd as u32 as usize).is_some_and(|slot| slot.cloexec))
    }

    /// Sets the close-on-exec flag; EBADF.
    pub fn set_cloexec(&mut self, fd: usize, cloexec: bool) -> Result<(), Stop> {
        self.id(fd)?;
        if let Some(slot) = self.slots.get_mut(fd as u32 as usize) {
            slot.cloexec = cloexec;
        }
        Ok(())
    }
}

impl Descriptors {
    /// Open files named `from` are named `to` now.
    pub fn rename(&mut self, from: u64, to: u64) {
        for file in self.files.iter_mut().filter(|file| file.name == from && from != 0) {
            file.name = to;
        }
    }
}
