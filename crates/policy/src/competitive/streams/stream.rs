//! One stream, as it is known by its stalls, and where its next one may be.

use super::verdicts::Beginning;
use super::{Miss, WINDOW_BYTES};

/// A place of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stream {
    /// [`Miss::file`]; 0: free.
    pub(super) file: u64,
    /// [`Miss::by`] of its last stall.
    pub(super) by: u64,
    /// Stalls of that thread since, at other places.
    pub(super) elsewhere: u32,
    /// Where it stalled last.
    pub(super) offset: u64,
    /// Where the read that stalled last ended.
    pub(super) read_end: u64,
    /// Where the last run ends; where there was none, `read_end`.
    pub(super) end: u64,
    /// Size of the file.
    pub(super) size: u64,
    /// When its last stall began or, if that is over, ended, in ns.
    pub(super) at_ns: u64,
    /// Whether that goes on.
    pub(super) waits: bool,
    /// Bytes behind `offset` that count as used already.
    pub(super) credited: u64,
    /// A stall of a read that goes beyond this shows that the stream is longer
    /// than the competitive depth; 0: known, or not to be known.
    pub(super) long_at: u64,
    /// Where it began.
    pub(super) beginning: Beginning,
    /// Length of the last run; 0: not known to be sequential.
    pub(super) run: u32,
    /// How much further than its last stall it may be without one: what the
    /// kernel keeps in flight ahead of it. 0: its runs are ours.
    pub(super) slack: u32,
    /// Stalls that may be those of a stream, in a row.
    pub(super) forward: u8,
    /// Its runs are of the competitive depth though streams reach the ends of
    /// their files: a sample.
    pub(super) sample: bool,
    /// Whether it reached the end of its file has been counted, or is not to
    /// be.
    pub(super) judged: bool,
    /// Whether it has been taken to have stopped.
    pub(super) stopped: bool,
}

impl Stream {
    /// No stream: all zero. Spelled out, since `Default` is not const.
    pub(super) const FREE: Stream = Stream {
        file: 0,
        by: 0,
        elsewhere: 0,
        offset: 0,
        read_end: 0,
        end: 0,
        size: 0,
        at_ns: 0,
        waits: false,
        credited: 0,
        long_at: 0,
        beginning: Beginning::Inside,
        run: 0,
        slack: 0,
        forward: 0,
        sample: false,
        judged: false,
        stopped: false,
    };
}

/// Whether a stream that has ended went on to the end of its file.
pub(super) fn reached(stream: &Stream) -> bool {
    stream.end.saturating_add(stream.slack.into()) >= stream.size
}

/// Whether a miss may be the next stall of a stream: inside its run, at its
/// end, or up to two of the kernel's windows later, or, of the same thread, than
/// what it has found in memory.
pub(super) fn continues(stream: &Stream, miss: &Miss) -> bool {
    let reach = stream.end.saturating_add((2 * WINDOW_BYTES).max(stream.slack.into()));
    let from = if stream.run == 0 { stream.read_end } else { stream.offset };
    let passed = if stream.by == miss.by { miss.passed } else { 0 };
    miss.offset >= from && miss.offset.saturating_sub(passed) <= reach
}

/// Whether the second stall of what may be a stream is where that of a
/// sequential reader would be: at the end of one of the windows that the
/// kernel has read since.
pub(super) fn at_window(last: &Stream, miss: &Miss) -> bool {
    const PAGE_BYTES: u64 = 4096;
    let start = last.offset / PAGE_BYTES * PAGE_BYTES;
    let read_end = miss.offset.saturating_add(miss.len);
    let ends = |end: u64| miss.offset <= end && end < read_end;
    ends(start.saturating_add(WINDOW_BYTES)) || ends(start.saturating_add(2 * WINDOW_BYTES))
}
