//! Fingerprints of what a run printed and left behind, to compare runs with.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

/// Exit status, standard output, standard error and the files left behind, as
/// BLAKE3 fingerprints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// `exit 0`, `signal 9`.
    pub status: String,
    /// Of standard output.
    pub stdout: String,
    /// Of standard error.
    pub stderr: String,
    /// Of the files and trees that the program wrote; empty: it writes none.
    pub files: String,
}

impl Digest {
    /// Whether the program ended by itself, with one of these exit statuses.
    pub fn ended_with(&self, statuses: &[i32]) -> bool {
        statuses.iter().any(|status| self.status == format!("exit {status}"))
    }

    /// In which parts two runs differ, in words; empty when they are equal.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.status != other.status {
            found.push(format!("exit status ({} and {})", self.status, other.status));
        }
        let parts = [
            ("standard output", &self.stdout, &other.stdout),
            ("standard error", &self.stderr, &other.stderr),
            ("files written", &self.files, &other.files),
        ];
        found.extend(parts.iter().filter(|(_, a, b)| a != b).map(|(name, ..)| (*name).to_owned()));
        found
    }
}

/// Fingerprint of one file's bytes.
///
/// # Errors
/// If it cannot be read.
pub fn of_file(path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hash_file(&mut hasher, path)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Fingerprint of files and directory trees: names, kinds, permissions,
/// contents and link targets, but not times, which differ between runs. A path
/// that does not exist counts as such.
///
/// # Errors
/// If something cannot be read.
pub fn of_trees(paths: &[PathBuf]) -> Result<String> {
    if paths.is_empty() {
        return Ok(String::new());
    }
    let mut hasher = blake3::Hasher::new();
    for path in paths {
        if fs::symlink_metadata(path).is_err() {
            hasher.update(b"missing\0");
            continue;
        }
        hash_tree(&mut hasher, path)?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn hash_file(hasher: &mut blake3::Hasher, path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    hasher.update_reader(file).with_context(|| format!("read {}", path.display()))?;
    Ok(())
}

fn hash_tree(hasher: &mut blake3::Hasher, root: &Path) -> Result<()> {
    for entry in WalkDir::new(root).sort_by_file_name() {
        let entry = entry.with_context(|| format!("walk {}", root.display()))?;
        let name = entry.path().strip_prefix(root)?.as_os_str().as_bytes();
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name);
        let metadata = entry.metadata()?;
        hasher.update(&metadata.permissions().mode().to_le_bytes());
        if metadata.is_file() {
            hasher.update(&metadata.len().to_le_bytes());
            hash_file(hasher, entry.path())?;
        } else if metadata.is_symlink() {
            hasher.update(fs::read_link(entry.path())?.as_os_str().as_bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    fn digest(tree: &tempfile::TempDir) -> String {
        of_trees(&[tree.path().to_owned()]).unwrap()
    }

    #[test]
    fn trees_are_told_apart_by_names_contents_and_modes() {
        let files = [("a/x", "1"), ("b", "22")];
        let first = tree(&files);
        assert_eq!(digest(&first), digest(&tree(&files)));
        assert_ne!(digest(&first), digest(&tree(&[("a/x", "1"), ("b", "23")])));
        assert_ne!(digest(&first), digest(&tree(&[("a/y", "1"), ("b", "22")])));
        assert_ne!(digest(&first), digest(&tree(&[("a/x", "1"), ("b", "2"), ("c", "2")])));
        let before = digest(&first);
        fs::set_permissions(first.path().join("b"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_ne!(digest(&first), before);
    }

    #[test]
    fn a_missing_file_is_a_difference() {
        let there = tree(&[("a", "")]);
        assert_ne!(
            of_trees(&[there.path().join("a")]).unwrap(),
            of_trees(&[there.path().join("b")]).unwrap()
        );
        assert_eq!(of_trees(&[]).unwrap(), "");
    }

    #[test]
    fn differences_name_the_part() {
        let good = Digest { status: "exit 0".into(), stdout: "x".into(), ..Digest::default() };
        assert!(good.differences(&good).is_empty());
        assert!(good.ended_with(&[1, 0]) && !good.ended_with(&[1]));
        let bad = Digest { status: "signal 11".into(), stdout: "y".into(), ..Digest::default() };
        assert_eq!(
            good.differences(&bad),
            ["exit status (exit 0 and signal 11)", "standard output"]
        );
    }
}
