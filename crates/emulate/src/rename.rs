//! Calls that change names: nothing happens, the shadow remembers.

use crate::abi::*;
use crate::arch::nr;
use crate::context::Context;
use crate::descriptors::File;
use crate::kernel::Kernel;
use crate::names::{Found, Name, Place, State};
use crate::outcome::{Answer, Stop, errno, park};
use runahead_protocol::stats::Park;

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn mkdir(&mut self, a: [usize; 6]) -> Answer {
        self.make(AT_FDCWD as usize, a[0], S_IFDIR | a[1] as u32 & 0o7777)
    }

    pub(crate) fn mkdirat(&mut self, a: [usize; 6]) -> Answer {
        self.make(a[0], a[1], S_IFDIR | a[2] as u32 & 0o7777)
    }

    pub(crate) fn mknod(&mut self, a: [usize; 6]) -> Answer {
        self.make(AT_FDCWD as usize, a[0], a[1] as u32)
    }

    pub(crate) fn mknodat(&mut self, a: [usize; 6]) -> Answer {
        self.make(a[0], a[1], a[2] as u32)
    }

    pub(crate) fn symlink(&mut self, a: [usize; 6]) -> Answer {
        self.make(AT_FDCWD as usize, a[1], S_IFLNK | 0o777)
    }

    pub(crate) fn symlinkat(&mut self, a: [usize; 6]) -> Answer {
        self.make(a[1], a[2], S_IFLNK | 0o777)
    }

    /// A new name; EEXIST.
    fn make(&mut self, dirfd: usize, path: usize, mode: u32) -> Answer {
        let place = self.look_up_named(dirfd, path)?;
        let dev = self.must_not_exist(&place)?;
        let (state, mode) = match mode & S_IFMT {
            S_IFDIR => (State::Directory, mode),
            0 => (State::File, mode | S_IFREG),
            S_IFREG => (State::File, mode),
            _ => (State::Special, mode),
        };
        self.remember(Name { id: place.id, size: 0, dev, mode, real: 0, state });
        Ok(0)
    }

    /// EEXIST, or the device that a new name would be on (0: not known).
    fn must_not_exist(&mut self, place: &Place) -> Result<u64, Stop> {
        match place.found {
            Found::Absent => Ok(place.parent_dev),
            Found::Real { dir, path } => match self.stat_name(dir, path) {
                Ok(_) => errno(EEXIST),
                Err(Stop::Errno(ENOENT)) => self.may_create(dir, path),
                Err(other) => Err(other),
            },
            _ => errno(EEXIST),
        }
    }

    pub(crate) fn unlink(&mut self, a: [usize; 6]) -> Answer {
        self.remove(AT_FDCWD as usize, a[0], false)
    }

    pub(crate) fn rmdir(&mut self, a: [usize; 6]) -> Answer {
        self.remove(AT_FDCWD as usize, a[0], true)
    }

    pub(crate) fn unlinkat(&mut self, a: [usize; 6]) -> Answer {
        if a[2] & !AT_REMOVEDIR != 0 {
            return errno(EINVAL);
        }
        self.remove(a[0], a[1], a[2] & AT_REMOVEDIR != 0)
    }

    fn remove(&mut self, dirfd: usize, path: usize, directory: bool) -> Answer {
        let place = self.look_up_named(dirfd, path)?;
        let mode = self.mode_of(&place)?;
        match (directory, mode & S_IFMT == S_IFDIR) {
            (true, false) => return errno(ENOTDIR),
            (false, true) => return errno(EISDIR),
            _ => {}
        }
        // Whether a directory is empty is not looked at: programs remove
        // what they have emptied.
        self.forget(place.id);
        // The program will come here, and wants the space and the name back.
        self.follow_nothing();
        Ok(0)
    }

    /// Mode of what a place names; ENOENT.
    fn mode_of(&mut self, place: &Place) -> Result<u32, Stop> {
        match place.found {
            Found::Real { dir, path } => Ok(self.stat_name(dir, path)?.mode),
            Found::Moved(real) => Ok(self.stat_real(real).unwrap_or_default().mode),
            Found::Shadow(name) => Ok(name.mode),
            Found::Absent => errno(ENOENT),
        }
    }

    fn forget(&mut self, id: u64) {
        self.remember(Name { id, state: State::Removed, ..Name::default() });
    }

    pub(crate) fn rename(&mut self, a: [usize; 6]) -> Answer {
        self.rename_path((AT_FDCWD as usize, a[0]), (AT_FDCWD as usize, a[1]), 0)
    }

    pub(crate) fn renameat(&mut self, a: [usize; 6]) -> Answer {
        self.rename_path((a[0], a[1]), (a[2], a[3]), 0)
    }

    pub(crate) fn renameat2(&mut self, a: [usize; 6]) -> Answer {
        self.rename_path((a[0], a[1]), (a[2], a[3]), a[4])
    }

    fn rename_path(&mut self, old: (usize, usize), new: (usize, usize), flags: usize) -> Answer {
        const RENAME_NOREPLACE: usize = 1;
        if flags & !RENAME_NOREPLACE != 0 {
            return park(Park::Unanswerable);
        }
        let from = self.look_up_named(old.0, old.1)?;
        let to = self.look_up_named(new.0, new.1)?;
        let moves_directory = self.mode_of(&from)? & S_IFMT == S_IFDIR;
        // What it takes the place of is removed.
        self.follow_nothing();
        if flags & RENAME_NOREPLACE != 0 {
            self.must_not_exist(&to)?;
        }
        match self.mode_of(&to).map(|mode| mode & S_IFMT == S_IFDIR) {
            Ok(true) if !moves_directory => return errno(EISDIR),
            Ok(false) if moves_directory => return errno(ENOTDIR),
            Err(Stop::Errno(ENOENT)) => {
                self.must_not_exist(&to)?;
            }
            Err(other) => return Err(other),
            _ => {}
        }
        self.take_name(&from, &to)?;
        if from.id != to.id {
            self.e.table.rename(from.id, to.id);
            self.forget_moved(from.id);
        }
        Ok(0)
    }

    /// The old name is gone; a real descriptor that it held now belongs to
    /// the new one.
    fn forget_moved(&mut self, id: u64) {
        if self.e.names.get(id).is_some_and(|name| name.state == State::Moved) {
            self.e.names.set(Name { id, state: State::Removed, ..Name::default() });
        } else {
            self.forget(id);
        }
    }

    /// Makes `to` name what `from` names.
    fn take_name(&mut self, from: &Place, to: &Place) -> Result<(), Stop> {
        match from.found {
            Found::Absent => errno(ENOENT),
            Found::Shadow(name) => {
                self.remember(Name { id: to.id, ..name });
                Ok(())
            }
            Found::Moved(_) => {
                if let Some(name) = self.e.names.get(from.id) {
                    self.remember(Name { id: to.id, ..name });
                }
                Ok(())
            }
            Found::Real { dir, path } => {
                let flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
                let result = self.k.call(nr::OPENAT, [dir, path, flags, 0, 0, 0]);
                let real = self.opened(result)?;
                let stat = self.stat_real(real).unwrap_or_default();
                self.remember_moved(to.id, real, stat);
                Ok(())
            }
        }
    }

    pub(crate) fn link(&mut self, a: [usize; 6]) -> Answer {
        self.linkat([AT_FDCWD as usize, a[0], AT_FDCWD as usize, a[1], 0, 0])
    }

    pub(crate) fn linkat(&mut self, a: [usize; 6]) -> Answer {
        if a[4] & AT_EMPTY_PATH != 0 && self.is_empty_string(a[1])? {
            let id = self.id(a[0])?;
            let file = *self.e.table.file(id);
            let to = self.look_up_named(a[2], a[3])?;
            self.must_not_exist(&to)?;
            let File { size, mode, dev, .. } = file;
            self.remember(Name { id: to.id, size, dev, mode, real: 0, state: State::File });
            return Ok(0);
        }
        let from = self.look_up_named(a[0], a[1])?;
        let mode = self.mode_of(&from)?;
        let to = self.look_up_named(a[2], a[3])?;
        self.must_not_exist(&to)?;
        if mode & S_IFMT == S_IFDIR {
            return errno(EPERM);
        }
        if let Found::Moved(real) = from.found {
            // A second descriptor: each name owns its own.
            let real = self.path_again(real)?;
            let stat = self.stat_real(real).unwrap_or_default();
            self.remember_moved(to.id, real, stat);
            return Ok(0);
        }
        self.take_name(&from, &to)?;
        Ok(0)
    }

    pub(crate) fn truncate(&mut self, a: [usize; 6]) -> Answer {
        let place = self.look_up_named(AT_FDCWD as usize, a[0])?;
        let (mode, dev) = match place.found {
            Found::Real { dir, path } => {
                let stat = self.stat_at(dir, path, 0)?;
                (stat.mode, stat.dev)
            }
            Found::Moved(real) => {
                let stat = self.stat_real(real).unwrap_or_default();
                (stat.mode, stat.dev)
            }
            Found::Shadow(name) => (name.mode, name.dev),
            Found::Absent => return errno(ENOENT),
        };
        if mode & S_IFMT == S_IFDIR {
            return errno(EISDIR);
        }
        let size = a[1] as u64;
        self.remember(Name { id: place.id, size, dev, mode, real: 0, state: State::File });
        Ok(0)
    }

    pub(crate) fn chdir(&mut self, a: [usize; 6]) -> Answer {
        let place = self.look_up_named(AT_FDCWD as usize, a[0])?;
        match place.found {
            Found::Real { dir, path } if dir as i32 == AT_FDCWD => {
                self.on_program(nr::CHDIR, [path, 0, 0, 0, 0, 0])?;
                self.e.names.cwd_imaginary = false;
                // Worked out anew: the path may have led through a link.
                self.e.names.cwd = 0;
                Ok(0)
            }
            Found::Shadow(Name { state: State::Directory, .. }) => {
                self.e.names.cwd = place.id;
                self.e.names.cwd_imaginary = true;
                Ok(0)
            }
            Found::Shadow(_) => errno(ENOTDIR),
            Found::Absent => errno(ENOENT),
            _ => park(Park::Unanswerable),
        }
    }

    pub(crate) fn fchdir(&mut self, a: [usize; 6]) -> Answer {
        use crate::descriptors::Kind;
        let id = self.id(a[0])?;
        let file = *self.e.table.file(id);
        match file.kind {
            Kind::Directory | Kind::Path => {
                let real = self.real(id)?;
                self.on_program(nr::FCHDIR, [real, 0, 0, 0, 0, 0])?;
                self.e.names.cwd_imaginary = false;
                self.e.names.cwd = 0;
                Ok(0)
            }
            Kind::SinkDirectory => {
                self.e.names.cwd = file.name;
                self.e.names.cwd_imaginary = true;
                Ok(0)
            }
            _ => errno(ENOTDIR),
        }
    }

    pub(crate) fn getcwd(&mut self, a: [usize; 6]) -> Answer {
        if self.e.names.cwd_imaginary {
            return park(Park::Unanswerable);
        }
        self.ready(a[0], a[1].min(PATH_MAX_BYTES))?;
        self.on_program(nr::GETCWD, [a[0], a[1].min(PATH_MAX_BYTES), 0, 0, 0, 0])
    }
}
