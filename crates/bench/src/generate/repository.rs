//! A Git repository with one commit.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::tree::{self, TreeSpec};

/// Time of the commit, seconds since 1970: fixed, so that object names are.
const COMMIT_TIME: &str = "1000000000 +0000";

/// Settings that keep Git independent of the user's and machine's own.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "Bench"),
    ("GIT_AUTHOR_EMAIL", "bench@example.org"),
    ("GIT_COMMITTER_NAME", "Bench"),
    ("GIT_COMMITTER_EMAIL", "bench@example.org"),
    ("GIT_AUTHOR_DATE", COMMIT_TIME),
    ("GIT_COMMITTER_DATE", COMMIT_TIME),
    ("GIT_PAGER", "cat"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// Makes the tree in `directory` and commits it.
///
/// # Errors
/// Without Git, or if something cannot be written.
pub fn make(directory: &Path, spec: &TreeSpec, seed: u64) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    tree::make(directory, spec, seed)?;
    git(directory, &["init", "-q", "--initial-branch=main"])?;
    git(directory, &["config", "core.fsync", "none"])?;
    git(directory, &["add", "."])?;
    git(directory, &["commit", "-q", "-m", "Everything"])?;
    git(directory, &["repack", "-q", "-a", "-d"])
}

/// Runs `git` with settings of its own in `directory`.
///
/// # Errors
/// If it is not there or fails.
pub fn git(directory: &Path, arguments: &[&str]) -> Result<()> {
    let done = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .envs(ENVIRONMENT.iter().copied())
        .env_remove("GIT_OPTIONAL_LOCKS")
        .output()
        .context("start git: install the package git")?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "git {} failed: {errors}", arguments.join(" "));
    Ok(())
}

/// Makes the index forget what the files looked like when they were added, so
/// that each `git status` has to read every file (the environment above keeps
/// it from writing down what it found).
///
/// # Errors
/// If Git fails.
pub fn forget_times(directory: &Path) -> Result<()> {
    git(directory, &["read-tree", "HEAD"])
}
