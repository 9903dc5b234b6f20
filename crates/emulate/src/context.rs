//! What an emulated call works with, and the helpers that all of them share.

use crate::abi::*;
use crate::arch::{nr, stat};
use crate::descriptors::{File, FileId, Kind};
use crate::emulator::{Emulator, POSITION_UNKNOWN};
use crate::kernel::Kernel;
use crate::outcome::{Answer, Stop, errno, from_kernel, park};
use crate::residency::{self, Candidate, Method};
use core::sync::atomic::Ordering::SeqCst;
use runahead_protocol::log::Log;
use runahead_protocol::stats::Park;

/// Flags of every real open for reading: never waits on what is not a file,
/// leaves no trace, does not survive anything.
pub(crate) const OPEN_FOR_READING: usize = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

/// One emulated call's surroundings.
pub(crate) struct Context<'a, K> {
    pub(crate) e: &'a mut Emulator,
    pub(crate) k: &'a mut K,
    pub(crate) log: &'a Log,
}

/// Fields of `struct stat` that decide something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stat {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) rdev: u64,
    pub(crate) size: u64,
}

impl Stat {
    pub(crate) fn parse(bytes: &[u8; stat::LEN]) -> Stat {
        Stat {
            dev: word(bytes, stat::DEV),
            ino: word(bytes, stat::INO),
            mode: word(bytes, stat::MODE) as u32,
            uid: word(bytes, stat::UID) as u32,
            rdev: word(bytes, stat::RDEV),
            size: word(bytes, stat::SIZE),
        }
    }
}

/// The 8 bytes at `at`, in memory order; 0 beyond the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |chunk| u64::from_ne_bytes(*chunk))
}

/// Major and minor number of a device as `stat` gives it.
pub(crate) fn device_numbers(dev: u64) -> (u64, u64) {
    ((dev >> 8) & 0xfff | (dev >> 32) & !0xfff, dev & 0xff | (dev >> 12) & 0xffff_ff00)
}

/// Address of something for the kernel.
pub(crate) fn address_of<T: ?Sized>(value: &T) -> usize {
    core::ptr::from_ref(value).cast::<u8>().expose_provenance()
}

/// Address of something that the kernel will change.
pub(crate) fn address_of_mut<T: ?Sized>(value: &mut T) -> usize {
    core::ptr::from_mut(value).cast::<u8>().expose_provenance()
}

/// Decimal digits of `number` with a NUL, for a name in /proc.
fn decimal(number: u32) -> [u8; 16] {
    let mut digits = [0u8; 16];
    let mut divisor = 1_000_000_000;
    let mut places = digits.iter_mut();
    while divisor > 0 {
        if (number / divisor > 0 || divisor == 1)
            && let Some(place) = places.next()
        {
            *place = b'0' + (number / divisor % 10) as u8;
        }
        divisor /= 10;
    }
    digits
}

impl<K: Kernel> Context<'_, K> {
    /// A real call on pointers of the program.
    pub(crate) fn on_program(&mut self, number: usize, args: [usize; 6]) -> Answer {
        from_kernel(self.k.call(number, args))
    }

    /// Opens an inherited file again before it is read. Where the normal
    /// process has closed it meanwhile, it has passed these reads itself:
    /// its bytes are given up, and what comes after them can still be run
    /// ahead of. A size must be known for that; a directory's names cannot
    /// be done without.
    pub(crate) fn reopen_or_lose(&mut self, id: FileId) -> Result<(), Stop> {
        let file = *self.e.table.file(id);
        if file.kind != Kind::Regular || file.real_plus1 != 0 {
            return Ok(());
        }
        match self.real(id) {
            Err(Stop::Park(Park::Reopen)) => {
                let file = self.e.table.file_mut(id);
                file.kind = Kind::Sink;
                file.inherited_plus1 = 0;
                file.mode |= if file.mode == 0 { S_IFREG | 0o644 } else { 0 };
                self.e.counters.files_lost += 1;
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// The real descriptor of a file, opened now where it was inherited.
    pub(crate) fn real(&mut self, id: FileId) -> Answer {
        let file = *self.e.table.file(id);
        if let Some(real) = file.real() {
            return Ok(real);
        }
        let Ok(inherited) = u32::try_from(file.inherited_plus1 - 1) else {
            return park(Park::Unanswerable);
        };
        let directory = match file.kind {
            Kind::Regular => 0,
            Kind::Directory => O_DIRECTORY,
            _ => return park(Park::Reopen),
        };
        if file.kind == Kind::Directory {
            self.placed(id)?;
        }
        let Some(normal) = self.normal_fds() else { return park(Park::Reopen) };
        // The number may be another file's by now: looked at before it is opened, which
        // may take long, and may be an effect.
        let name = decimal(inherited);
        let result = self.path_of(normal, &name, directory);
        let Ok(path_fd) = self.opened(result) else { return park(Park::Reopen) };
        let opened = self.open_found(path_fd, &file, directory);
        self.close_real(path_fd);
        let (real, stat) = opened?;
        let offset = self.e.table.file(id).offset;
        if file.kind == Kind::Directory && offset != 0 {
            self.k.call(nr::LSEEK, [real, offset as usize, SEEK_SET, 0, 0, 0]);
        }
        let owned = self.owned(&stat);
        let file = self.e.table.file_mut(id);
        file.real_plus1 = real as i32 + 1;
        file.oracle = crate::residency::Oracle::keeping(owned);
        file.mode = stat.mode;
        if !file.dirty {
            file.size = stat.size;
        }
        Ok(real)
    }

    /// Opens what was found of a file of the normal process's, if it is that still.
    fn open_found(
        &mut self,
        path_fd: usize,
        file: &File,
        flags: usize,
    ) -> Result<(usize, Stat), Stop> {
        let stat = self.stat_real(path_fd).unwrap_or_default();
        if (stat.dev, stat.ino) != (file.dev, file.ino) {
            return park(Park::Reopen);
        }
        match file.kind {
            Kind::Regular => self.may_be_opened(path_fd, &stat)?,
            _ => self.directory_may_be_opened(path_fd, stat.dev)?,
        }
        let writes = file.status_flags as usize & O_ACCMODE != O_RDONLY;
        if writes && residency::is_of_a_server(self.k, path_fd) {
            return park(Park::Unanswerable);
        }
        match self.open_again(path_fd, flags, true) {
            Ok(real) => Ok((real, stat)),
            Err(_) => park(Park::Reopen),
        }
    }

    /// An `O_PATH` descriptor of what the normal process has by this number, as the
    /// kernel says.
    pub(crate) fn path_of(&mut self, normal: usize, name: &[u8; 16], more: usize) -> isize {
        let flags = O_PATH | O_CLOEXEC | more;
        let args = [normal, address_of(name), flags, 0, 0, 0];
        self.looking(|c| c.k.call(nr::OPENAT, args))
    }

    /// A look at the normal process's descriptors. Inside it the kernel holds an open
    /// file for a moment, which whoever closes it waits for (`Log::looks`): nothing that
    /// may take longer belongs there.
    pub(crate) fn looking<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        self.log.looks.fetch_add(1, SeqCst);
        let seen = look(self);
        self.log.looks.fetch_add(1, SeqCst);
        seen
    }

    /// Before a file's offset is used: finds out where the normal process stands,
    /// if nobody has been asked at the synchronisation. By now it may have gone
    /// on, as it may have in whatever else the copy foresees.
    pub(crate) fn placed(&mut self, id: FileId) -> Result<(), Stop> {
        let file = *self.e.table.file(id);
        if file.offset != POSITION_UNKNOWN {
            return Ok(());
        }
        let Some(position) = self.position_of(&file) else { return park(Park::Reopen) };
        let file = self.e.table.file_mut(id);
        file.offset = position;
        if file.stream_next == 0 {
            file.stream_next = position;
        }
        Ok(())
    }

    /// Position of the normal process's description: proc_pid_fdinfo(5), which
    /// unlike lseek(2) waits for nobody who reads by it.
    fn position_of(&mut self, file: &File) -> Option<u64> {
        let inherited = u32::try_from(file.inherited_plus1 - 1).ok()?;
        let normal = self.normal_fds()?;
        let name = decimal(inherited);
        let result = self.path_of(normal, &name, 0);
        let path_fd = self.opened(result).ok()?;
        let stat = self.stat_real(path_fd).unwrap_or_default();
        self.close_real(path_fd);
        if (stat.dev, stat.ino) != (file.dev, file.ino) {
            return None;
        }
        let mut path = [0u8; 32];
        for (to, from) in path.iter_mut().zip(b"../fdinfo/".iter().chain(&name)) {
            *to = *from;
        }
        let arguments = [normal, address_of(&path), OPEN_FOR_READING, 0, 0, 0];
        // Its first line is "pos:", a tabulator and at most 19 digits.
        let mut text = [0u8; 32];
        let vector = [address_of_mut(&mut text), text.len()];
        self.looking(|c| {
            let result = c.k.call(nr::OPENAT, arguments);
            let info = c.opened(result).ok()?;
            c.k.call(nr::PREADV2, [info, address_of(&vector), 1, 0, 0, 0]);
            c.close_real(info);
            Some(())
        })?;
        let digits = text.strip_prefix(b"pos:\t")?.split(|byte| *byte == b'\n').next()?;
        digits.iter().try_fold(0u64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(u64::from(digit))
        })
    }

    /// Whether `mincore` and `O_NOATIME` are ours to use on such a file.
    pub(crate) fn owned(&self, stat: &Stat) -> bool {
        self.e.identity.fsuid == 0 || self.e.identity.fsuid == stat.uid
    }

    /// Parks where a regular file, of which there is an `O_PATH` descriptor, is not to
    /// be opened.
    pub(crate) fn may_be_opened(&mut self, path_fd: usize, stat: &Stat) -> Result<(), Stop> {
        let Some(own) = self.own_fds() else { return park(Park::Reopen) };
        let name = decimal(path_fd as u32);
        let candidate = Candidate {
            path_fd,
            at: (own, address_of(&name)),
            dev: stat.dev,
            size: stat.size,
            owned: self.owned(stat),
        };
        let opening = &self.log.opening;
        match residency::before_opening(self.k, &mut self.e.methods, &candidate, opening) {
            Method::Delicate | Method::Unopened => park(Park::Unanswerable),
            _ => Ok(()),
        }
    }

    /// The same for a directory. One question for each device without a block device, in
    /// turn.
    pub(crate) fn directory_may_be_opened(&mut self, path_fd: usize, dev: u64) -> Result<(), Stop> {
        if device_numbers(dev).0 != 0 || self.e.directories_dev == dev {
            return Ok(());
        }
        if residency::is_kept_by_opening(self.k, path_fd) {
            return park(Park::Unanswerable);
        }
        self.e.directories_dev = dev;
        Ok(())
    }

    /// Opens a regular file or directory, known to be one, for reading,
    /// without a change of its access time where that is allowed.
    pub(crate) fn open_for_reading(
        &mut self,
        dir: usize,
        path: usize,
        more_flags: usize,
        owned: bool,
    ) -> Answer {
        self.e.counters.opens += 1;
        let flags = OPEN_FOR_READING | more_flags;
        if owned {
            let result = self.k.call(nr::OPENAT, [dir, path, flags | O_NOATIME, 0, 0, 0]);
            if result != -(EPERM as isize) {
                return self.opened(result);
            }
        }
        let result = self.k.call(nr::OPENAT, [dir, path, flags, 0, 0, 0]);
        self.opened(result)
    }

    /// The result of a real open; running out of real descriptors is our
    /// trouble and not the program's.
    pub(crate) fn opened(&self, result: isize) -> Answer {
        const EMFILE_RESULT: isize = -(EMFILE as isize);
        const ENFILE_RESULT: isize = -(ENFILE as isize);
        match result {
            EMFILE_RESULT | ENFILE_RESULT => park(Park::TableFull),
            _ => from_kernel(result),
        }
    }

    /// `/proc/self/fd`, to open exactly the inode behind an `O_PATH`
    /// descriptor with a short look-up; `None` without /proc.
    pub(crate) fn own_fds(&mut self) -> Option<usize> {
        if self.e.own_fds_plus1 == 0 {
            let path = address_of(c"/proc/self/fd");
            self.e.own_fds_plus1 = self.open_proc(path);
        }
        usize::try_from(self.e.own_fds_plus1 - 1).ok()
    }

    /// `/proc/PID/fd` of the normal process.
    pub(crate) fn normal_fds(&mut self) -> Option<usize> {
        if self.e.normal_fds_plus1 == 0 {
            let mut path = [0u8; 32];
            let digits = decimal(self.e.identity.pid as u32);
            let parts = b"/proc/".iter().chain(digits.iter().take_while(|digit| **digit != 0));
            for (to, from) in path.iter_mut().zip(parts.chain(b"/fd")) {
                *to = *from;
            }
            self.e.normal_fds_plus1 = self.open_proc(address_of(&path));
        }
        usize::try_from(self.e.normal_fds_plus1 - 1).ok()
    }

    fn open_proc(&mut self, path: usize) -> i32 {
        let flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
        let result = self.k.call(nr::OPENAT, [AT_FDCWD as usize, path, flags, 0, 0, 0]);
        if result < 0 { -1 } else { result as i32 + 1 }
    }

    /// Opens for reading the inode behind a real `O_PATH` descriptor.
    pub(crate) fn open_again(&mut self, path_fd: usize, flags: usize, owned: bool) -> Answer {
        let Some(own) = self.own_fds() else { return park(Park::Reopen) };
        let name = decimal(path_fd as u32);
        self.open_for_reading(own, address_of(&name), flags, owned)
    }

    /// Name of descriptor `fd` in `/proc/PID/fd`.
    pub(crate) fn fd_name(fd: u32) -> [u8; 16] {
        decimal(fd)
    }

    /// `fstat` of a real descriptor.
    pub(crate) fn stat_real(&mut self, real: usize) -> Option<Stat> {
        self.stat_bytes(real).map(|bytes| Stat::parse(&bytes))
    }

    /// The same as the kernel wrote it.
    pub(crate) fn stat_bytes(&mut self, real: usize) -> Option<[u8; stat::LEN]> {
        let mut bytes = [0u8; stat::LEN];
        let address = address_of_mut(&mut bytes);
        let result = self.k.call(nr::FSTAT, [real, address, 0, 0, 0, 0]);
        (result == 0).then_some(bytes)
    }

    /// `fstatat` for the emulator itself.
    pub(crate) fn stat_at(&mut self, dir: usize, path: usize, flags: usize) -> Result<Stat, Stop> {
        let mut bytes = [0u8; stat::LEN];
        let address = address_of_mut(&mut bytes);
        from_kernel(self.k.call(nr::NEWFSTATAT, [dir, path, address, flags, 0, 0]))?;
        Ok(Stat::parse(&bytes))
    }

    /// Closes a real descriptor.
    pub(crate) fn close_real(&mut self, real: usize) {
        self.k.call(nr::CLOSE, [real, 0, 0, 0, 0, 0]);
    }

    /// Frees a description that no descriptor and no prefetch needs.
    pub(crate) fn close_if_unused(&mut self, id: FileId) {
        let file = *self.e.table.file(id);
        if file.kind == Kind::Free || file.descriptors > 0 || file.in_flight > 0 {
            return;
        }
        if let Some(real) = file.real() {
            self.close_real(real);
        }
        crate::residency::release(self.k, &mut self.e.table.file_mut(id).oracle);
        if self.e.opened.file_plus1 == id.0 + 1 {
            self.e.opened.file_plus1 = 0;
        }
        self.e.table.remove_file(id);
    }

    /// Takes over what was written in appearance through other descriptors
    /// of the same imaginary file.
    pub(crate) fn share_size(&mut self, id: FileId) {
        let file = *self.e.table.file(id);
        if file.kind == Kind::Sink
            && file.name != 0
            && let Some(name) = self.e.names.get(file.name)
            && name.state == crate::names::State::File
        {
            self.e.table.file_mut(id).size = name.size;
        }
    }

    /// Makes a buffer of the program ready to be written by the kernel.
    pub(crate) fn ready(&mut self, address: usize, len: usize) -> Result<(), Stop> {
        if len == 0 || self.k.prepare_write(address, len) { Ok(()) } else { park(Park::BadPointer) }
    }

    /// Stores words into program memory.
    pub(crate) fn store_words(&mut self, address: usize, words: &[u64]) -> Result<(), Stop> {
        for (index, word) in words.iter().enumerate() {
            self.store(address.wrapping_add(index * 8), &word.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Stores bytes into program memory.
    pub(crate) fn store(&mut self, address: usize, bytes: &[u8]) -> Result<(), Stop> {
        if self.k.store(address, bytes) { Ok(()) } else { park(Park::BadPointer) }
    }

    /// Fills a buffer with copies of `with`.
    pub(crate) fn write_over(
        &mut self,
        address: usize,
        len: usize,
        with: &[u8],
    ) -> Result<(), Stop> {
        let mut done = 0;
        while done < len {
            let piece = with.get(..with.len().min(len - done)).unwrap_or(with);
            self.store(address.wrapping_add(done), piece)?;
            done += piece.len();
        }
        Ok(())
    }

    /// Loads words of program memory.
    pub(crate) fn load_words<const N: usize>(&mut self, address: usize) -> Result<[u64; N], Stop> {
        let mut words = [0u64; N];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0u8; 8];
            if !self.k.load(address.wrapping_add(index * 8), &mut bytes) {
                return park(Park::BadPointer);
            }
            *word = u64::from_ne_bytes(bytes);
        }
        Ok(words)
    }

    /// Loads 32 bits of program memory.
    pub(crate) fn load_u32(&mut self, address: usize) -> Result<u32, Stop> {
        let mut bytes = [0u8; 4];
        if self.k.load(address, &mut bytes) {
            Ok(u32::from_ne_bytes(bytes))
        } else {
            park(Park::BadPointer)
        }
    }

    /// Whether the string at `address` is empty; a null pointer counts, as
    /// for the kernel with `AT_EMPTY_PATH`.
    pub(crate) fn is_empty_string(&mut self, address: usize) -> Result<bool, Stop> {
        let mut first = [0u8; 1];
        if address == 0 {
            return Ok(true);
        }
        if self.k.load(address, &mut first) { Ok(first == [0]) } else { park(Park::BadPointer) }
    }

    /// Copies the program's string at `address` to `Emulator::path`; its
    /// length. ENAMETOOLONG.
    pub(crate) fn load_path(&mut self, address: usize) -> Answer {
        let mut done = 0;
        while done < PATH_MAX_BYTES {
            let at = address.wrapping_add(done);
            // Up to the end of the page: the string may end there and the
            // next page may not exist.
            let in_page = PAGE_BYTES as usize - at % PAGE_BYTES as usize;
            let len = in_page.min(128).min(PATH_MAX_BYTES - done);
            let Some(chunk) = self.e.path.get_mut(done..done + len) else { break };
            if !self.k.load(at, chunk) {
                return park(Park::BadPointer);
            }
            if let Some(end) = chunk.iter().position(|byte| *byte == 0) {
                return Ok(done + end);
            }
            done += len;
        }
        errno(ENAMETOOLONG)
    }

    /// An allowed call whose `len` bytes at argument `arg` the kernel fills
    /// (nothing where that pointer is null).
    pub(crate) fn fill(&mut self, number: usize, a: [usize; 6], arg: usize, len: usize) -> Answer {
        match a.get(arg) {
            Some(0) | None => {}
            Some(address) => self.ready(*address, len)?,
        }
        self.on_program(number, a)
    }
}
