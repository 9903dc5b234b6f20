//! Which ranges are prefetched for a read that missed.

use crate::arch::nr;
use crate::context::Context;
use crate::descriptors::{File, FileId};
use crate::kernel::Kernel;

/// What one `RWF_NOWAIT` miss starts at least, in bytes: Linux's default
/// `read_ahead_kb`.
const NOWAIT_WINDOW_BYTES: u64 = 128 * 1024;

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
        let sequential = offset == file.stream_next;
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
            from = from.max(file.prefetched_to);
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

    /// After a `RWF_NOWAIT` miss, which lets the kernel's own readahead
    /// work: it reads a sequential stream in windows of its own.
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
        let first_end = end.min(start.saturating_add(NOWAIT_WINDOW_BYTES));
        self.started(id, first_end - 1, first_end - start);
        if first_end < end {
            self.prefetch(id, first_end, end);
        }
        let window_end = start.saturating_add(NOWAIT_WINDOW_BYTES).min(file.size);
        self.e.table.file_mut(id).prefetched_to =
            if sequential { end.max(window_end) } else { end };
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
