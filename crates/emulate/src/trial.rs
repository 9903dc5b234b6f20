//! Whether a scout's reading ahead is worth going on with. Pure: it is told of
//! each directory that the program has come to, and says what follows.

use crate::scout::Came;
use runahead_protocol::stats::Park;

/// A wait that shows a disk with an arm to move, in ns. A program that reads
/// such a disk in its own order may lose more by reads in another one between
/// than they save, so there it is tried out.
pub(crate) const ARM_NS: u64 = 3_000_000;

/// Directories that had been read, and after them such that were left unread,
/// over which waits are compared.
const TRIED_READ: u64 = 32;
/// See [`TRIED_READ`].
const TRIED_UNREAD: u64 = 16;

/// Directories in a row that waited and had not been read, after which it ends.
const UNREAD_MAX: u32 = 64;

/// Directories and the waits for them, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    directories: u64,
    ns: u64,
}

impl Waits {
    fn add(&mut self, ns: u64) {
        self.directories += 1;
        self.ns = self.ns.saturating_add(ns);
    }

    fn mean_ns(&self) -> u64 {
        self.ns.checked_div(self.directories).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Reading ahead, for now.
    Reading,
    /// Leaving what comes unread.
    Leaving,
    /// It does shorten the waits, or is not asked.
    Over,
}

/// What follows from the directories so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It goes on as it does.
    On,
    /// What was to be read is to be forgotten: the next ones are left unread.
    Forget,
    /// It ends, for this reason.
    End(Park),
}

/// The trial of one scout.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    phase: Phase,
    read: Waits,
    left: Waits,
    unread: u32,
    used: u64,
    last_ino: u64,
}

impl Trial {
    /// `usual_ns`: what the program's waits took before, in ns.
    pub fn new(usual_ns: u64) -> Trial {
        Trial {
            phase: if usual_ns >= ARM_NS { Phase::Reading } else { Phase::Over },
            read: Waits::default(),
            left: Waits::default(),
            unread: 0,
            used: 0,
            last_ino: 0,
        }
    }

    /// Whether what comes is to be left unread, for comparison.
    pub fn leaves(&self) -> bool {
        self.phase == Phase::Leaving
    }

    /// Directories that had been read ahead and were not waited for.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The program has come to a directory.
    pub fn came(&mut self, came: Came, ino: u64, waited_ns: u64) {
        let leaves = self.leaves();
        self.unread = match came {
            Came::Unread if !leaves => self.unread + u32::from(waited_ns != 0),
            _ => 0,
        };
        // Its end is read by one more call.
        if core::mem::replace(&mut self.last_ino, ino) == ino {
            return;
        }
        self.used += u64::from(came == Came::True);
        match came {
            Came::Unread if leaves => self.left.add(waited_ns),
            Came::Unread => {}
            Came::True | Came::InMemory | Came::Late => self.read.add(waited_ns),
        }
    }

    /// What follows.
    pub fn follows(&mut self) -> Next {
        if self.unread >= UNREAD_MAX {
            return Next::End(Park::OffTrack);
        }
        match self.phase {
            Phase::Reading if self.read.directories >= TRIED_READ => {
                self.phase = Phase::Leaving;
                Next::Forget
            }
            Phase::Leaving if self.left.directories >= TRIED_UNREAD => {
                self.phase = Phase::Over;
                if self.read.mean_ns() >= self.left.mean_ns() {
                    // What was read has saved nothing.
                    self.used = 0;
                    return Next::End(Park::Disabled);
                }
                Next::On
            }
            _ => Next::On,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Directories of a disk with an arm: those read ahead take `read_ns`, those
    /// that are left `left_ns`.
    fn tried(read_ns: u64, left_ns: u64) -> (Next, u64) {
        let mut trial = Trial::new(8 * MS);
        for ino in 1..=TRIED_READ {
            assert_eq!(trial.follows(), Next::On);
            assert!(!trial.leaves());
            let came = if read_ns == 0 { Came::True } else { Came::Late };
            trial.came(came, ino, read_ns);
            trial.came(Came::True, ino, 0);
        }
        assert_eq!(trial.follows(), Next::Forget);
        for ino in 1..=TRIED_UNREAD {
            assert_eq!(trial.follows(), Next::On);
            assert!(trial.leaves());
            trial.came(Came::Unread, 1000 + ino, left_ns);
        }
        (trial.follows(), trial.used())
    }

    #[test]
    fn a_disk_whose_waits_get_shorter_is_read_ahead() {
        assert_eq!(tried(0, 8 * MS), (Next::On, TRIED_READ));
        assert_eq!(tried(7 * MS, 8 * MS), (Next::On, 0));
    }

    #[test]
    fn a_disk_whose_waits_do_not_is_left_alone() {
        assert_eq!(tried(9 * MS, 8 * MS), (Next::End(Park::Disabled), 0));
        assert_eq!(tried(8 * MS, 8 * MS), (Next::End(Park::Disabled), 0));
    }

    #[test]
    fn a_scout_that_has_lost_the_program_ends() {
        let mut trial = Trial::new(MS);
        for ino in 0..u64::from(UNREAD_MAX) {
            assert_eq!(trial.follows(), Next::On);
            trial.came(Came::Unread, ino, MS);
            // What does not wait says nothing.
            trial.came(Came::Unread, ino, 0);
        }
        assert_eq!(trial.follows(), Next::End(Park::OffTrack));
        trial.came(Came::True, 1 << 20, 0);
        assert_eq!(trial.follows(), Next::On, "one that comes true begins it anew");
    }

    #[test]
    fn where_no_arm_moves_nothing_is_left_unread() {
        let mut trial = Trial::new(MS);
        for ino in 0..1000 {
            trial.came(Came::Late, ino, 2 * MS);
            assert_eq!(trial.follows(), Next::On);
        }
        assert!(!trial.leaves());
    }
}
