//! Whether several threads wait for one device at once: what is read ahead for
//! one of them is read in front of what the others wait for.
//!
//! A thread that waits for long, because of what was read ahead for another
//! one, begins waits as seldom: the waits of the others count for as long as
//! waits take, and both their beginnings and their ends do.

/// The last waits of a process for a device. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Thread that began or ended a wait last, by a number of its own; 0: none.
    last: usize,
    /// When, in ns.
    last_ns: u64,
    /// When any other thread last did, in ns; 0: none has.
    other_ns: u64,
}

impl Crowd {
    /// Nobody has waited.
    pub const NONE: Crowd = Crowd { last: 0, last_ns: 0, other_ns: 0 };

    /// A thread begins to wait, or has waited until now.
    pub fn waits(&mut self, thread: usize, now_ns: u64) {
        if self.last != thread {
            self.other_ns = self.last_ns;
            self.last = thread;
        }
        self.last_ns = now_ns;
    }

    /// Whether another thread than the one that waits since `now_ns` has
    /// waited in the last `within_ns`.
    pub fn is_there(&self, now_ns: u64, within_ns: u64) -> bool {
        self.other_ns != 0 && now_ns.saturating_sub(self.other_ns) < within_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_no_crowd() {
        let mut crowd = Crowd::NONE;
        for turn in 1..100 {
            crowd.waits(7, turn * 10);
            assert!(!crowd.is_there(turn * 10, 1000));
        }
    }

    /// Recorded with four threads on a disk: one of them stalled twice, while
    /// the others waited for what a copy of it had asked for before.
    #[test]
    fn one_that_stalls_again_while_another_waits_is_in_a_crowd() {
        let mut crowd = Crowd::NONE;
        crowd.waits(1, 100);
        crowd.waits(2, 110);
        crowd.waits(1, 120);
        crowd.waits(1, 150);
        assert!(crowd.is_there(150, 50));
        crowd.waits(1, 400);
        assert!(!crowd.is_there(400, 50), "the other one has stopped");
        assert!(crowd.is_there(400, 300), "or waits for that long");
    }
}
