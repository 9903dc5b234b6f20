//! What stands in a buffer whose data are missing: what was there before (Fraser and
//! Chang, section 4.1.2), but for what is no text where a text is read.

use crate::context::Context;
use crate::kernel::Kernel;
use crate::outcome::Stop;
use crate::read::Buffers;

/// What an allocator may write at the beginning of memory that is given back to it, in
/// bytes (glibc: two pointers, and two more in a large chunk).
const ALLOCATORS: usize = 32;

/// Text behind that which is looked at, in bytes.
const TEXT: usize = 64;

/// Most that is blanked, in bytes: a few microseconds' work.
const BLANKED_MAX_BYTES: u64 = 64 * 1024;

impl<K: Kernel> Context<'_, K> {
    /// `len` bytes are missing, from the first on, and none is copied yet.
    ///
    /// Of stale bytes many programs make a plausible record. But memory that nobody has
    /// written to is zero, and where it was given back since, it begins with what the
    /// allocator has written; in a text neither is plausible, and a program that finds an
    /// error goes other ways than with the data (a compiler reads the file again, to show
    /// where). So for a program that reads text what is none becomes blank.
    pub(crate) fn blank_what_is_no_text(&mut self, into: &Buffers, len: u64) -> Result<(), Stop> {
        let Some(address) = into.single else { return Ok(()) };
        let mut stale = [0u8; ALLOCATORS + TEXT];
        if len < stale.len() as u64
            || len > BLANKED_MAX_BYTES
            || !self.k.load(address, &mut stale)
            || is_text(&stale)
        {
            return Ok(());
        }
        let is_broken = is_text(stale.get(ALLOCATORS..).unwrap_or(&[]));
        if is_broken || self.has_read_text() {
            return self.write_over(address, len as usize, &[b' '; 256]);
        }
        Ok(())
    }

    /// Whether the last read that the program waited for brought text, as far as that is
    /// still there.
    fn has_read_text(&mut self) -> bool {
        let mut bytes = [0u8; TEXT];
        let at = self.e.read_to.wrapping_add(ALLOCATORS);
        self.e.read_to != 0 && self.k.load(at, &mut bytes) && is_text(&bytes)
    }
}

/// Whether these bytes may be of a text: no control characters but white space.
fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\t'..=b'\r' | b' '..=b'~' | 0x80..))
}
