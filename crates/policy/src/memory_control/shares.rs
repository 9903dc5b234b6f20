//! How the stalls that speculation added are divided among speculative
//! processes.

use super::STALL;

/// AddedStalls_p(t) = TotAddedStalls(t) × SpecPages_p / TotSpecPages, in
/// [`STALL`]s (`total_added` is in them, too). 0 where there are no
/// speculative pages: then nobody is to blame.
pub fn added_stalls(total_added: u64, spec_pages: u64, total_spec_pages: u64) -> u64 {
    if total_spec_pages == 0 {
        return 0;
    }
    let share = u128::from(total_added) * u128::from(spec_pages.min(total_spec_pages));
    (share / u128::from(total_spec_pages)) as u64
}

/// TotAddedStalls of `refaults`, the pages that the kernel has read in again
/// soon after it had evicted them (`workingset_refault_*`), in [`STALL`]s.
///
/// The paper's eviction list is as long as there are speculative pages; the
/// kernel's shadow entries reach back as far as all of memory does. Of the
/// refaults it sees, those would have been hits without speculation whose
/// page was among the last TotSpecPages to go. Where reuse distances are
/// spread evenly over what the shadow entries cover (`resident_pages`), that
/// is this share of them. It is an estimate: `docs/control.md` says how far
/// it is off.
///
/// Pages are read in again many at a time; `pages_per_stall` of them are one
/// stall (at least 1).
pub fn refaults_added(
    refaults: u64,
    total_spec_pages: u64,
    resident_pages: u64,
    pages_per_stall: u64,
) -> u64 {
    let stalls = refaults.min(1 << 32) * STALL / pages_per_stall.max(1);
    added_stalls(stalls, total_spec_pages, resident_pages.max(total_spec_pages))
}

/// SpecPages_p of a live process: pages of its own plus pages that it has
/// prefetched and the program has not asked for yet. Page size `page_bytes`.
pub fn speculative_pages(
    own_pages: u64,
    prefetched_bytes: u64,
    used_bytes: u64,
    page_bytes: u64,
) -> u64 {
    own_pages.saturating_add(prefetched_bytes.saturating_sub(used_bytes) / page_bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_proportion_and_sum_to_the_whole() {
        assert_eq!(added_stalls(100 * STALL, 30, 120), 25 * STALL);
        let total = [10, 50, 60].map(|pages| added_stalls(120 * STALL, pages, 120));
        assert_eq!(total.iter().sum::<u64>(), 120 * STALL);
        assert_eq!(added_stalls(STALL, 5, 0), 0);
        assert_eq!(added_stalls(u64::MAX, u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn few_speculative_pages_are_little_to_blame() {
        // 1 of 64 pages is speculative: 1 of 64 refaults is its doing.
        assert_eq!(refaults_added(640, 16, 1024, 1), 10 * STALL);
        // All of memory is: every refault is.
        assert_eq!(refaults_added(640, 4096, 1024, 1), 640 * STALL);
        assert_eq!(refaults_added(640, 0, 0, 1), 0);
        assert_eq!(refaults_added(640, 1024, 1024, 32), 20 * STALL);
    }

    #[test]
    fn pages_that_were_used_are_not_speculative() {
        assert_eq!(speculative_pages(10, 409_600, 204_800, 4096), 60);
        assert_eq!(speculative_pages(10, 0, 204_800, 4096), 10);
    }
}
