//! Where files lie: sizes and extents, as the clients report them.

pub use runahead_device::extents::Extent;
use runahead_policy::tip::{Block, FileId, Layout};

use crate::BLOCK_BYTES;
use crate::geometry::Geometry;

/// A file, as a client found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The device that it is on and its inode: what it is, whatever its name.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// When it was made, in ns since 1970, 0 where the file system does not tell: a file that
    /// is removed leaves its inode's number to another.
    pub born_ns: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where it lies, in the order of the file; empty where the file system does not tell.
    pub extents: Vec<Extent>,
    /// The disks below it.
    pub geometry: Geometry,
}

/// Extents kept per file; what lies behind them counts as one more.
pub const EXTENTS_MAX: usize = 4096;
/// Blocks of a file that hints and reads can name, 16 TiB: a block has a number of 32 bits, and
/// sums of two do not pass it. What lies behind counts as not there.
pub const BLOCKS_MAX: u64 = 1 << 31;
const BYTES_MAX: u64 = BLOCKS_MAX * BLOCK_BYTES;
/// Extents kept of all files, 24 MiB: those of further files are taken not to be known.
const EXTENTS_TOTAL_MAX: usize = 1 << 20;

#[derive(Debug)]
struct Placed {
    bytes: u64,
    /// Somebody can read it.
    readable: bool,
    extents: Vec<Extent>,
    /// Where bytes without an extent are taken to lie.
    elsewhere: u64,
}

/// The layout of everything that was registered.
#[derive(Debug)]
pub struct LiveLayout {
    files: Vec<Placed>,
    extents: usize,
    disks: u16,
    stripe_unit: u64,
}

impl LiveLayout {
    /// Nothing yet, on an array of `geometry`.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            files: Vec::new(),
            extents: 0,
            disks: geometry.disks.max(1),
            stripe_unit: geometry.stripe_unit.max(BLOCK_BYTES),
        }
    }

    /// Adds a file; they are numbered from 0.
    pub fn add(&mut self, info: &FileInfo) -> FileId {
        let id = FileId(self.files.len() as u32);
        // Files of which nothing is known lie one behind the other, 1 TiB apart.
        let elsewhere = u64::from(id.0) << 40;
        let mut extents = Vec::new();
        if self.extents + info.extents.len() <= EXTENTS_TOTAL_MAX {
            extents.clone_from(&info.extents);
            self.extents += extents.len();
        }
        let bytes = info.bytes.min(BYTES_MAX);
        self.files.push(Placed { bytes, readable: true, extents, elsewhere });
        id
    }

    /// A file has another size now, and can be read; 0: it is gone.
    pub fn set_bytes(&mut self, file: FileId, bytes: u64) {
        if let Some(placed) = self.files.get_mut(file.0 as usize) {
            placed.bytes = bytes.min(BYTES_MAX);
            placed.readable = true;
        }
    }

    /// Whether anybody can read a file: one that nobody can counts as empty meanwhile.
    pub fn set_readable(&mut self, file: FileId, readable: bool) {
        if let Some(placed) = self.files.get_mut(file.0 as usize) {
            placed.readable = readable;
        }
    }

    /// Memory that the extents take, in bytes.
    pub fn extents_bytes(&self) -> usize {
        self.extents * size_of::<Extent>()
    }

    /// Where a block begins on the device, in bytes.
    pub fn address(&self, block: Block) -> u64 {
        let Some(placed) = self.files.get(block.file.0 as usize) else { return 0 };
        let offset = u64::from(block.number) * BLOCK_BYTES;
        let at = placed.extents.partition_point(|extent| extent.logical <= offset);
        match at.checked_sub(1).map(|at| placed.extents[at]) {
            Some(extent) if offset - extent.logical < extent.length => {
                extent.physical + (offset - extent.logical)
            }
            _ => placed.elsewhere + offset,
        }
    }
}

impl Layout for LiveLayout {
    fn file_bytes(&self, file: FileId) -> u64 {
        let placed = self.files.get(file.0 as usize).filter(|placed| placed.readable);
        placed.map_or(0, |placed| placed.bytes)
    }

    fn next_is_contiguous(&self, block: Block) -> bool {
        let Some(number) = block.number.checked_add(1) else { return false };
        let next = Block { number, ..block };
        if u64::from(number) * BLOCK_BYTES >= self.file_bytes(block.file) {
            return false;
        }
        let (here, there) = (self.address(block), self.address(next));
        there == here + BLOCK_BYTES && there / self.stripe_unit == here / self.stripe_unit
    }

    fn disk(&self, block: Block) -> u16 {
        ((self.address(block) / self.stripe_unit) % u64::from(self.disks)) as u16
    }

    fn disks(&self) -> u16 {
        self.disks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_where_the_extents_say() {
        let geometry = Geometry { disks: 4, stripe_unit: 65536, latency_us: 10_000 };
        let mut layout = LiveLayout::new(&geometry);
        let extents = vec![
            Extent { logical: 0, physical: 131_072, length: 65536 },
            Extent { logical: 65536, physical: 1 << 20, length: 65536 },
        ];
        let info = FileInfo { device: 1, inode: 2, born_ns: 3, bytes: 200_000, extents, geometry };
        let file = layout.add(&info);
        let block = |number| Block { file, number };
        assert_eq!(layout.address(block(1)), 131_072 + 8192);
        assert_eq!((layout.disk(block(0)), layout.disk(block(8))), (2, 0));
        assert!(layout.next_is_contiguous(block(0)));
        assert!(!layout.next_is_contiguous(block(7)), "another extent");
        assert!(!layout.next_is_contiguous(block(24)), "the end of the file");
        assert_eq!(layout.address(block(20)), 20 * BLOCK_BYTES, "no extent");
        assert_eq!(layout.file_bytes(FileId(7)), 0);
        for (readable, bytes) in [(false, 0), (true, 200_000)] {
            layout.set_readable(file, readable);
            assert_eq!(layout.file_bytes(file), bytes);
        }
    }
}
