//! The file that the interference programs read: records that tell when they
//! are put together from two.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Bytes of a record, as in `bench/interference/common.h`.
pub const RECORD_BYTES: u64 = 16384;

/// `SplitMix64`'s output function, as in `bench/interference/common.h`.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Writes `count` records; word `j` of record `i` is mix(i) + j.
///
/// # Errors
/// If the file cannot be written.
pub fn make(path: &Path, count: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    for record in 0..count {
        for word in 0..RECORD_BYTES / 8 {
            out.write_all(&mix(record).wrapping_add(word).to_le_bytes())
                .with_context(|| format!("write {}", path.display()))?;
        }
    }
    out.flush().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        make(&path, 3).unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len() as u64, 3 * RECORD_BYTES);
        let word = |at: u64| {
            let start = at as usize * 8;
            u64::from_le_bytes(bytes[start..start + 8].try_into().unwrap())
        };
        let words = RECORD_BYTES / 8;
        assert_eq!(word(5), word(0).wrapping_add(5));
        assert_eq!(word(words), mix(1));
        assert_ne!(word(words), word(words - 1).wrapping_add(1));
    }
}
