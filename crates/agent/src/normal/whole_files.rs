//! Small files of the program: a stall in one is followed by a prefetch of all
//! of it (Li et al. 2004; the decisions are
//! [`runahead_policy::competitive::whole_files`]).

use super::Request;
use super::asking::{bytes, start_read};
use crate::arch::Frame;
use crate::config::CONFIG;
use crate::state::{State, class};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_policy::competitive::depth_bytes;
use runahead_protocol::session::Mode;

/// At a stall that nobody predicted, in a file no larger than the competitive
/// depth: all of the file (see `policy::competitive`).
pub(super) fn prefetch(state: &State, frame: &Frame, request: &Request, stat: &sys::Stat) {
    let Some(class) = state.class(request.fd as u32 as usize) else { return };
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 || class.load(Relaxed) != class::FILE {
        return;
    }
    let size = stat.size.max(0) as u64;
    let len = bytes(frame, request).unwrap_or(u64::MAX);
    let rate = state.bytes_per_s.load(Relaxed);
    let decided = state.try_locked(|rations, _| {
        let depth = depth_bytes(rations.synchronisations.stall_ns(), rate);
        rations.whole_files.eager() && rations.whole_files.decide(size, request.offset, len, depth)
    });
    if decided == Some(true) {
        start_read(request.fd, 0, size);
        class.store(class::FILE_WHOLE, Relaxed);
    }
}

/// A read found its data; if that was prefetched with the whole file, its use
/// is counted once.
pub(super) fn found(state: &State, request: &Request, copied: usize) {
    if copied == 0 {
        return;
    }
    if let Some(class) = state.class(request.fd as u32 as usize)
        && class.load(Relaxed) == class::FILE_WHOLE
    {
        class.store(class::FILE, Relaxed);
        state.try_locked(|rations, _| rations.whole_files.used());
        let asking = state.asking().saved(state.mean_stall_ns());
        state.asked_ns.store(asking.asked_ns, Relaxed);
    }
}

/// The same of a read of what was there or on its way. One that has waited as if nothing
/// had been asked for has not found it: a file may keep nothing of what is prefetched
/// (FUSE, `FOPEN_DIRECT_IO`), and would be fetched twice each time.
pub(super) fn came(state: &State, request: &Request, copied: usize, waited_ns: u64) {
    if waited_ns == 0 || waited_ns < state.mean_stall_ns() / 2 {
        found(state, request, copied);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_as_if_nothing_was_prefetched_is_no_use() {
        let state = crate::state::zeroed();
        state.stalled(10, 10_000_000);
        let request =
            Request { fd: 3, offset: 4096, len: 4096, explicit: false, started: false, file: 0 };
        let class = state.class(3).unwrap();
        let is_used = |waited_ns| {
            class.store(class::FILE_WHOLE, Relaxed);
            came(&state, &request, 4096, waited_ns);
            class.load(Relaxed) == class::FILE
        };
        assert!(is_used(0) && is_used(100_000), "it was on its way");
        assert!(!is_used(1_000_000), "the file keeps nothing");
    }
}
