//! The orphan estimator: blocks that nobody wants to track (section 5.3.4).

use alloc::collections::VecDeque;

use super::buffers::{BufId, Buffers};

/// A FIFO of blocks without value. They are the first to be replaced, unless an estimator
/// saves them when queried.
#[derive(Debug, Default)]
pub(super) struct OrphanEstimator {
    fifo: VecDeque<BufId>,
}

impl OrphanEstimator {
    pub(super) fn adopt(&mut self, buffers: &mut Buffers, id: BufId) {
        let buf = buffers.get_mut(id);
        if !buf.orphan {
            buf.orphan = true;
            self.fifo.push_back(id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    /// estPick: the one adopted first.
    pub(super) fn pick(&mut self, buffers: &mut Buffers) -> Option<BufId> {
        let id = self.fifo.pop_front()?;
        buffers.get_mut(id).orphan = false;
        Some(id)
    }

    /// estInval.
    pub(super) fn remove(&mut self, buffers: &mut Buffers, id: BufId) {
        if buffers.get(id).orphan {
            buffers.get_mut(id).orphan = false;
            self.fifo.retain(|&other| other != id);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }
}
