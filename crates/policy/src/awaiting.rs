//! Whether the program waits for its copy's first prediction.
//!
//! Where a program shares memory with others, the copy sees that memory as it
//! is when it touches it (Fraser and Chang, section 4.1.1, make it
//! copy-on-write, which only the copy's own stores are). One that begins when
//! the program has gone on comes to nothing; one that begins before touches
//! what the program has not come to. The wait is worth it only where many
//! predictions follow.

/// Hits with which a copy that was waited for has paid: the wait is two stalls
/// at most, and of what is read in sequence the kernel's readahead would have
/// saved most.
pub const HITS_MIN: u64 = 32;

/// Most copies that are not waited for between two that are.
pub const PASS_OVER_MAX: u32 = 64;

/// What is known of one program's copies. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaiting {
    /// A copy that shared memory and was not waited for came to nothing.
    needed: bool,
    /// The present copy was waited for.
    awaited: bool,
    /// It has still to be accounted for.
    open: bool,
    /// Copies that are not waited for before the next that is.
    pass_over: u32,
    pass_over_next: u32,
}

impl Awaiting {
    /// A copy is being made: whether its first prediction is waited for.
    pub fn begin(&mut self) -> bool {
        self.awaited = self.needed && self.pass_over == 0;
        self.pass_over = self.pass_over.saturating_sub(1);
        self.open = true;
        self.awaited
    }

    /// The copy has ended, or is about to be replaced: the program found
    /// `hits` ranges that it had prefetched. `shares`: it found memory that the
    /// program shares.
    pub fn outcome(&mut self, shares: bool, hits: u64) {
        if !core::mem::take(&mut self.open) || !shares {
            return;
        }
        if !self.awaited {
            self.needed |= hits == 0;
        } else if hits < HITS_MIN {
            self.pass_over_next = (self.pass_over_next * 2).clamp(1, PASS_OVER_MAX);
            self.pass_over = self.pass_over_next;
        } else {
            self.pass_over_next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_share_memory_and_whose_copies_fail_wait() {
        let mut awaiting = Awaiting::default();
        assert!(!awaiting.begin());
        awaiting.outcome(false, 0);
        assert!(!awaiting.begin(), "it shares nothing");
        awaiting.outcome(true, 5);
        assert!(!awaiting.begin(), "it did well");
        awaiting.outcome(true, 0);
        assert!(awaiting.begin());
        awaiting.outcome(true, HITS_MIN);
        assert!(awaiting.begin(), "and again while it pays");
    }

    #[test]
    fn waits_that_do_not_pay_become_rare() {
        let mut awaiting = Awaiting::default();
        awaiting.begin();
        awaiting.outcome(true, 0);
        let mut waits = 0;
        for _ in 0..1000 {
            waits += u32::from(awaiting.begin());
            awaiting.outcome(true, HITS_MIN - 1);
            awaiting.outcome(true, 1000); // Said twice: heard once.
        }
        assert!((7..=22).contains(&waits), "{waits}");
    }
}
