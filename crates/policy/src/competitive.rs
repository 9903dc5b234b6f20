//! Competitive prefetching (Li, Papathanasiou and Shen 2004): a prefetch of
//! the depth that takes as long to transfer as the switch to it took to begin
//! costs at most twice what an optimal offline policy would, whatever the
//! program does next.
//!
//! Here it serves programs that speculation cannot run ahead of, because the
//! next read of a file depends on the bytes of the last (a linker's headers,
//! symbol tables and sections): at a stall in a file that is no larger than
//! the competitive depth, the whole file is prefetched, and its later reads
//! find it.

/// Largest competitive depth, in bytes.
pub const DEPTH_BYTES_MAX: u64 = 256 * 1024;

/// Throughput that is assumed where none has been measured, in bytes/s.
const BYTES_PER_S_ASSUMED: u64 = 250_000_000;

/// Whole files prefetched before their use is judged.
const FILES_JUDGED: u32 = 16;

/// Stalls passed over after a file that is too large or read as a whole.
const LARGE_PASS_OVER: u32 = 3;

/// Stalls passed over after prefetched files have not been used.
const PASS_OVER: u32 = 256;

/// The competitive depth `S_p = C_switch × R_tr` (Li et al., section 3), in
/// bytes, at most [`DEPTH_BYTES_MAX`].
///
/// * `switch_ns`: what a request costs before its first byte, as a stall
///   shows it.
/// * `bytes_per_s`: transfer rate; 0: unknown.
pub fn depth_bytes(switch_ns: u64, bytes_per_s: u64) -> u64 {
    let rate = if bytes_per_s == 0 { BYTES_PER_S_ASSUMED } else { bytes_per_s };
    let depth = u128::from(switch_ns) * u128::from(rate) / 1_000_000_000;
    u64::try_from(depth).unwrap_or(u64::MAX).min(DEPTH_BYTES_MAX)
}

/// Whether a program uses the files whose rest was prefetched. All-zero is a
/// valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeFiles {
    prefetched: u32,
    used: u32,
    pass_over: u32,
}

impl WholeFiles {
    /// Whether this stall is worth a look at the file's size.
    pub fn eager(&mut self) -> bool {
        let eager = self.pass_over == 0;
        self.pass_over = self.pass_over.saturating_sub(1);
        eager
    }

    /// Whether to prefetch all of a file of `size` bytes at a stall on a read
    /// of `len` bytes.
    pub fn decide(&mut self, size: u64, len: u64, depth_bytes: u64) -> bool {
        if size > depth_bytes || size <= len {
            // Not a program that this helps, as far as this file goes.
            self.pass_over = LARGE_PASS_OVER;
            return false;
        }
        if self.prefetched >= FILES_JUDGED {
            let useful = self.used * 2 >= self.prefetched;
            self.prefetched = 0;
            self.used = 0;
            if !useful {
                self.pass_over = PASS_OVER;
                return false;
            }
        }
        self.prefetched += 1;
        true
    }

    /// A later read of a file that was prefetched whole found its data.
    pub fn used(&mut self) {
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_switch_cost_times_rate() {
        // Section 5 of the paper: 10.5 ms at 51 MB/s is more than the bound.
        assert_eq!(depth_bytes(10_500_000, 51_000_000), DEPTH_BYTES_MAX);
        assert_eq!(depth_bytes(1_000_000, 200_000_000), 200_000);
        assert_eq!(depth_bytes(60_000, 0), 15_000);
        assert_eq!(depth_bytes(u64::MAX, u64::MAX), DEPTH_BYTES_MAX);
    }

    #[test]
    fn files_that_are_only_begun_stop_it() {
        let mut files = WholeFiles::default();
        let prefetched =
            (0..10_000).filter(|_| files.eager() && files.decide(100_000, 4096, 200_000)).count();
        assert!(prefetched < 700, "{prefetched}");
    }

    #[test]
    fn files_that_are_read_keep_it_going() {
        let mut files = WholeFiles::default();
        for _ in 0..1000 {
            assert!(files.decide(100_000, 4096, 200_000));
            files.used();
        }
        assert!(!files.decide(300_000, 4096, 200_000), "larger than the depth");
        assert!(!files.decide(4096, 32_768, 200_000), "read as a whole anyway");
    }
}
