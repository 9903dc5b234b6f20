//! The volume that `XDataSlice` cuts: 32-bit values in bricks of 8 KiB.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::rng::Rng;

/// Values of a brick along x, y and z: 16 × 16 × 8 of 4 bytes are 8 KiB
/// (Patterson 1997, figure 3.5: submatrices of one file block).
pub const BRICK: [u64; 3] = [16, 16, 8];

/// Side of the cube at full scale, values (section 3.1 of the paper: 512³).
pub const FULL_SIDE: u64 = 512;

/// Side of a cube with `scale` times the volume, a multiple of the brick.
pub fn side(scale: f64) -> u64 {
    let side = FULL_SIDE as f64 * scale.cbrt();
    ((side / BRICK[0] as f64).round() as u64).max(2) * BRICK[0]
}

/// Writes a volume of `side`³ values in bricks, z running fastest over bricks
/// and over the values of one: smooth waves with noise.
///
/// # Errors
/// If it cannot be written.
pub fn make(path: &Path, side: u64, seed: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut rng = Rng::new(seed, "volume");
    let wave: Vec<u32> =
        (0..side).map(|i| (1000.0 * (1.0 + (i as f64 * 0.05).sin())) as u32).collect();
    let mut brick = Vec::with_capacity(8192);
    for bx in 0..side / BRICK[0] {
        for by in 0..side / BRICK[1] {
            for bz in 0..side / BRICK[2] {
                fill_brick(&mut brick, [bx, by, bz], &wave, &mut rng);
                out.write_all(&brick).with_context(|| format!("write {}", path.display()))?;
            }
        }
    }
    out.flush().with_context(|| format!("write {}", path.display()))
}

fn fill_brick(brick: &mut Vec<u8>, at: [u64; 3], wave: &[u32], rng: &mut Rng) {
    brick.clear();
    let values = |axis: usize| {
        let start = (at[axis] * BRICK[axis]) as usize;
        &wave[start..start + BRICK[axis] as usize]
    };
    let noise = rng.next_u64();
    for x in values(0) {
        for y in values(1) {
            for (z_index, z) in values(2).iter().enumerate() {
                let speckle = (noise >> (z_index * 8)) as u32 & 0xff;
                brick.extend_from_slice(&(x + y + z + speckle).to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_multiples_of_a_brick() {
        assert_eq!(side(1.0), 512);
        assert_eq!(side(0.001), 48);
        assert_eq!(side(1e-9), 32);
        for scale in [0.01, 0.1, 0.5] {
            assert!(BRICK.iter().all(|brick| side(scale).is_multiple_of(*brick)));
        }
    }

    #[test]
    fn a_volume_has_its_size_and_is_reproducible() {
        let directory = tempfile::tempdir().unwrap();
        let volume = |name: &str, seed| {
            let path = directory.path().join(name);
            make(&path, 32, seed).unwrap();
            std::fs::read(path).unwrap()
        };
        let first = volume("a", 1);
        assert_eq!(first.len(), 32 * 32 * 32 * 4);
        assert_eq!(first, volume("b", 1));
        assert_ne!(first, volume("c", 2));
    }
}
