//! Where the kernel's readahead does for a sequential stream what a copy would.
//!
//! Fraser and Chang synchronise at every unpredicted stall (section 4.1.2).
//! A stream of one file stalls at windows that the kernel has asked for while
//! the program computed on those before: what is left to remove is the share
//! of its time that it waits, and a copy, which reads all that the program
//! reads, costs it a part of a core that shares its pipelines. On flash that
//! share is below a half, and copies made `sed` and `base64` slower by a
//! tenth; on a network volume it is nine tenths. A stream of less than 500 MB/s
//! that waits for half of its time on flash waits for what others have asked the
//! device for: a window of 128 KiB, of which the program computes on half, comes in
//! less than that takes (`tar t` beside a reader: 1.2 times plain's time with a copy).

use crate::ration::{LONG_STALL_NS, SHORT_STALL_NS};

/// Bytes of a stream after which its share of waiting says something: eight of
/// Linux's windows (`read_ahead_kb` 128), of which the first are shorter.
pub const EVIDENCE_BYTES: u64 = 1 << 20;

/// Most bytes from one stall to the next of a stream: some windows come in
/// time.
const STRIDE_MAX_BYTES: u64 = 1 << 20;

/// Bytes in a microsecond from which on a stream is fast: the windows in flight
/// fill such a device, and what is waited for is its bandwidth (`tar t` on
/// flash, 1.2 GB/s: 1.1 times plain's time with a copy).
const FAST_BYTES_PER_US: u64 = 500;

/// Streams that are told from each other, by their descriptors: `cmp`, `diff`
/// and `join` read two by turns.
const STREAMS: usize = 4;

/// The streams that stalled last, of one process. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    last: [Stream; STREAMS],
    /// Whether streams of this process wait for the better part of their time.
    wait: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stream {
    fd: i32,
    /// Where it began, and where it stalled last, in bytes.
    first: u64,
    last: u64,
    began_ns: u64,
    /// What the process had waited when it began, in ns, and how often.
    waited_ns: u64,
    stalls: u32,
}

/// A read that is about to wait.
#[derive(Clone, Copy, Debug)]
pub struct Stalled {
    /// Its descriptor.
    pub fd: i32,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// The file's size, in bytes.
    pub size: u64,
    /// Mean wait so far, in ns; 0: unknown.
    pub stall_ns: u64,
    /// What the process has waited so far, in ns.
    pub waited_ns: u64,
    /// How often it has.
    pub stalls: u32,
    /// Now, in ns.
    pub now_ns: u64,
    /// Stalls since the last one that was told of which nobody has said where they
    /// were.
    pub unseen: u32,
}

impl Streams {
    /// Whether streams of this process have been seen to wait for half of their time
    /// or more, longer than on flash, and not for the device's bandwidth.
    pub fn wait(&self) -> bool {
        self.wait
    }

    /// Whether a copy may be worth it at this stall: of a read elsewhere, of a
    /// small file, or of a stream that waits for half of its time or more, longer
    /// than on flash, and not for the device's bandwidth.
    pub fn may_gain(&mut self, stalled: &Stalled) -> bool {
        let &Stalled { fd, offset, size, stall_ns, waited_ns, stalls, now_ns, unseen } = stalled;
        let Some(stream) = self.last.get_mut(fd as usize % STREAMS) else { return true };
        let stride_max = STRIDE_MAX_BYTES.saturating_mul(u64::from(unseen) + 1);
        let goes_on = fd == stream.fd && offset > stream.last && offset - stream.last <= stride_max;
        if goes_on {
            stream.last = offset;
            let bytes = offset - stream.first;
            if bytes >= EVIDENCE_BYTES {
                let passed_ns = now_ns.saturating_sub(stream.began_ns);
                let waited_ns = waited_ns.saturating_sub(stream.waited_ns);
                let fast = bytes / FAST_BYTES_PER_US >= passed_ns / 1000;
                let stalls = u64::from(stalls.wrapping_sub(stream.stalls));
                let slow = waited_ns >= stalls.saturating_mul(SHORT_STALL_NS);
                self.wait = waited_ns >= passed_ns / 2 && slow && !fast;
            }
        } else {
            let (first, last, began_ns) = (offset, offset, now_ns);
            *stream = Stream { fd, first, last, began_ns, waited_ns, stalls };
        }
        let begins = offset == 0 && size >= EVIDENCE_BYTES;
        !(goes_on || begins) || self.wait || stall_ns >= LONG_STALL_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 128 * 1024;

    const FIRST: Stalled = Stalled {
        fd: 3,
        offset: 0,
        size: 1 << 30,
        stall_ns: 80_000,
        waited_ns: 0,
        stalls: 0,
        now_ns: 1_000_000_000,
        unseen: 0,
    };

    /// Stalls of a stream at each window, which wait `wait_ns` and are followed
    /// by `compute_ns`; how many may gain.
    fn gaining(stream: &mut Streams, windows: u64, wait_ns: u64, compute_ns: u64) -> usize {
        let stalled = |window: u64| Stalled {
            fd: 3,
            offset: window * WINDOW,
            size: windows * WINDOW,
            stall_ns: wait_ns,
            waited_ns: 7_000_000 + window * wait_ns,
            stalls: 70 + window as u32,
            now_ns: 1_000_000_000 + window * (wait_ns + compute_ns),
            unseen: 0,
        };
        (0..windows).filter(|&window| stream.may_gain(&stalled(window))).count()
    }

    #[test]
    fn a_stream_that_computes_is_left_to_the_kernel() {
        assert_eq!(gaining(&mut Streams::default(), 400, 250_000, 350_000), 0);
    }

    #[test]
    fn a_stream_that_waits_is_not_and_the_next_one_neither() {
        let mut stream = Streams::default();
        assert_eq!(gaining(&mut stream, 400, 1_500_000, 200_000), 400 - 8);
        assert_eq!(gaining(&mut stream, 400, 1_500_000, 200_000), 400, "known by now");
        assert_eq!(gaining(&mut stream, 400, 250_000, 350_000), 8, "until it shows otherwise");
    }

    #[test]
    fn a_stream_of_flash_that_waits_for_others_gains_nothing() {
        let gaining = |wait_ns| gaining(&mut Streams::default(), 400, wait_ns, 120_000);
        assert_eq!([SHORT_STALL_NS - 1, SHORT_STALL_NS].map(gaining), [0, 400 - 8]);
    }

    #[test]
    fn a_stream_that_waits_for_bandwidth_gains_nothing() {
        assert_eq!(gaining(&mut Streams::default(), 400, 220_000, 10_000), 0);
    }

    #[test]
    fn long_stalls_wait_for_no_evidence() {
        assert_eq!(gaining(&mut Streams::default(), 8, LONG_STALL_NS, 0), 8);
    }

    #[test]
    fn a_stream_goes_on_over_stalls_that_were_not_seen() {
        let mut stream = Streams::default();
        let mut at = |offset, unseen| stream.may_gain(&Stalled { offset, unseen, ..FIRST });
        assert!(!at(0, 0) && !at(5 << 20, 4));
        assert!(at(11 << 20, 4));
    }

    #[test]
    fn other_stalls_may_gain() {
        let mut stream = Streams::default();
        let mut at = |fd, offset, size| stream.may_gain(&Stalled { fd, offset, size, ..FIRST });
        assert!((0..9).all(|_| at(3, 0, 10_000)), "small files, one after the other");
        assert!(at(4, 300 << 20, 1 << 30) && at(4, 200 << 20, 1 << 30), "backwards");
        assert!(at(4, 500 << 20, 1 << 30), "far ahead");
        assert!(!at(4, (500 << 20) + 4096, 1 << 30), "a stream");
        assert!(at(5, (500 << 20) + 8192, 1 << 30), "another file");
        assert!(!at(4, (500 << 20) + 8192, 1 << 30), "by turns");
    }
}
