//! The site table in the cache directory: looked at in every launch, so a
//! launch that finds its libraries in it reads a few kilobytes and decodes
//! nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use runahead_protocol::sites::{
    BUILD_ID_LEN_MAX, FLAG_UNSEEN, Header, JUMP_LEN, KIND_BEFORE, KIND_CANCELLABLE, KIND_COPY,
    KIND_HOOK, MAGIC, OBJECT_SITES_MAX, OBJECTS_MAX, Object, SITE_LEN_MAX, Site,
};
use thiserror::Error;

use crate::elf::{self, BuildId};
use crate::find;
use crate::image::FILE_LEN_MAX;
use crate::replace::{can_replace, replace};

/// Longest table file, in bytes.
const TABLE_LEN_MAX: usize = size_of::<Header>()
    + OBJECTS_MAX as usize * (size_of::<Object>() + OBJECT_SITES_MAX as usize * size_of::<Site>());

/// Length of a table of a C library and its dynamic linker, in bytes.
const USUAL_LEN: usize = 16 << 10;

/// Why a library is not in the table.
#[derive(Debug, Error)]
pub enum Skip {
    /// It could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is not a 64-bit ELF file for x86-64.
    #[error("is not a library for x86-64")]
    OtherMachine,
    /// It has no build-id by which the agent could know it.
    #[error("has no build-id")]
    NoBuildId,
}

/// The sites of one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its build-id.
    pub build_id: BuildId,
    /// Its patchable sites, sorted by address; none where it could not be
    /// analysed or has none.
    pub sites: Vec<Site>,
    /// Calls that matter are made where no site is ([`find::Found::unseen`]).
    pub unseen: bool,
}

/// A table in memory: the libraries, oldest entry first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTable {
    libraries: Vec<Library>,
}

/// What [`SiteTable::load_or_update`] did.
#[derive(Debug, Default)]
pub struct Update {
    /// The table.
    pub table: SiteTable,
    /// Libraries that had to be analysed.
    pub added: usize,
    /// Libraries that cannot be in a table.
    pub skipped: Vec<(PathBuf, Skip)>,
}

impl SiteTable {
    /// Reads the table at `cache_path`, adds those libraries that are not in
    /// it yet, and replaces the file where that changed anything.
    ///
    /// A missing or damaged file counts as empty. Costs tens of microseconds
    /// when nothing is to be added, else some 20 ms for each library.
    ///
    /// # Errors
    /// The file cannot be written, which is found out before anything is analysed: it may
    /// never be, and this is asked in every launch. A caller that wants a table all the same
    /// uses [`SiteTable::default`] and [`SiteTable::add`].
    pub fn load_or_update<P: AsRef<Path>>(cache_path: &Path, paths: &[P]) -> io::Result<Update> {
        let mut update =
            Update { table: SiteTable::load(cache_path).unwrap_or_default(), ..Update::default() };
        let mut is_writable = false;
        for path in paths.iter().map(AsRef::as_ref) {
            let lacking = match update.table.lacks(path) {
                Ok(None) => continue,
                Ok(Some(lacking)) => lacking,
                Err(skip) => {
                    update.skipped.push((path.to_owned(), skip));
                    continue;
                }
            };
            if !is_writable {
                can_replace(cache_path, USUAL_LEN)?;
                is_writable = true;
            }
            match update.table.analyse(lacking) {
                Ok(()) => update.added += 1,
                Err(error) => update.skipped.push((path.to_owned(), error.into())),
            }
        }
        // Without a file the agent would be given a path that is not there.
        if update.added > 0 || (update.table.libraries.is_empty() && !cache_path.exists()) {
            let bytes = update.table.to_bytes();
            replace(cache_path, 0o600, |file| file.write_all(&bytes))?;
        }
        Ok(update)
    }

    /// The table in a file; `None` where it is missing or damaged.
    pub fn load(path: &Path) -> Option<SiteTable> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let bytes = read_bounded(&options.open(path).ok()?, TABLE_LEN_MAX).ok()?;
        SiteTable::from_bytes(&bytes)
    }

    /// Adds the library at `path` unless it is there already; returns whether
    /// it was added. The oldest entry makes room where the table is full.
    ///
    /// # Errors
    /// [`Skip`].
    pub fn add(&mut self, path: &Path) -> Result<bool, Skip> {
        let Some(lacking) = self.lacks(path)? else { return Ok(false) };
        self.analyse(lacking)?;
        Ok(true)
    }

    /// The library at `path`, opened, where it is not there yet.
    fn lacks(&self, path: &Path) -> Result<Option<(File, BuildId)>, Skip> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let head = elf::read_head(&file)?.filter(|head| head.is_x86_64);
        let build_id = head.ok_or(Skip::OtherMachine)?.build_id.ok_or(Skip::NoBuildId)?;
        Ok(self.sites_of(&build_id).is_none().then_some((file, build_id)))
    }

    fn analyse(&mut self, (file, build_id): (File, BuildId)) -> io::Result<()> {
        let bytes = read_bounded(&file, FILE_LEN_MAX)?;
        // A library that defies analysis is remembered as one without sites.
        let found = find::find(&bytes).unwrap_or_default();
        if self.libraries.len() >= OBJECTS_MAX as usize {
            self.libraries.remove(0);
        }
        let find::Found { sites, unseen, .. } = found;
        self.libraries.push(Library { build_id, sites, unseen });
        Ok(())
    }

    /// The sites of a library; `None`: never looked at.
    pub fn sites_of(&self, build_id: &BuildId) -> Option<&[Site]> {
        let library = self.libraries.iter().find(|library| library.build_id == *build_id)?;
        Some(&library.sites)
    }

    /// The libraries, oldest entry first.
    pub fn libraries(&self) -> &[Library] {
        &self.libraries
    }

    /// The file's bytes ([`runahead_protocol::sites`]).
    pub fn to_bytes(&self) -> Vec<u8> {
        let site_count: usize = self.libraries.iter().map(|library| library.sites.len()).sum();
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend((self.libraries.len() as u32).to_ne_bytes());
        bytes.extend((site_count as u32).to_ne_bytes());
        let mut first_site = 0u32;
        for library in &self.libraries {
            let count = library.sites.len() as u32;
            bytes.extend(library.build_id.padded());
            let flags = if library.unseen { FLAG_UNSEEN } else { 0 };
            for word in [library.build_id.as_bytes().len() as u32, first_site, count, flags] {
                bytes.extend(word.to_ne_bytes());
            }
            first_site += count;
        }
        for site in self.libraries.iter().flat_map(|library| &library.sites) {
            bytes.extend(site.address.to_ne_bytes());
            bytes.extend(site.number.to_ne_bytes());
            bytes.extend([site.kind, site.len]);
            bytes.extend(site.bytes);
        }
        bytes
    }

    /// The table in a file's bytes; `None` where anything in them is not as
    /// [`runahead_protocol::sites`] has it.
    pub fn from_bytes(bytes: &[u8]) -> Option<SiteTable> {
        let mut rest = Fields(bytes);
        if u64::from_ne_bytes(rest.take()?) != MAGIC {
            return None;
        }
        let object_count = rest.word()?;
        let site_count = rest.word()? as usize;
        if object_count > OBJECTS_MAX
            || site_count > (OBJECTS_MAX * OBJECT_SITES_MAX) as usize
            || rest.0.len()
                != object_count as usize * size_of::<Object>() + site_count * size_of::<Site>()
        {
            return None;
        }
        let mut libraries = Vec::with_capacity(object_count as usize);
        let mut counts = Vec::with_capacity(object_count as usize);
        let mut expected_first = 0;
        for _ in 0..object_count {
            let padded: [u8; BUILD_ID_LEN_MAX] = rest.take()?;
            let build_id = BuildId::new(padded.get(..rest.word()? as usize)?)?;
            let (first, count, flags) = (rest.word()?, rest.word()?, rest.word()?);
            if first != expected_first || count > OBJECT_SITES_MAX {
                return None;
            }
            expected_first += count;
            counts.push(count);
            libraries.push(Library {
                build_id,
                sites: Vec::with_capacity(count as usize),
                unseen: flags & FLAG_UNSEEN != 0,
            });
        }
        if expected_first as usize != site_count {
            return None;
        }
        for (library, count) in libraries.iter_mut().zip(counts) {
            for _ in 0..count {
                library.sites.push(rest.site()?);
            }
            let is_sorted = library.sites.windows(2).all(|pair| pair[0].address < pair[1].address);
            if !is_sorted {
                return None;
            }
        }
        Some(SiteTable { libraries })
    }
}

/// Fields of a file, taken one by one.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn site(&mut self) -> Option<Site> {
        let site = Site {
            address: u64::from_ne_bytes(self.take()?),
            number: i16::from_ne_bytes(self.take()?),
            kind: u8::from_ne_bytes(self.take()?),
            len: u8::from_ne_bytes(self.take()?),
            bytes: self.take()?,
        };
        let len = usize::from(site.len);
        let is_sound = match site.kind {
            KIND_HOOK | KIND_BEFORE | KIND_COPY => {
                ((JUMP_LEN..=SITE_LEN_MAX).contains(&len) || site.padding().is_some())
                    && site.bytes.starts_with(&[0x0f, 0x05])
            }
            KIND_CANCELLABLE => len == JUMP_LEN && matches!(site.bytes[0], 0xe8 | 0xe9),
            _ => false,
        };
        is_sound.then_some(site)
    }
}

/// The whole file, if it has at most `len_max` bytes.
fn read_bounded(file: &File, len_max: usize) -> io::Result<Vec<u8>> {
    // One byte more than the file has, so that one read sees its end.
    let len = file.metadata()?.len().min(len_max as u64) as usize;
    let mut bytes = Vec::with_capacity(len + 1);
    file.take(len_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > len_max {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(bytes)
}
