//! Whole small files: for programs that speculation cannot run ahead of,
//! because the next read of a file depends on the bytes of the last (a
//! linker's headers, symbol tables and sections). At a stall in a file that is
//! no larger than the competitive depth, the whole file is prefetched, and its
//! later reads find it.

/// Whole files prefetched before their use is judged.
const FILES_JUDGED: u32 = 16;

/// Stalls passed over after a file that is too large or read as a whole.
const LARGE_PASS_OVER: u32 = 3;

/// Stalls passed over after prefetched files have not been used.
const PASS_OVER: u32 = 256;

/// Bytes that the kernel reads at the start of a file at a read of `len` bytes
/// there (mm/readahead.c, `get_init_ra_size` at the default maximum of 128 KiB,
/// Linux 6.18).
fn first_window_bytes(len: u64) -> u64 {
    const PAGE: u64 = 4096;
    const PAGES_MAX: u64 = 32;
    let pages = len.div_ceil(PAGE).clamp(1, PAGES_MAX).next_power_of_two();
    let window = match pages {
        1 => 4,
        2..=8 => 2 * pages,
        _ => PAGES_MAX,
    };
    window * PAGE
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

    /// None are prefetched in this process.
    pub fn stop(&mut self) {
        self.pass_over = u32::MAX;
    }

    /// Whether to prefetch all of a file of `size` bytes at a stall on a read
    /// of `len` bytes at `offset`.
    pub fn decide(&mut self, size: u64, offset: u64, len: u64, depth_bytes: u64) -> bool {
        let comes_anyway = if offset == 0 { len.max(first_window_bytes(len)) } else { len };
        if size > depth_bytes || size <= comes_anyway {
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

    /// Whether files have been prefetched whole that were used, or may still be.
    pub fn have_begun(&self) -> bool {
        self.prefetched != 0
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
    fn files_that_are_only_begun_stop_it() {
        let mut files = WholeFiles::default();
        let prefetched = (0..10_000)
            .filter(|_| files.eager() && files.decide(100_000, 0, 4096, 200_000))
            .count();
        assert!(prefetched < 700, "{prefetched}");
    }

    #[test]
    fn none_are_prefetched_once_it_is_stopped() {
        let mut files = WholeFiles::default();
        files.stop();
        assert!((0..100_000).all(|_| !files.eager()));
    }

    #[test]
    fn files_that_are_read_keep_it_going() {
        let mut files = WholeFiles::default();
        for _ in 0..1000 {
            assert!(files.decide(100_000, 0, 4096, 200_000));
            files.used();
        }
        assert!(!files.decide(300_000, 0, 4096, 200_000), "larger than the depth");
        assert!(!files.decide(4096, 0, 32_768, 200_000), "read as a whole anyway");
        assert!(!files.decide(32_768, 0, 10_240, 200_000), "the kernel's first window");
        assert!(files.decide(32_769, 0, 10_240, 200_000));
        assert!(files.decide(32_768, 4096, 10_240, 200_000), "not at the start");
    }
}
