//! What a thread is led to when it comes back from a page fault that it has
//! waited in ([`crate::normal`]): restartable sequences, rseq(2).
//!
//! The kernel looks, when a thread that has been taken off its processor goes
//! back to user mode, whether the word `rseq_cs` of the area that the C library
//! has registered names a sequence, and whether the instruction to go on at
//! lies in it; if so, it goes on at the sequence's abort address, once. Here
//! each sequence is one instruction, one that has been seen waiting, so that
//! the place to return to is known; all else is as the thread left it. No
//! system call is interrupted, and there is no signal.
//!
//! Each instruction has a stub of its own for good, so that nothing it needs is
//! ever another's. It touches nothing of the thread's stack, which may be of
//! any size: it saves registers beside its sequence, blocks all signals by that,
//! and goes on on a stack of the agent's. `mov`, `lea` and `jrcxz` leave the
//! flags as they are, and `syscall` restores them.
//!
//! Entered a second time on the way (a signal's handler that waits at the same
//! instruction), it would lose what it has saved: while [`Redirect::entered`]
//! is set, the sequence is not put in place again. Before the first store and
//! after the last load nothing is there to be lost.

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::ptr::from_ref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Instructions of one process that can be returned to.
pub const REDIRECTS_MAX: usize = 64;

/// Bytes of an instruction that are kept; the longest has 15.
pub const INSTRUCTION_LEN_MAX: usize = 16;

/// The signature before an abort address, as the C library registers it
/// (glibc's `RSEQ_SIG`).
pub const SIGNATURE: u32 = 0x5305_3053;

const STACK_LEN: usize = 64 * 1024;

/// One instruction and its way back.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Redirect {
    /// `struct rseq_cs`: version 0 and no flags.
    version_flags: AtomicU64,
    /// The instruction; 0: free.
    start: AtomicU64,
    /// Length of the sequence.
    post_commit_offset: AtomicU64,
    abort: AtomicU64,
    /// rax, rcx, rdx, rsi, rdi, r10, r11, rsp.
    saved: [AtomicU64; 8],
    mask: AtomicU64,
    entered: AtomicU32,
    length: AtomicU32,
    bytes: [AtomicU8; INSTRUCTION_LEN_MAX],
}

const LEN: usize = size_of::<Redirect>();
const START_AT: usize = 8;
const SAVED_AT: usize = 32;
const MASK_AT: usize = 96;
const ENTERED_AT: usize = 104;

const _: () = {
    assert!(core::mem::offset_of!(Redirect, start) == START_AT);
    assert!(core::mem::offset_of!(Redirect, saved) == SAVED_AT);
    assert!(core::mem::offset_of!(Redirect, mask) == MASK_AT);
    assert!(core::mem::offset_of!(Redirect, entered) == ENTERED_AT);
};

static REDIRECTS: [Redirect; REDIRECTS_MAX] = [const {
    Redirect {
        version_flags: AtomicU64::new(0),
        start: AtomicU64::new(0),
        post_commit_offset: AtomicU64::new(0),
        abort: AtomicU64::new(0),
        saved: [const { AtomicU64::new(0) }; 8],
        mask: AtomicU64::new(0),
        entered: AtomicU32::new(0),
        length: AtomicU32::new(0),
        bytes: [const { AtomicU8::new(0) }; INSTRUCTION_LEN_MAX],
    }
}; REDIRECTS_MAX];

#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; STACK_LEN]>);

// SAFETY: used by the one thread that is redirected, its signals blocked.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; STACK_LEN]));

/// Whether a thread that is redirected may make system calls.
static ALLOWED: AtomicU32 = AtomicU32::new(0);

/// Registers of a thread, by their numbers in instructions.
pub type Registers = [usize; 16];

global_asm!(
    // Stub number i: see the module. `ra_waited(registers, i)` returns 1 in a
    // copy of the process, whose signal mask is its own.
    ".globl ra_redirects",
    ".hidden ra_redirects",
    ".p2align 9",
    "ra_redirects:",
    ".set ra_redirect, 0",
    ".rept {count}",
    ".p2align 9",
    // The signature is the operand of an instruction that is undefined (ud1).
    "nop",
    ".byte 0x0f, 0xb9, 0x3d",
    ".long {signature}",
    "mov dword ptr [rip + {all} + ra_redirect * {len} + {entered}], 1",
    "mov [rip + {all} + ra_redirect * {len} + {saved} + 8], rcx",
    "mov ecx, [rip + {allowed}]",
    "jrcxz 8f",
    "jmp 1f",
    "8:",
    "jmp 9f",
    "1:",
    "mov [rip + {all} + ra_redirect * {len} + {saved}], rax",
    "mov [rip + {all} + ra_redirect * {len} + {saved} + 16], rdx",
    "mov [rip + {all} + ra_redirect * {len} + {saved} + 24], rsi",
    "mov [rip + {all} + ra_redirect * {len} + {saved} + 32], rdi",
    "mov [rip + {all} + ra_redirect * {len} + {saved} + 40], r10",
    "mov [rip + {all} + ra_redirect * {len} + {saved} + 48], r11",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rip + ra_all_signals]",
    "lea rdx, [rip + {all} + ra_redirect * {len} + {mask}]",
    "mov r10d, 8",
    "syscall",
    "mov [rip + {all} + ra_redirect * {len} + {saved} + 56], rsp",
    "lea rsp, [rip + {stack} + {stack_len}]",
    "pushfq",
    "push rax",
    "cld",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push [rip + {all} + ra_redirect * {len} + {saved} + 48]",
    "push [rip + {all} + ra_redirect * {len} + {saved} + 40]",
    "push r9",
    "push r8",
    "push [rip + {all} + ra_redirect * {len} + {saved} + 32]",
    "push [rip + {all} + ra_redirect * {len} + {saved} + 24]",
    "push rbp",
    "push [rip + {all} + ra_redirect * {len} + {saved} + 56]",
    "push rbx",
    "push [rip + {all} + ra_redirect * {len} + {saved} + 16]",
    "push [rip + {all} + ra_redirect * {len} + {saved} + 8]",
    "push [rip + {all} + ra_redirect * {len} + {saved}]",
    "mov rdi, rsp",
    "mov esi, ra_redirect",
    "call {waited}",
    // rbx, rbp and r12 to r15 are as they were.
    "mov r8, [rsp + 64]",
    "mov r9, [rsp + 72]",
    "mov ecx, eax",
    "lea rsp, [rsp + 136]",
    "popfq",
    "mov rsp, [rip + {all} + ra_redirect * {len} + {saved} + 56]",
    "jrcxz 2f",
    "jmp 3f",
    "2:",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rip + {all} + ra_redirect * {len} + {mask}]",
    "mov edx, 0",
    "mov r10d, 8",
    "syscall",
    "3:",
    "mov rax, [rip + {all} + ra_redirect * {len} + {saved}]",
    "mov rdx, [rip + {all} + ra_redirect * {len} + {saved} + 16]",
    "mov rsi, [rip + {all} + ra_redirect * {len} + {saved} + 24]",
    "mov rdi, [rip + {all} + ra_redirect * {len} + {saved} + 32]",
    "mov r10, [rip + {all} + ra_redirect * {len} + {saved} + 40]",
    "mov r11, [rip + {all} + ra_redirect * {len} + {saved} + 48]",
    "9:",
    "mov rcx, [rip + {all} + ra_redirect * {len} + {saved} + 8]",
    "mov dword ptr [rip + {all} + ra_redirect * {len} + {entered}], 0",
    "jmp [rip + {all} + ra_redirect * {len} + {start}]",
    ".set ra_redirect, ra_redirect + 1",
    ".endr",
    ".p2align 3",
    "ra_all_signals:",
    ".quad -1",
    count = const REDIRECTS_MAX,
    signature = const SIGNATURE,
    len = const LEN,
    entered = const ENTERED_AT,
    saved = const SAVED_AT,
    mask = const MASK_AT,
    start = const START_AT,
    stack_len = const STACK_LEN,
    all = sym REDIRECTS,
    allowed = sym ALLOWED,
    stack = sym STACK,
    waited = sym crate::normal::ra_waited,
);

unsafe extern "C" {
    fn ra_redirects();
}

/// From one stub to the next, and from its beginning to its entry.
const STUB_STRIDE: usize = 512;
const STUB_ENTRY: usize = 8;

fn stub(index: usize) -> u64 {
    (ra_redirects as *const () as usize + index * STUB_STRIDE + STUB_ENTRY) as u64
}

/// Whether a thread that is redirected does anything but go back.
pub fn allow(allowed: bool) {
    ALLOWED.store(u32::from(allowed), Relaxed);
}

/// The one of an instruction, which `bytes` begin with, made where there is
/// none and room.
pub fn of(instruction: u64, bytes: impl FnOnce() -> Option<Bytes>) -> Option<&'static Redirect> {
    for (index, redirect) in REDIRECTS.iter().enumerate() {
        match redirect.start.load(Acquire) {
            0 => return redirect.begin(index, instruction, bytes()?),
            start if start == instruction => return Some(redirect),
            _ => {}
        }
    }
    None
}

/// The redirect by its number.
pub fn numbered(index: usize) -> Option<&'static Redirect> {
    REDIRECTS.get(index)
}

/// The first bytes of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// All that could be read.
    pub bytes: [u8; INSTRUCTION_LEN_MAX],
    /// How many.
    pub len: usize,
}

impl Redirect {
    /// Only the aide does this.
    fn begin(&self, index: usize, instruction: u64, bytes: Bytes) -> Option<&Self> {
        for (cell, byte) in self.bytes.iter().zip(bytes.bytes) {
            cell.store(byte, Relaxed);
        }
        self.length.store(bytes.len as u32, Relaxed);
        self.post_commit_offset.store(1, Relaxed);
        self.abort.store(stub(index), Relaxed);
        self.start.store(instruction, Release);
        Some(self)
    }

    /// Whether a thread may be on its way in it.
    pub fn is_entered(&self) -> bool {
        self.entered.load(Acquire) != 0
    }

    /// Where it lies: what `rseq_cs` is to be.
    pub fn address(&self) -> u64 {
        from_ref(self) as u64
    }

    /// The instruction.
    pub fn instruction(&self) -> usize {
        self.start.load(Relaxed) as usize
    }

    /// Its first bytes.
    pub fn bytes(&self) -> Bytes {
        let mut bytes = [0; INSTRUCTION_LEN_MAX];
        for (byte, cell) in bytes.iter_mut().zip(&self.bytes) {
            *byte = cell.load(Relaxed);
        }
        Bytes { bytes, len: (self.length.load(Relaxed) as usize).min(INSTRUCTION_LEN_MAX) }
    }

    /// The signal mask of the thread that is on its way in it.
    pub fn mask(&self) -> u64 {
        self.mask.load(Relaxed)
    }
}
