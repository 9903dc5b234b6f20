//! Data of the streams benchmark: files of the microbenchmarks, the index of
//! the search server, the clips of the media server.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::rng::Rng;

/// Size of a file of the microbenchmarks, bytes: the paper's 4 MB.
pub const FILE_BYTES: u64 = 4 << 20;

/// Sizes of clips, bytes: 24 KB to 1418 KB, 152 KB on the mean, 9% of them
/// large (the paper's section 3.1).
const CLIP_MIN_BYTES: u64 = 24 << 10;
const CLIP_MAX_BYTES: u64 = 1418 << 10;
/// Largest of the small ones; with large ones even in the logarithm above it,
/// the mean is 152 KB.
const CLIP_SMALL_MAX_BYTES: u64 = 158 << 10;
const LARGE_PERCENT: u64 = 9;

/// SplitMix64's step, as the C programs have it.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Files f00000 and so on; the first eight bytes of each page say which page
/// of which file it is.
///
/// # Errors
/// If they cannot be written.
pub fn files(directory: &Path, count: u64) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let mut bytes = vec![0u8; FILE_BYTES as usize];
    for file in 0..count {
        for (page, chunk) in bytes.chunks_exact_mut(4096).enumerate() {
            let word = mix(file << 32 | (page as u64 * 4096));
            chunk[..8].copy_from_slice(&word.to_ne_bytes());
        }
        write(&self::file(directory, file), &bytes)?;
    }
    Ok(())
}

/// Where one of them is.
pub fn file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("f{number:05}"))
}

/// Clips c00000 and so on, each beginning with its name, about `bytes` of them altogether; returns the file
/// of their sizes, one a line.
///
/// # Errors
/// If they cannot be written.
pub fn clips(directory: &Path, bytes: u64, seed: u64) -> Result<PathBuf> {
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let mut random = Rng::new(seed, "clips");
    let content = vec![0u8; CLIP_MAX_BYTES as usize];
    let (mut written, mut clip, mut sizes) = (0, 0u64, String::new());
    while written < bytes {
        let size = clip_bytes(&mut random);
        let path = directory.join(format!("c{clip:05}"));
        let mut file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        let name = format!("c{clip:05}");
        file.write_all(name.as_bytes())
            .and_then(|()| file.write_all(&content[name.len()..size as usize]))
            .with_context(|| format!("write {}", path.display()))?;
        sizes += &format!("{size}\n");
        written += size;
        clip += 1;
    }
    let list = directory.with_extension("sizes");
    write(&list, sizes.as_bytes())?;
    Ok(list)
}

/// A file of `bytes` zeros, none of them a hole.
///
/// # Errors
/// If it cannot be written.
pub fn zeros(path: &Path, bytes: u64) -> Result<()> {
    let make = || -> std::io::Result<()> {
        std::io::copy(&mut std::io::repeat(0).take(bytes), &mut File::create(path)?)?;
        Ok(())
    };
    make().with_context(|| format!("write {}", path.display()))
}

fn clip_bytes(random: &mut Rng) -> u64 {
    let between = |low: u64, high: u64, unit: f64| {
        let (low, high) = ((low as f64).ln(), (high as f64).ln());
        (low + unit * (high - low)).exp() as u64
    };
    if random.below(100) < LARGE_PERCENT {
        between(CLIP_SMALL_MAX_BYTES * 4, CLIP_MAX_BYTES, random.unit())
    } else {
        between(CLIP_MIN_BYTES, CLIP_SMALL_MAX_BYTES, random.unit())
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_have_the_papers_sizes() {
        let mut random = Rng::new(1, "sizes");
        let sizes: Vec<u64> = (0..100_000).map(|_| clip_bytes(&mut random)).collect();
        assert!(sizes.iter().all(|size| (CLIP_MIN_BYTES - 1..=CLIP_MAX_BYTES).contains(size)));
        let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
        assert!((145_000..=165_000).contains(&mean), "{mean}");
    }

    #[test]
    fn files_and_clips_are_written() {
        let directory = tempfile::tempdir().unwrap();
        files(directory.path(), 2).unwrap();
        let second = fs::read(directory.path().join("f00001")).unwrap();
        assert_eq!(second.len() as u64, FILE_BYTES);
        assert_eq!(second[4096..4104], mix(1 << 32 | 4096).to_ne_bytes());
        let list = clips(&directory.path().join("clips"), 1 << 20, 1).unwrap();
        let sizes = fs::read_to_string(list).unwrap();
        let first: u64 = sizes.lines().next().unwrap().parse().unwrap();
        let clip = fs::metadata(directory.path().join("clips/c00000")).unwrap();
        assert_eq!(clip.len(), first);
    }
}
