//! Which ranges are prefetched for a read that missed.

use crate::arch::nr;
use crate::context::Context;
use crate::descriptors::{File, FileId};
use crate::kernel::Kernel;

/// What one `RWF_NOWAIT` miss starts at most, in bytes: Linux's default
/// `read_ahead_kb`.
pub(crate) const NOWAIT_WINDOW_BYTES: u64 = 128 * 1024;

/// Most bytes in one `readahead(2)`: the kernel silently cuts longer ones
/// (1280 KiB seen with `read_ahead_kb` 128; less where `max_sectors_kb` is).
const CHUNK_MAX_BYTES: u64 = 512 * 1024;

/// Most bytes prefetched for one call of the program.
const CALL_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Run in which a sequential stream is prefetched where the kernel's own
/// readahead does not do it, in bytes.
const RUN_BYTES: u64 = 256 * 1024;

/// The same for the first read of a file.
const FIRST_RUN_BYTES: u64 = 64 * 1024;

impl<K: Kernel> Context<'_, K> {
    /// Starts the read of a missing range, as far as it has not begun, and
    /// watches it.
    pub(crate) fn prefetch_missing(
        &mut self,
        id: FileId,
        offset: u64,
        range: (u64, u64),
        begun: bool,
    ) {
        let (start, end) = (range.0, range.1.min(range.0.saturating_add(CALL_MAX_BYTES)));
        let file = *self.e.table.file(id);
        let sequential = file.goes_on_at(offset);
        if begun {
            self.prefetch_begun(id, &file, sequential, (start, end));
            return;
        }
        // Alone with readahead(2): exactly the range, or a longer run of a
        // sequential stream.
        let mut from = start;
        let mut to = end;
        if sequential {
            // The first read of a file is a stream's beginning or a header.
            let run = if offset == 0 { FIRST_RUN_BYTES } else { RUN_BYTES };
            from = file.goes_on_from(start);
            if end.saturating_add(run / 2) > file.prefetched_to {
                to = from.saturating_add(run).max(end).min(file.size.max(end));
            }
        }
        if from < to {
            self.prefetch(id, from, to);
        }
        self.e.table.file_mut(id).prefetched_to =
            if sequential { to.max(file.prefetched_to) } else { end };
    }

    /// After a `RWF_NOWAIT` miss, which has begun a read by itself.
    fn prefetch_begun(
        &mut self,
        id: FileId,
        file: &File,
        sequential: bool,
        (start, end): (u64, u64),
    ) {
        if sequential && end <= file.prefetched_to {
            return;
        }
        let run_end = |from: u64| from.saturating_add(RUN_BYTES).min(file.size).max(end);
        if sequential && start < file.prefetched_to {
            // It met what was prefetched before and is still on its way, and has
            // begun nothing.
            let to = run_end(file.prefetched_to);
            self.prefetch(id, file.prefetched_to, to);
            self.e.table.file_mut(id).prefetched_to = to;
            return;
        }
        // What the miss has begun: at the beginning of a file the kernel's
        // first window, twice the read (get_init_ra_size); else the read
        // alone, because a read that copied nothing does not count as the
        // last one of a stream.
        let len = if start == 0 { (end - start).saturating_mul(2) } else { end - start };
        let begun_end = start.saturating_add(len.min(NOWAIT_WINDOW_BYTES)).min(file.size.max(end));
        let first_end = end.min(begun_end);
        self.started(id, first_end - 1, first_end - start);
        let mut from = begun_end;
        let mut to = end.max(begun_end);
        if sequential && start != 0 {
            // What the miss has begun, too: nothing, where the first page that it met
            // was on its way already, by the kernel's readahead for the normal
            // process. What is cached is skipped.
            from = file.goes_on_from(start);
            to = to.max(run_end(from));
        }
        if begun_end < to {
            self.prefetch(id, from, to);
        }
        self.e.table.file_mut(id).prefetched_to = if sequential { to } else { end };
    }

    /// Prefetches a range with `readahead(2)`, in chunks that the kernel does
    /// not cut, each as the device permits.
    pub(crate) fn prefetch(&mut self, id: FileId, from: u64, to: u64) {
        let Ok(real) = self.real(id) else { return };
        let mut at = from;
        while at < to {
            if at != from {
                self.wait_for_device();
            }
            let len = (to - at).min(CHUNK_MAX_BYTES);
            if self.k.call(nr::READAHEAD, [real, at as usize, len as usize, 0, 0, 0]) != 0 {
                return;
            }
            self.started(id, at + len - 1, len);
            at += len;
        }
    }
}
