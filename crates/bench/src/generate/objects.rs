//! Object files with debug information, compiled from generated sources.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::rng::Rng;

/// Structures of a unit: they make most of its debug information.
const STRUCTURES: u64 = 80;
/// Functions of a unit.
const FUNCTIONS: u64 = 120;
/// Bump when the sources change, so that cached objects are made anew.
const GENERATION: u32 = 2;

/// Compiles `count` units with debug information into `unit_NNNN.o` files in
/// `directory`. They are kept in `cache`, since compiling takes a minute.
///
/// # Errors
/// Without a C compiler, or if something cannot be written.
pub fn make(directory: &Path, cache: &Path, count: u64, seed: u64) -> Result<Vec<PathBuf>> {
    let kept = cache.join(format!("objects-{GENERATION}-{seed}-{count}"));
    if !kept.is_dir() {
        let partial = kept.with_extension("partial");
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial).with_context(|| format!("create {}", partial.display()))?;
        compile_all(&partial, count, seed)?;
        fs::rename(&partial, &kept).with_context(|| format!("rename {}", partial.display()))?;
    }
    let mut names = Vec::new();
    for index in 0..count {
        let name = PathBuf::from(object_name(index));
        fs::copy(kept.join(&name), directory.join(&name))
            .with_context(|| format!("copy {}", name.display()))?;
        names.push(name);
    }
    Ok(names)
}

fn object_name(index: u64) -> String {
    format!("unit_{index:04}.o")
}

fn compile_all(directory: &Path, count: u64, seed: u64) -> Result<()> {
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                compile(directory, index, count, seed)?;
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a compiling thread panicked"))??;
        }
        Ok(())
    })
}

fn compile(directory: &Path, index: u64, count: u64, seed: u64) -> Result<()> {
    let source = format!("unit_{index:04}.c");
    fs::write(directory.join(&source), unit(index, count, seed))
        .with_context(|| format!("write {source}"))?;
    let compiled = Command::new("gcc")
        .args(["-g", "-O0", "-ffreestanding", "-fno-stack-protector", "-c", &source, "-o"])
        .arg(object_name(index))
        .current_dir(directory)
        .env("LC_ALL", "C")
        .output()
        .context("start gcc: install the package gcc")?;
    let errors = String::from_utf8_lossy(&compiled.stderr);
    ensure!(compiled.status.success(), "gcc failed on {source}:\n{errors}");
    fs::remove_file(directory.join(&source)).with_context(|| format!("remove {source}"))
}

/// Source of one unit. It calls functions of other units, so that the linker
/// has symbols to resolve.
fn unit(index: u64, count: u64, seed: u64) -> String {
    let mut rng = Rng::new(seed.wrapping_add(index), "unit");
    let mut text = String::new();
    for structure in 0..STRUCTURES {
        let _ = writeln!(text, "struct s{index}_{structure} {{");
        for field in 0..8 + rng.below(8) {
            let kind = rng.pick(&["int", "unsigned long", "short", "char *", "double", "void *"]);
            let _ = writeln!(text, "\t{kind} field_{field}_{:x};", rng.below(1 << 24));
        }
        let _ = writeln!(text, "\tstruct s{index}_{structure} *next;\n\tint n;\n}};");
    }
    for function in 0..FUNCTIONS {
        let (unit, callee) = (rng.below(count), rng.below(FUNCTIONS));
        let structure = rng.below(STRUCTURES);
        let _ = writeln!(
            text,
            "int f{unit}_{callee}(int, int);\n\
             static struct s{index}_{structure} v{index}_{function};\n\
             int f{index}_{function}(int a, int b)\n{{\n\
             \tstruct s{index}_{structure} *p = &v{index}_{function};\n\
             \tint sum_{function} = a * {}, i;\n\
             \tfor (i = 0; i < b; i++) {{\n\
             \t\tp->n += i ^ {};\n\
             \t\tsum_{function} += p->n;\n\t}}\n\
             \tif (sum_{function} == {})\n\
             \t\treturn f{unit}_{callee}(b, sum_{function});\n\
             \treturn sum_{function};\n}}",
            rng.below(1 << 16),
            rng.below(1 << 16),
            rng.below(1 << 16),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_differ_and_are_reproducible() {
        assert_eq!(unit(3, 10, 1), unit(3, 10, 1));
        assert_ne!(unit(3, 10, 1), unit(3, 10, 2));
        assert_ne!(unit(3, 10, 1), unit(4, 10, 1));
    }

    #[test]
    fn units_call_only_functions_that_exist() {
        let text = unit(0, 2, 1);
        for line in text.lines().filter(|line| line.starts_with("int f") && line.ends_with(';')) {
            assert!(line.starts_with("int f0_") || line.starts_with("int f1_"), "{line}");
        }
        assert_eq!(text.matches("\nint f0_0(int a, int b)\n").count(), 1);
    }
}
