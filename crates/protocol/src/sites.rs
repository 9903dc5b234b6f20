//! The site table: which `syscall` instructions of which libraries are safe
//! to patch, and which calls of the function that glibc 2.41 and later cancel
//! threads in, found by the launcher (crate `sites`), used by the agent.
//!
//! A file of three consecutive parts: one [`Header`], `object_count`
//! [`Object`]s, `site_count` [`Site`]s; native byte order, every part a
//! multiple of eight bytes. It is replaced as a whole (written beside, then
//! renamed), never changed in place, because agents map it.

/// First eight bytes of a site table: "RASITES" and the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RASITES\x03");

/// Longest build-id that a table holds, in bytes (GNU ld's SHA-1 has 20).
pub const BUILD_ID_LEN_MAX: usize = 24;

/// Longest run of original bytes at a site, in bytes.
pub const SITE_LEN_MAX: usize = 20;

/// Length of the jump that replaces the instructions, in bytes (`jmp rel32`).
pub const JUMP_LEN: usize = 5;

/// Most objects in a table.
pub const OBJECTS_MAX: u32 = 64;

/// [`Site::len`] of a `syscall` with no room for a jump: it becomes a short jump
/// ([`SHORT_JUMP`]) to padding nearby that nobody comes to, and the jump stands there.
pub const LEN_BY_PADDING: u8 = 2;

/// Opcode of a jump with a distance of one byte.
pub const SHORT_JUMP: u8 = 0xeb;

/// Size of the pages that are written one by one, in bytes.
pub const PAGE_LEN: u64 = 4096;

/// Most sites of one object that are used.
pub const OBJECT_SITES_MAX: u32 = 1024;

/// Most sites of [`KIND_CANCELLABLE`] in a process. glibc 2.41 has one.
pub const CANCELLABLE_MAX: usize = 4;

/// Start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Number of [`Object`]s that follow; at most [`OBJECTS_MAX`].
    pub object_count: u32,
    /// Number of [`Site`]s after them.
    pub site_count: u32,
}

/// One library, known by its build-id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Object {
    /// The `NT_GNU_BUILD_ID` note's descriptor, zero-padded.
    pub build_id: [u8; BUILD_ID_LEN_MAX],
    /// How many bytes of `build_id` count.
    pub build_id_len: u32,
    /// Index of its first site.
    pub first_site: u32,
    /// Number of its sites, sorted by `address`; 0: looked at, none is safe.
    pub site_count: u32,
    /// [`FLAG_UNSEEN`] or none.
    pub flags: u32,
}

/// Calls that matter are made where no site is.
pub const FLAG_UNSEEN: u32 = 1;

/// One patchable `syscall` instruction together with the instructions after
/// it that make room for a jump. All of them are position-independent and no
/// branch of the object lands between the first byte and the last. Or, of
/// [`KIND_CANCELLABLE`], a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Site {
    /// Virtual address of the first instruction in the object's file (add the
    /// load bias).
    pub address: u64,
    /// System call number where the code before the site fixes it, or -1.
    pub number: i16,
    /// What the stub does: [`KIND_HOOK`], [`KIND_BEFORE`] or [`KIND_COPY`]; or
    /// [`KIND_CANCELLABLE`].
    pub kind: u8,
    /// How many of `bytes` stand at the site: at least [`JUMP_LEN`], at most
    /// [`SITE_LEN_MAX`], a whole number of instructions; or [`LEN_BY_PADDING`].
    pub len: u8,
    /// What must stand there, beginning with `0f 05`; of [`KIND_CANCELLABLE`]
    /// [`JUMP_LEN`] bytes, beginning with `e8` or `e9`. With [`LEN_BY_PADDING`] two
    /// bytes, then the distance of the padding from behind them, on the same page
    /// (as an `i8`), and the [`JUMP_LEN`] bytes that must stand there.
    pub bytes: [u8; SITE_LEN_MAX],
}

impl Site {
    /// Of a site of [`LEN_BY_PADDING`]: where the padding is, from the site's address, in
    /// bytes, and what must stand there. `None` for others, and where it is on another page
    /// or not beside the site.
    pub fn padding(&self) -> Option<(i64, [u8; JUMP_LEN])> {
        let [_, _, distance, bytes @ ..] = &self.bytes;
        let from = i64::from(LEN_BY_PADDING) + i64::from(*distance as i8);
        let is_here = |at: u64| at / PAGE_LEN == self.address / PAGE_LEN;
        let first = self.address.wrapping_add_signed(from);
        let last = first.wrapping_add(JUMP_LEN as u64 - 1);
        let is_beside = from >= LEN_BY_PADDING.into() || from <= -(JUMP_LEN as i64);
        let fits = self.len == LEN_BY_PADDING && is_beside && is_here(first) && is_here(last);
        Some((from, *bytes.first_chunk()?)).filter(|_| fits)
    }
}

/// The stub calls the hook, which makes the system call itself.
pub const KIND_HOOK: u8 = 1;

/// The stub tells the hook and then executes the `syscall` instruction
/// itself, without touching the stack in between: for calls that return
/// twice or on another stack (`clone`, `clone3`, `fork`, `vfork`).
pub const KIND_BEFORE: u8 = 2;

/// The stub calls the hook in a speculative process alone, whatever the call's
/// number says: where the signal mask is changed by others than a thread that
/// begins, which is all that the normal side wants to see of it.
pub const KIND_COPY: u8 = 3;

/// A `call` or `jmp` of the function by which threads make calls that may wait
/// (`__syscall_cancel_arch` of glibc 2.41 and later): it comes to the agent first, and what
/// the program is to wait for is made by the function itself, because a cancellation asks
/// whether the thread is among its instructions.
pub const KIND_CANCELLABLE: u8 = 4;

const _: () = assert!(size_of::<Header>() == 16);
const _: () = assert!(size_of::<Object>() == 40);
const _: () = assert!(size_of::<Site>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_on_the_page_of_its_site() {
        let mut site = Site {
            address: 0x5000,
            number: -1,
            kind: KIND_HOOK,
            len: LEN_BY_PADDING,
            bytes: core::array::from_fn(|at| at as u8),
        };
        let mut from = |address: u64, distance: i8| {
            (site.address, site.bytes[2]) = (address, distance as u8);
            site.padding().map(|(from, bytes)| {
                assert_eq!(bytes, [3, 4, 5, 6, 7]);
                from
            })
        };
        assert_eq!(from(0x5000, 4), Some(6));
        assert_eq!(from(0x5100, -128), Some(-126));
        assert_eq!(from(0x5000, -3), None);
        assert_eq!(from(0x5f81, 120), Some(122));
        // Not where the site itself is.
        assert_eq!((from(0x5f81, 0), from(0x5f81, -7)), (Some(2), Some(-5)));
        assert!((-6..0).all(|distance| from(0x5f81, distance).is_none()));
        assert_eq!(from(0x5f81, 121), None);
        assert_eq!(from(0, -128), None);
        assert_eq!(from(u64::MAX, 127), None);
        site.len = JUMP_LEN as u8;
        assert_eq!(site.padding(), None);
    }
}
