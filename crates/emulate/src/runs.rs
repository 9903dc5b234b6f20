//! Which ranges are prefetched for a read that missed.

use crate::abi::PAGE_BYTES;
use crate::arch::nr;
use crate::context::Context;
use crate::descriptors::{File, FileId, Kind};
use crate::kernel::Kernel;
use crate::residency::Method;

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

/// What is asked for at once of a stream that the program had begun: two windows of the
/// kernel's, as much as lies ahead of the program at most, one more in which the kernel
/// looks for a gap behind a mark, and a page.
const TAKEN_OVER_BYTES: u64 = 3 * NOWAIT_WINDOW_BYTES + PAGE_BYTES;

impl<K: Kernel> Context<'_, K> {
    /// Before a read that goes on with a stream which the program had begun. The kernel has
    /// read ahead of the program, and left a mark there. A read by another descriptor that
    /// comes to the mark starts a window at the first gap behind it (`page_cache_async_ra`,
    /// mm/readahead.c), which in Linux 6.18 is taken for a page further on where the mark is
    /// in a large folio (`page_cache_next_miss`): that page is asked for a moment later, and
    /// a disk, which has passed it, comes back when all that is asked for behind it is read
    /// (`od` on 12 MB: after 149 of 220 ms). Where there is no gap for a window's length, no
    /// window is started.
    pub(crate) fn take_over(&mut self, id: FileId, offset: u64) {
        let file = *self.e.table.file(id);
        let goes_on = file.inherited_plus1 != 0
            && file.kind == Kind::Regular
            && file.oracle.method == Method::NoWait
            && file.has_gone_on
            && offset == file.stream_next
            && (1..file.size).contains(&offset);
        if !goes_on || file.taken_over {
            return;
        }
        let to = offset.saturating_add(TAKEN_OVER_BYTES).min(file.size);
        self.prefetch(id, offset, to);
        let file = self.e.table.file_mut(id);
        (file.taken_over, file.prefetched_to) = (true, to.max(file.prefetched_to));
    }

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
