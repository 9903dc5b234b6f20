//! The requests that wait at one spindle, and which of them is served next.

use std::collections::{BTreeMap, VecDeque};

use crate::profile::Discipline;

/// How many other requests CSCAN may serve before one that waits, where few do:
/// keeps a stream in front of the head from starving the rest of the disk.
pub const BYPASSES_MAX: u64 = 128;

/// The same for each request that waits. Those that come while the head passes
/// once over a long queue are about as many as it holds: were each passed over no
/// more than [`BYPASSES_MAX`] times, all would be overdue, and served as they came.
const BYPASSES_OF_EACH_WAITING: u64 = 4;

/// A part of a request that lies on one spindle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Request that it belongs to.
    pub request: usize,
    /// First byte, counted on the spindle.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// When it came, in nanoseconds.
    pub arrival_ns: u64,
    /// Whether it writes.
    pub write: bool,
}

/// Waiting pieces in the order of the discipline.
#[derive(Debug)]
pub struct Queue {
    discipline: Discipline,
    /// Under CSCAN: by offset, then by arrival.
    by_offset: BTreeMap<(u64, u64), Piece>,
    /// Arrival order: the pieces themselves (FIFO), or their keys and the
    /// number of services before they came (CSCAN; may name served ones).
    by_arrival: VecDeque<Arrived>,
    arrivals: u64,
    services: u64,
}

#[derive(Debug)]
struct Arrived {
    key: (u64, u64),
    services_before: u64,
    piece: Piece,
}

impl Queue {
    /// An empty queue.
    pub fn new(discipline: Discipline) -> Self {
        Self {
            discipline,
            by_offset: BTreeMap::new(),
            by_arrival: VecDeque::new(),
            arrivals: 0,
            services: 0,
        }
    }

    /// Pieces that wait.
    pub fn len(&self) -> usize {
        match self.discipline {
            Discipline::Fifo => self.by_arrival.len(),
            Discipline::Cscan => self.by_offset.len(),
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: Piece) {
        let key = (piece.offset, self.arrivals);
        self.arrivals += 1;
        self.by_arrival.push_back(Arrived { key, services_before: self.services, piece });
        if self.discipline == Discipline::Cscan {
            self.by_offset.insert(key, piece);
        }
    }

    /// Takes the piece to serve next, with the head at byte `head`.
    pub fn pop(&mut self, head: u64) -> Option<Piece> {
        let piece = match self.discipline {
            Discipline::Fifo => self.by_arrival.pop_front().map(|arrived| arrived.piece),
            Discipline::Cscan => self.pop_cscan(head),
        };
        self.services += u64::from(piece.is_some());
        piece
    }

    fn pop_cscan(&mut self, head: u64) -> Option<Piece> {
        while self.by_arrival.front().is_some_and(|a| !self.by_offset.contains_key(&a.key)) {
            self.by_arrival.pop_front();
        }
        let oldest = self.by_arrival.front()?;
        let bypasses_max = BYPASSES_MAX.max(BYPASSES_OF_EACH_WAITING * self.by_offset.len() as u64);
        let key = if self.services - oldest.services_before >= bypasses_max {
            oldest.key
        } else {
            let upwards = self.by_offset.range((head, 0)..).next();
            *upwards.or_else(|| self.by_offset.iter().next())?.0
        };
        self.by_offset.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(request: usize, offset: u64) -> Piece {
        Piece { request, offset, len: 1, arrival_ns: 0, write: false }
    }

    fn drain(queue: &mut Queue, mut head: u64) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(next) = queue.pop(head) {
            head = next.offset + next.len;
            order.push(next.offset);
        }
        order
    }

    #[test]
    fn fifo_keeps_arrival_order() {
        let mut queue = Queue::new(Discipline::Fifo);
        for offset in [5, 1, 9, 3] {
            queue.push(piece(0, offset));
        }
        assert_eq!(queue.len(), 4);
        assert_eq!(drain(&mut queue, 4), [5, 1, 9, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn cscan_goes_up_then_wraps() {
        let mut queue = Queue::new(Discipline::Cscan);
        for offset in [5, 1, 9, 3] {
            queue.push(piece(0, offset));
        }
        assert_eq!(drain(&mut queue, 4), [5, 9, 1, 3]);
    }

    #[test]
    fn cscan_serves_equal_offsets_in_arrival_order() {
        let mut queue = Queue::new(Discipline::Cscan);
        for request in 0..3 {
            queue.push(piece(request, 7));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(7)).map(|p| p.request).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn a_stream_ahead_of_the_head_cannot_starve_the_rest() {
        let mut queue = Queue::new(Discipline::Cscan);
        queue.push(piece(usize::MAX, 0));
        let mut head = 100;
        for served in 0.. {
            queue.push(piece(0, head));
            let next = queue.pop(head).unwrap();
            if next.request == usize::MAX {
                assert_eq!(served, BYPASSES_MAX);
                break;
            }
            assert!(served < BYPASSES_MAX, "starved");
            head = next.offset + next.len;
        }
    }
}
