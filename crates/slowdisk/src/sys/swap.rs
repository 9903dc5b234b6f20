//! A block device as swap space.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};

const MKSWAP: &str = "mkswap";
/// /usr/sbin is not on every user's PATH.
const SBIN: &str = "/usr/sbin:/sbin";
/// How long taking it out of use may take: what is swapped out is read back,
/// at full speed.
const OFF_PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// File systems that live in memory, by their magic numbers (statfs(2)):
/// tmpfs, ramfs, overlayfs (whose upper layer may be either).
const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58F6, 0x794C_7630];

fn tool(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:{SBIN}")).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Checks that mkswap is there, and that `backing` is no place in memory:
/// memory behind a swap device could be swapped out to that very device,
/// which waits for ever then.
pub fn preflight(backing: Option<&Path>) -> Result<()> {
    if let Err(error) = tool(MKSWAP).arg("--version").output() {
        return Err(match error.kind() {
            io::ErrorKind::NotFound => {
                Error::MissingProgram { program: MKSWAP, package: "util-linux" }
            }
            _ => Error::Usage(format!("cannot run {MKSWAP}: {error}")),
        });
    }
    let Some(backing) = backing else {
        return Err(Error::Usage(
            "--fs swap needs --backing DIR on a disk: memory behind a swap device could be \
             swapped out to that very device, and everything would wait for ever"
                .into(),
        ));
    };
    let kind = rustix::fs::statfs(backing).context(|| format!("look at {}", backing.display()))?;
    if IN_MEMORY.contains(&kind.f_type) {
        return Err(Error::Usage(format!(
            "--backing {}: that is in memory (tmpfs, ramfs) or may be (overlay), and could be \
             swapped out to the very device that it is behind; give a directory on a disk",
            backing.display()
        )));
    }
    Ok(())
}

/// Whether a file holds swap space of 4 KiB pages, as mkswap(8) makes it.
pub fn is_space(image: &Path) -> bool {
    const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";
    const PAGE: u64 = 4096;
    let mut found = [0; SIGNATURE.len()];
    let at = PAGE - SIGNATURE.len() as u64;
    fs::File::open(image).is_ok_and(|file| file.read_exact_at(&mut found, at).is_ok())
        && found == *SIGNATURE
}

/// Makes a device swap space and puts it into use before any other.
pub fn on(device: &Path) -> Result<()> {
    run(tool(MKSWAP).arg("-q").arg(device), "mkswap")?;
    run(tool("swapon").args(["-p", "32767"]).arg(device), "swapon")
}

fn run(command: &mut Command, name: &str) -> Result<()> {
    let output = command.output().context(|| format!("run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Program { program: name.into(), stderr })
}

/// Whether a device is in use as swap space (proc_swaps(5)).
pub fn is_on(device: &Path) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| line.split_whitespace().next() == device.to_str())
}

/// Takes a device out of use, if it is in use. What is there is brought back
/// into memory first; that is given up after a minute.
pub fn off(device: &Path) -> Result<()> {
    if !is_on(device) {
        return Ok(());
    }
    // Room for what comes back. Where that is refused, it is made on the way.
    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
    let mut child = tool("swapoff")
        .arg(device)
        .stderr(Stdio::null())
        .spawn()
        .context(|| "run swapoff".into())?;
    let begun = Instant::now();
    loop {
        let ended = child.try_wait().context(|| "wait for swapoff".into())?;
        if ended.is_some() || begun.elapsed() > OFF_PATIENCE {
            break;
        }
        std::thread::sleep(POLL);
    }
    // A signal ends it between two pages.
    let _ = child.kill();
    let _ = child.wait();
    if is_on(device) {
        return Err(Error::Usage(format!(
            "{} is still in use as swap: what is swapped out there does not fit into memory; end \
             the programs that have it, and try again",
            device.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_memory_are_refused() {
        let refused = |path: Option<&Path>| preflight(path).unwrap_err().to_string();
        assert!(refused(None).contains("--backing"));
        let in_memory = Path::new("/dev/shm");
        if rustix::fs::statfs(in_memory).is_ok_and(|kind| IN_MEMORY.contains(&kind.f_type)) {
            assert!(refused(Some(in_memory)).contains("tmpfs"));
        }
        assert!(!is_on(Path::new("/dev/none-such")));
    }
}
