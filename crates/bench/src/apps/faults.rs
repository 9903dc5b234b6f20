//! Programs that wait for storage in page faults of mapped files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Application, Case, CommandCase, Metadata, Setup};
use crate::c_program::CProgram;
use crate::process::CommandSpec;
use crate::rng::Rng;
use crate::tools::{GCC, LMDB, NUMPY, PYTHON, Tool};

const TOUCHES: CProgram = CProgram {
    name: "touches",
    source: include_str!("../../../../bench/faults/touches.c"),
    headers: &[],
};
const MATVEC: CProgram = CProgram {
    name: "matvec",
    source: include_str!("../../../../bench/faults/matvec.c"),
    headers: &[],
};
const LMDB_DRIVER: CProgram = CProgram {
    name: "lmdb",
    source: include_str!("../../../../bench/faults/lmdb.c"),
    headers: &[],
};
const MEMMAP: &str = include_str!("../../../../bench/faults/memmap.py");
const SQLITE: &str = include_str!("../../../../bench/faults/sqlite.py");

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Touches,
    Lmdb,
    Memmap,
    Sqlite,
    Matvec,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    kind: Kind,
    name: &'static str,
    about: &'static str,
    tools: &'static [Tool],
}

/// All, those of today first.
pub const ALL: &[Faults] = &[
    Faults {
        kind: Kind::Touches,
        name: "touches",
        about: "3000 random page touches of a mapped file of 1 GiB",
        tools: &[GCC],
    },
    Faults {
        kind: Kind::Lmdb,
        name: "lmdb",
        about: "8000 random gets from an LMDB database of 200,000 values of 2000 bytes",
        tools: &[GCC, LMDB],
    },
    Faults {
        kind: Kind::Memmap,
        name: "memmap",
        about: "a gather of 6000 random rows of 4 KiB through numpy.memmap, 1 GiB",
        tools: &[PYTHON, NUMPY],
    },
    Faults {
        kind: Kind::Sqlite,
        name: "sqlite-mmap",
        about: "4000 random rows of a SQLite table of 300,000 through mmap_size",
        tools: &[PYTHON],
    },
    Faults {
        kind: Kind::Matvec,
        name: "matvec",
        about: "MATVEC of the paper's Table 1 over a mapped matrix, 385 MB",
        tools: &[GCC],
    },
];

const MIB: f64 = 1024.0 * 1024.0;

/// The interpreter that the packages of Debian are for, whatever comes first in
/// PATH.
fn python() -> PathBuf {
    let debians = PathBuf::from("/usr/bin/python3");
    if debians.exists() { debians } else { PYTHON.find().unwrap_or_else(|| "python3".into()) }
}

impl Faults {
    fn scaled(setup: &Setup, full: f64) -> u64 {
        (full * setup.scale).round().max(1.0) as u64
    }

    fn python(script: &str, setup: &Setup, arguments: &[String]) -> CommandSpec {
        CommandSpec::new(python(), &setup.directory)
            .args(["-c".to_owned(), script.to_owned()])
            .args(arguments.to_vec())
    }
}

impl Application for Faults {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn is_papers(&self) -> bool {
        self.kind == Kind::Matvec
    }

    fn tools(&self) -> &'static [Tool] {
        self.tools
    }

    /// What is looked at is the page faults, not the start of an interpreter:
    /// programs and libraries are in memory, names too.
    fn metadata(&self) -> &'static [Metadata] {
        &[Metadata::Warm]
    }

    fn maps_data(&self) -> bool {
        true
    }

    fn data(&self) -> &'static str {
        match self.kind {
            Kind::Touches | Kind::Memmap => "mapped1g",
            _ => self.name,
        }
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        let at = &setup.directory;
        match self.kind {
            Kind::Touches | Kind::Memmap => {
                random_floats(&at.join("data"), Self::scaled(setup, 1024.0 * MIB), setup.seed)
            }
            Kind::Matvec => {
                random_doubles(&at.join("data"), Self::scaled(setup, 385e6), setup.seed)
            }
            Kind::Lmdb => {
                std::fs::create_dir_all(at.join("db"))?;
                let keys = Self::scaled(setup, 200_000.0).to_string();
                let program = LMDB_DRIVER.build(&setup.cache)?;
                let mut fill = Command::new(program);
                finished(fill.current_dir(at).args(["fill", "db", &keys, "2000"]))?;
                // Where readers note themselves, whoever they are.
                let anybodys = std::os::unix::fs::PermissionsExt::from_mode(0o666);
                std::fs::set_permissions(at.join("db/lock.mdb"), anybodys)
                    .context("let every user read the database")
            }
            Kind::Sqlite => {
                let rows = Self::scaled(setup, 300_000.0).to_string();
                let mut command = Command::new(python());
                finished(command.current_dir(at).args(["-c", SQLITE, "fill", "base", &rows]))
            }
        }
    }

    fn cases(&self, setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        let number = |full: f64| Self::scaled(setup, full).to_string();
        let seed = setup.seed.to_string();
        let own = |program: CProgram, arguments: &[&str]| -> Result<CommandSpec> {
            let spec = CommandSpec::new(program.build(&setup.cache)?, &setup.directory);
            Ok(spec.args(arguments.iter().copied()))
        };
        let spec = match self.kind {
            Kind::Touches => own(TOUCHES, &["data", &number(3000.0), &seed])?,
            Kind::Matvec => own(MATVEC, &["data", "1"])?,
            Kind::Lmdb => {
                let (keys, gets) = (number(200_000.0), number(8000.0));
                own(LMDB_DRIVER, &["get", "db", &keys, &gets, &seed])?
            }
            Kind::Memmap => Self::python(MEMMAP, setup, &["data".into(), number(6000.0), seed]),
            Kind::Sqlite => Self::python(
                SQLITE,
                setup,
                &["get".into(), "base".into(), number(300_000.0), number(4000.0), seed],
            ),
        };
        // LMDB notes its readers in a file beside the data.
        Ok(vec![Box::new(CommandCase { spec, writes: Vec::new(), good: &[0] })])
    }
}

fn finished(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// Random 32-bit floating-point numbers in [0, 1).
fn random_floats(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    write_numbers(path, bytes / 4, seed, |word| {
        ((word >> 40) as f32 / (1u32 << 24) as f32).to_le_bytes()
    })
}

/// Random 64-bit floating-point numbers in [0, 1).
fn random_doubles(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    write_numbers(path, bytes / 8, seed, |word| {
        ((word >> 11) as f64 / (1u64 << 53) as f64).to_le_bytes()
    })
}

fn write_numbers<const N: usize>(
    path: &Path,
    count: u64,
    seed: u64,
    number: impl Fn(u64) -> [u8; N],
) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut random = Rng::new(seed, "mapped numbers");
    for _ in 0..count {
        file.write_all(&number(random.next_u64()))?;
    }
    file.flush().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reproducible_and_in_range() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers");
        random_doubles(&path, 800, 7).unwrap();
        let once = std::fs::read(&path).unwrap();
        random_doubles(&path, 800, 7).unwrap();
        assert_eq!(once, std::fs::read(&path).unwrap());
        assert_eq!(once.len(), 800);
        for chunk in once.chunks(8) {
            let number = f64::from_le_bytes(chunk.try_into().unwrap());
            assert!((0.0..1.0).contains(&number), "{number}");
        }
    }

    #[test]
    fn the_programs_agree_with_a_direct_computation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        // The matrix [[1, 2], [3, 4]] times (1, 1/2) is (2, 5).
        let bytes: Vec<u8> = [1.0f64, 2.0, 3.0, 4.0].iter().flat_map(|n| n.to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        let program = MATVEC.build(directory.path()).unwrap();
        let output = Command::new(program).args([path.to_str().unwrap(), "1"]).output().unwrap();
        let norm: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        assert!((norm - 29f64.sqrt()).abs() < 1e-9, "{norm}");
    }
}
