//! Trees of files that look like source code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::rng::Rng;

/// Lines to draw from: many enough that a tree does not look repetitive to a
/// compressor's window, few enough to stay in the processor's caches.
const POOL_LINES: usize = 4096;
const FILES_PER_DIRECTORY: u64 = 24;

/// What tree to make.
#[derive(Clone, Debug)]
pub struct TreeSpec {
    /// Purpose: trees of different names differ in everything.
    pub name: &'static str,
    /// Number of files.
    pub files: u64,
    /// Bytes of all files together, met to within a line per file.
    pub bytes: u64,
    /// Ratio of the largest file to the mean, about; 1 makes all equal.
    pub spread: f64,
    /// A line planted in one of so many files; none: in no file.
    pub needle: Option<(&'static str, u64)>,
}

/// Makes the tree below `root` and lists its files, relative to `root`.
///
/// Directories are created one after the other and files in the order of
/// their names, as an archive is unpacked. The list goes through the
/// directories in the same order but through each one's files in a shuffled
/// order: that of `find` or of a shell of 2003 on a file system that keeps
/// directories hashed.
///
/// # Errors
/// If something cannot be written.
pub fn make(root: &Path, spec: &TreeSpec, seed: u64) -> Result<Vec<PathBuf>> {
    let mut rng = Rng::new(seed, spec.name);
    let pool = line_pool(&mut rng);
    let sizes = sizes(spec, &mut rng);
    let directories = directories(spec.files.div_ceil(FILES_PER_DIRECTORY), &mut rng);
    let mut listed = Vec::new();
    for (directory, sizes) in directories.iter().zip(sizes.chunks(FILES_PER_DIRECTORY as usize)) {
        let path = root.join(directory);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        let mut names = Vec::new();
        for (index, size) in sizes.iter().enumerate() {
            let name = directory.join(format!("{}_{index:02}.c", rng.pick(WORDS)));
            let planted = spec.needle.filter(|(_, one_in)| rng.below(*one_in) == 0);
            let text = text(*size, &pool, planted.map(|(line, _)| line), &mut rng);
            let path = root.join(&name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            names.push(name);
        }
        rng.shuffle(&mut names);
        listed.append(&mut names);
    }
    Ok(listed)
}

/// Makes the same tree twice, and changes one file in fifty of the second.
///
/// # Errors
/// If something cannot be written.
pub fn make_pair(old: &Path, new: &Path, spec: &TreeSpec, seed: u64) -> Result<()> {
    make(old, spec, seed)?;
    let mut files = make(new, spec, seed)?;
    files.sort();
    for file in files.iter().step_by(50) {
        let path = new.join(file);
        let mut text =
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.push_str("/* changed */\n");
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Bytes of each file: exponentially distributed, as sizes of source files
/// roughly are, cut at `spread` times the mean.
fn sizes(spec: &TreeSpec, rng: &mut Rng) -> Vec<u64> {
    let weights: Vec<f64> = (0..spec.files)
        .map(|_| if spec.spread <= 1.0 { 1.0 } else { (0.1 - rng.unit().ln()).min(spec.spread) })
        .collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| (weight / total * spec.bytes as f64) as u64).collect()
}

fn directories(count: u64, rng: &mut Rng) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = (0..count)
        .map(|index| {
            let top = WORDS[(index / 16) as usize % WORDS.len()];
            PathBuf::from(format!("{top}{}", index / 16))
                .join(format!("{}{index}", rng.pick(WORDS)))
        })
        .collect();
    names.sort();
    names
}

fn line_pool(rng: &mut Rng) -> Vec<String> {
    (0..POOL_LINES)
        .map(|_| {
            let mut word = || *rng.pick(WORDS);
            let (a, b, c, d) = (word(), word(), word(), word());
            match rng.below(6) {
                0 => format!("\tif ({a}->{b} & {c}_{d})\n"),
                1 => format!("\t\treturn {a}_{b}({c}, &{d}->{a});\n"),
                2 => format!("static int {a}_{b}(struct {c} *{d})\n{{\n"),
                3 => format!("\t{a}->{b} = {c}_{d}[{}];\n", rng.below(4096)),
                4 => format!("}}\n\n/* {a} the {b} before the {c} of {d} */\n"),
                _ => {
                    format!("#define {}_{}\t0x{:08x}\n", a.to_uppercase(), b, rng.next_u64() >> 32)
                }
            }
        })
        .collect()
}

fn text(bytes: u64, pool: &[String], needle: Option<&str>, rng: &mut Rng) -> String {
    let mut text = String::with_capacity(bytes as usize + 80);
    let needle_at = needle.map(|line| (rng.below(bytes.max(1)) as usize, line));
    let mut planted = false;
    while (text.len() as u64) < bytes {
        if let Some((at, line)) = needle_at
            && !planted
            && text.len() >= at
        {
            text.push_str(line);
            text.push('\n');
            planted = true;
        }
        text.push_str(rng.pick(pool).as_str());
    }
    text
}

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "alloc", "block", "buffer", "bus", "cache", "chan", "config", "core", "ctrl", "data",
    "desc", "dev", "dma", "driver", "entry", "event", "fault", "file", "flags", "frame",
    "group", "handle", "hash", "head", "host", "index", "inode", "irq", "item", "key",
    "len", "link", "list", "lock", "map", "mask", "mode", "mutex", "name", "net",
    "node", "offset", "page", "parent", "path", "pool", "port", "queue", "rate", "reg",
    "ring", "root", "sched", "sector", "size", "slot", "state", "table", "task", "timer",
    "tree", "unit", "vec", "zone",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;

    const SPEC: TreeSpec = TreeSpec {
        name: "test",
        files: 100,
        bytes: 300_000,
        spread: 5.0,
        needle: Some(("the_needle", 4)),
    };

    #[test]
    fn the_same_seed_gives_the_same_tree() {
        let make_in = |seed| {
            let directory = tempfile::tempdir().unwrap();
            let list = make(&directory.path().join("tree"), &SPEC, seed).unwrap();
            (digest::of_trees(&[directory.path().join("tree")]).unwrap(), list)
        };
        let (first, again, other) = (make_in(1), make_in(1), make_in(2));
        assert_eq!(first, again);
        assert_ne!(first.0, other.0);
    }

    #[test]
    fn a_tree_is_as_specified() {
        let directory = tempfile::tempdir().unwrap();
        let list = make(directory.path(), &SPEC, 1).unwrap();
        assert_eq!(list.len(), 100);
        let texts: Vec<String> =
            list.iter().map(|f| fs::read_to_string(directory.path().join(f)).unwrap()).collect();
        let bytes: usize = texts.iter().map(String::len).sum();
        assert!((290_000..310_000).contains(&bytes), "{bytes} bytes");
        let with_needle = texts.iter().filter(|text| text.contains("the_needle")).count();
        assert!((5..60).contains(&with_needle), "{with_needle} needles");
        let mut sorted = list.clone();
        sorted.sort();
        assert_ne!(list, sorted, "files should not be listed in the order on the disk");
        sorted.dedup();
        assert_eq!(sorted.len(), 100);
    }
}
