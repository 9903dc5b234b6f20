//! The directories in which the agent library and the site table are files.
//!
//! The site table is kept in the user's cache directory, or where that cannot be
//! used in another place that outlives one run. What programs load lies in
//! memory, where that can be: pages of a file are gone when a program starts
//! that nobody has started for long, and to read them takes it longer than all
//! else that the agent does by then (0.5 of 0.9 ms on flash). Always directories
//! of the user's own that nobody else may write.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::agent_image::Agent;
use runahead_sites::replace::replace;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

/// Mode of an installed agent: everybody may load it, nobody may change it.
const AGENT_MODE: u32 = 0o555;
/// Write permission of group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a directory was not used.
#[derive(Debug)]
pub enum Unusable {
    /// The path has a character that separates entries of LD_PRELOAD or of
    /// the session, or is not absolute.
    Path,
    /// Somebody else owns it or may write it.
    NotPrivate,
    /// Somebody else owns, or anybody may write, this directory above it.
    BelowOthers(PathBuf),
    /// Libraries in it cannot be loaded.
    NoExec,
    /// It was to lie in memory.
    OnStorage,
    /// A system call failed.
    Io(io::Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Path => to.write_str("its path cannot stand in LD_PRELOAD"),
            Unusable::NotPrivate => to.write_str("others own it or may write it"),
            Unusable::BelowOthers(above) => {
                write!(to, "{} belongs to others or may be written by all", above.display())
            }
            Unusable::NoExec => to.write_str("it is mounted noexec"),
            Unusable::OnStorage => to.write_str("it is not in memory"),
            Unusable::Io(error) => to.write_str(&super::error_text(error)),
        }
    }
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable::Io(error)
    }
}

impl From<rustix::io::Errno> for Unusable {
    fn from(errno: rustix::io::Errno) -> Unusable {
        Unusable::Io(errno.into())
    }
}

/// The places to try, best first.
pub fn candidates() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let user = rustix::process::geteuid().as_raw();
    let mut places = Vec::new();
    if let Some(cache) = variable("XDG_CACHE_HOME") {
        places.push(Path::new(&cache).join("runahead"));
    } else if let Some(home) = variable("HOME") {
        places.push(Path::new(&home).join(".cache/runahead"));
    }
    places.push(in_memory());
    // These are shared with others: the name says whose it is.
    for shared in ["/dev/shm", "/tmp", "/var/tmp"] {
        places.push(Path::new(shared).join(format!("runahead-{user}")));
    }
    places.dedup();
    places
}

/// The user's directory in memory ([`runahead_usual::directory_in_memory`]).
pub fn in_memory() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let runtime = runtime.as_deref().map(OsStr::as_bytes);
    let user = rustix::process::geteuid().as_raw();
    let path = runahead_usual::directory_in_memory(runtime, user).unwrap_or_default();
    OsStr::from_bytes(path.as_bytes()).into()
}

/// Makes sure that `directory` exists, is safe to load from, and lies in memory.
///
/// # Errors
/// [`Unusable`].
pub fn prepare_in_memory(directory: &Path) -> Result<(), Unusable> {
    const TMPFS: i64 = 0x0102_1994;
    prepare(directory)?;
    match rustix::fs::statfs(directory)?.f_type {
        TMPFS => Ok(()),
        _ => Err(Unusable::OnStorage),
    }
}

/// Whether a path can stand in LD_PRELOAD (which splits at blanks and colons
/// and expands `$`) and in the session.
pub fn is_speakable(path: &OsStr) -> bool {
    let bytes = path.as_bytes();
    bytes.starts_with(b"/")
        && !bytes
            .iter()
            .any(|byte| matches!(byte, b':' | b';' | b'$' | 0) || byte.is_ascii_whitespace())
}

/// Makes sure that `directory` exists and is safe to load from.
///
/// # Errors
/// [`Unusable`].
pub fn prepare(directory: &Path) -> Result<(), Unusable> {
    let opened = make_private(directory)?;
    if rustix::fs::fstatvfs(&opened)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(Unusable::NoExec);
    }
    Ok(())
}

/// Makes sure that `directory` exists and is the user's alone; opened.
///
/// # Errors
/// [`Unusable`].
pub fn make_private(directory: &Path) -> Result<OwnedFd, Unusable> {
    if !is_speakable(directory.as_os_str()) {
        return Err(Unusable::Path);
    }
    make_own(directory)
}

/// The same, whatever its path.
///
/// # Errors
/// [`Unusable`].
pub fn make_own(directory: &Path) -> Result<OwnedFd, Unusable> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::open(directory, flags, Mode::empty());
    let user = rustix::process::geteuid().as_raw();
    let opened = match open() {
        Err(rustix::io::Errno::NOENT) => {
            // Before anything of this user's lies in another one's.
            are_trusted_above(directory, user)?;
            make(directory)?;
            open()?
        }
        other => other?,
    };
    let status = rustix::fs::fstat(&opened)?;
    if status.st_uid != user || status.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Unusable::NotPrivate);
    }
    are_trusted_above(directory, user)?;
    Ok(opened)
}

/// Whoever owns a directory above it can put another one in its place: that of a user
/// whose HOME root has kept (`sudo -E`). In a user namespace the root directory's owner,
/// who can do anything, has another number than 0.
fn are_trusted_above(directory: &Path, user: u32) -> Result<(), Unusable> {
    let trusted = [0, user, rustix::fs::stat("/")?.st_uid];
    for above in directory.ancestors().skip(1) {
        let status = match rustix::fs::stat(above) {
            // Yet to be made.
            Err(rustix::io::Errno::NOENT) => continue,
            found => found?,
        };
        let by_all = status.st_mode & 0o002 != 0 && status.st_mode & libc::S_ISVTX == 0;
        if !trusted.contains(&status.st_uid) || by_all {
            return Err(Unusable::BelowOthers(above.to_owned()));
        }
    }
    Ok(())
}

/// Makes a private directory, and its parent where that is missing (a home
/// without `.cache`).
fn make(directory: &Path) -> io::Result<()> {
    const MODE: u32 = 0o700;
    let create = |path| {
        fs::DirBuilder::new().mode(MODE).create(path)?;
        // The umask may have taken bits away, without which nobody comes in.
        fs::set_permissions(path, fs::Permissions::from_mode(MODE))
    };
    let parent = directory.parent().unwrap_or(directory);
    match create(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(parent)?;
            create(directory)
        }
        // Another launcher was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The path of the agent in `directory`, installed first where it is not
/// there or not as it should be.
///
/// # Errors
/// It could not be installed.
pub fn install_agent(directory: &Path, agent: Agent<'_>) -> io::Result<PathBuf> {
    let path = directory.join(file_name(agent));
    if is_installed(&path, agent)? {
        return Ok(path);
    }
    replace(&path, AGENT_MODE, |file| {
        file.write_all(agent.bytes)?;
        // The umask may have taken bits away.
        file.set_permissions(fs::Permissions::from_mode(AGENT_MODE))?;
        // A name that outlives a power failure without its content would
        // spoil each launch.
        file.sync_all()?;
        file.set_modified(seal(agent))
    })?;
    Ok(path)
}

/// Whether the agent is installed in `directory` as it should be.
pub fn has_agent(directory: &Path, agent: Agent<'_>) -> bool {
    is_installed(&directory.join(file_name(agent)), agent).unwrap_or(false)
}

/// How long an agent that no launch installs any more is kept in memory: programs
/// that were started with it execute others with it.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// [`install_agent`] in memory: with a new one, what another version of the command left
/// there long ago goes.
///
/// # Errors
/// It could not be installed.
pub fn install_agent_in_memory(directory: &Path, agent: Agent<'_>) -> io::Result<PathBuf> {
    if !has_agent(directory, agent) {
        remove_old(directory, KEPT);
    }
    install_agent(directory, agent)
}

/// Removes agents, site tables and records that were put there so long ago: what is still
/// wanted of it is put there again. What cannot be removed stays.
fn remove_old(directory: &Path, age: Duration) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let is_ours = [&b"agent-"[..], b"sites-", b"usual-"]
            .iter()
            .any(|beginning| name.as_bytes().starts_with(beginning));
        // Their time of modification is a seal.
        let is_old = entry.metadata().is_ok_and(|metadata| {
            let changed = UNIX_EPOCH + Duration::from_secs(metadata.ctime().max(0) as u64);
            changed.elapsed().is_ok_and(|elapsed| elapsed >= age)
        });
        if is_ours && is_old {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The path of a copy in `directory` of the site table `sites`, which holds `bytes`, made
/// anew where it is another. (Not what the file holds now: another launch, of a container
/// with other libraries, may have replaced it.)
///
/// # Errors
/// It could not be made.
pub fn copy_sites(sites: &Path, bytes: &[u8], directory: &Path) -> io::Result<PathBuf> {
    // Another cache directory may hold another one, which running programs use.
    let name = sites.file_name().unwrap_or_default().to_string_lossy();
    let path = directory.join(format!("{name}-{:016x}", Agent::other(bytes).fingerprint));
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    replace(&path, 0o600, |file| file.write_all(bytes))?;
    Ok(path)
}

/// The name of an installed agent.
fn file_name(agent: Agent<'_>) -> String {
    format!("agent-{:016x}.so", agent.fingerprint)
}

/// When an installed agent says that it was modified: a time that its bytes
/// decide. Whoever writes to the file afterwards, and is not out to deceive,
/// leaves another, so that a launch need not read it to know that it is whole.
fn seal(agent: Agent<'_>) -> SystemTime {
    const SECONDS: u64 = 1 << 30;
    UNIX_EPOCH + Duration::from_secs(agent.fingerprint % SECONDS)
}

/// Whether the file is ours, not writable by others, and what was installed.
fn is_installed(path: &Path, agent: Agent<'_>) -> io::Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(metadata.is_file()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & WRITABLE_BY_OTHERS == 0
        && metadata.len() == agent.bytes.len() as u64
        && metadata.modified()? == seal(agent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_would_be_split_or_expanded_are_not_used() {
        for path in ["relative", "/a b", "/a:b", "/a;b", "/$HOME", "/a\tb", ""] {
            assert!(!is_speakable(OsStr::new(path)), "{path}");
        }
        assert!(is_speakable(OsStr::new("/home/u/.cache/runahead")));
        assert!(matches!(prepare(Path::new("/tmp/a b")), Err(Unusable::Path)));
    }

    #[test]
    fn an_altered_agent_is_replaced() {
        let directory = std::env::temp_dir().join(format!("cache-test-{}", std::process::id()));
        make(&directory).unwrap();
        prepare(&directory).unwrap();
        let bytes = b"\x7fELF something".repeat(99);
        let agent = Agent::other(&bytes);
        let path = install_agent(&directory, agent).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(install_agent(&directory, agent).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "used as it is");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(&path, b"\x7fELF something else".repeat(99).split_at(bytes.len()).0).unwrap();
        install_agent(&directory, agent).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, AGENT_MODE);

        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        install_agent(&directory, agent).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing beside it");

        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(prepare(&directory), Err(Unusable::NotPrivate)));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_was_left_long_ago_is_removed() {
        let directory = std::env::temp_dir().join(format!("cache-old-{}", std::process::id()));
        make(&directory).unwrap();
        let other = directory.join("learnt");
        fs::write(&other, "").unwrap();
        let path = install_agent_in_memory(&directory, Agent::other(b"one")).unwrap();
        let next = install_agent_in_memory(&directory, Agent::other(b"another")).unwrap();
        let sites = copy_sites(Path::new("sites-7"), b"sites", &directory).unwrap();
        let record = directory.join("usual-1");
        fs::write(&record, "").unwrap();
        let left = [path, next, sites, record];
        assert!(left.iter().all(|path| path.exists()), "not long ago");
        remove_old(&directory, Duration::ZERO);
        assert!(!left.iter().any(|path| path.exists()) && other.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
