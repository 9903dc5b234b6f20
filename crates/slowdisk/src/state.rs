//! What is up: one directory per device under /run/runahead-slowdisk, with
//! enough in it to undo everything after a crash.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::control::{self, Answer, Ask};
use crate::error::{Context, Error, Result};
use crate::options::UpOptions;
use crate::store::IMAGE;
use crate::sys::process::ProcessId;
use crate::sys::signals::PutOff;

const STATE_FILE: &str = "state.json";
const LOG_FILE: &str = "log";
const SOCKET_FILE: &str = "control";
/// There as long as the device belongs to the process that brought it up, and
/// locked by it as long as that lives.
const OWNER_FILE: &str = "owner";

/// A device that is up, or was when its process died.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// Directory with this state.
    pub directory: PathBuf,
    /// What it was brought up with; paths are absolute.
    pub options: UpOptions,
    /// The mount point was made by us.
    pub made_mountpoint: bool,
    /// The overlay's mount point was made by us.
    pub made_overlay: bool,
    /// The process that serves it; none for the machine's own disk.
    pub daemon: Option<ProcessId>,
    /// The block device.
    pub device: Option<PathBuf>,
    /// File behind the loop device.
    pub backing_file: Option<PathBuf>,
    /// Everything is in place.
    pub ready: bool,
}

/// Another place for the states, so that tests leave others' devices alone.
const ROOT_VARIABLE: &str = "RUNAHEAD_SLOWDISK_STATE";

/// Where the states are: /run for root, XDG_RUNTIME_DIR for others.
pub fn root() -> PathBuf {
    if let Some(directory) = std::env::var_os(ROOT_VARIABLE) {
        return directory.into();
    }
    let base = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !rustix::process::geteuid().is_root() => PathBuf::from(directory),
        _ => PathBuf::from("/run"),
    };
    base.join("runahead-slowdisk")
}

/// Keeps others from bringing devices up or down meanwhile.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl Lock {
    /// Waits until nobody else changes states.
    pub fn take() -> Result<Self> {
        let root = root();
        fs::create_dir_all(&root).context(|| format!("create {}", root.display()))?;
        let path = root.join("lock");
        let file = File::create(&path).context(|| format!("create {}", path.display()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .context(|| format!("lock {}", path.display()))?;
        Ok(Self(file))
    }
}

/// A device that belongs to this process.
#[derive(Debug)]
pub struct Owner(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

/// Locks a file for as long as it is open; waits for those who only look.
pub fn lock(file: &File) -> std::io::Result<()> {
    Ok(rustix::fs::flock(file, rustix::fs::FlockOperation::LockExclusive)?)
}

/// Whether somebody has locked a file.
pub fn is_locked(file: &File) -> bool {
    // Let go of when the caller closes the file, at once.
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}

/// Name of the state directory of a mount point: readable and unique.
fn directory_name(mountpoint: &Path) -> String {
    // FNV-1a (Fowler, Noll, Vo), 64 bits: stable across versions and runs.
    let hash = mountpoint
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
        });
    let last = mountpoint.file_name().unwrap_or_default().to_string_lossy();
    let plain: String = last.chars().filter(|c| c.is_ascii_alphanumeric()).take(24).collect();
    format!("{plain}-{hash:016x}")
}

/// The path without symbolic links, even when its last part does not exist.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    // A dead FUSE mount fails to resolve: keep to its name then.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new(".")).canonicalize();
    match (parent, path.file_name()) {
        (Ok(parent), Some(name)) if is_listed(&parent.join(name)) || !path.is_symlink() => {
            Ok(parent.join(name))
        }
        _ => path
            .canonicalize()
            .or_else(|_| std::path::absolute(path))
            .context(|| format!("find {}", path.display())),
    }
}

/// Whether a device is known to be there: one whose process hangs would not let
/// anybody look at the place itself.
fn is_listed(place: &Path) -> bool {
    list().is_ok_and(|states| states.iter().any(|state| state.is_at(place)))
}

impl State {
    /// A state with nothing done yet, in a directory of its own.
    pub fn create(options: &UpOptions) -> Result<Self> {
        let directory = root().join(directory_name(&options.mountpoint));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
        let state = Self {
            directory,
            options: options.clone(),
            made_mountpoint: false,
            made_overlay: false,
            daemon: None,
            device: None,
            backing_file: None,
            ready: false,
        };
        state.save()?;
        Ok(state)
    }

    /// Makes the device the caller's, until [`State::disown`] or the caller's end.
    pub(crate) fn own(&self) -> Result<Owner> {
        let path = self.directory.join(OWNER_FILE);
        let file = File::create(&path).context(|| format!("create {}", path.display()))?;
        lock(&file).context(|| format!("lock {}", path.display()))?;
        Ok(Owner(file))
    }

    /// Lets the device outlive the process that brought it up.
    pub(crate) fn disown(&self) {
        let _ = fs::remove_file(self.directory.join(OWNER_FILE));
    }

    /// Whether the process that was to take it down has ended without.
    pub fn is_orphan(&self) -> bool {
        File::open(self.directory.join(OWNER_FILE)).is_ok_and(|file| !is_locked(&file))
    }

    /// Writes it down, whole or not at all.
    pub fn save(&self) -> Result<()> {
        let (path, part) = (self.directory.join(STATE_FILE), self.directory.join("state.part"));
        let text = serde_json::to_string_pretty(self)
            .map_err(std::io::Error::from)
            .context(|| "write the state as JSON".into())?;
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &path))
            .context(|| format!("write {}", path.display()))
    }

    /// Reads the state in a directory.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join(STATE_FILE);
        let text = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text)
            .map_err(std::io::Error::from)
            .context(|| format!("understand {}", path.display()))
    }

    /// The state of the device at a mount point (or at its overlay), if there is one.
    pub fn find(mountpoint: &Path) -> Result<Option<Self>> {
        let mountpoint = absolute(mountpoint)?;
        Ok(list()?.into_iter().find(|state| state.is_at(&mountpoint)))
    }

    /// Whether it, or its overlay, is mounted exactly there.
    fn is_at(&self, place: &Path) -> bool {
        self.options.mountpoint == place || self.options.overlay.as_deref() == Some(place)
    }

    /// The state of the device (or overlay) that a path is on.
    pub fn containing(path: &Path) -> Result<Self> {
        let absolute = absolute(path)?;
        let below = |place: &PathBuf| absolute.starts_with(place);
        let on = |state: &State| {
            below(&state.options.mountpoint) || state.options.overlay.as_ref().is_some_and(below)
        };
        list()?.into_iter().rfind(on).ok_or_else(|| Error::NotUp(path.to_owned()))
    }

    /// As [`State::find`], where there must be one.
    pub fn expect(mountpoint: &Path) -> Result<Self> {
        Self::find(mountpoint)?.ok_or_else(|| Error::NotUp(mountpoint.to_owned()))
    }

    /// Whether the process that serves it (if it needs one) is alive.
    pub fn is_alive(&self) -> bool {
        self.daemon.as_ref().is_none_or(ProcessId::is_alive)
    }

    /// Asks the process; says why if it is dead.
    pub fn ask(&self, question: Ask) -> Result<Answer> {
        if self.daemon.is_none() {
            return Err(Error::Usage(format!(
                "{} is the machine's own disk: it has no model to ask",
                self.options.profile
            )));
        }
        if !self.is_alive() {
            return Err(self.died());
        }
        match control::ask(&self.socket(), question) {
            Ok(Answer::Failed(why)) => Err(Error::Usage(why)),
            other => other.context(|| {
                let pid = self.daemon.as_ref().map_or(0, ProcessId::pid);
                format!(
                    "ask the process ({pid}) that serves {} (down --force ends it)",
                    self.name()
                )
            }),
        }
    }

    /// The error for a dead process.
    pub fn died(&self) -> Error {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        let log = if last.is_empty() { "none".into() } else { last.join(" / ") };
        Error::DaemonDied { path: self.options.mountpoint.clone(), log }
    }

    /// The mount point as text.
    pub fn name(&self) -> String {
        self.options.mountpoint.display().to_string()
    }

    /// Where the FUSE file system of the block device is mounted.
    pub fn fuse_directory(&self) -> PathBuf {
        self.directory.join("fuse")
    }

    /// The file behind the block device, which the process serves.
    pub fn disk_file(&self) -> PathBuf {
        self.fuse_directory().join(self.options.emulated())
    }

    /// The file that the process keeps the contents of a block device in, if that is one
    /// of the user's.
    pub fn image(&self) -> Option<PathBuf> {
        let backing = self.options.backing.as_ref()?;
        (self.daemon.is_some() && self.backing_file.is_some()).then(|| backing.join(IMAGE))
    }

    /// What an object store passes through: the backing directory, or a tmpfs.
    pub fn object_directory(&self) -> PathBuf {
        self.options.backing.clone().unwrap_or_else(|| self.directory.join("objects"))
    }

    /// tmpfs with the overlay's upper and work directories.
    pub fn upper_directory(&self) -> PathBuf {
        self.directory.join("upper")
    }

    /// Socket on which the process listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET_FILE)
    }

    /// What the process has to say.
    pub fn log(&self) -> PathBuf {
        self.directory.join(LOG_FILE)
    }
}

/// Timing switched off until the value is dropped: for what should not count.
/// The counters start from zero then. What would end this thread's program is put
/// off meanwhile: nobody would switch timing on again.
pub struct Untimed<'a> {
    state: &'a State,
    was_paused: bool,
    signals: PutOff,
}

impl<'a> Untimed<'a> {
    /// Switches timing off; there is nothing to switch on a device without a model.
    pub fn begin(state: &'a State) -> Result<Self> {
        let signals = PutOff::begin();
        let mut was_paused = true;
        if state.daemon.is_some() {
            let Answer::Stats(before) = state.ask(Ask::Stats)? else {
                return Err(Error::Usage("the process answers out of turn".into()));
            };
            was_paused = before.paused;
            state.ask(Ask::Pause)?;
        }
        Ok(Self { state, was_paused, signals })
    }

    /// Whether the program is to end: what takes long should not go on.
    pub fn is_interrupted(&self) -> bool {
        self.signals.has_come()
    }
}

impl Drop for Untimed<'_> {
    fn drop(&mut self) {
        // Fails only when the process is gone, and then nothing counts.
        if !self.was_paused {
            let _ = self.state.ask(Ask::Resume);
        }
        if self.state.daemon.is_some() {
            let _ = self.state.ask(Ask::Reset);
        }
    }
}

/// Every device that is up or has to be cleaned up, by mount point.
///
/// # Errors
/// If the directory of states cannot be read.
pub fn list() -> Result<Vec<State>> {
    let root = root();
    let entries = match fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(|| format!("read {}", root.display())),
    };
    let mut states: Vec<State> = entries
        .flatten()
        .filter(|entry| entry.path().join(STATE_FILE).exists())
        .filter_map(|entry| State::load(&entry.path()).ok())
        .collect();
    states.sort_by(|a, b| a.options.mountpoint.cmp(&b.options.mountpoint));
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_readable_and_differ() {
        let (a, b) = (directory_name(Path::new("/mnt/a b")), directory_name(Path::new("/x/ab")));
        assert!(a.starts_with("ab-") && b.starts_with("ab-"));
        assert_ne!(a, b);
        assert!(directory_name(Path::new("/")).starts_with('-'));
    }

    #[test]
    fn absolute_does_not_need_the_last_part() {
        assert_eq!(
            absolute(Path::new("/usr/../tmp/none-such")).unwrap(),
            Path::new("/tmp/none-such")
        );
        assert_eq!(
            absolute(Path::new("none-such")).unwrap(),
            std::env::current_dir().unwrap().canonicalize().unwrap().join("none-such")
        );
    }
}
