//! What stands in a buffer whose data are missing: what was there before (Fraser and
//! Chang, section 4.1.2), but for what is no text where a text is read.

use crate::context::Context;
use crate::kernel::Kernel;
use crate::outcome::Stop;
use crate::read::Buffers;

/// Bytes at the beginning of a buffer that are looked at, more than an allocator writes
/// there (glibc: two pointers, and two more in a large chunk).
const LOOKED_AT: usize = 64;

/// Most that is blanked, in bytes: more of it would be work for the copy.
const BLANKED_MAX_BYTES: u64 = 64 * 1024;

impl<K: Kernel> Context<'_, K> {
    /// `len` bytes are missing, from the first on, and none is copied yet; or they are given
    /// up, because the program has passed them ([`Context::reopen_or_lose`]).
    ///
    /// Of stale bytes many programs make a plausible record. But memory that nobody has
    /// written to is zero, and where it was given back since, it begins with what the
    /// allocator has written; in a text neither is plausible, and a program that finds an
    /// error goes other ways than with the data (a compiler reads the file again, to show
    /// where). So for a program that reads text what is none becomes blank.
    pub(crate) fn blank_what_is_no_text(&mut self, into: &Buffers, len: u64) -> Result<(), Stop> {
        let Some(address) = into.single else { return Ok(()) };
        let mut stale = [0u8; LOOKED_AT];
        let fits = (stale.len() as u64..=BLANKED_MAX_BYTES).contains(&len);
        if !self.e.reads_text || !fits || !self.k.load(address, &mut stale) || is_text(&stale) {
            return Ok(());
        }
        self.write_over(address, len as usize, &[b' '; 256])
    }
}

/// Whether these bytes may be of a text: no control characters but white space.
pub fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\t'..=b'\r' | b' '..=b'~' | 0x80..))
}
