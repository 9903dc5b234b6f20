//! Blocks that cannot be read: a device's media errors, on demand.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use parking_lot::Mutex;
use runahead_device::extents::{Extent, extents};

use crate::control::Ask;
use crate::error::{Context, Error, Result};
use crate::state::State;

/// Unit in which a device loses bytes, as a disk with 4 KiB sectors does.
pub const BLOCK_BYTES: u64 = 4096;
/// What a device cannot read, in bytes of the device.
#[derive(Debug, Default)]
pub struct BadBlocks(Mutex<Vec<Range<u64>>>);

impl BadBlocks {
    /// Loses these ranges as well, whole blocks of [`BLOCK_BYTES`].
    pub fn lose(&self, ranges: &[Range<u64>]) {
        let blocks = |range: &Range<u64>| {
            range.start / BLOCK_BYTES * BLOCK_BYTES..range.end.next_multiple_of(BLOCK_BYTES)
        };
        self.0.lock().extend(ranges.iter().map(blocks));
    }

    /// Every block can be read again.
    pub fn mend(&self) {
        self.0.lock().clear();
    }

    /// Whether a read of `len` bytes at `offset` meets a lost block.
    pub fn meets(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        self.0.lock().iter().any(|lost| lost.start < end && offset < lost.end)
    }
}

/// Makes reads of this part of a file fail with EIO, where they reach the
/// device: what is in memory stays readable until the device goes cold.
/// Returns how many bytes of the device are lost.
///
/// # Errors
/// If the file is on no emulated block device (`object` has none), cannot be
/// opened, or has nothing there.
pub fn lose(file: &Path, part: Range<u64>) -> Result<u64> {
    let state = State::containing(file)?;
    if state.device.is_none() {
        return Err(Error::Usage(format!(
            "{} has no blocks that could go bad: use a profile with a block device",
            state.options.profile
        )));
    }
    let opened = File::open(file).context(|| format!("open {}", file.display()))?;
    let extents = extents(&opened, part, usize::MAX, true)
        .context(|| format!("ask where {} lies", file.display()))?;
    let place = |extent: &Extent| extent.physical..extent.physical + extent.length;
    let ranges: Vec<Range<u64>> = extents.iter().map(place).collect();
    if ranges.is_empty() {
        return Err(Error::Usage(format!(
            "{} has no bytes on the device there: a hole, or beyond its end",
            file.display()
        )));
    }
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    state.ask(Ask::Lose { ranges })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_lost_and_no_others() {
        let bad = BadBlocks::default();
        bad.lose(std::slice::from_ref(&(5000..5001)));
        assert!(bad.meets(4096, 1) && bad.meets(8191, 1) && bad.meets(0, 1 << 20));
        assert!(!bad.meets(0, 4096) && !bad.meets(8192, 4096) && !bad.meets(4096, 0));
        bad.mend();
        assert!(!bad.meets(4096, 1));
    }
}
