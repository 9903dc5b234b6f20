//! Making the file system.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::error::{Context, Error, Result};
use crate::model::SplitMix;

const MKFS: &str = "mkfs.ext4";
/// /usr/sbin is not on every user's PATH.
const SBIN: &str = "/usr/sbin:/sbin";
/// Small: the journal is not what is measured.
const JOURNAL_MIB: u64 = 16;

fn mkfs() -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(MKFS);
    command.env("PATH", format!("{path}:{SBIN}"));
    command
}

/// Checks that mkfs.ext4 is there.
pub fn preflight() -> Result<()> {
    match mkfs().arg("-V").output() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::MissingProgram { program: MKFS, package: "e2fsprogs" })
        }
        Err(error) => Err(error).context(|| format!("run {MKFS}")),
    }
}

/// Whether an image holds an ext4 (or ext2, ext3), by the magic number of its superblock.
pub fn is_ext4(image: &Path) -> bool {
    const MAGIC: [u8; 2] = 0xEF53_u16.to_le_bytes();
    /// `s_magic` of struct ext4_super_block, which begins at 1024.
    const MAGIC_AT: u64 = 1024 + 0x38;
    let mut found = [0; MAGIC.len()];
    File::open(image).is_ok_and(|file| file.read_exact_at(&mut found, MAGIC_AT).is_ok())
        && found == MAGIC
}

/// Makes an ext4 on an all-zero device. UUID and hash seed come from `seed`,
/// so that directories have the same order every time.
pub fn ext4(device: &Path, size_bytes: u64, seed: u64) -> Result<()> {
    // Prezeroed (e2fsprogs 1.47): the inode tables are zeros already, and
    // writing them would only fill memory. Older ones write them.
    let mut output = run(device, size_bytes, seed, ",assume_storage_prezeroed=1")?;
    if !output.status.success() {
        output = run(device, size_bytes, seed, "")?;
    }
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Program { program: format!("{MKFS} {}", device.display()), stderr });
    }
    Ok(())
}

fn run(device: &Path, size_bytes: u64, seed: u64, extended: &str) -> Result<Output> {
    let mut random = SplitMix::new(seed ^ 0x6578_7434);
    let (uuid, hash_seed) = (uuid(&mut random), uuid(&mut random));
    let journal_mib = (size_bytes >> 25).clamp(1, JOURNAL_MIB);
    mkfs()
        .args(["-q", "-F", "-m", "0", "-b", "4096", "-U", &uuid, "-E"])
        .arg(format!(
            "lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed={hash_seed}{extended}"
        ))
        .args(["-J", &format!("size={}", journal_mib.max(4))])
        .arg(device)
        .output()
        .context(|| format!("run {MKFS}"))
}

fn uuid(random: &mut SplitMix) -> String {
    let (high, low) = (random.next_u64(), random.next_u64());
    // Version 4, variant 1 (RFC 9562), although from a seed.
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFF,
        low >> 52,
        low & 0xFFFF_FFFF_FFFF
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_well_formed_and_seeded() {
        let make = |seed| uuid(&mut SplitMix::new(seed));
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        let parts: Vec<usize> = make(3).split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
    }
}
