//! `tipBuf` headers of real and ghost blocks, in one hash table (section 5.2.5).

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use super::Block;

/// A header's place in the slab.
pub(super) type BufId = u32;
/// No header.
pub(super) const NONE: BufId = u32::MAX;

/// A hinted access to a block: which estimator, and the access's index in its sequence. The
/// thesis's `tipNex`; links are replaced by look-ups in ordered containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nexus {
    pub(super) estimator: u16,
    pub(super) index: u64,
}

/// What a header stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No data: hinted, or remembered in an LRU queue.
    Ghost,
    /// A buffer that a read is filling.
    Reading,
    /// A buffer with the disk's data.
    Clean,
    /// A buffer with newer data than the disk.
    Dirty,
    /// A dirty buffer that is being written.
    Writing,
}

/// The links and tag of a header in an LRU queue (embedded nexus, section 5.2.6).
#[derive(Clone, Copy, Debug)]
pub(super) struct LruLinks {
    /// 0 for the LRU estimator, 1 for the post-hint estimator.
    pub(super) queue: u8,
    pub(super) segment: u16,
    /// No longer tracked by the LRU estimator; kept to score ghost hits.
    pub(super) ghost: bool,
    pub(super) newer: BufId,
    pub(super) older: BufId,
}

/// A block's header.
#[derive(Debug)]
pub(super) struct TipBuf {
    pub(super) block: Block,
    pub(super) state: State,
    /// Readers between match and copy-out: positive hand-off (section 5.1).
    pub(super) holds: u16,
    pub(super) lru: Option<LruLinks>,
    pub(super) nexuses: Vec<Nexus>,
    /// Nexuses of this block in some hint estimator's tracking list.
    pub(super) hint_trackers: u32,
    /// In the orphan estimator's queue.
    pub(super) orphan: bool,
    /// Requested since its data was fetched.
    pub(super) referenced: bool,
    /// Its data was prefetched, not missed.
    pub(super) prefetched: bool,
    /// Put it at the recent end of the LRU queue when its read completes.
    pub(super) release: bool,
    /// Its last read was hinted, and there is a post-hint estimator.
    pub(super) post_hint: bool,
    /// Where it was in the LRU queue when readahead fetched it again.
    pub(super) ghost_place: Option<LruLinks>,
}

impl TipBuf {
    fn ghost(block: Block) -> Self {
        Self {
            block,
            state: State::Ghost,
            holds: 0,
            lru: None,
            nexuses: Vec::new(),
            hint_trackers: 0,
            orphan: false,
            referenced: false,
            prefetched: false,
            release: false,
            post_hint: false,
            ghost_place: None,
        }
    }

    /// Whether its buffer could be given to another block now.
    pub(super) fn replaceable(&self) -> bool {
        self.state == State::Clean && self.holds == 0
    }

    /// Whether some estimator would name it when picking.
    pub(super) fn tracked(&self) -> bool {
        self.hint_trackers > 0 || self.orphan || self.lru.is_some_and(|links| !links.ghost)
    }
}

/// Multiplicative hashing with a fixed seed, so that runs repeat exactly.
#[derive(Default)]
pub(super) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(value)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// All headers, and how many buffers they occupy.
#[derive(Debug)]
pub(super) struct Buffers {
    slab: Vec<TipBuf>,
    vacant: Vec<BufId>,
    table: HashMap<Block, BufId, BuildHasherDefault<BlockHasher>>,
    /// Buffers in the cache.
    pub(super) total: u32,
    /// Headers that are not ghosts.
    pub(super) in_use: u32,
    /// Headers that are neither ghosts nor replaceable.
    pub(super) busy: u32,
}

impl Buffers {
    pub(super) fn new(total: u32) -> Self {
        Self {
            slab: Vec::new(),
            vacant: Vec::new(),
            table: HashMap::default(),
            total,
            in_use: 0,
            busy: 0,
        }
    }

    pub(super) fn find(&self, block: Block) -> Option<BufId> {
        self.table.get(&block).copied()
    }

    pub(super) fn find_or_ghost(&mut self, block: Block) -> BufId {
        if let Some(id) = self.find(block) {
            return id;
        }
        let id = match self.vacant.pop() {
            Some(id) => {
                let spare = core::mem::take(&mut self.slab[id as usize].nexuses);
                self.slab[id as usize] = TipBuf { nexuses: spare, ..TipBuf::ghost(block) };
                id
            }
            None => {
                self.slab.push(TipBuf::ghost(block));
                (self.slab.len() - 1) as BufId
            }
        };
        self.table.insert(block, id);
        id
    }

    pub(super) fn get(&self, id: BufId) -> &TipBuf {
        &self.slab[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: BufId) -> &mut TipBuf {
        &mut self.slab[id as usize]
    }

    /// Changes a header's state, keeping the counts of buffers right.
    pub(super) fn set_state(&mut self, id: BufId, state: State) {
        self.change(id, |buf| buf.state = state);
    }

    /// Adds or takes off one reader's hold.
    pub(super) fn hold(&mut self, id: BufId, on: bool) {
        self.change(id, |buf| if on { buf.holds += 1 } else { buf.holds -= 1 });
    }

    fn change(&mut self, id: BufId, with: impl FnOnce(&mut TipBuf)) {
        let buf = &mut self.slab[id as usize];
        let before = (buf.state != State::Ghost, buf.replaceable());
        with(buf);
        let after = (buf.state != State::Ghost, buf.replaceable());
        self.in_use = self.in_use + u32::from(after.0) - u32::from(before.0);
        let busy = |(in_use, replaceable): (bool, bool)| u32::from(in_use && !replaceable);
        self.busy = self.busy + busy(after) - busy(before);
    }

    /// Forgets a header that stands for nothing any more.
    pub(super) fn drop_if_useless(&mut self, id: BufId) {
        let buf = &self.slab[id as usize];
        let idle = buf.state == State::Ghost && buf.holds == 0 && !buf.orphan;
        let forgotten = buf.lru.is_none() && buf.nexuses.is_empty();
        if idle && forgotten && self.table.get(&buf.block) == Some(&id) {
            self.table.remove(&buf.block);
            self.vacant.push(id);
        }
    }

    /// Every header in use, in an order that depends on nothing but the past calls.
    pub(super) fn ids(&self) -> impl Iterator<Item = BufId> + '_ {
        (0..self.slab.len() as BufId)
            .filter(|&id| self.table.get(&self.slab[id as usize].block) == Some(&id))
    }
}
