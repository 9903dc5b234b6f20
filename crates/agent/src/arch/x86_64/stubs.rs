//! Stubs: what a patched site jumps to.
//!
//! Most calls of a program need nothing from the agent, and a read whose data
//! has long been in memory needs a look now and then. So a stub decides by
//! itself, with the two registers that `syscall` clobbers anyway (`rcx`,
//! `r11`), and executes a `syscall` instruction of its own: no register is
//! saved, the stack is not touched, and nothing returns through a predictor
//! that the kernel has emptied. Only the rest goes to the hook.
//!
//! A stub is [`STUB_LEN`] bytes, aligned to as many:
//!
//! ```text
//! address behind the site's `syscall`, for unwinding       8 bytes
//! entry: what the kind decides; conditional jumps to slow
//!        syscall
//!        what the kind does afterwards
//! tail:  the instructions moved from the site; jmp back behind it
//! slow:  lea rcx, [tail]; jmp ra_hook_entry
//! after: lea rcx, [tail]; jmp ra_closed_entry
//! ```
//!
//! Unwinding finds the first eight bytes from any address in the stub: the
//! whole room has one frame description, of a frame without a stack that was
//! called by the original site.

use super::{jump, nr, ra_before_entry, ra_closed_entry, ra_hook_entry};
use crate::normal::{USERFAULTFD_IOC_NEW, stub_kind};
use crate::state::{FDS_MAX, STATE, State, class, role};
use core::arch::{asm, global_asm};
use core::mem::offset_of;
use runahead_protocol::sites::JUMP_LEN;

/// Room of one stub in bytes; a power of two.
pub const STUB_LEN: usize = 128;

/// Stubs that there is room for.
pub const STUBS_MAX: usize = 512;

/// Where a site jumps to, in bytes from a stub's start.
pub const STUB_ENTRY: usize = 8;

/// Longest run of relocated bytes behind the `syscall` instruction; what is
/// left over is the longest kind's own ([`StubKind::Open`]).
pub const STUB_TAIL_MAX: usize = 24;

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// A jump to itself, as long as the `syscall`.
const WAITS: [u8; 2] = [0xeb, 0xfe];

/// What one store writes whole, whoever executes it meanwhile, in bytes.
pub const CACHE_LINE: usize = 64;

/// What a stub decides by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubKind {
    /// Nothing: the hook makes the call.
    Hook,
    /// The hook is told, then the stub makes the call: for calls that return
    /// twice or on another stack.
    Before,
    /// A normal process's call needs nothing.
    Through,
    /// Any call, where the code does not fix the number: those below 64 that the normal
    /// side does not watch need nothing, reads are made as [`StubKind::Read`] makes
    /// them, and all others go to the hook. glibc 2.41 and later make nearly all calls
    /// that may wait at one such site.
    Any,
    /// Reads: so many are made without asking ([`State::unasked`]), then one
    /// goes to the hook.
    Read,
    /// Calls that return a descriptor: what was known of that number is
    /// forgotten.
    Open,
    /// `close`: the same before the call. Afterwards, where a copy is there, the agent
    /// sees whether that is in the table ([`State::detaching`]), or looks at it: not
    /// asked before, or one begun meanwhile would be missed.
    Close,
    /// `fcntl`: what only looks at flags, or sets those of the descriptor
    /// itself, needs nothing.
    Fcntl,
    /// `ioctl`: all but what makes a userfaultfd need nothing.
    Ioctl,
}

/// All of them.
const KINDS: [StubKind; 9] = [
    StubKind::Hook,
    StubKind::Before,
    StubKind::Through,
    StubKind::Any,
    StubKind::Read,
    StubKind::Open,
    StubKind::Close,
    StubKind::Fcntl,
    StubKind::Ioctl,
];

global_asm!(
    // In memory without a file behind it: what is not used takes nothing.
    ".pushsection .bss.ra_stubs, \"aw\", @nobits",
    ".globl ra_stubs",
    ".hidden ra_stubs",
    ".p2align 12",
    "ra_stubs:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    // DW_CFA_expression of column 16: rip & -128 (DW_OP_breg16 0,
    // DW_OP_const1s -128, DW_OP_and).
    ".cfi_escape 0x10, 0x10, 5, 0x80, 0x00, 0x09, 0x80, 0x1a",
    ".skip {room}",
    ".cfi_endproc",
    ".popsection",
    room = const STUBS_MAX * STUB_LEN,
);

unsafe extern "C" {
    fn ra_stubs();
}

/// Address of stub number 0; the room is page-aligned.
pub fn stubs_address() -> usize {
    ra_stubs as *const () as usize
}

// The frame descriptions of the room and of the entries say -128.
const _: () = assert!(STUB_LEN == 128);
const _: () = assert!((STUBS_MAX * STUB_LEN).is_multiple_of(crate::sys::PAGE_SIZE));
const _: () = assert!(role::NORMAL < 128 && class::UNKNOWN == 0);
const _: () = assert!(
    offset_of!(State, role) < 128
        && offset_of!(State, unasked) < 128
        && offset_of!(State, detaching) < 128
        && offset_of!(State, detaching).is_multiple_of(8)
        && offset_of!(State, speculative) == offset_of!(State, detaching) + 4
        && offset_of!(State, fds_end) < 128
);

/// The code of a stub at address `at` for a site at `site` whose original
/// bytes are `original` (beginning with `syscall`).
///
/// `None` where a distance does not fit in 32 bits or the bytes are too many.
pub fn stub(at: usize, site: usize, original: &[u8], kind: StubKind) -> Option<[u8; STUB_LEN]> {
    let tail = original.strip_prefix(&SYSCALL)?;
    if tail.len() > STUB_TAIL_MAX {
        return None;
    }
    let mut code = Code {
        bytes: [0xcc; STUB_LEN],
        at,
        len: 0,
        slow: [0; SLOW_MAX],
        slow_count: 0,
        after: None,
    };
    code.put(&(site + SYSCALL.len()).to_le_bytes())?;
    match kind {
        StubKind::Hook => {}
        StubKind::Before => {
            // The hook resumes at the `syscall`.
            code.put(&[0x48, 0x8d, 0x0d, 5, 0, 0, 0])?; // lea rcx, [rip + 5]
            code.jump(ra_before_entry as *const () as usize)?;
            code.put(&SYSCALL)?;
        }
        StubKind::Through => {
            code.normal_only()?;
            code.put(&SYSCALL)?;
        }
        StubKind::Any => {
            code.normal_only()?;
            code.put(&[0x85, 0xc0])?; // test eax, eax
            code.put(&[EQUAL, 28])?; // je to the count
            code.put(&[0x83, 0xf8, nr::PREAD64 as u8])?; // cmp eax, PREAD64
            code.put(&[EQUAL, 23])?; // je to the count
            let begin = code.len;
            code.put(&[0x83, 0xf8, 63])?; // cmp eax, 63
            code.slow_if(ABOVE)?;
            code.put(&[0x49, 0xbb])?; // mov r11, WATCHED
            code.put(&WATCHED.to_le_bytes())?;
            code.put(&[0x49, 0x0f, 0xa3, 0xc3])?; // bt r11, rax
            code.slow_if(BELOW)?;
            code.put(&[0xeb, COUNT_LEN])?; // jmp over the count
            debug_assert_eq!(code.len - begin, 23);
            code.count()?;
            code.put(&SYSCALL)?;
        }
        StubKind::Read => {
            code.load_state(Pointer::Rcx)?;
            code.count()?;
            code.put(&SYSCALL)?;
        }
        StubKind::Open => {
            code.normal_only()?;
            code.put(&SYSCALL)?;
            code.opened()?;
        }
        StubKind::Close => {
            code.normal_only()?;
            code.put(&[0x41, 0x89, 0xfb])?; // mov r11d, edi
            code.put(&[0x41, 0x81, 0xfb])?; // cmp r11d, FDS_MAX
            code.put(&(FDS_MAX as u32).to_le_bytes())?;
            code.put(&[0x73, 9])?; // jae over the store
            code.put(&[0x42, 0xc6, 0x84, 0x19])?; // mov byte [rcx + r11 + classes], 0
            code.put(&(offset_of!(State, classes) as u32).to_le_bytes())?;
            code.put(&[0])?;
            code.put(&SYSCALL)?;
            code.load_state(Pointer::Rcx)?;
            // cmp qword [rcx + detaching], 0; `speculative` is its upper half
            code.put(&[0x48, 0x83, 0x79, offset_of!(State, detaching) as u8, 0])?;
            code.put(&[NOT_EQUAL, 0])?;
            code.after = Some(code.len - 1);
        }
        StubKind::Fcntl => {
            code.normal_only()?;
            // F_GETFD, F_SETFD and F_GETFL are 1 to 3.
            code.put(&[0x44, 0x8d, 0x5e, 0xff])?; // lea r11d, [rsi - 1]
            code.put(&[0x41, 0x83, 0xfb, 2])?; // cmp r11d, 2
            code.slow_if(ABOVE)?;
            code.put(&SYSCALL)?;
        }
        StubKind::Ioctl => {
            code.normal_only()?;
            code.put(&[0x81, 0xfe])?; // cmp esi, USERFAULTFD_IOC_NEW
            code.put(&USERFAULTFD_IOC_NEW.to_le_bytes())?;
            code.slow_if(EQUAL)?;
            code.put(&SYSCALL)?;
        }
    }
    if kind == StubKind::Hook {
        code.put(&[0x48, 0x8d, 0x0d, 5, 0, 0, 0])?; // lea rcx, [rip + 5]
        code.jump(ra_hook_entry as *const () as usize)?;
    }
    let tail_at = code.len;
    code.put(tail)?;
    code.jump(site + original.len())?;
    code.slow(tail_at)?;
    Some(code.bytes)
}

/// What stood at a site before it was patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// Where.
    pub site: usize,
    bytes: [u8; SYSCALL.len() + STUB_TAIL_MAX],
    len: usize,
}

impl Original {
    /// The bytes, beginning with `syscall`.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// What the stub at address `at`, whose bytes are `code`, was made from; `None` where
/// there is none.
pub fn original(at: usize, code: &[u8; STUB_LEN]) -> Option<Original> {
    const JUMP: u8 = 0xe9;
    let behind = usize::from_le_bytes(*code.first_chunk()?);
    let site = behind.checked_sub(SYSCALL.len())?;
    // The tail ends with a jump behind itself, where it was.
    (STUB_ENTRY..STUB_LEN).find_map(|end| {
        let (&opcode, rest) = code.get(end..)?.split_first()?;
        let distance = i32::from_le_bytes(*rest.first_chunk()?);
        let target = (at + end + JUMP_LEN).wrapping_add_signed(distance as isize);
        let tail = code.get(end.checked_sub(target.wrapping_sub(behind))?..end)?;
        if opcode != JUMP || tail.len() > STUB_TAIL_MAX {
            return None;
        }
        let mut found = Original {
            site,
            bytes: [0; SYSCALL.len() + STUB_TAIL_MAX],
            len: SYSCALL.len() + tail.len(),
        };
        let (call, moved) = found.bytes.split_first_chunk_mut()?;
        *call = SYSCALL;
        moved.get_mut(..tail.len())?.copy_from_slice(tail);
        // Bytes that only look like it would not give this stub.
        let gives = |&kind: &StubKind| stub(at, site, found.bytes(), kind).as_ref() == Some(code);
        KINDS.iter().any(gives).then_some(found)
    })
}

/// Puts back what stood at a site, which jumps to its stub. Other threads may be about to
/// execute it: who comes there meanwhile stays at the first instruction. Not where its two
/// bytes are in two cache lines, unless this thread is `alone`; false then.
///
/// # Safety
/// The site must be writable and jump to the stub that `original` was made from, and no
/// signal may be delivered to this thread.
pub unsafe fn put_back(original: &Original, alone: bool) -> bool {
    let Original { site, .. } = *original;
    let Some((_, tail)) = original.bytes().split_first_chunk::<{ SYSCALL.len() }>() else {
        return false;
    };
    if !alone && site % CACHE_LINE == CACHE_LINE - 1 {
        return false;
    }
    // SAFETY: nothing but the jump leads to the bytes behind the first two.
    unsafe {
        store_pair(site, WAITS);
        core::ptr::copy_nonoverlapping(
            tail.as_ptr(),
            (site + SYSCALL.len()) as *mut u8,
            tail.len(),
        );
        store_pair(site, SYSCALL);
    }
    true
}

/// Writes two bytes in one store, at any address.
///
/// # Safety
/// They must be writable.
unsafe fn store_pair(at: usize, bytes: [u8; 2]) {
    let bytes = u16::from_le_bytes(bytes);
    // SAFETY: as the caller promises.
    unsafe {
        asm!("mov word ptr [{at}], {bytes:x}", at = in(reg) at, bytes = in(reg) bytes,
            options(nostack, preserves_flags));
    }
}

/// Conditional jumps to the slow road that a stub may hold.
const SLOW_MAX: usize = 4;
/// `jb` (and `jc`), `je`, `jne` and `ja` with a distance of one byte.
const BELOW: u8 = 0x72;
const EQUAL: u8 = 0x74;
const NOT_EQUAL: u8 = 0x75;
const ABOVE: u8 = 0x77;

/// Bytes of [`Code::count`].
const COUNT_LEN: u8 = 14;

/// A bit for each call below 64 that is not made through: what the normal side
/// watches, and what `ra_hook_entry` makes by itself.
const WATCHED: u64 = {
    let mut bits = 1 << nr::RT_SIGRETURN | 1 << nr::CLONE | 1 << nr::FORK | 1 << nr::VFORK;
    let mut number = 0;
    while number < u64::BITS as usize {
        if !matches!(stub_kind(number), StubKind::Through) {
            bits |= 1 << number;
        }
        number += 1;
    }
    bits
};

#[derive(Clone, Copy)]
enum Pointer {
    Rcx,
    R11,
}

/// Code being put together.
struct Code {
    bytes: [u8; STUB_LEN],
    at: usize,
    len: usize,
    /// Where the distances to the slow road are to be filled in.
    slow: [usize; SLOW_MAX],
    slow_count: usize,
    /// The same for the road after the call.
    after: Option<usize>,
}

impl Code {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    fn jump(&mut self, target: usize) -> Option<()> {
        self.put(&jump(self.at + self.len, target)?)
    }

    /// `mov register, [rip + STATE]`: the state's address, which is known
    /// before the first site is patched.
    fn load_state(&mut self, register: Pointer) -> Option<()> {
        let opcode = match register {
            Pointer::Rcx => [0x48, 0x8b, 0x0d],
            Pointer::R11 => [0x4c, 0x8b, 0x1d],
        };
        self.put(&opcode)?;
        let next = self.at + self.len + 4;
        let distance = STATE.as_ptr() as i64 - next as i64;
        self.put(&i32::try_from(distance).ok()?.to_le_bytes())
    }

    /// Leaves the state's address in `rcx`; all but a normal process go the
    /// slow road.
    fn normal_only(&mut self) -> Option<()> {
        self.load_state(Pointer::Rcx)?;
        // cmp dword [rcx + role], NORMAL
        self.put(&[0x83, 0x79, offset_of!(State, role) as u8, role::NORMAL as u8])?;
        self.slow_if(NOT_EQUAL)
    }

    /// Counts a read that is made unasked, with the state's address in `rcx`; when
    /// none is left it goes the slow road.
    fn count(&mut self) -> Option<()> {
        let unasked = offset_of!(State, unasked) as u8;
        let begin = self.len;
        self.put(&[0x44, 0x8b, 0x59, unasked])?; // mov r11d, [rcx + unasked]
        self.put(&[0x41, 0x83, 0xeb, 1])?; // sub r11d, 1
        self.slow_if(BELOW)?;
        // Not one instruction with the load: two threads may lose a count,
        // but never take one from nothing.
        self.put(&[0x44, 0x89, 0x59, unasked])?; // mov [rcx + unasked], r11d
        debug_assert_eq!(self.len - begin, COUNT_LEN.into());
        Some(())
    }

    fn slow_if(&mut self, condition: u8) -> Option<()> {
        self.put(&[condition, 0])?;
        *self.slow.get_mut(self.slow_count)? = self.len - 1;
        self.slow_count += 1;
        Some(())
    }

    /// After a call that returns a descriptor in `rax`: [`State::opened`].
    fn opened(&mut self) -> Option<()> {
        let fds_end = offset_of!(State, fds_end) as u8;
        self.put(&[0x85, 0xc0])?; // test eax, eax
        self.put(&[0x78, 36])?; // js behind all this
        let begin = self.len;
        self.load_state(Pointer::R11)?;
        self.put(&[0x41, 0x3b, 0x43, fds_end])?; // cmp eax, [r11 + fds_end]
        self.put(&[0x72, 7])?; // jb over the store
        self.put(&[0x8d, 0x48, 1])?; // lea ecx, [rax + 1]
        self.put(&[0x41, 0x89, 0x4b, fds_end])?; // mov [r11 + fds_end], ecx
        self.put(&[0x3d])?; // cmp eax, FDS_MAX
        self.put(&(FDS_MAX as u32).to_le_bytes())?;
        self.put(&[0x73, 9])?; // jae over the store
        self.put(&[0x41, 0xc6, 0x84, 0x03])?; // mov byte [r11 + rax + classes], 0
        self.put(&(offset_of!(State, classes) as u32).to_le_bytes())?;
        self.put(&[0])?;
        debug_assert_eq!(self.len - begin, 36);
        Some(())
    }

    /// The slow roads, if anything leads there.
    fn slow(&mut self, tail_at: usize) -> Option<()> {
        let (slow, count, after) = (self.slow, self.slow_count, self.after);
        self.road(slow.get(..count)?, tail_at, ra_hook_entry as *const () as usize)?;
        self.road(after.as_slice(), tail_at, ra_closed_entry as *const () as usize)
    }

    /// A road from the jumps whose distances are at `from` to an entry, which
    /// goes on at the tail.
    fn road(&mut self, from: &[usize], tail_at: usize, entry: usize) -> Option<()> {
        if from.is_empty() {
            return Some(());
        }
        for &at in from {
            *self.bytes.get_mut(at)? = u8::try_from(self.len - (at + 1)).ok()?;
        }
        self.put(&[0x48, 0x8d, 0x0d])?; // lea rcx, [tail]
        let distance = tail_at as i32 - (self.len + 4) as i32;
        self.put(&distance.to_le_bytes())?;
        self.jump(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The usual site: `syscall; cmp rax, -4096`.
    const ORIGINAL: [u8; 8] = [0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff];

    #[test]
    fn every_kind_has_room_for_the_longest_tail() {
        let original = [&SYSCALL[..], &[0x90; STUB_TAIL_MAX]].concat();
        let at = stubs_address() + STUB_LEN;
        for kind in KINDS {
            assert!(stub(at, at + 0x10_0000, &original, kind).is_some(), "{kind:?}");
            let longer = [&original[..], &[0x90]].concat();
            assert!(stub(at, at + 0x10_0000, &longer, kind).is_none(), "{kind:?}");
        }
        let sites = runahead_protocol::sites::SITE_LEN_MAX;
        assert!(sites - SYSCALL.len() <= STUB_TAIL_MAX, "a site's tail fits");
    }

    #[test]
    fn stubs_carry_the_tail_and_return_behind_the_site() {
        let at = stubs_address() + 3 * STUB_LEN;
        for kind in KINDS {
            let far = stub(at, at.wrapping_add(1 << 40), &ORIGINAL, kind);
            assert!(far.is_none(), "a site in another part of the address space is refused");
            let near = at + 0x10_0000;
            let code = stub(at, near, &ORIGINAL, kind).unwrap();
            assert_eq!(code[..8], (near + 2).to_le_bytes());
            let tail = code.windows(6).position(|window| window == &ORIGINAL[2..]).unwrap();
            let back = tail + 6;
            assert_eq!(code[back], 0xe9);
            let distance = i32::from_le_bytes(code[back + 1..back + 5].try_into().unwrap());
            assert_eq!((at + back + 5) as i64 + i64::from(distance), (near + 8) as i64);
            // All but the hook's make the call themselves.
            let calls = code[8..].windows(2).filter(|pair| *pair == SYSCALL).count();
            assert_eq!(calls, usize::from(kind != StubKind::Hook), "{kind:?}");
        }
    }

    #[test]
    fn a_stub_tells_what_stood_at_its_site() {
        let at = stubs_address() + 5 * STUB_LEN;
        for kind in KINDS {
            for len in (0..1).chain(3..=STUB_TAIL_MAX) {
                // As confusing as can be: another jump.
                for byte in [0x90, 0xe9] {
                    let bytes = [&SYSCALL[..], &[byte; STUB_TAIL_MAX][..len]].concat();
                    let site = at + 0x10_0000;
                    let code = stub(at, site, &bytes, kind).unwrap();
                    let found = original(at, &code).unwrap();
                    assert_eq!((found.site, found.bytes()), (site, &bytes[..]), "{kind:?}");
                }
            }
        }
        assert_eq!(original(at, &[0; STUB_LEN]), None);
        assert_eq!(original(at, &[0xcc; STUB_LEN]), None);
    }

    #[test]
    fn a_site_is_put_back_whole_or_not_at_all() {
        #[repr(align(64))]
        struct Lines([u8; 2 * CACHE_LINE]);
        for offset in 0..CACHE_LINE {
            for alone in [true, false] {
                let mut lines = Lines([0xe9; 2 * CACHE_LINE]);
                let site = lines.0[offset..].as_ptr() as usize;
                let mut bytes = [0; SYSCALL.len() + STUB_TAIL_MAX];
                bytes[..ORIGINAL.len()].copy_from_slice(&ORIGINAL);
                let original = Original { site, bytes, len: ORIGINAL.len() };
                // SAFETY: memory of ours that nobody executes.
                let done = unsafe { put_back(&original, alone) };
                assert_eq!(done, alone || offset != CACHE_LINE - 1);
                let found = core::hint::black_box(&mut lines);
                let expected = if done { ORIGINAL } else { [0xe9; 8] };
                assert_eq!(found.0[offset..][..8], expected, "at {offset}");
                assert_eq!(found.0[offset + 8], 0xe9);
            }
        }
    }

    /// What the hook's entry makes with nothing pushed, and looks at before it does.
    #[test]
    fn what_returns_twice_is_not_made_in_the_stub() {
        for number in [libc::SYS_rt_sigreturn, libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork] {
            assert_eq!(WATCHED >> number & 1, 1, "{number}");
        }
        assert_eq!(WATCHED >> libc::SYS_write & 1, 0);
    }

    /// Stubs running for real: functions whose one instruction is a patched
    /// `syscall`.
    struct Machine {
        state: &'static State,
        next: usize,
    }

    impl Machine {
        fn new() -> Machine {
            use std::alloc::{Layout, alloc_zeroed};
            let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let len = STUBS_MAX * STUB_LEN;
            // SAFETY: zeroed memory is a valid state, never freed; the stubs'
            // pages are used by these tests only.
            unsafe {
                let state = alloc_zeroed(Layout::new::<State>()).cast::<State>();
                STATE.store(state, core::sync::atomic::Ordering::Relaxed);
                assert_eq!(libc::mprotect(stubs_address() as *mut _, len, all), 0);
                Machine { state: &*state, next: 0 }
            }
        }

        /// A call of `number` through a stub of `kind`, whose site is in the
        /// room's last stubs: `mov eax, edi; ...; syscall; cmp; ret`.
        fn function(
            &mut self,
            kind: StubKind,
        ) -> extern "C" fn(usize, usize, usize, usize) -> isize {
            let index = self.next;
            self.next += 1;
            let site_code = stubs_address() + (STUBS_MAX - 1 - index) * STUB_LEN;
            // mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx
            let mut code: Vec<u8> = vec![0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6];
            code.extend([0x48, 0x89, 0xca]);
            let site = site_code + code.len();
            let at = stubs_address() + index * STUB_LEN;
            let made = stub(at, site, &ORIGINAL, kind).unwrap();
            code.extend(jump(site, at + STUB_ENTRY).unwrap());
            code.extend([0xcc; 3]);
            code.push(0xc3);
            // SAFETY: inside the stubs' pages, which are writable; no thread
            // runs there yet.
            unsafe {
                core::ptr::copy_nonoverlapping(made.as_ptr(), at as *mut u8, STUB_LEN);
                core::ptr::copy_nonoverlapping(code.as_ptr(), site_code as *mut u8, code.len());
                core::mem::transmute(site_code)
            }
        }
    }

    #[test]
    fn stubs_do_what_they_say() {
        use crate::arch::nr;
        use core::sync::atomic::Ordering::Relaxed;
        use std::os::fd::AsRawFd;
        // A number that no other test's descriptor gets meanwhile.
        const COPY: usize = 700;
        let mut machine = Machine::new();
        let state = machine.state;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let fd = file.as_raw_fd() as usize;
        let [_, _, through, any, read, renumber, close, fcntl, ioctl] =
            KINDS.map(|kind| machine.function(kind));
        // Off: the hook makes each call plainly. Normal: the stub does.
        for role in [role::OFF, role::NORMAL] {
            state.role.store(role, Relaxed);
            for any in [through, any] {
                assert_eq!(any(nr::GETPID, 0, 0, 0), std::process::id() as isize);
            }
            // Beyond the calls that it knows.
            assert_eq!(any(nr::GETTID, 0, 0, 0), crate::sys::gettid() as isize);
            assert_eq!(through(nr::CLOSE, usize::MAX, 0, 0), -9, "EBADF comes through");
            let garbage = 0xdead_0000_0000_0000usize | fd;
            state.classes[fd].store(class::FILE, Relaxed);
            assert_eq!(fcntl(nr::FCNTL, garbage, libc::F_GETFD as usize, 0), 1);
            assert_eq!(ioctl(nr::IOCTL, usize::MAX, 0, 0), -9, "EBADF comes through");
            state.classes[COPY].store(class::FILE, Relaxed);
            assert_eq!(renumber(nr::DUP3, garbage, COPY, 0), COPY as isize);
            if role == role::NORMAL {
                assert_eq!(state.classes[COPY].load(Relaxed), class::UNKNOWN);
                assert_eq!(state.fds_end.load(Relaxed) as usize, COPY + 1);
                state.classes[COPY].store(class::FILE, Relaxed);
                assert_eq!(renumber(nr::DUP3, usize::MAX, COPY, 0), -9);
                assert_eq!(state.classes[COPY].load(Relaxed), class::FILE);
                assert_eq!(renumber(nr::DUP3, fd, COPY - 1, 0), COPY as isize - 1);
                assert_eq!(state.fds_end.load(Relaxed) as usize, COPY + 1);
                assert_eq!(close(nr::CLOSE, COPY - 1, 0, 0), 0);
                assert_eq!(state.classes[COPY].load(Relaxed), class::FILE);
            }
            assert_eq!(close(nr::CLOSE, garbage - fd + COPY, 0, 0), 0);
            if role == role::NORMAL {
                assert_eq!(state.classes[COPY].load(Relaxed), class::UNKNOWN);
            }
            assert_eq!(state.classes[fd].load(Relaxed), class::FILE);
        }
        // A read goes to the hook when none is left to be made unasked.
        state.classes[fd].store(class::OTHER, Relaxed);
        let mut byte = [0u8; 1];
        for read in [read, any] {
            for left in [2, 1, 0, 0] {
                state.unasked.store(left, Relaxed);
                assert_eq!(read(nr::READ, fd, byte.as_mut_ptr() as usize, 1), 1);
                assert_eq!(state.unasked.load(Relaxed), left.saturating_sub(1));
            }
        }
        // Its offset is whatever is in the register.
        state.unasked.store(2, Relaxed);
        any(nr::PREAD64, fd, byte.as_mut_ptr() as usize, 1);
        assert_eq!(state.unasked.load(Relaxed), 1);
        // What is watched goes to the hook, of whatever number.
        state.unasked.store(9, Relaxed);
        state.classes[fd].store(class::FILE, Relaxed);
        assert_eq!(any(nr::DUP3, fd, COPY, 0), COPY as isize);
        assert_eq!(state.classes[COPY].load(Relaxed), class::UNKNOWN);
        state.classes[COPY].store(class::FILE, Relaxed);
        assert_eq!(any(nr::CLOSE, COPY, 0, 0), 0);
        assert_eq!(state.classes[COPY].load(Relaxed), class::UNKNOWN);
        assert_eq!(state.unasked.load(Relaxed), 9);
        // Descriptors beyond the table touch nothing behind it.
        for number in [FDS_MAX, usize::MAX] {
            assert_eq!(close(nr::CLOSE, number, 0, 0), -9);
        }
        if renumber(nr::DUP3, fd, FDS_MAX, 0) == FDS_MAX as isize {
            assert_eq!(state.fds_end.load(Relaxed) as usize, FDS_MAX + 1);
            assert_eq!(close(nr::CLOSE, FDS_MAX, 0, 0), 0);
        }
        STATE.store(core::ptr::null_mut(), Relaxed);
    }
}
