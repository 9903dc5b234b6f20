//! Replaces files of the cache directory as a whole: whoever opens one finds the
//! old one or the new one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Ends the names of files that are still being written; they begin with a dot.
const ENDING: &str = ".new";
/// Age from which such a file is taken for one that a killed process has left.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);

/// Puts a file at `path`, in a directory of the user's own, that `write` has
/// written whole. Files that killed processes have left there go.
///
/// # Errors
/// It could not be made or written; nothing is left of it then.
pub fn replace(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    sweep(path.parent().unwrap_or(path), LEFT_BEHIND);
    let (beside, mut file) = open_beside(path, mode)?;
    let done = write(&mut file).and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Whether [`replace`] can put a file of `len` bytes at `path`.
///
/// # Errors
/// It cannot: a read-only directory, a full disk, a quota.
pub fn can_replace(path: &Path, len: usize) -> io::Result<()> {
    let (beside, mut file) = open_beside(path, 0o600)?;
    let written = file.write_all(&vec![0; len]);
    let _ = fs::remove_file(&beside);
    written
}

fn open_beside(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let beside = path.with_file_name(name_beside(path.file_name().unwrap_or_default()));
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    Ok((beside, file))
}

/// A name beside that of a file that is to be replaced, which no other process
/// takes. Process ids do not tell apart those of containers that share a home,
/// each of which may be the first one there.
pub fn name_beside(name: &OsStr) -> OsString {
    let mut random = RandomState::new().build_hasher();
    // After a fork both go on with the same random keys.
    random.write_u32(std::process::id());
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!("-{:016x}{ENDING}", random.finish()));
    beside
}

/// Removes what was being written so long ago. What cannot be, stays.
fn sweep(directory: &Path, age: Duration) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let is_new =
            name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(ENDING.as_bytes());
        // Not of its modification, which may be set to any time.
        let is_old = || {
            entry.metadata().is_ok_and(|metadata| {
                let changed = UNIX_EPOCH + Duration::from_secs(metadata.ctime().max(0) as u64);
                changed.elapsed().is_ok_and(|elapsed| elapsed >= age)
            })
        };
        if is_new && is_old() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    /// As two first processes of containers do, which have one process id.
    #[test]
    fn many_may_replace_a_file_at_a_time() {
        const LEN: usize = 1 << 16;
        let directory = scratch("replace-test");
        let path = directory.join("file");
        let put = |byte: u8| {
            replace(&path, 0o600, |file| {
                // In pieces, so that half of it is seen if it can be.
                [byte; LEN].chunks(LEN / 8).try_for_each(|piece| file.write_all(piece))
            })
            .unwrap();
        };
        put(0);
        std::thread::scope(|scope| {
            for byte in [1, 2] {
                let (put, path) = (&put, &path);
                scope.spawn(move || {
                    for _ in 0..500 {
                        put(byte);
                        let there = fs::read(path).unwrap();
                        assert!(there.len() == LEN && there.iter().all(|&one| one == there[0]));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing beside it");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_could_not_be_written_leaves_all_as_it_was() {
        let directory = scratch("replace-fails");
        let path = directory.join("file");
        fs::write(&path, "old").unwrap();
        let failed = replace(&path, 0o600, |_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_killed_processes_left_is_removed() {
        let directory = scratch("replace-left");
        let left = directory.join(name_beside(OsStr::new("file")));
        for path in [&left, &directory.join("kept.new"), &directory.join(".kept")] {
            fs::write(path, "").unwrap();
        }
        replace(&directory.join("file"), 0o600, |_| Ok(())).unwrap();
        assert!(left.exists(), "somebody may be writing it");
        sweep(&directory, Duration::ZERO);
        assert!(!left.exists());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "nothing else");
        fs::remove_dir_all(&directory).unwrap();
    }
}
