//! x86-64: handing a thread's registers to a process that another process makes
//! (Fraser and Chang, section 5.1: the normal process pays for its registers).
//!
//! What the thread's stack has below a place goes with them: the thread goes on,
//! and overwrites it, while the copy of its memory is being made.

use core::arch::{asm, global_asm, x86_64::__cpuid_count};
use core::mem::offset_of;

/// Bytes of the extended state (XSAVE), all vector registers with AVX-512 and
/// AMX among it.
const EXTENDED_LEN: usize = 12 * 1024;

/// Bytes of stack that go with the registers, and of the one that the thread has left
/// for that.
const STACK_LEN: usize = 8 * 1024;
const LEFT_LEN: usize = 4 * 1024;

/// A thread's registers, and the end of its stack.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Context {
    /// rbx, rbp, r12 to r15, then rsp and where to go on.
    registers: [usize; 8],
    /// Bytes of stack.
    stack_len: usize,
    /// Which components of the extended state; 0: not asked yet.
    components: u64,
    /// The base of segment gs.
    gs: usize,
    /// Whether there can be none here.
    refused: bool,
    // The kernel wants it aligned to 64, and its header zeroed at first.
    extended: Extended,
    stack: [u8; STACK_LEN],
    /// Where the stack ends that the thread has left.
    left_at: usize,
    left_len: usize,
    left: [u8; LEFT_LEN],
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Extended([u8; EXTENDED_LEN]);

impl Context {
    /// None yet.
    pub const NONE: Context = Context {
        registers: [0; 8],
        stack_len: 0,
        components: 0,
        gs: 0,
        refused: false,
        extended: Extended([0; EXTENDED_LEN]),
        stack: [0; STACK_LEN],
        left_at: 0,
        left_len: 0,
        left: [0; LEFT_LEN],
    };

    /// Whether the registers of a thread of this process can be handed over, its stack
    /// from here up to `end`, and that which it has left, from `left.0` up to `left.1`.
    pub fn holds(&mut self, end: usize, left: (usize, usize)) -> bool {
        if self.components == 0 && !self.refused {
            self.components = components();
            self.refused = self.components == 0 || has_shadow_stack();
        }
        // What the caller and this module put on the stack meanwhile.
        const MARGIN: usize = 1024;
        let len = end.wrapping_sub(super::stack_pointer());
        !self.refused && len <= STACK_LEN - MARGIN && left.1.wrapping_sub(left.0) <= LEFT_LEN
    }

    /// Takes down the stack that the thread has left.
    ///
    /// # Safety
    /// It must be readable, and [`LEFT_LEN`] bytes long at most.
    unsafe fn keep_left(&mut self, (at, end): (usize, usize)) {
        (self.left_at, self.left_len) = (at, end.wrapping_sub(at).min(LEFT_LEN));
        let into = self.left.as_mut_ptr();
        // SAFETY: the caller's.
        unsafe { core::ptr::copy_nonoverlapping(at as *const u8, into, self.left_len) };
    }

    /// Where the stack that the thread had left ended, and how many bytes of it are here.
    pub fn left(&self) -> (usize, usize) {
        (self.left_at, self.left_len.min(LEFT_LEN))
    }

    /// Puts the stack that the thread had left back as it was then, in the process that
    /// has arrived.
    ///
    /// # Safety
    /// It must be there, and this process's own.
    pub unsafe fn restore_left(&self) {
        let (from, len) = (self.left.as_ptr(), self.left_len.min(LEFT_LEN));
        // SAFETY: so many bytes were there when they were taken down.
        unsafe { core::ptr::copy_nonoverlapping(from, self.left_at as *mut u8, len) };
    }
}

/// Takes down the registers of this thread, its stack up to `end` and the one that it
/// has left; false in this process, and true in the one that [`arrive`]s, where the latter
/// is as this process has it by then ([`Context::restore_left`]).
///
/// # Safety
/// [`Context::holds`] must have said so of these; nothing else uses the context
/// meanwhile.
pub unsafe fn hand_over(context: &mut Context, end: usize, left: (usize, usize)) -> bool {
    context.gs = gs_base();
    // SAFETY: stack of this thread's, which does not change while it is on another.
    unsafe { context.keep_left(left) };
    // SAFETY: fork-like: returns once in each of two processes.
    unsafe { ra_hand_over(context, end) != 0 }
}

/// Goes on where [`hand_over`] was called, in a process that has a copy of the
/// memory and stands on another stack.
///
/// # Safety
/// The context must be one that `hand_over` has filled in; the memory is this
/// process's own.
pub unsafe fn arrive(context: &Context) -> ! {
    set_gs_base(context.gs);
    // SAFETY: forwarded to the caller.
    unsafe { ra_arrive(context) }
}

/// The components of the extended state that are in use here (XGETBV), where
/// they fit; 0 else.
fn components() -> u64 {
    const XSAVE_LEAF: u32 = 13;
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid_count(0, 0).eax < XSAVE_LEAF || __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return 0;
    }
    if __cpuid_count(XSAVE_LEAF, 0).ebx as usize > EXTENDED_LEN {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: reads a register that there is: OSXSAVE.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Whether returns are checked against a shadow stack (Linux 6.6), which a
/// process that another one makes has not.
fn has_shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    let mut features = 0u64;
    arch_prctl(ARCH_SHSTK_STATUS, core::ptr::from_mut(&mut features) as usize) == 0 && features != 0
}

fn gs_base() -> usize {
    const ARCH_GET_GS: usize = 0x1004;
    let mut base = 0usize;
    arch_prctl(ARCH_GET_GS, core::ptr::from_mut(&mut base) as usize);
    base
}

fn set_gs_base(base: usize) {
    const ARCH_SET_GS: usize = 0x1001;
    arch_prctl(ARCH_SET_GS, base);
}

fn arch_prctl(option: usize, argument: usize) -> isize {
    const ARCH_PRCTL: usize = 158;
    // SAFETY: the options above: the kernel writes one word, or sets a register
    // that the agent does not use.
    unsafe { crate::sys::call(ARCH_PRCTL, &[option, argument]) }
}

global_asm!(
    // ra_hand_over(context, end)
    ".globl ra_hand_over",
    ".hidden ra_hand_over",
    ".p2align 4",
    "ra_hand_over:",
    ".cfi_startproc",
    "mov [rdi], rbx",
    "mov [rdi + 8], rbp",
    "mov [rdi + 16], r12",
    "mov [rdi + 24], r13",
    "mov [rdi + 32], r14",
    "mov [rdi + 40], r15",
    "lea rcx, [rsp + 8]",
    "mov [rdi + 48], rcx",
    "mov rax, [rsp]",
    "mov [rdi + 56], rax",
    "mov eax, [rdi + {components}]",
    "mov edx, [rdi + {components} + 4]",
    "xsave64 [rdi + {extended}]",
    "sub rsi, rcx",
    "mov [rdi + {stack_len}], rsi",
    "lea rdi, [rdi + {stack}]",
    "xchg rsi, rcx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    // ra_arrive(context)
    ".globl ra_arrive",
    ".hidden ra_arrive",
    ".p2align 4",
    "ra_arrive:",
    "mov rbx, rdi",
    "mov eax, [rbx + {components}]",
    "mov edx, [rbx + {components} + 4]",
    "xrstor64 [rbx + {extended}]",
    "lea rsi, [rbx + {stack}]",
    "mov rdi, [rbx + 48]",
    "mov rcx, [rbx + {stack_len}]",
    "rep movsb",
    "mov rsp, [rbx + 48]",
    "mov rbp, [rbx + 8]",
    "mov r12, [rbx + 16]",
    "mov r13, [rbx + 24]",
    "mov r14, [rbx + 32]",
    "mov r15, [rbx + 40]",
    "mov rcx, [rbx + 56]",
    "mov rbx, [rbx]",
    "mov eax, 1",
    "jmp rcx",
    components = const offset_of!(Context, components),
    extended = const offset_of!(Context, extended),
    stack_len = const offset_of!(Context, stack_len),
    stack = const offset_of!(Context, stack),
);

unsafe extern "C" {
    fn ra_hand_over(context: *mut Context, end: usize) -> usize;
    fn ra_arrive(context: *const Context) -> !;
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::c_int;
    use std::boxed::Box;

    const VECTOR: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

    /// Hands over with this in a vector register; whether this side has arrived,
    /// and what is in the register then.
    #[inline(never)]
    fn with_vector(context: &mut Context, end: usize) -> (bool, [u64; 2]) {
        let (mut found, arrived): ([u64; 2], usize);
        found = [0; 2];
        // SAFETY: `holds` has been asked; what a call may clobber is declared.
        unsafe {
            asm!(
                "movups xmm7, [r12]",
                "call {hand_over}",
                "movups [r13], xmm7",
                in("r12") &VECTOR,
                in("r13") &mut found,
                hand_over = sym ra_hand_over,
                inlateout("rdi") core::ptr::from_mut(context) => _,
                inlateout("rsi") end => _,
                lateout("rax") arrived,
                clobber_abi("sysv64"),
            );
        }
        (arrived != 0, found)
    }

    unsafe extern "C" {
        fn fork() -> c_int;
        fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn _exit(status: c_int) -> !;
    }

    /// In a process that is forked after the thread has gone on, on another
    /// stack: it comes back out of the call, with its stack as it was.
    #[test]
    fn a_process_arrives_where_the_thread_was() {
        let mut context = Box::new(Context::NONE);
        let words = core::hint::black_box([7u64, 8, 9]);
        let end = core::ptr::from_ref(&words) as usize + size_of_val(&words);
        let mut left = Box::new([1u8, 2, 3]);
        let left_at = left.as_mut_ptr() as usize;
        assert!(context.holds(end, (left_at, left_at + 3)));
        // SAFETY: of three bytes.
        unsafe { context.keep_left((left_at, left_at + 3)) };
        let (arrived, vector) = with_vector(&mut context, end);
        if arrived {
            // SAFETY: the child that has just arrived; the bytes are its own.
            unsafe {
                context.restore_left();
                let same = words == [7, 8, 9] && vector == VECTOR && *left == [1, 2, 3];
                _exit(if same { 77 } else { 1 })
            };
        }
        assert_eq!(vector, VECTOR);
        *left = core::hint::black_box([4, 5, 6]);
        // SAFETY: another value, which the child is not to have.
        unsafe { asm!("xorps xmm7, xmm7", out("xmm7") _) };
        // SAFETY: fork, and in the child only what may be done there.
        let status = unsafe {
            let child = fork();
            if child == 0 {
                arrive_elsewhere(&context);
            }
            let mut status = 0;
            waitpid(child, &mut status, 0);
            status
        };
        assert_eq!(status, 77 << 8);
    }

    #[repr(align(16))]
    struct Other([u8; 65536]);

    unsafe fn arrive_elsewhere(context: &Context) {
        extern "C" fn go(context: usize) -> isize {
            // SAFETY: the caller's.
            unsafe { arrive(&*(context as *const Context)) }
        }
        let mut stack = Box::new(Other([0; 65536]));
        let top = stack.0.as_mut_ptr() as usize + stack.0.len();
        // SAFETY: memory that nothing else uses.
        unsafe { super::super::on_stack(top, go, core::ptr::from_ref(context) as usize) };
    }

    #[test]
    fn a_deep_stack_is_not_held() {
        let mut context = Box::new(Context::NONE);
        let here = super::super::stack_pointer();
        let none = (here, here);
        assert!(context.holds(here + 512, none));
        assert!(!context.holds(here + STACK_LEN, none));
        assert!(!context.holds(here - 4096, none), "not above");
        assert!(context.holds(here + 512, (here, here + LEFT_LEN)));
        assert!(!context.holds(here + 512, (here, here + LEFT_LEN + 1)));
    }
}
