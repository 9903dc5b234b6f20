//! open and its kin.
//!
//! Nothing is opened that could notice it: a path is first opened with
//! `O_PATH`, which has no effect on what it names, and only regular files and
//! directories are then opened for reading, through `/proc/self/fd`, so that
//! it is exactly the inode that was looked at. No file is opened on file systems
//! where that, or a read, does something.

use crate::abi::*;
use crate::arch::nr;
use crate::context::{Context, Stat, address_of, device_numbers};
use crate::descriptors::{File, FileId, Kind};
use crate::emulator::Opened;
use crate::kernel::Kernel;
use crate::names::{Found, Name, Place, State};
use crate::outcome::{Answer, Stop, errno, park};
use crate::residency::{self, Method, Oracle};
use runahead_protocol::stats::Park;

/// Flags that `F_GETFL` shows.
const STATUS_FLAGS: usize = O_ACCMODE
    | O_APPEND
    | O_NONBLOCK
    | O_DSYNC
    | O_ASYNC
    | O_DIRECT
    | O_LARGEFILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_PATH
    | 0o4000000;

/// Where reading sysfs changes nothing, and programs of every kind do: processors
/// and memory nodes (get_nprocs(3), libnuma), large pages (jemalloc, Go, Java).
const OF_NO_DEVICE: [&[u8]; 2] = [b"/sys/devices/system/", b"/sys/kernel/mm/"];

/// Major number of the memory devices, and the minors of null, zero, full,
/// random and urandom.
const MEMORY_MAJOR: u64 = 1;

/// What a device file is to a program that reads it.
fn device_kind(rdev: u64) -> Kind {
    match device_numbers(rdev) {
        (MEMORY_MAJOR, 3) => Kind::Null,
        (MEMORY_MAJOR, 5 | 7) => Kind::Zero,
        (MEMORY_MAJOR, 8 | 9) => Kind::Random,
        (4 | 5 | 136..=143, _) => Kind::Terminal,
        _ => Kind::Other,
    }
}

/// A request to open something.
#[derive(Clone, Copy)]
struct Request {
    flags: usize,
    mode: u32,
}

impl Request {
    fn has(&self, flag: usize) -> bool {
        self.flags & flag == flag
    }

    fn writes(&self) -> bool {
        self.flags & O_ACCMODE != O_RDONLY || self.has(O_TRUNC)
    }

    fn changes(&self) -> bool {
        self.writes() || self.has(O_CREAT)
    }
}

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn open(&mut self, a: [usize; 6]) -> Answer {
        self.open_path(AT_FDCWD as usize, a[0], Request { flags: a[1], mode: a[2] as u32 })
    }

    pub(crate) fn creat(&mut self, a: [usize; 6]) -> Answer {
        let flags = O_CREAT | O_WRONLY | O_TRUNC;
        self.open_path(AT_FDCWD as usize, a[0], Request { flags, mode: a[1] as u32 })
    }

    pub(crate) fn openat(&mut self, a: [usize; 6]) -> Answer {
        self.open_path(a[0], a[1], Request { flags: a[2], mode: a[3] as u32 })
    }

    /// Only with the meaning of `openat`: restricted look-ups are for the
    /// kernel, and their `struct open_how` cannot be checked by a filter.
    /// Programs fall back where it is missing.
    pub(crate) fn openat2(&mut self, a: [usize; 6]) -> Answer {
        let [flags, mode, resolve] = self.load_words(a[2])?;
        if resolve != 0 {
            return errno(ENOSYS);
        }
        self.open_path(a[0], a[1], Request { flags: flags as usize, mode: mode as u32 })
    }

    pub(crate) fn memfd_create(&mut self, a: [usize; 6]) -> Answer {
        const MFD_CLOEXEC: usize = 1;
        let file = File {
            kind: Kind::Sink,
            dirty: true,
            status_flags: O_RDWR as u32,
            mode: S_IFREG | 0o777,
            ..File::FREE
        };
        self.add(file, a[1] & MFD_CLOEXEC != 0)
    }

    /// Gives a file a descriptor.
    pub(crate) fn add(&mut self, file: File, cloexec: bool) -> Answer {
        let id = self.e.table.add_file(file)?;
        self.e.table.add(id, 0, cloexec)
    }

    fn open_path(&mut self, dirfd: usize, path: usize, request: Request) -> Answer {
        if request.has(O_TMPFILE_BIT) {
            return self.add_sink((0, 0), None, request);
        }
        let place = if request.changes() && !request.has(O_PATH) {
            self.look_up_named(dirfd, path)?
        } else {
            self.look_up(dirfd, path)?
        };
        match place.found {
            Found::Real { dir, path: rest } => {
                self.open_real(place, dir, rest, (dirfd, path), request)
            }
            Found::Moved(real)
                if request.has(O_DIRECTORY)
                    && self.stat_real(real).is_none_or(|stat| stat.mode & S_IFMT != S_IFDIR) =>
            {
                errno(ENOTDIR)
            }
            Found::Moved(real) if request.has(O_PATH) => {
                let real = self.path_again(real)?;
                self.add_path(real as i32 + 1, 0, place.id, request)
            }
            Found::Shadow(name) if request.has(O_PATH) => {
                if request.has(O_DIRECTORY) && name.state != State::Directory {
                    return errno(ENOTDIR);
                }
                self.add_path(0, name.mode, place.id, request)
            }
            Found::Moved(real) => {
                let stat = self.stat_real(real).unwrap_or_default();
                let fd = self.open_inode(place, real, stat, (dirfd, path), request)?;
                if self.keeps(fd, real) {
                    // The descriptor stays the name's.
                    let id = self.id(fd)?;
                    self.e.table.file_mut(id).real_plus1 = 0;
                }
                Ok(fd)
            }
            Found::Shadow(name) => self.open_shadow(name, request),
            Found::Absent if request.has(O_CREAT) => {
                self.add_sink((place.id, place.parent_dev), None, request)
            }
            Found::Absent => errno(ENOENT),
        }
    }

    /// Opens what the kernel knows, by way of `O_PATH`.
    fn open_real(
        &mut self,
        place: Place,
        dir: usize,
        path: usize,
        asked: (usize, usize),
        request: Request,
    ) -> Answer {
        let nofollow = request.has(O_NOFOLLOW) || (request.has(O_CREAT) && request.has(O_EXCL));
        let mut flags = O_PATH | O_CLOEXEC | request.flags & O_DIRECTORY;
        flags |= if nofollow { O_NOFOLLOW } else { 0 };
        let result = self.on_name(nr::OPENAT, [dir, path, flags, 0, 0, 0]);
        let path_fd = match self.opened(result) {
            Err(Stop::Errno(ENOENT)) if request.has(O_CREAT) => {
                let dev = self.may_create(dir, path)?;
                return self.add_sink((place.id, dev), None, request);
            }
            other => other?,
        };
        if request.has(O_PATH) {
            return self.add_path(path_fd as i32 + 1, 0, place.id, request);
        }
        let Some(attributes) = self.stat_bytes(path_fd) else {
            self.close_real(path_fd);
            return park(Park::Reopen);
        };
        let stat = Stat::parse(&attributes);
        match stat.mode & S_IFMT {
            S_IFDIR => self.came_to_directory(dir, path, &stat),
            _ => {
                self.saw_file();
                self.came_by_path(dir, path);
            }
        }
        let answer = self.open_inode(place, path_fd, stat, asked, request);
        self.e.opened = match answer.and_then(|fd| self.e.table.id(fd)) {
            Ok(id) => Opened { file_plus1: id.0 + 1, attributes },
            Err(_) => Opened::NONE,
        };
        // A sink keeps the O_PATH descriptor for its attributes.
        let kept = matches!(answer, Ok(fd) if self.keeps(fd, path_fd));
        if !kept {
            self.close_real(path_fd);
        }
        answer
    }

    /// An `O_PATH` descriptor of the program.
    fn add_path(&mut self, real_plus1: i32, mode: u32, name: u64, request: Request) -> Answer {
        let status_flags = (request.flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW)) as u32;
        let file = File { kind: Kind::Path, real_plus1, status_flags, mode, name, ..File::FREE };
        self.add(file, request.has(O_CLOEXEC))
    }

    /// Another real `O_PATH` descriptor of the same file.
    pub(crate) fn path_again(&mut self, real: usize) -> Answer {
        let Some(own) = self.own_fds() else { return park(Park::Reopen) };
        let name = Self::fd_name(real as u32);
        let flags = O_PATH | O_CLOEXEC;
        let result = self.k.call(nr::OPENAT, [own, address_of(&name), flags, 0, 0, 0]);
        self.opened(result)
    }

    fn keeps(&self, fd: usize, path_fd: usize) -> bool {
        self.e.table.id(fd).is_ok_and(|id| self.e.table.file(id).real() == Some(path_fd))
    }

    /// Opens the inode behind `path_fd` as the request says.
    fn open_inode(
        &mut self,
        place: Place,
        path_fd: usize,
        stat: Stat,
        (dirfd, path): (usize, usize),
        request: Request,
    ) -> Answer {
        if request.has(O_CREAT) && request.has(O_EXCL) {
            return errno(EEXIST);
        }
        let mut file = File {
            status_flags: (request.flags & STATUS_FLAGS) as u32 | O_LARGEFILE as u32,
            mode: stat.mode,
            dev: stat.dev,
            ino: stat.ino,
            size: stat.size,
            name: place.id,
            ..File::FREE
        };
        match stat.mode & S_IFMT {
            S_IFLNK => return errno(ELOOP),
            S_IFDIR => {
                if request.changes() {
                    return errno(EISDIR);
                }
                file.kind = Kind::Directory;
                self.directory_may_be_opened(path_fd, stat.dev)?;
                if file.name == 0 {
                    // Identified while its path is at hand.
                    file.name = self.look_up_named(dirfd, path).map_or(0, |place| place.id);
                }
            }
            S_IFREG => {
                file.kind = Kind::Regular;
                file.direct = request.has(O_DIRECT);
                self.may_be_opened(path_fd, &stat)?;
                if request.writes() {
                    return self.open_for_writing(file, path_fd, &stat, request);
                }
            }
            S_IFSOCK => return errno(ENXIO),
            S_IFCHR => file.kind = device_kind(stat.rdev),
            _ => file.kind = Kind::Other,
        }
        if matches!(file.kind, Kind::Regular | Kind::Directory) {
            let owned = self.owned(&stat);
            let directory = if file.kind == Kind::Directory { O_DIRECTORY } else { 0 };
            file.real_plus1 = self.open_again(path_fd, directory, owned)? as i32 + 1;
            file.oracle = Oracle::keeping(owned);
            let of_a_device = self.e.methods.get(stat.dev) == Method::Sysfs;
            if of_a_device && file.kind == Kind::Regular && self.is_of_no_device(path)? {
                file.oracle.method = Method::MadeUp;
            }
        }
        self.add(file, request.has(O_CLOEXEC))
    }

    /// Whether the program's path in sysfs leads to what the kernel says of itself
    /// and not a device's driver.
    fn is_of_no_device(&mut self, path: usize) -> Result<bool, Stop> {
        let len = self.load_path(path)?;
        let path = self.e.path.get(..len).unwrap_or(&[]);
        let below = OF_NO_DEVICE.iter().any(|place| path.starts_with(place));
        Ok(below && path.split(|byte| *byte == b'/').all(|name| name != b".."))
    }

    /// A regular file that exists and is opened for writing: truncated or
    /// write-only it becomes a sink; else it is read for real.
    fn open_for_writing(
        &mut self,
        file: File,
        path_fd: usize,
        stat: &Stat,
        request: Request,
    ) -> Answer {
        const W_OK: usize = 2;
        let empty = [0u8; 8];
        let arguments = [path_fd, address_of(&empty), W_OK, AT_EMPTY_PATH | AT_EACCESS, 0, 0];
        if let Err(refused) = crate::outcome::from_kernel(self.k.call(nr::FACCESSAT2, arguments))
            && refused != Stop::Errno(ENOSYS)
        {
            return Err(refused);
        }
        let truncated = request.has(O_TRUNC);
        if request.flags & O_ACCMODE == O_RDWR && !truncated {
            if residency::is_of_a_server(self.k, path_fd) {
                return park(Park::Unanswerable);
            }
            let (mut file, owned) = (file, self.owned(stat));
            file.real_plus1 = self.open_again(path_fd, 0, owned)? as i32 + 1;
            file.oracle = Oracle::keeping(owned);
            return self.add(file, request.has(O_CLOEXEC));
        }
        let size = if truncated { 0 } else { file.size };
        if truncated {
            let File { name: id, mode, dev, .. } = file;
            self.remember(Name { id, size, dev, mode, real: 0, state: State::File });
        }
        let real_plus1 = path_fd as i32 + 1;
        let sink = File { kind: Kind::Sink, dirty: true, size, real_plus1, ..file };
        self.add(sink, request.has(O_CLOEXEC))
    }

    fn open_shadow(&mut self, name: Name, request: Request) -> Answer {
        if request.has(O_CREAT) && request.has(O_EXCL) {
            return errno(EEXIST);
        }
        match name.state {
            State::Directory if request.changes() => errno(EISDIR),
            State::Directory => {
                let file = File {
                    kind: Kind::SinkDirectory,
                    status_flags: (request.flags & STATUS_FLAGS) as u32,
                    mode: name.mode,
                    dev: name.dev,
                    name: name.id,
                    ..File::FREE
                };
                self.add(file, request.has(O_CLOEXEC))
            }
            _ if request.has(O_DIRECTORY) => errno(ENOTDIR),
            State::File => self.add_sink((name.id, name.dev), Some(name), request),
            // A link or device that was never made leads nowhere.
            _ => park(Park::Unanswerable),
        }
    }

    /// A file that exists in appearance only, from now on or as `existing`.
    fn add_sink(
        &mut self,
        (id, dev): (u64, u64),
        existing: Option<Name>,
        request: Request,
    ) -> Answer {
        let truncated = existing.is_none() || request.has(O_TRUNC);
        let size = existing.map_or(0, |name| if truncated { 0 } else { name.size });
        // As under the usual mask: the real one is not worth a call.
        let mode = existing.map_or(S_IFREG | request.mode & 0o7755, |name| name.mode);
        if id != 0 && truncated {
            self.remember(Name { id, size, dev, mode, real: 0, state: State::File });
        }
        let file = File {
            kind: Kind::Sink,
            dev,
            dirty: true,
            status_flags: (request.flags & STATUS_FLAGS) as u32 | O_LARGEFILE as u32,
            mode,
            size,
            name: id,
            ..File::FREE
        };
        self.add(file, request.has(O_CLOEXEC))
    }

    /// Whether the directory of a new name exists and may be written, as the
    /// kernel would say it: ENOENT, ENOTDIR, EACCES, EROFS. Gives its device.
    pub(crate) fn may_create(&mut self, dir: usize, path: usize) -> Result<u64, Stop> {
        const W_OK: usize = 2;
        let mut len = self.load_path(path)?;
        let text = self.e.path.get_mut(..).unwrap_or_default();
        while len > 1 && text.get(len - 1) == Some(&b'/') {
            len -= 1;
        }
        let name = text.get(..len).and_then(|path| path.iter().rposition(|byte| *byte == b'/'));
        let parent: &[u8] = match name {
            Some(0) => b"/\0",
            Some(slash) => {
                if let Some(end) = text.get_mut(slash) {
                    *end = 0;
                }
                text
            }
            None => b".\0",
        };
        let parent = address_of(parent);
        let arguments = [dir, parent, W_OK, 0, 0, 0];
        crate::outcome::from_kernel(self.k.call(nr::FACCESSAT, arguments))?;
        Ok(self.stat_at(dir, parent, 0)?.dev)
    }

    pub(crate) fn close(&mut self, a: [usize; 6]) -> Answer {
        let id = self.e.table.take(a[0])?;
        self.close_if_unused(id);
        Ok(0)
    }

    pub(crate) fn close_range(&mut self, a: [usize; 6]) -> Answer {
        const CLOSE_RANGE_UNSHARE: usize = 2;
        const CLOSE_RANGE_CLOEXEC: usize = 4;
        let (first, last) = (a[0] as u32 as usize, a[1] as u32 as usize);
        if first > last || a[2] & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 {
            return errno(EINVAL);
        }
        for fd in first..=last.min(crate::descriptors::DESCRIPTORS_MAX - 1) {
            if a[2] & CLOSE_RANGE_CLOEXEC != 0 {
                let _ = self.e.table.set_cloexec(fd, true);
            } else if let Ok(id) = self.e.table.take(fd) {
                self.close_if_unused(id);
            }
        }
        Ok(0)
    }

    /// `dup`, `dup2`, `dup3`.
    pub(crate) fn dup(&mut self, a: [usize; 6]) -> Answer {
        let id = self.e.table.id(a[0])?;
        self.e.table.add(id, 0, false)
    }

    pub(crate) fn dup2(&mut self, a: [usize; 6]) -> Answer {
        self.e.table.id(a[0])?;
        if a[0] as u32 == a[1] as u32 {
            return Ok(a[1]);
        }
        self.dup3([a[0], a[1], 0, 0, 0, 0])
    }

    pub(crate) fn dup3(&mut self, a: [usize; 6]) -> Answer {
        let new = a[1] as u32 as usize;
        if a[0] as u32 as usize == new || a[2] & !O_CLOEXEC != 0 {
            return errno(EINVAL);
        }
        let id = self.e.table.id(a[0])?;
        if new >= crate::descriptors::DESCRIPTORS_MAX {
            return park(Park::TableFull);
        }
        let replaced = self.e.table.take(new).ok();
        self.e.table.put(new, id, a[2] & O_CLOEXEC != 0)?;
        if let Some(replaced) = replaced {
            self.close_if_unused(replaced);
        }
        Ok(new)
    }

    /// A descriptor that stands for something imaginary.
    pub(crate) fn add_imaginary(&mut self, kind: Kind, access: usize, flags: usize) -> Answer {
        let mode = match kind {
            Kind::Socket => S_IFSOCK | 0o777,
            _ => S_IFIFO | 0o600,
        };
        let status_flags = (access | flags & O_NONBLOCK) as u32;
        let file = File { kind, status_flags, mode, ..File::FREE };
        self.add(file, flags & O_CLOEXEC != 0)
    }

    /// The description behind a program's descriptor.
    pub(crate) fn id(&self, fd: usize) -> Result<FileId, Stop> {
        self.e.table.id(fd)
    }
}
