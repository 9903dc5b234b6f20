//! Direct I/O beside a copy. Until Linux 6.5 what the device delivers comes into the page
//! that was the buffer's when the read began (FOLL_GET): where a copy has been made
//! meanwhile, and the program stores to that page before, it has another one by then, and
//! the bytes are lost to it.

use crate::config::CONFIG;
use crate::sys::{self, call};
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::arch::nr as all_nr;
use runahead_protocol::session::TEST_LOSES_DIRECT_READS;

/// Whether this kernel is such a one: cachestat(2) came with 6.5, too. Where nobody says,
/// because a container's filter refuses that call, it may be.
pub fn is_lost() -> bool {
    let nothing = usize::MAX;
    // SAFETY: of no descriptor the kernel tells nothing.
    let answer = unsafe { call(all_nr::CACHESTAT, &[nothing, 0, 0, 0]) };
    answer != sys::EBADF || CONFIG.test.load(Relaxed) & TEST_LOSES_DIRECT_READS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_version() {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = text.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        assert!(is_lost() || version >= (6, 5), "{version:?}");
    }
}
