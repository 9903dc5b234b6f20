//! Programs run by a user who may read what they work on and owns none of it,
//! without any privilege.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::place::open_to_others;
use crate::process::{self, CommandSpec, Scratch};

/// User and group that own nothing (`nobody`, `nogroup`).
const NOBODY: u32 = 65534;

/// Such a user, and what is his: a directory in memory.
#[derive(Debug)]
pub struct Stranger {
    home: Scratch,
    runahead: PathBuf,
}

impl Stranger {
    /// One who may execute `runahead`, or a copy of it.
    ///
    /// # Errors
    /// If his directory cannot be made, or without root.
    pub fn new(runahead: &Path) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "only root may run a program as another user: use sudo"
        );
        let home = process::scratch_directory()?;
        give(home.path())?;
        let runahead = reachable(runahead, home.path())?;
        Ok(Self { home, runahead })
    }

    /// The executable that he may run.
    pub fn runahead(&self) -> &Path {
        &self.runahead
    }

    /// The same command with a program that he may execute, copied where need
    /// be.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn adopt(&self, spec: &CommandSpec) -> Result<CommandSpec> {
        let program = Path::new(&spec.program);
        if !program.is_absolute() {
            return Ok(spec.clone());
        }
        let program = reachable(program, self.home.path())?.into();
        Ok(CommandSpec { program, ..spec.clone() })
    }

    /// The same command by this user, without capabilities or other groups.
    pub fn wrap(&self, spec: &CommandSpec) -> CommandSpec {
        let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
        let options = [&user, &group, "--clear-groups", "--inh-caps=-all", "--"];
        let mut arguments: Vec<OsString> = options.map(Into::into).into();
        arguments.push(spec.program.clone());
        arguments.extend(spec.arguments.iter().cloned());
        let mut wrapped = CommandSpec { program: "setpriv".into(), arguments, ..spec.clone() };
        for (name, value) in [("HOME", "."), ("XDG_CACHE_HOME", "cache"), ("TMPDIR", ".")] {
            wrapped = wrapped.env(name, self.home.path().join(value));
        }
        wrapped
    }
}

/// Makes a directory the user's, to write reports into.
///
/// # Errors
/// If the kernel refuses.
pub fn give(directory: &Path) -> Result<()> {
    chown(directory, Some(NOBODY), Some(NOBODY))
        .with_context(|| format!("give away {}", directory.display()))
}

/// The executable itself where everybody may run it, else a copy in
/// `directory`.
///
/// # Errors
/// If it cannot be copied.
pub fn reachable(executable: &Path, directory: &Path) -> Result<PathBuf> {
    if executable.ancestors().skip(1).all(others_may_pass) {
        return Ok(executable.to_owned());
    }
    let name = executable.file_name().context("an executable has a name")?;
    let copy = directory.join(name);
    // By a process of its own: what another thread forks meanwhile would have the copy open
    // for writing, which nobody could execute then.
    let copied = Command::new("cp").arg("--").args([executable, &copy]).status();
    ensure!(
        copied.is_ok_and(|status| status.success()),
        "copy {} for another user",
        executable.display()
    );
    open_to_others(&copy)?;
    Ok(copy)
}

fn others_may_pass(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.permissions().mode() & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_reads_and_has_no_privilege() {
        if !rustix::process::geteuid().is_root() {
            return assert!(Stranger::new(Path::new("/bin/true")).is_err());
        }
        let stranger = Stranger::new(Path::new("/bin/true")).unwrap();
        assert_eq!(stranger.runahead(), Path::new("/bin/true"));
        let output = process::Output::new().unwrap();
        let private = tempfile::tempdir().unwrap();
        let shell = private.path().join("shell");
        fs::copy("/bin/sh", &shell).unwrap();
        let script = "id -u; id -G; grep CapEff /proc/self/status
            touch $HOME/own || echo home; touch $0/own && echo private; true";
        let spec = CommandSpec::new(shell, "/").arg("-c").arg(script).arg(private.path());
        let spec = stranger.wrap(&stranger.adopt(&spec).unwrap());
        let limit = std::time::Duration::from_secs(60);
        let finished = process::run(&mut spec.command(), &output, limit).unwrap();
        assert!(finished.status.success(), "{:?}", fs::read_to_string(output.path("stderr")));
        let said = fs::read_to_string(output.path("stdout")).unwrap();
        assert_eq!(said, "65534\n65534\nCapEff:\t0000000000000000\n");
    }
}
