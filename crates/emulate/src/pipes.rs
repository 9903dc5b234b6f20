//! What a speculative process has put into pipes, in appearance: splice(2) takes
//! as much out again. Of what was there before nothing is known.

use crate::abi::PAGE_BYTES;

/// Pipes that are remembered at once; of others nothing comes out.
const PIPES_MAX: usize = 8;

/// Pages that a pipe holds, unless its program says otherwise (pipe(7), Linux
/// 6.18): each holds bytes of one write, or of one page of a file.
const SLOTS: u64 = 16;

/// What it holds at most, in bytes.
pub const PIPE_BYTES: u64 = SLOTS * PAGE_BYTES;

/// A pipe.
#[derive(Clone, Copy, Debug)]
struct Pipe {
    /// Device and inode number; both 0: free.
    identity: (u64, u64),
    /// Bytes in it.
    bytes: u64,
    /// Its pages that may be taken, at most.
    slots: u64,
}

impl Pipe {
    const FREE: Pipe = Pipe { identity: (0, 0), bytes: 0, slots: 0 };
}

/// All of them. All-zero is a valid start.
#[derive(Debug)]
pub struct Pipes {
    pipes: [Pipe; PIPES_MAX],
}

impl Pipes {
    /// None.
    pub const EMPTY: Pipes = Pipes { pipes: [Pipe::FREE; PIPES_MAX] };

    fn find(&mut self, identity: (u64, u64)) -> Option<&mut Pipe> {
        self.pipes.iter_mut().find(|pipe| pipe.identity == identity)
    }

    /// A pipe that the program reads from, too: from now on what goes into it is
    /// remembered. In the place of an empty one, if need be.
    pub fn watch(&mut self, identity: (u64, u64)) {
        if self.find(identity).is_none()
            && let Some(empty) = self.pipes.iter_mut().find(|pipe| pipe.bytes == 0)
        {
            *empty = Pipe { identity, ..Pipe::FREE };
        }
    }

    /// Whether so many bytes of a file surely go into a pipe, or as many of them as
    /// an empty one holds. One that is not watched is somebody else's to empty.
    pub fn has_room(&mut self, identity: (u64, u64), bytes: u64) -> bool {
        self.find(identity).is_none_or(|pipe| pipe.bytes == 0 || pipe.slots + slots(bytes) <= SLOTS)
    }

    /// So many bytes have gone into it.
    pub fn put(&mut self, identity: (u64, u64), bytes: u64) {
        if let Some(pipe) = self.find(identity) {
            pipe.bytes = pipe.bytes.saturating_add(bytes);
            pipe.slots = pipe.slots.saturating_add(slots(bytes));
        }
    }

    /// Takes at most `most` bytes out; how many.
    pub fn take(&mut self, identity: (u64, u64), most: u64) -> u64 {
        let Some(pipe) = self.find(identity) else { return 0 };
        let taken = pipe.bytes.min(most);
        pipe.bytes -= taken;
        if pipe.bytes == 0 {
            pipe.slots = 0;
        }
        taken
    }
}

/// Pages that so many bytes take, at most.
fn slots(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_no_more_than_there_is_room_for() {
        let mut pipes = Pipes::EMPTY;
        let (one, other) = ((1, 7), (1, 8));
        pipes.put(one, 30_000);
        assert_eq!(pipes.take(one, 10), 0, "others empty it");
        assert!(pipes.has_room(one, PIPE_BYTES));
        pipes.watch(one);
        assert!(pipes.has_room(one, PIPE_BYTES), "it is empty");
        pipes.put(one, 30_000);
        pipes.watch(one);
        assert!(pipes.has_room(one, 20_000));
        assert!(!pipes.has_room(one, 30_000), "nine pages are taken, and nine more are not there");
        assert_eq!(pipes.take(other, 10), 0);
        assert_eq!(pipes.take(one, 20_000), 20_000);
        assert_eq!(pipes.take(one, 20_000), 10_000);
        assert!(pipes.has_room(one, PIPE_BYTES));
        for pipe in 0..20 {
            pipes.watch((2, pipe));
            pipes.put((2, pipe), 1);
        }
        assert_eq!((0..20).map(|pipe| pipes.take((2, pipe), 9)).sum::<u64>(), PIPES_MAX as u64);
    }
}
