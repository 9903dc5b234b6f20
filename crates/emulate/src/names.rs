//! A bounded shadow of names: what the speculative process created, removed
//! or renamed in appearance, so that it can go on past its own writes.
//!
//! A name is identified by a hash of its path, component by component, from
//! the root or from the identity of the directory that a descriptor or the
//! working directory stands for. Symbolic links are not followed in this
//! reckoning: two ways to one file may have two identities, and then the
//! speculation sees the file as it really is.

use crate::abi::*;
use crate::arch::nr;
use crate::context::{Context, Stat, address_of_mut};
use crate::descriptors::Kind;
use crate::kernel::Kernel;
use crate::outcome::{Stop, errno, park};
use runahead_protocol::stats::Park;

/// Names remembered; a power of two. Later ones are not.
pub const NAMES_MAX: usize = 4096;

/// Real descriptors kept for renamed and linked files.
const KEPT_MAX: u16 = 128;

/// Slots looked at for one name.
const STEPS_MAX: usize = 32;

/// Components that `..` can take back in one path.
const COMPONENTS_MAX: usize = 48;

/// Identity of `/`.
const ROOT: u64 = 0x9e37_79b9_7f4a_7c15;

/// What became of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// The slot is free.
    #[default]
    Free = 0,
    /// A regular file that exists in appearance.
    File,
    /// A directory that exists in appearance, and is empty but for what is
    /// remembered.
    Directory,
    /// A symbolic link or special file that exists in appearance.
    Special,
    /// Does not exist any more in appearance.
    Removed,
    /// Really exists under another name, behind a real descriptor.
    Moved,
}

/// One remembered name. All-zero is a free slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Name {
    pub(crate) id: u64,
    pub(crate) size: u64,
    /// Device it would be on; 0: not known.
    pub(crate) dev: u64,
    pub(crate) mode: u32,
    /// Real descriptor (`O_PATH`) of a moved file.
    pub(crate) real: i32,
    pub(crate) state: State,
}

/// The shadow. All-zero is empty.
#[derive(Debug)]
pub(crate) struct Names {
    slots: [Name; NAMES_MAX],
    count: u16,
    /// Real descriptors kept.
    pub(crate) kept: u16,
    /// Identity of the working directory; 0: not worked out.
    pub(crate) cwd: u64,
    /// The working directory exists in appearance only.
    pub(crate) cwd_imaginary: bool,
}

impl Names {
    pub(crate) const EMPTY: Names = Names {
        slots: [Name { id: 0, size: 0, dev: 0, mode: 0, real: 0, state: State::Free }; NAMES_MAX],
        count: 0,
        kept: 0,
        cwd: 0,
        cwd_imaginary: false,
    };

    /// Whether every look-up can go straight to the kernel.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && !self.cwd_imaginary
    }

    fn position(&self, id: u64) -> Option<usize> {
        let start = id as usize;
        (start..start.saturating_add(STEPS_MAX)).map(|at| at & (NAMES_MAX - 1)).find(|at| {
            self.slots.get(*at).is_some_and(|slot| slot.id == id || slot.state == State::Free)
        })
    }

    /// What is remembered of a name.
    pub(crate) fn get(&self, id: u64) -> Option<Name> {
        let slot = self.slots.get(self.position(id)?)?;
        (slot.state != State::Free).then_some(*slot)
    }

    /// Remembers a name, where there is room.
    pub(crate) fn set(&mut self, name: Name) {
        let Some(at) = self.position(name.id) else { return };
        // A table that is nearly full makes every look-up long.
        let full = self.count as usize >= NAMES_MAX * 3 / 4;
        if let Some(slot) = self.slots.get_mut(at) {
            if slot.state == State::Free {
                if full {
                    return;
                }
                self.count += 1;
            }
            *slot = name;
        }
    }

    /// Changes the size of a file that is remembered.
    pub(crate) fn set_size(&mut self, id: u64, size: u64) {
        if let Some(at) = self.position(id)
            && let Some(slot) = self.slots.get_mut(at)
            && slot.state == State::File
        {
            slot.size = size;
        }
    }
}

/// Where a path leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// The kernel knows: directory and path for an `*at` call.
    Real { dir: usize, path: usize },
    /// A really existing file behind a real `O_PATH` descriptor.
    Moved(usize),
    /// Exists in appearance.
    Shadow(Name),
    /// Does not exist, but its directory does, in appearance.
    Absent,
}

/// A path looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) found: Found,
    /// Identity of the name; 0 where it was not worked out.
    pub(crate) id: u64,
    /// Device of the imaginary directory that it is in; 0: not known.
    pub(crate) parent_dev: u64,
}

fn mix(parent: u64, component: &[u8]) -> u64 {
    // FNV-1a over the component, started from the parent's identity, with a
    // final mix (of splitmix64) so that the low bits are good for a table.
    let mut hash = parent ^ 0xcbf2_9ce4_8422_2325;
    for byte in component {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).max(1)
}

/// Identity of an absolute path.
fn identity_of(path: &[u8]) -> u64 {
    path.split(|byte| *byte == b'/')
        .filter(|component| !component.is_empty() && *component != b".")
        .fold(ROOT, mix)
}

/// What a walk over the components of a path found.
enum Walk {
    /// Nothing in the shadow concerns it.
    Real,
    /// From byte `.1` of the path on, below the moved directory `.0`.
    Below(usize, usize),
    Shadow(Name),
    Absent,
}

impl<K: Kernel> Context<'_, K> {
    /// Looks a path up for a call that only reads: straight through to the
    /// kernel while there is no shadow.
    pub(crate) fn look_up(&mut self, dirfd: usize, path: usize) -> Result<Place, Stop> {
        if self.e.names.is_empty() {
            let dir = self.real_directory(dirfd, path)?;
            return Ok(Place { found: Found::Real { dir, path }, id: 0, parent_dev: 0 });
        }
        self.look_up_named(dirfd, path)
    }

    /// Looks a path up and works out its identity.
    pub(crate) fn look_up_named(&mut self, dirfd: usize, path: usize) -> Result<Place, Stop> {
        let first = self.first_byte(path)?;
        if first == 0 {
            return errno(ENOENT);
        }
        let base = if first == b'/' { ROOT } else { self.directory_identity(dirfd)? };
        let imaginary = first != b'/' && self.is_imaginary(dirfd);
        let len = self.load_path(path)?;
        if len == 0 {
            return errno(ENOENT);
        }
        let (id, walk, dev) = self.walk(base, imaginary, len)?;
        let parent_dev = if dev == 0 && imaginary { self.imaginary_dev(dirfd) } else { dev };
        let found = match walk {
            Walk::Real => {
                let dir = self.real_directory(dirfd, path)?;
                Found::Real { dir, path }
            }
            Walk::Below(dir, at) => Found::Real { dir, path: path.wrapping_add(at) },
            Walk::Shadow(name) if name.state == State::Moved => Found::Moved(name.real as usize),
            Walk::Shadow(name) => Found::Shadow(name),
            Walk::Absent => Found::Absent,
        };
        Ok(Place { found, id, parent_dev })
    }

    fn walk(&self, base: u64, imaginary: bool, len: usize) -> Result<(u64, Walk, u64), Stop> {
        let path = self.e.path.get(..len).unwrap_or(&[]);
        let mut above = [0u64; COMPONENTS_MAX];
        let mut depth = 0;
        let mut id = base;
        let mut walk = if imaginary { Walk::Absent } else { Walk::Real };
        let mut at = 0;
        let mut dev = 0;
        for component in path.split(|byte| *byte == b'/') {
            let end = at + component.len();
            at = end + 1;
            if component.is_empty() || component == b"." {
                continue;
            }
            if let Walk::Shadow(name) = walk {
                dev = name.dev;
            }
            // A component below something that is not there.
            match walk {
                Walk::Shadow(Name { state: State::File | State::Special, .. }) => {
                    return errno(ENOTDIR);
                }
                Walk::Absent if !(imaginary && id == base) => return errno(ENOENT),
                _ => {}
            }
            if component == b".." && depth > 0 {
                depth -= 1;
                id = above.get(depth).copied().unwrap_or(ROOT);
            } else {
                if let Some(slot) = above.get_mut(depth) {
                    *slot = id;
                    depth += 1;
                }
                id = mix(id, component);
            }
            let known = self.e.names.get(id);
            walk = match (known, walk) {
                (Some(Name { state: State::Removed, .. }), _) => Walk::Absent,
                (Some(name @ Name { state: State::Moved, .. }), _) if end < len => {
                    Walk::Below(name.real as usize, at.min(len))
                }
                (Some(name), _) => Walk::Shadow(name),
                (None, Walk::Shadow(_) | Walk::Absent) => Walk::Absent,
                (None, below @ Walk::Below(..)) => below,
                (None, Walk::Real) => Walk::Real,
            };
        }
        Ok((id, walk, dev))
    }

    /// First byte of a path.
    fn first_byte(&mut self, path: usize) -> Result<u8, Stop> {
        let mut first = [0u8; 1];
        if !self.k.load(path, &mut first) {
            return park(Park::BadPointer);
        }
        Ok(first.first().copied().unwrap_or(0))
    }

    /// The real directory descriptor for an `*at` call.
    fn real_directory(&mut self, dirfd: usize, path: usize) -> Result<usize, Stop> {
        if dirfd as i32 == AT_FDCWD {
            return Ok(AT_FDCWD as usize);
        }
        match self.first_byte(path)? {
            // The kernel looks at the path before the descriptor.
            0 => return errno(ENOENT),
            b'/' => return Ok(AT_FDCWD as usize),
            _ => {}
        }
        let id = self.e.table.id(dirfd)?;
        match self.e.table.file(id).kind {
            _ if self.is_imaginary(dirfd) => errno(ENOENT),
            Kind::Path if self.e.table.file(id).real_plus1 == 0 => errno(ENOTDIR),
            Kind::Directory | Kind::Path => self.real(id),
            _ => errno(ENOTDIR),
        }
    }

    fn is_imaginary(&self, dirfd: usize) -> bool {
        if dirfd as i32 == AT_FDCWD {
            return self.e.names.cwd_imaginary;
        }
        match self.e.table.id(dirfd) {
            Ok(id) => self.e.table.file(id).is_imaginary_directory(),
            Err(_) => false,
        }
    }

    /// Device of an imaginary directory.
    fn imaginary_dev(&self, dirfd: usize) -> u64 {
        if dirfd as i32 == AT_FDCWD {
            return self.e.names.get(self.e.names.cwd).map_or(0, |name| name.dev);
        }
        self.e.table.id(dirfd).map_or(0, |id| self.e.table.file(id).dev)
    }

    /// Identity of the directory behind `dirfd`.
    fn directory_identity(&mut self, dirfd: usize) -> Result<u64, Stop> {
        if dirfd as i32 == AT_FDCWD {
            if self.e.names.cwd == 0 {
                let address = address_of_mut(&mut self.e.path);
                let arguments = [address, PATH_MAX_BYTES, 0, 0, 0, 0];
                let len = self.k.call(nr::GETCWD, arguments);
                self.e.names.cwd = self.identity_in_buffer(len - 1);
            }
            return Ok(self.e.names.cwd);
        }
        let id = self.e.table.id(dirfd)?;
        let file = *self.e.table.file(id);
        if !matches!(file.kind, Kind::Directory | Kind::SinkDirectory | Kind::Path) {
            return errno(ENOTDIR);
        }
        if file.name != 0 {
            return Ok(file.name);
        }
        let mut name = mix(file.dev, &file.ino.to_ne_bytes());
        if file.inherited_plus1 > 0
            && let Some(normal) = self.normal_fds()
        {
            let link = Self::fd_name((file.inherited_plus1 - 1) as u32);
            let buffer = address_of_mut(&mut self.e.path);
            let link = crate::context::address_of(&link);
            let arguments = [normal, link, buffer, PATH_MAX_BYTES, 0, 0];
            let len = self.looking(|c| c.k.call(nr::READLINKAT, arguments));
            if len > 0 {
                name = self.identity_in_buffer(len);
            }
        }
        self.e.table.file_mut(id).name = name;
        Ok(name)
    }

    fn identity_in_buffer(&self, len: isize) -> u64 {
        let path = usize::try_from(len).ok().and_then(|len| self.e.path.get(..len));
        identity_of(path.unwrap_or(b"?"))
    }

    /// Remembers a name; gives back the real descriptor of one that is
    /// replaced.
    pub(crate) fn remember(&mut self, name: Name) {
        if let Some(old) = self.e.names.get(name.id)
            && old.state == State::Moved
            && !(name.state == State::Moved && name.real == old.real)
        {
            self.close_real(old.real as usize);
            self.e.names.kept = self.e.names.kept.saturating_sub(1);
        }
        self.e.names.set(name);
    }

    /// Remembers that `id` really exists behind `real`, an `O_PATH`
    /// descriptor that is given away; without room the name becomes an
    /// imaginary file.
    pub(crate) fn remember_moved(&mut self, id: u64, real: usize, stat: Stat) {
        let Stat { mode, size, dev, .. } = stat;
        if self.e.names.kept >= KEPT_MAX {
            self.close_real(real);
            let state = if mode & S_IFMT == S_IFDIR { State::Directory } else { State::File };
            return self.remember(Name { id, size, dev, mode, real: 0, state });
        }
        self.remember(Name { id, size, dev, mode, real: real as i32, state: State::Moved });
        if self.e.names.get(id).is_some_and(|name| name.real == real as i32) {
            self.e.names.kept += 1;
        } else {
            self.close_real(real);
        }
    }
}
