//! Segments in the order in which they were disclosed, packed.
//!
//! What a hint costs the program is mostly the memory that it is the first to touch: a page
//! fault costs as much as a hundred hints' instructions. So a segment is kept as what differs
//! from the one before it, 2 to [`SEGMENT_BYTES_MAX`] bytes in place of 24: 2 where a file is
//! read on, some 6 for equal blocks anywhere in a file of gigabytes.

use runahead_manager::Segment;

/// Most bytes of one piece of the queue. Only what is filled is ever touched.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Fewest: a program that reads after each hint has as many pieces as hints.
const PIECE_BYTES_MIN: usize = 64;
/// How much larger a piece is than the one that was full before it.
const GROWTH: usize = 4;
/// Most bytes of one segment: the head, offset, length and file.
const SEGMENT_BYTES_MAX: usize = 2 + 8 + 8 + 4;

/// In the head: how many bytes the offset takes, and from which bit on the length does.
const OFFSET_BYTES: u16 = 0xf;
const LENGTH_SHIFT: u32 = 4;
/// In the head: the length is that of the segment before.
const SAME_LENGTH: u16 = 1 << 8;
/// So is the file.
const SAME_FILE: u16 = 1 << 9;

/// Before the first segment of each piece.
const NOTHING: Segment = Segment { file: 0, offset: 0, length: 0 };

/// A part of the queue: written at its end, read from its front.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Vec<u8>,
    last: Segment,
    len: usize,
    read: usize,
    /// The first segment left, where it was unpacked already.
    front: Option<Segment>,
    /// The one that was taken last.
    taken: Segment,
}

impl Piece {
    /// One for so many segments, or for the first of them, behind the last piece of a queue, if
    /// there is one.
    pub(crate) fn new(segments: usize, behind: Option<&Self>) -> Self {
        let grown = behind.map_or(0, |full| full.capacity().saturating_mul(GROWTH));
        let wanted = segments.saturating_mul(SEGMENT_BYTES_MAX).max(grown);
        let wanted = wanted.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).next_power_of_two();
        let bytes = Vec::with_capacity(wanted);
        Self { bytes, last: NOTHING, len: 0, read: 0, front: None, taken: NOTHING }
    }

    /// Makes it as good as new.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.last, self.len, self.read) = (NOTHING, 0, 0);
        (self.front, self.taken) = (None, NOTHING);
    }

    /// Bytes that it has taken of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether none is larger.
    pub(crate) fn is_large(&self) -> bool {
        self.capacity() >= PIECE_BYTES_MAX
    }

    /// Whether a segment more fits, however large it is packed.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() + SEGMENT_BYTES_MAX <= self.capacity()
    }

    /// Takes over the segments of one that comes behind it, as many as there is room for.
    pub(crate) fn append(&mut self, behind: &mut Self) {
        while self.has_room()
            && let Some(segment) = behind.pop_front()
        {
            self.push(segment);
        }
    }

    /// Appends a segment, where there [is room](Self::has_room).
    pub(crate) fn push(&mut self, segment: Segment) {
        debug_assert!(self.has_room());
        let apart = zigzag(segment.offset.wrapping_sub(end_of(&self.last)));
        let mut head = significant_bytes(apart) as u16;
        let mut packed = [0; SEGMENT_BYTES_MAX];
        let mut end = 2 + head as usize;
        packed[2..10].copy_from_slice(&apart.to_le_bytes());
        if segment.length == self.last.length {
            head |= SAME_LENGTH;
        } else {
            packed[end..end + 8].copy_from_slice(&segment.length.to_le_bytes());
            let bytes = significant_bytes(segment.length);
            head |= (bytes as u16) << LENGTH_SHIFT;
            end += bytes;
        }
        if segment.file == self.last.file {
            head |= SAME_FILE;
        } else {
            packed[end..end + 4].copy_from_slice(&segment.file.to_le_bytes());
            end += 4;
        }
        packed[..2].copy_from_slice(&head.to_le_bytes());
        // All of it, then off with the rest: a copy of a known size is no call.
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&packed);
        self.bytes.truncate(before + end);
        self.last = segment;
        self.len += 1;
    }

    /// Segments left.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first segment left.
    pub(crate) fn front(&mut self) -> Option<Segment> {
        if self.front.is_none() && self.len > 0 {
            self.front = Some(self.unpack(self.taken));
        }
        self.front
    }

    /// Takes the first segment.
    pub(crate) fn pop_front(&mut self) -> Option<Segment> {
        self.taken = self.front()?;
        self.front = None;
        self.len -= 1;
        Some(self.taken)
    }

    /// The segment at the place of reading, behind `before`.
    fn unpack(&mut self, before: Segment) -> Segment {
        let head = self.number(2) as u16;
        let apart = self.number(usize::from(head & OFFSET_BYTES));
        let offset = end_of(&before).wrapping_add(unzigzag(apart));
        let length = match head & SAME_LENGTH {
            0 => self.number(usize::from(head >> LENGTH_SHIFT & OFFSET_BYTES)),
            _ => before.length,
        };
        let file = if head & SAME_FILE == 0 { self.number(4) as u32 } else { before.file };
        Segment { file, offset, length }
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(&self.bytes[self.read..self.read + bytes]);
        self.read += bytes;
        u64::from_le_bytes(number)
    }
}

/// A small number for a small difference of either sign.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Bytes without the leading zeros, 0 to 8.
fn significant_bytes(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(8) as usize
}

fn end_of(segment: &Segment) -> u64 {
    segment.offset.wrapping_add(segment.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(segments: &[Segment]) -> usize {
        let mut piece = Piece::new(segments.len(), None);
        for &segment in segments {
            assert!(piece.has_room());
            piece.push(segment);
        }
        let bytes = piece.bytes.len();
        for (done, &segment) in segments.iter().enumerate() {
            assert_eq!(piece.len(), segments.len() - done);
            assert_eq!((piece.front(), piece.pop_front()), (Some(segment), Some(segment)));
        }
        assert_eq!((piece.len(), piece.front(), piece.pop_front()), (0, None, None));
        bytes
    }

    #[test]
    fn segments_come_out_as_they_went_in() {
        const EDGES: [u64; 7] = [0, 1, 127, 4096, 1 << 40, u64::MAX - 1, u64::MAX];
        let mut all = Vec::new();
        for file in [0, 1, 1 << 20, u32::MAX] {
            for offset in EDGES {
                for length in EDGES {
                    all.push(Segment { file, offset, length });
                }
            }
        }
        through(&all);
        all.reverse();
        through(&all);
        assert_eq!(through(&[]), 0);
    }

    #[test]
    fn what_is_read_on_takes_little() {
        let blocks =
            |step: u64| (0..1000).map(move |i| Segment { file: 3, offset: i * step, length: 8192 });
        assert!(through(&blocks(8192).collect::<Vec<_>>()) <= 2010 + 4);
        assert!(through(&blocks(1 << 20).collect::<Vec<_>>()) <= 5010 + 4);
    }

    #[test]
    fn segments_are_appended_to_a_piece_that_is_read_from() {
        let segment = |i: u64| {
            let (file, offset) = ((i / 7) as u32, (i * i) << 13);
            Segment { file, offset, length: 4096 * (i % 3) }
        };
        let mut all = Piece::new(1000, None);
        let mut taken = 0;
        for i in 0..1000 {
            let mut one = Piece::new(1, None);
            one.push(segment(i));
            all.append(&mut one);
            assert_eq!(one.len(), 0);
            // It runs empty now and then.
            while i % 11 == 0 && all.len() > (i % 2) as usize {
                assert_eq!(all.pop_front(), Some(segment(taken)));
                taken += 1;
            }
        }
        while let Some(front) = all.front() {
            assert_eq!((front, all.pop_front()), (segment(taken), Some(front)));
            taken += 1;
        }
        assert_eq!(taken, 1000);
    }

    #[test]
    fn pieces_become_large_one_by_one() {
        let mut piece = Piece::new(1, None);
        assert_eq!(piece.capacity(), PIECE_BYTES_MIN);
        for _ in 0..5 {
            assert!(!piece.is_large());
            piece = Piece::new(1, Some(&piece));
        }
        assert!(piece.is_large());
        assert_eq!(Piece::new(1, Some(&piece)).capacity(), PIECE_BYTES_MAX);
        assert_eq!(Piece::new(usize::MAX, None).capacity(), PIECE_BYTES_MAX);
    }

    #[test]
    fn a_full_piece_never_grows() {
        let mut piece = Piece::new(usize::MAX, None);
        let mut pushed = 0u64;
        while piece.has_room() {
            let far = u64::MAX / 2 * (pushed % 2);
            piece.push(Segment { file: u32::MAX * (pushed as u32 % 2), offset: far, length: !far });
            pushed += 1;
        }
        assert_eq!(piece.capacity(), PIECE_BYTES_MAX);
        assert_eq!(piece.len() as u64, pushed);
    }
}
