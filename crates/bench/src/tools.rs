//! Programs that the applications need, and the packages that have them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::last_line;
use crate::progress;

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Name of the program.
    pub program: &'static str,
    /// Name of the package.
    pub package: &'static str,
}

/// A program and its package.
pub const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// GNU grep.
pub const GREP: Tool = tool("grep", "grep");
/// The C compiler.
pub const GCC: Tool = tool("gcc", "gcc");
/// The BFD linker.
pub const LD_BFD: Tool = tool("ld.bfd", "binutils");
/// cp and sha256sum.
pub const COREUTILS: Tool = tool("sha256sum", "coreutils");
/// find and xargs.
pub const FINDUTILS: Tool = tool("find", "findutils");
/// GNU tar.
pub const TAR: Tool = tool("tar", "tar");
/// GNU diff.
pub const DIFF: Tool = tool("diff", "diffutils");
/// rsync.
pub const RSYNC: Tool = tool("rsync", "rsync");
/// Git.
pub const GIT: Tool = tool("git", "git");
/// The media server.
pub const NGINX: Tool = tool("nginx", "nginx-light");
/// Load generator for HTTP servers.
pub const WRK: Tool = tool("wrk", "wrk");
/// Sphinx's search server.
pub const SEARCHD: Tool = tool("searchd", "sphinxsearch");
/// Makes its index.
pub const INDEXER: Tool = tool("indexer", "sphinxsearch");
/// The PostgreSQL server, whichever version the system has.
pub const POSTGRES: Tool = tool("postgres", "postgresql");
/// The PostgreSQL client.
pub const PSQL: Tool = tool("psql", "postgresql-client");

/// Python 3.
pub const PYTHON: Tool = tool("python3", "python3");
/// NumPy, told by a program that comes with it.
pub const NUMPY: Tool = tool("f2py3", "python3-numpy");
/// The LMDB library, told by its tools.
pub const LMDB: Tool = tool("mdb_stat", "lmdb-utils");

impl Tool {
    /// Where the program is, if it is installed.
    pub fn find(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        // Debian keeps the servers of each version out of PATH.
        directories.extend(versions(Path::new("/usr/lib/postgresql")));
        directories.push("/usr/sbin".into());
        directories.into_iter().map(|d| d.join(self.program)).find(|path| is_executable(path))
    }
}

/// `bin` of each version that has a directory here, the newest first.
fn versions(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable();
    versions.iter().rev().map(|version| directory.join(format!("{version}/bin"))).collect()
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Makes sure that tools are there: with `install`, by installing the packages
/// that are missing.
///
/// # Errors
/// Names the packages that are missing and how to get them.
pub fn ensure_installed(tools: &[Tool], install: bool) -> Result<()> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| tool.find().is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    packages.dedup();
    let packages_text = packages.join(" ");
    if !install {
        let programs: Vec<&str> = missing.iter().map(|tool| tool.program).collect();
        bail!(
            "{} not installed: give --install, or run: apt-get install {packages_text}",
            programs.join(", ")
        );
    }
    progress::say(format_args!("installing {packages_text} …"));
    if apt_install(&packages)?.is_some() {
        // A machine that has never fetched its lists knows no package.
        apt_get(&["update", "-q"])?;
        if let Some(said) = apt_install(&packages)? {
            bail!("apt-get install {packages_text} failed: {said}; run it by hand");
        }
    }
    let still: Vec<&str> =
        tools.iter().filter(|tool| tool.find().is_none()).map(|tool| tool.program).collect();
    ensure!(still.is_empty(), "{} still missing after the installation", still.join(", "));
    Ok(())
}

/// As [`apt_get`].
fn apt_install(packages: &[&str]) -> Result<Option<String>> {
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

/// Where it fails: what it said last.
fn apt_get(arguments: &[&str]) -> Result<Option<String>> {
    let done = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Services of installed packages stay off: they would share the
        // machine with what is measured (invoke-rc.d(8)).
        .env("RUNLEVEL", "1")
        .output()
        .context("start apt-get: this system installs packages in another way")?;
    if done.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = Some(last_line(&said)).filter(|line| !line.is_empty());
    Ok(Some(last.map_or_else(|| done.status.to_string(), str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found() {
        assert!(tool("sh", "dash").find().unwrap().ends_with("sh"));
        assert_eq!(tool("no-such-program-41", "x").find(), None);
    }

    #[test]
    fn the_newest_version_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["9", "17", "15", "common"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let found = versions(directory.path());
        let names = ["17/bin", "15/bin", "9/bin"].map(|name| directory.path().join(name));
        assert_eq!(found, names);
        assert!(versions(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        ensure_installed(&[tool("sh", "dash")], false).unwrap();
        let tools = [tool("sh", "dash"), tool("no-such-program-41", "some-package")];
        let error = ensure_installed(&tools, false).unwrap_err().to_string();
        assert!(error.contains("no-such-program-41"), "{error}");
        assert!(error.contains("apt-get install some-package"), "{error}");
        assert!(!error.contains("dash"), "{error}");
    }
}
