//! stat and its kin, directories, and what else only looks.

use crate::abi::*;
use crate::arch::{nr, stat};
use crate::context::{Context, Stat, address_of, address_of_mut, device_numbers, word};
use crate::descriptors::{File, FileId, Kind};
use crate::emulator::Opened;
use crate::kernel::Kernel;
use crate::names::{Found, Name, State};
use crate::outcome::{Answer, Stop, errno, from_kernel, park};
use runahead_protocol::stats::Park;

/// `struct statx`: size and offsets in bytes (man 2 statx).
mod statx {
    pub const LEN: usize = 256;
    pub const MASK: usize = 0;
    pub const BLKSIZE: usize = 4;
    pub const NLINK: usize = 16;
    pub const UID: usize = 20;
    pub const GID: usize = 24;
    pub const MODE: usize = 28;
    pub const INO: usize = 32;
    pub const SIZE: usize = 40;
    pub const BLOCKS: usize = 48;
    pub const ATIME: usize = 64;
    pub const CTIME: usize = 96;
    pub const MTIME: usize = 112;
    pub const DEV: usize = 136;
    /// `STATX_BASIC_STATS`.
    pub const BASIC: u32 = 0x7ff;
}

/// How a program asked for a file's attributes.
#[derive(Clone, Copy)]
enum Ask {
    Stat { buffer: usize },
    Statx { buffer: usize, mask: usize },
}

/// Attributes of something imaginary.
#[derive(Clone, Copy)]
struct Imaginary {
    mode: u32,
    size: u64,
    dev: u64,
    ino: u64,
}

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn stat(&mut self, a: [usize; 6]) -> Answer {
        self.stat_path(AT_FDCWD as usize, a[0], 0, Ask::Stat { buffer: a[1] })
    }

    pub(crate) fn lstat(&mut self, a: [usize; 6]) -> Answer {
        let flags = AT_SYMLINK_NOFOLLOW;
        self.stat_path(AT_FDCWD as usize, a[0], flags, Ask::Stat { buffer: a[1] })
    }

    pub(crate) fn fstat(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        self.stat_file(id, 0, Ask::Stat { buffer: a[1] })
    }

    pub(crate) fn newfstatat(&mut self, a: [usize; 6]) -> Answer {
        self.stat_path(a[0], a[1], a[3], Ask::Stat { buffer: a[2] })
    }

    pub(crate) fn statx(&mut self, a: [usize; 6]) -> Answer {
        self.stat_path(a[0], a[1], a[2], Ask::Statx { buffer: a[4], mask: a[3] })
    }

    fn stat_path(&mut self, dirfd: usize, path: usize, flags: usize, ask: Ask) -> Answer {
        if flags & AT_EMPTY_PATH != 0 && self.is_empty_string(path)? {
            if dirfd as i32 != AT_FDCWD {
                let id = self.id(dirfd)?;
                return self.stat_file(id, flags, ask);
            }
            return self.stat_kernel(AT_FDCWD as usize, path, flags, ask);
        }
        let place = self.look_up(dirfd, path)?;
        match place.found {
            Found::Real { dir, path } => self.stat_kernel(dir, path, flags, ask),
            Found::Moved(real) => {
                let empty = [0u8; 8];
                self.stat_kernel(real, address_of(&empty), flags | AT_EMPTY_PATH, ask)
            }
            Found::Shadow(Name { mode, size, dev, id: ino, .. }) => {
                self.stat_imaginary(Imaginary { mode, size, dev, ino }, ask)
            }
            Found::Absent => errno(ENOENT),
        }
    }

    /// Lets the kernel fill the program's buffer.
    fn stat_kernel(&mut self, dir: usize, path: usize, flags: usize, ask: Ask) -> Answer {
        let (result, mode_at) = match ask {
            Ask::Stat { buffer } => {
                self.ready(buffer, stat::LEN)?;
                let args = [dir, path, buffer, flags, 0, 0];
                (self.on_name(nr::NEWFSTATAT, args), buffer.wrapping_add(stat::MODE))
            }
            Ask::Statx { buffer, mask } => {
                self.ready(buffer, statx::LEN)?;
                let args = [dir, path, flags, mask, buffer, 0];
                (self.on_name(nr::STATX, args), buffer.wrapping_add(statx::MODE))
            }
        };
        if result == 0 && flags & AT_EMPTY_PATH == 0 {
            self.saw_mode(mode_at, dir, path);
        }
        from_kernel(result)
    }

    fn stat_file(&mut self, id: FileId, flags: usize, ask: Ask) -> Answer {
        self.reopen_or_lose(id)?;
        self.share_size(id);
        let mut file = *self.e.table.file(id);
        let opened_again = matches!(file.kind, Kind::Regular | Kind::Directory);
        if opened_again && file.real().is_none() {
            self.real(id)?;
            file = *self.e.table.file(id);
        }
        if let Some(real) = file.real() {
            if let Ask::Stat { buffer } = ask
                && file.kind == Kind::Regular
                && !file.dirty
                && self.e.opened.file_plus1 == id.0 + 1
            {
                // Once: who asks again wants to see a change.
                let Opened { attributes, .. } =
                    core::mem::replace(&mut self.e.opened, Opened::NONE);
                return self.store(buffer, &attributes).map(|()| 0);
            }
            let empty = [0u8; 8];
            let answer = self.stat_kernel(real, address_of(&empty), flags | AT_EMPTY_PATH, ask)?;
            if file.dirty {
                self.store_size(ask, file.size)?;
            }
            return Ok(answer);
        }
        if file.inherited_plus1 > 0 {
            // Pipes, terminals and the like are never opened again; the link
            // in /proc has their attributes.
            let Some(normal) = self.normal_fds() else { return park(Park::Reopen) };
            let name = Self::fd_name((file.inherited_plus1 - 1) as u32);
            let opened = self.path_of(normal, &name, 0);
            let Ok(path_fd) = self.opened(opened) else { return park(Park::Reopen) };
            let empty = [0u8; 8];
            let answer = self.stat_kernel(path_fd, address_of(&empty), flags | AT_EMPTY_PATH, ask);
            self.close_real(path_fd);
            let answer = answer?;
            if file.dirty {
                self.store_size(ask, file.size)?;
            }
            return Ok(answer);
        }
        let ino = if file.name != 0 { file.name } else { u64::from(id.0) + 1 };
        let File { mode, size, dev, .. } = file;
        self.stat_imaginary(Imaginary { mode, size, dev, ino }, ask)
    }

    fn store_size(&mut self, ask: Ask, size: u64) -> Result<(), Stop> {
        let (at, blocks_at) = match ask {
            Ask::Stat { buffer } => (buffer + stat::SIZE, buffer + stat::BLOCKS),
            Ask::Statx { buffer, .. } => (buffer + statx::SIZE, buffer + statx::BLOCKS),
        };
        self.store_words(at, &[size])?;
        self.store_words(blocks_at, &[size.div_ceil(512)])
    }

    fn stat_imaginary(&mut self, file: Imaginary, ask: Ask) -> Answer {
        let time = self.now();
        let blocks = file.size.div_ceil(4096) * 8;
        let ino = file.ino & 0xffff_ffff;
        let identity = self.e.identity;
        match ask {
            Ask::Stat { buffer } => {
                let mut bytes = [0u8; stat::LEN];
                put(&mut bytes, stat::DEV, &file.dev.to_ne_bytes());
                put(&mut bytes, stat::INO, &ino.to_ne_bytes());
                put(&mut bytes, stat::NLINK, &1u64.to_ne_bytes());
                put(&mut bytes, stat::MODE, &file.mode.to_ne_bytes());
                put(&mut bytes, stat::UID, &identity.fsuid.to_ne_bytes());
                put(&mut bytes, stat::GID, &identity.fsgid.to_ne_bytes());
                put(&mut bytes, stat::SIZE, &file.size.to_ne_bytes());
                put(&mut bytes, stat::BLKSIZE, &4096u64.to_ne_bytes());
                put(&mut bytes, stat::BLOCKS, &blocks.to_ne_bytes());
                for at in [stat::MTIME - 16, stat::MTIME, stat::MTIME + 16] {
                    put(&mut bytes, at, &time[0].to_ne_bytes());
                    put(&mut bytes, at + 8, &time[1].to_ne_bytes());
                }
                self.store(buffer, &bytes)?;
            }
            Ask::Statx { buffer, .. } => {
                let mut bytes = [0u8; statx::LEN];
                put(&mut bytes, statx::MASK, &statx::BASIC.to_ne_bytes());
                put(&mut bytes, statx::BLKSIZE, &4096u32.to_ne_bytes());
                put(&mut bytes, statx::NLINK, &1u32.to_ne_bytes());
                put(&mut bytes, statx::UID, &identity.fsuid.to_ne_bytes());
                put(&mut bytes, statx::GID, &identity.fsgid.to_ne_bytes());
                put(&mut bytes, statx::MODE, &(file.mode as u16).to_ne_bytes());
                let (major, minor) = device_numbers(file.dev);
                put(&mut bytes, statx::DEV, &(major as u32).to_ne_bytes());
                put(&mut bytes, statx::DEV + 4, &(minor as u32).to_ne_bytes());
                put(&mut bytes, statx::INO, &ino.to_ne_bytes());
                put(&mut bytes, statx::SIZE, &file.size.to_ne_bytes());
                put(&mut bytes, statx::BLOCKS, &blocks.to_ne_bytes());
                for at in [statx::ATIME, statx::CTIME, statx::MTIME] {
                    put(&mut bytes, at, &time[0].to_ne_bytes());
                    put(&mut bytes, at + 8, &(time[1] as u32).to_ne_bytes());
                }
                self.store(buffer, &bytes)?;
            }
        }
        Ok(0)
    }

    pub(crate) fn getdents(&mut self, a: [usize; 6]) -> Answer {
        self.list_directory(nr::GETDENTS, a)
    }

    pub(crate) fn getdents64(&mut self, a: [usize; 6]) -> Answer {
        self.list_directory(nr::GETDENTS64, a)
    }

    fn list_directory(&mut self, number: usize, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        match self.e.table.file(id).kind {
            Kind::Directory => {}
            // Empty, but for its dots, which nobody needs.
            Kind::SinkDirectory => return Ok(0),
            Kind::Path => return errno(EBADF),
            _ => return errno(ENOTDIR),
        }
        let real = self.real(id)?;
        self.ready(a[1], a[2])?;
        self.wait_for_horizon()?;
        let result = self.on_name(number, [real, a[1], a[2], 0, 0, 0]);
        if result >= 0 {
            self.listed(a[0], a[2], id);
        }
        from_kernel(result)
    }

    pub(crate) fn access(&mut self, a: [usize; 6]) -> Answer {
        self.access_path(AT_FDCWD as usize, a[0], a[1], 0)
    }

    pub(crate) fn faccessat(&mut self, a: [usize; 6]) -> Answer {
        self.access_path(a[0], a[1], a[2], 0)
    }

    pub(crate) fn faccessat2(&mut self, a: [usize; 6]) -> Answer {
        self.access_path(a[0], a[1], a[2], a[3])
    }

    fn access_path(&mut self, dirfd: usize, path: usize, mode: usize, flags: usize) -> Answer {
        let empty = [0u8; 8];
        let number = if flags == 0 { nr::FACCESSAT } else { nr::FACCESSAT2 };
        if flags & AT_EMPTY_PATH != 0 && self.is_empty_string(path)? {
            let id = self.id(dirfd)?;
            let Ok(real) = self.real(id) else { return Ok(0) };
            return self.on_program(number, [real, address_of(&empty), mode, flags, 0, 0]);
        }
        match self.look_up(dirfd, path)?.found {
            Found::Real { dir, path } => self.on_program(number, [dir, path, mode, flags, 0, 0]),
            Found::Moved(_) | Found::Shadow(_) => Ok(0),
            Found::Absent => errno(ENOENT),
        }
    }

    pub(crate) fn readlink(&mut self, a: [usize; 6]) -> Answer {
        self.readlinkat([AT_FDCWD as usize, a[0], a[1], a[2], 0, 0])
    }

    pub(crate) fn readlinkat(&mut self, a: [usize; 6]) -> Answer {
        if self.is_empty_string(a[1])? {
            return errno(ENOENT);
        }
        match self.look_up(a[0], a[1])?.found {
            Found::Real { dir, path } => {
                let len = (a[3] as i32).max(0) as usize;
                self.ready(a[2], len.min(PATH_MAX_BYTES))?;
                let len = len.min(PATH_MAX_BYTES);
                match self.len_of_marked_link(dir, path)? {
                    // Most programs only hand on what it says; one that goes there goes
                    // wrong, and its copy ends.
                    Some(bytes) if len > 0 => Ok(bytes.min(len)),
                    _ => self.on_program(nr::READLINKAT, [dir, path, a[2], len, 0, 0]),
                }
            }
            Found::Shadow(Name { state: State::Special, .. }) => park(Park::Unanswerable),
            Found::Moved(_) | Found::Shadow(_) => errno(EINVAL),
            Found::Absent => errno(ENOENT),
        }
    }

    /// The length of a symbolic link, in bytes, of which reading changes the access time: where
    /// that is older than its other times or than a day (relatime, mount(8)). There is no
    /// `O_NOATIME` for links.
    fn len_of_marked_link(&mut self, dir: usize, path: usize) -> Result<Option<usize>, Stop> {
        const DAY_S: u64 = 24 * 60 * 60;
        let mut bytes = [0u8; stat::LEN];
        let address = address_of_mut(&mut bytes);
        let args = [dir, path, address, AT_SYMLINK_NOFOLLOW, 0, 0];
        from_kernel(self.k.call(nr::NEWFSTATAT, args))?;
        let link = Stat::parse(&bytes);
        // Procfs's have no length, and no time that anybody keeps.
        if link.mode & S_IFMT != S_IFLNK || link.size == 0 {
            return Ok(None);
        }
        let time = |at: usize| (word(&bytes, at), word(&bytes, at + 8));
        let read = time(stat::MTIME - 16);
        let changed = time(stat::MTIME).max(time(stat::MTIME + 16));
        let marked = read <= changed || self.now()[0] >= read.0.saturating_add(DAY_S);
        Ok(marked.then_some(link.size as usize))
    }

    /// The time of day, in s and ns.
    fn now(&mut self) -> [u64; 2] {
        const CLOCK_REALTIME: usize = 0;
        let mut time = [0u64; 2];
        let address = address_of_mut(&mut time);
        self.k.call(nr::CLOCK_GETTIME, [CLOCK_REALTIME, address, 0, 0, 0, 0]);
        time
    }

    /// `statfs`: of a path that really exists.
    pub(crate) fn statfs(&mut self, a: [usize; 6]) -> Answer {
        match self.look_up(AT_FDCWD as usize, a[0])?.found {
            Found::Real { dir, path } if dir as i32 == AT_FDCWD => {
                self.ready(a[1], 120)?;
                self.on_program(nr::STATFS, [path, a[1], 0, 0, 0, 0])
            }
            Found::Absent => errno(ENOENT),
            _ => park(Park::Unanswerable),
        }
    }

    pub(crate) fn fstatfs(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        let real = self.real(id)?;
        self.ready(a[1], 120)?;
        self.on_program(nr::FSTATFS, [real, a[1], 0, 0, 0, 0])
    }

    /// `getxattr(path, name, value, size)` and `lgetxattr`.
    pub(crate) fn getxattr(&mut self, a: [usize; 6]) -> Answer {
        self.xattr(nr::GETXATTR, a, 2, ENODATA)
    }

    pub(crate) fn lgetxattr(&mut self, a: [usize; 6]) -> Answer {
        self.xattr(nr::LGETXATTR, a, 2, ENODATA)
    }

    /// `listxattr(path, list, size)` and `llistxattr`.
    pub(crate) fn listxattr(&mut self, a: [usize; 6]) -> Answer {
        self.xattr(nr::LISTXATTR, a, 1, 0)
    }

    pub(crate) fn llistxattr(&mut self, a: [usize; 6]) -> Answer {
        self.xattr(nr::LLISTXATTR, a, 1, 0)
    }

    fn xattr(&mut self, number: usize, a: [usize; 6], buffer: usize, without: i32) -> Answer {
        let (address, len) =
            (a.get(buffer).copied().unwrap_or(0), a.get(buffer + 1).copied().unwrap_or(0));
        match self.look_up(AT_FDCWD as usize, a[0])?.found {
            Found::Real { dir, path } if dir as i32 == AT_FDCWD => {
                self.ready(address, len)?;
                self.on_program(number, [path, a[1], a[2], a[3], 0, 0])
            }
            Found::Absent => errno(ENOENT),
            _ if without == 0 => Ok(0),
            _ => errno(without),
        }
    }

    pub(crate) fn fgetxattr(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        if !matches!(self.e.table.file(id).kind, Kind::Regular | Kind::Directory) {
            return errno(ENODATA);
        }
        let real = self.real(id)?;
        self.ready(a[2], a[3])?;
        self.on_program(nr::FGETXATTR, [real, a[1], a[2], a[3], 0, 0])
    }

    pub(crate) fn flistxattr(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        if !matches!(self.e.table.file(id).kind, Kind::Regular | Kind::Directory) {
            return Ok(0);
        }
        let real = self.real(id)?;
        self.ready(a[1], a[2])?;
        self.on_program(nr::FLISTXATTR, [real, a[1], a[2], 0, 0, 0])
    }

    /// What a path names, without following a last link, for calls that
    /// change names.
    pub(crate) fn stat_name(&mut self, dir: usize, path: usize) -> Result<Stat, Stop> {
        self.stat_at(dir, path, AT_SYMLINK_NOFOLLOW)
    }
}

/// Puts bytes at an offset.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + value.len()) {
        to.copy_from_slice(value);
    }
}
