//! Invariants, for tests.

use super::buffers::State;
use super::manager::{Layout, Tip};

impl<L: Layout> Tip<L> {
    /// Checks every invariant; for tests, as it looks at every header.
    ///
    /// # Panics
    ///
    /// If buffers are not conserved, a replaceable buffer is tracked by no estimator, an
    /// estimator tracks a block without a buffer, or a queue's links disagree.
    pub fn check_invariants(&self) {
        let (mut in_use, mut busy, mut orphans, mut nexuses, mut trackers) = (0, 0, 0, 0, 0);
        for id in self.buffers.ids() {
            let buf = self.buffers.get(id);
            let has_buffer = buf.state != State::Ghost;
            in_use += u32::from(has_buffer);
            busy += u32::from(has_buffer && !buf.replaceable());
            orphans += usize::from(buf.orphan);
            nexuses += buf.nexuses.len();
            trackers += buf.hint_trackers;
            assert!(!buf.replaceable() || buf.tracked(), "{:?} can never be replaced", buf.block);
            assert!(has_buffer || !buf.tracked(), "{:?} is tracked without a buffer", buf.block);
            for nexus in &buf.nexuses {
                assert_eq!(self.hint(nexus.estimator).header(nexus.index), id);
            }
        }
        assert_eq!((in_use, busy), (self.buffers.in_use, self.buffers.busy));
        assert!(in_use <= self.buffers.total, "more buffers in use than there are");
        assert_eq!(orphans, self.orphans.len());
        let (mut resolved, mut tracking) = (0, 0);
        for est in self.hints.iter().flatten() {
            resolved += (est.resolved_end() - est.next_index()) as usize;
            tracking += est.tracking.len() as u32;
            assert!(est.tracking.first().is_none_or(|&index| index >= est.next_index()));
        }
        assert_eq!((nexuses, trackers), (resolved, tracking));
        for queue in &self.lru {
            queue.check(&self.buffers);
        }
    }
}
