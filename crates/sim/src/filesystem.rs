//! Where files lie: cylinder groups, as the Fast File System places them (McKusick 1984).

use std::collections::HashMap;
use std::rc::Rc;

use runahead_policy::tip::{Block, FileId, Layout};

use serde::{Deserialize, Serialize};

use crate::array::{Array, STRIPE_UNIT};
use crate::random::Random;

/// Bytes in a block.
pub const BLOCK_BYTES: u64 = 8192;

/// Files of fewer blocks have no indirect block and end in fragments.
const DIRECT_BLOCKS: u32 = 12;
/// Blocks between the rest of such a file and the fragments of its tail.
const TAIL_DISTANCE: u32 = 2;

/// How files are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementParameters {
    /// Blocks in a cylinder group; an odd number of stripe units, so that groups begin on
    /// different disks.
    pub group_blocks: u32,
    /// Blocks of one file in a group before the rest goes to the next (`maxbpg`).
    pub file_group_blocks: u32,
    /// Files from this size on begin at a stripe unit; smaller ones where there is room.
    pub aligned_from_blocks: u32,
    /// The largest gap left between small files, in blocks, by what was deleted.
    pub gap_blocks_max: u32,
    /// How many in a hundred of the files under 12 blocks have their tail, stored as
    /// fragments, apart from the rest.
    pub tail_apart_percent: u32,
}

impl Default for PlacementParameters {
    fn default() -> Self {
        Self {
            group_blocks: 2056,
            file_group_blocks: 256,
            aligned_from_blocks: 32,
            gap_blocks_max: 16,
            tail_apart_percent: 40,
        }
    }
}

/// A file to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// Its size.
    pub bytes: u64,
    /// Its directory: files of one directory lie in the same cylinder groups.
    pub directory: u32,
}

/// Blocks in a file.
pub fn blocks_of(bytes: u64) -> u32 {
    bytes.div_ceil(BLOCK_BYTES) as u32
}

#[derive(Debug)]
struct Placed {
    bytes: u64,
    /// Address in the array of each block.
    addresses: Vec<u32>,
}

/// A file system on a striped array. Cheap to clone: a clone is the same file system.
#[derive(Clone, Debug)]
pub struct FileSystem {
    files: Rc<Vec<Placed>>,
    disks: u16,
}

struct Group {
    first: u32,
    used: u32,
}

struct Placer<'a> {
    parameters: PlacementParameters,
    groups: Vec<Group>,
    random: &'a mut Random,
}

impl FileSystem {
    /// Places files on an array of `disks` drives of `drive_blocks`.
    ///
    /// # Panics
    ///
    /// If the files do not fit.
    pub fn place(
        files: &[FileSpec],
        disks: u16,
        drive_blocks: u32,
        parameters: PlacementParameters,
        random: &mut Random,
    ) -> Self {
        Self::try_place(files, disks, drive_blocks, parameters, random)
            .expect("the files fit on the array")
    }

    /// The same; `None` if the files do not fit.
    pub fn try_place(
        files: &[FileSpec],
        disks: u16,
        drive_blocks: u32,
        parameters: PlacementParameters,
        random: &mut Random,
    ) -> Option<Self> {
        let capacity = u64::from(drive_blocks) * u64::from(disks) * BLOCK_BYTES;
        if files.iter().any(|file| file.bytes > capacity) {
            return None;
        }
        let groups = drive_blocks * u32::from(disks) / parameters.group_blocks;
        let group = |i| Group { first: i * parameters.group_blocks, used: 0 };
        let mut placer = Placer { parameters, groups: (0..groups).map(group).collect(), random };
        // By number: a trace may have any.
        let mut homes: HashMap<u32, usize> = HashMap::new();
        let mut placed = Vec::new();
        for file in files {
            let home = *homes
                .entry(file.directory)
                // Not so near the end that a large file would go round to the beginning.
                .or_insert_with(|| placer.random.below(u64::from(groups) * 3 / 4) as usize);
            let addresses = placer.place(home, blocks_of(file.bytes))?;
            placed.push(Placed { bytes: file.bytes, addresses });
        }
        Some(Self { files: Rc::new(placed), disks })
    }

    /// The address in the array of a block of a file.
    pub fn address(&self, block: Block) -> Option<u32> {
        self.files.get(block.file.0 as usize)?.addresses.get(block.number as usize).copied()
    }
}

impl Placer<'_> {
    fn place(&mut self, home: usize, blocks: u32) -> Option<Vec<u32>> {
        let large = blocks >= self.parameters.aligned_from_blocks;
        let mut addresses = Vec::with_capacity(blocks as usize);
        let mut group = home;
        while (addresses.len() as u32) < blocks {
            let left = blocks - addresses.len() as u32;
            let here = left.min(self.parameters.file_group_blocks);
            group = self.group_with_room(group, here)?;
            let align = if large { STRIPE_UNIT } else { 1 };
            let gap = match large {
                true => 0,
                false => self.random.below(u64::from(self.parameters.gap_blocks_max) + 1) as u32,
            };
            let space = &mut self.groups[group];
            let start = (space.first + space.used + gap).next_multiple_of(align);
            addresses.extend(start..start + here);
            space.used = start + here - space.first;
            let fragmented = (2..DIRECT_BLOCKS).contains(&blocks)
                && self.random.below(100) < u64::from(self.parameters.tail_apart_percent);
            if fragmented && let Some(tail) = addresses.last_mut() {
                *tail += TAIL_DISTANCE;
                space.used += TAIL_DISTANCE;
            }
            group += 1;
        }
        Some(addresses)
    }

    /// The first group from `from` on, going round, with room for so many blocks.
    fn group_with_room(&self, from: usize, blocks: u32) -> Option<usize> {
        let slack = STRIPE_UNIT + self.parameters.gap_blocks_max + TAIL_DISTANCE;
        (0..self.groups.len())
            .map(|i| (from + i) % self.groups.len())
            .find(|&i| self.groups[i].used + blocks + slack <= self.parameters.group_blocks)
    }
}

impl Layout for FileSystem {
    fn file_bytes(&self, file: FileId) -> u64 {
        self.files.get(file.0 as usize).map_or(0, |file| file.bytes)
    }

    fn next_is_contiguous(&self, block: Block) -> bool {
        let next = Block { number: block.number + 1, ..block };
        match (self.address(block), self.address(next)) {
            (Some(here), Some(there)) => there == here + 1 && there % STRIPE_UNIT != 0,
            _ => false,
        }
    }

    fn disk(&self, block: Block) -> u16 {
        self.address(block).map_or(0, |address| Array::locate(self.disks, address).0)
    }

    fn disks(&self) -> u16 {
        self.disks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_blocks_share_an_address_and_large_files_spread() {
        let mut files = vec![FileSpec { bytes: 4082 * BLOCK_BYTES, directory: 0 }];
        files
            .extend((0..1000).map(|i| FileSpec { bytes: 1 + i * 50, directory: 1 + i as u32 % 3 }));
        let parameters = PlacementParameters::default();
        let fs = FileSystem::place(&files, 2, 128_000, parameters, &mut Random::new(3));
        let mut all: Vec<u32> = fs.files.iter().flat_map(|file| file.addresses.clone()).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(*all.last().unwrap() < 256_000);
        let block = |number| Block { file: FileId(0), number };
        assert!(fs.next_is_contiguous(block(0)) && !fs.next_is_contiguous(block(7)));
        assert_ne!(fs.address(block(256)).unwrap(), fs.address(block(255)).unwrap() + 1);
        assert_eq!(fs.file_bytes(FileId(0)), 4082 * BLOCK_BYTES);
    }
}
