//! The programs of `tests/programs`: building them, running one in a variant,
//! and what of it is compared.

pub mod outcome;
pub mod program;
pub mod variant;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use outcome::Outcome;
use program::Program;
use variant::{User, Variant};

/// The command under test.
pub const RUNAHEAD: &str = env!("CARGO_BIN_EXE_runahead");

/// A directory that goes away with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("runahead-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether the tests run as root, which some variants need.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Fills `directory` with what every program finds: `data/f00` to `data/f15`
/// and `data/big`, and the place belongs to `user`.
pub fn furnish(directory: &Path, user: User) {
    let data = directory.join("data");
    fs::create_dir_all(&data).unwrap();
    let bytes = |seed: usize, len: usize| -> Vec<u8> {
        (0..len).map(|i| ((i * 131 + seed * 97) ^ (i >> 7)) as u8).collect()
    };
    for i in 0..16 {
        fs::write(data.join(format!("f{i:02}")), bytes(i, 3000 + 977 * i)).unwrap();
    }
    fs::write(data.join("big"), bytes(99, 512 * 1024)).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    if user == User::Nobody {
        // The place is the user's, the files are not.
        std::os::unix::fs::chown(directory, Some(variant::NOBODY), Some(variant::NOBODY)).unwrap();
    }
}

/// Runs `program` in `directory`, which has been furnished, in `variant`.
pub fn run(program: &Program, variant: &Variant, directory: &Path, cache: &Path) -> Outcome {
    let statistics = cache.join(format!("{}-{}.json", program.name, variant.name));
    let mut command = variant.command(&program.binary, &statistics);
    command.current_dir(directory).env_clear();
    for (name, value) in [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/nonexistent")] {
        command.env(name, value);
    }
    // Both are seen by the program: the same in every variant.
    command.env("XDG_CACHE_HOME", cache).env("LC_ALL", "C");
    let mut outcome = outcome::observe(&mut command, directory, &statistics, outcome::limit());
    if !outcome::ends(&statistics) {
        outcome.ended += "; its collector stays";
    }
    outcome
}
