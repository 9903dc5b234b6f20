//! Makes the table in which processes leave behind what they learnt of their
//! executables ([`runahead_protocol::learnt`]): in memory, so that a write to
//! it never waits for storage; until the next boot, or the user's last logout.

use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use runahead_protocol::learnt::{FILE_LEN, FILE_NAME, PATH_LEN_MAX};
use runahead_sites::replace::replace;

use super::cache;

/// Its path, the file made where it is missing; none where that cannot be.
pub fn provide() -> Option<PathBuf> {
    provide_in(&cache::in_memory())
}

fn provide_in(directory: &Path) -> Option<PathBuf> {
    cache::make_private(directory).ok()?;
    let path = directory.join(FILE_NAME);
    if path.as_os_str().as_bytes().len() > PATH_LEN_MAX {
        return None;
    }
    if is_there(&path) {
        return Some(path);
    }
    // Written, not only made long: a page for which there is no memory must not be
    // found missing in the middle of a program.
    replace(&path, 0o600, |file| file.write_all(&[0; FILE_LEN])).ok()?;
    Some(path)
}

/// Whether the file is ours and as it should be.
fn is_there(path: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else { return false };
    file.metadata().is_ok_and(|metadata| {
        metadata.is_file()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o077 == 0
            && metadata.len() == FILE_LEN as u64
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_table_is_made_once_and_mended() {
        let directory = std::env::temp_dir().join(format!("learnt-test-{}", std::process::id()));
        let path = provide_in(&directory).unwrap();
        fs::write(&path, [7; FILE_LEN]).unwrap();
        assert_eq!(provide_in(&directory), Some(path.clone()));
        assert_eq!(fs::read(&path).unwrap(), [7; FILE_LEN], "kept");
        File::options().write(true).open(&path).unwrap().set_len(8).unwrap();
        provide_in(&directory).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), FILE_LEN as u64);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        provide_in(&directory).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        fs::remove_dir_all(&directory).unwrap();
    }
}
