//! x86-64: the system call gate, the hook's entry and exit, stubs for patched
//! sites, the signal restorer.
//!
//! A patched site jumps to its stub with a plain `jmp`. Where the stub does
//! not make the call itself, it puts the address to resume at into `rcx`,
//! which `syscall` clobbers anyway, and jumps to the entry. So nothing is
//! pushed onto the program's stack before its red zone has been skipped, and
//! shadow stacks stay balanced.

mod access;
mod branch;
mod handover;
mod redirect;
mod stubs;

pub use access::accessed;
pub use branch::{Branch, lead, leading_to, target_of};
pub use handover::{Context, arrive, hand_over};
pub use redirect::{
    Bytes, INSTRUCTION_LEN_MAX, Redirect, Registers, SIGNATURE, allow, numbered, of as redirect_of,
};
pub use stubs::{
    STUB_ENTRY, STUB_LEN, STUB_TAIL_MAX, STUBS_MAX, StubKind, original, put_back, stub,
    stubs_address,
};

use core::arch::{asm, global_asm};

/// System call numbers that the agent itself uses or treats specially.
pub mod nr {
    #![allow(missing_docs)]
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const POLL: usize = 7;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const BRK: usize = 12;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGRETURN: usize = 15;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const READV: usize = 19;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const SHMAT: usize = 30;
    pub const DUP: usize = 32;
    pub const DUP2: usize = 33;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const SENDFILE: usize = 40;
    pub const CLONE: usize = 56;
    pub const FORK: usize = 57;
    pub const VFORK: usize = 58;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const KEYCTL: usize = 250;
    pub const LANDLOCK_RESTRICT_SELF: usize = 446;
    pub const UNSHARE: usize = 272;
    pub const SETNS: usize = 308;
    pub const SETSID: usize = 112;
    pub const CHROOT: usize = 161;
    pub const PIVOT_ROOT: usize = 155;
    pub const UMOUNT2: usize = 166;
    pub const IOPL: usize = 172;
    pub const IOPERM: usize = 173;
    pub const WAITID: usize = 247;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const GETDENTS: usize = 78;
    pub const FLOCK: usize = 73;
    pub const CREAT: usize = 85;
    pub const GETRUSAGE: usize = 98;
    pub const SETUID: usize = 105;
    pub const SETGID: usize = 106;
    pub const SETREUID: usize = 113;
    pub const SETREGID: usize = 114;
    pub const SETGROUPS: usize = 116;
    pub const SETRESUID: usize = 117;
    pub const SETRESGID: usize = 119;
    pub const CAPSET: usize = 126;
    pub const SETPGID: usize = 109;
    pub const GETPPID: usize = 110;
    pub const GETPGID: usize = 121;
    pub const SETFSUID: usize = 122;
    pub const SETFSGID: usize = 123;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const SIGALTSTACK: usize = 131;
    pub const SETPRIORITY: usize = 141;
    pub const SCHED_SETSCHEDULER: usize = 144;
    pub const SCHED_GETSCHEDULER: usize = 145;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const PRCTL: usize = 157;
    pub const SETRLIMIT: usize = 160;
    pub const GETTID: usize = 186;
    pub const READAHEAD: usize = 187;
    pub const FUTEX: usize = 202;
    pub const IO_SETUP: usize = 206;
    pub const GETDENTS64: usize = 217;
    pub const SET_TID_ADDRESS: usize = 218;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const IOPRIO_SET: usize = 251;
    pub const INOTIFY_INIT: usize = 253;
    pub const OPENAT: usize = 257;
    pub const READLINKAT: usize = 267;
    pub const INOTIFY_INIT1: usize = 294;
    pub const DUP3: usize = 292;
    pub const PREADV: usize = 295;
    pub const PERF_EVENT_OPEN: usize = 298;
    pub const FANOTIFY_INIT: usize = 300;
    pub const PRLIMIT64: usize = 302;
    pub const SECCOMP: usize = 317;
    pub const EXECVEAT: usize = 322;
    pub const USERFAULTFD: usize = 323;
    pub const COPY_FILE_RANGE: usize = 326;
    pub const SPLICE: usize = 275;
    pub const RSEQ: usize = 334;
    pub const PREADV2: usize = 327;
    pub const STATX: usize = 332;
    pub const IO_URING_SETUP: usize = 425;
    pub const CLOSE_RANGE: usize = 436;
    pub const CLONE3: usize = 435;
    pub const OPENAT2: usize = 437;
}

/// `AUDIT_ARCH_X86_64`, for the filter.
pub const AUDIT_ARCH: u32 = 0xc000_003e;

/// First number of the x32 calls, which the filter refuses.
pub const X32_BIT: u32 = 0x4000_0000;

/// What a stub hands to the hook: a system call about to be made.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    /// System call number.
    pub number: usize,
    /// Its arguments.
    pub args: [usize; 6],
    /// Where the program goes on.
    pub resume: usize,
}

global_asm!(
    // Beside what each forked child runs (`hook`).
    ".pushsection .text.hot.child, \"ax\", @progbits",
    // ra_syscall(number, a0, a1, a2, a3, a4, a5): the only place at which a
    // speculative process can enter the kernel (its filter compares the
    // instruction pointer with ra_gate).
    ".globl ra_syscall",
    ".hidden ra_syscall",
    ".globl ra_gate",
    ".hidden ra_gate",
    ".p2align 6",
    "ra_syscall:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "ra_gate:",
    "ret",
    ".cfi_endproc",
    // ra_hook_entry: from a stub, with rcx = where to resume. Calls
    // ra_hook(&Frame), whose result becomes rax. All that `syscall` preserves
    // is preserved; vector registers are never touched by the agent.
    //
    // Unwinding passes (a thread cancelled in a hooked call, an exception out
    // of a signal handler, a debugger): to the unwinder this frame was called
    // by the original site, whose address the stub keeps in its first eight
    // bytes. The frame's CFA is the stack pointer there; the return address is
    // found by DW_CFA_expression, in column 16: first at rcx & -128, then at
    // [rbp - 8] & -128, where rcx is saved (stubs.rs).
    ".globl ra_hook_entry",
    ".hidden ra_hook_entry",
    ".p2align 6",
    "ra_hook_entry:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x10, 0x10, 5, 0x72, 0x00, 0x09, 0x80, 0x1a",
    // syscall(3) takes any number: calls that return twice or need the stack
    // as it is (clone, fork, vfork, clone3, rt_sigreturn) are made here, with
    // nothing pushed; r9 is an argument of none of them.
    "lea r11d, [rax - 56]",
    "cmp r11d, 2",
    "jbe 2f",
    "cmp eax, 435",
    "je 2f",
    "cmp eax, 15",
    "je 2f",
    "lea rsp, [rsp - 128]",
    ".cfi_def_cfa_offset 128",
    "push rbp",
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rbp, -136",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rcx",
    ".cfi_escape 0x10, 0x10, 6, 0x76, 0x78, 0x06, 0x09, 0x80, 0x1a",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {hook}",
    "lea rsp, [rbp - 56]",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rcx",
    ".cfi_escape 0x10, 0x10, 5, 0x72, 0x00, 0x09, 0x80, 0x1a",
    "pop rbp",
    ".cfi_def_cfa rsp, 128",
    ".cfi_restore rbp",
    "lea rsp, [rsp + 128]",
    ".cfi_def_cfa_offset 0",
    "jmp rcx",
    "2:",
    "mov r9, rcx",
    // The same by r9.
    ".cfi_escape 0x10, 0x10, 5, 0x79, 0x00, 0x09, 0x80, 0x1a",
    // Those that make a process are told of as they are where the number is known
    // (`StubKind::Before`).
    "mov r11, [rip + {state}]",
    "test r11, r11",
    "jz 3f",
    "cmp eax, 15",
    "je 3f",
    "lea rcx, [rip + 3f]",
    "jmp ra_before_entry",
    "3:",
    "syscall",
    "jmp r9",
    ".cfi_endproc",
    // The same, with rax preserved, too: ra_before_entry for calls that the
    // stub makes itself afterwards, which go ahead unchanged; ra_closed_entry
    // after a close that it has made.
    ".macro ra_keeping name, function",
    ".globl \\name",
    ".hidden \\name",
    ".p2align 6",
    "\\name:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x10, 0x10, 5, 0x72, 0x00, 0x09, 0x80, 0x1a",
    "lea rsp, [rsp - 128]",
    ".cfi_def_cfa_offset 128",
    "push rbp",
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rbp, -136",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rcx",
    ".cfi_escape 0x10, 0x10, 6, 0x76, 0x78, 0x06, 0x09, 0x80, 0x1a",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "mov rdi, rsp",
    "and rsp, -16",
    "call \\function",
    "lea rsp, [rbp - 64]",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rcx",
    ".cfi_escape 0x10, 0x10, 5, 0x72, 0x00, 0x09, 0x80, 0x1a",
    "pop rbp",
    ".cfi_def_cfa rsp, 128",
    ".cfi_restore rbp",
    "lea rsp, [rsp + 128]",
    ".cfi_def_cfa_offset 0",
    "jmp rcx",
    ".cfi_endproc",
    ".endm",
    "ra_keeping ra_before_entry, {before}",
    "ra_keeping ra_closed_entry, {closed}",
    ".popsection",
    // Thunk number i, each 16 bytes long: enters with r11 = i, which a call
    // through a table may clobber.
    ".globl ra_thunks",
    ".hidden ra_thunks",
    ".p2align 4",
    "ra_thunks:",
    ".set ra_thunk_index, 0",
    ".rept {thunks}",
    "endbr64",
    "mov r11d, ra_thunk_index",
    "jmp ra_interposed",
    ".p2align 4",
    ".set ra_thunk_index, ra_thunk_index + 1",
    ".endr",
    // ra_interposed: a call of a library function. Routed to the original
    // with all registers as they were, to the hook, or to the original with a
    // look at its result. Unwinding (a cancellation in the original) passes.
    ".p2align 6",
    "ra_interposed:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push 0",
    "push r11",
    "push rax",
    "push r9",
    "push r8",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {route}",
    "cmp rax, 1",
    "je 2f",
    "ja 3f",
    "call 4f",
    ".cfi_remember_state",
    "mov r11, [rbp - 8]",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "jmp r11",
    ".cfi_restore_state",
    "2:", // Through the hook, after a cancellation point.
    "mov rax, [rip + {test_cancel}]",
    "test rax, rax",
    "jz 5f",
    "call rax",
    "5:",
    "lea rdi, [rbp - 72]",
    "call {through}",
    "leave",
    ".cfi_remember_state",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    "3:", // The original, then a look.
    "cmp qword ptr [rbp - 16], {cancellable}",
    "jne 6f",
    // `__syscall_cancel_arch` has two further arguments, and writes to the first.
    "push [rbp + 24]",
    "push [rbp + 16]",
    "6:",
    "call 4f",
    "call [rbp - 8]",
    "mov [rbp - 24], rax",
    "lea rdi, [rbp - 72]",
    "mov rsi, rax",
    "call {after}",
    "mov rax, [rbp - 24]",
    "leave",
    ".cfi_remember_state",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    "4:", // Restores the argument registers.
    "mov rdi, [rbp - 72]",
    "mov rsi, [rbp - 64]",
    "mov rdx, [rbp - 56]",
    "mov rcx, [rbp - 48]",
    "mov r8, [rbp - 40]",
    "mov r9, [rbp - 32]",
    "mov rax, [rbp - 24]",
    "ret",
    ".cfi_endproc",
    // The restorer of the speculative process's signal handlers.
    ".globl ra_restorer",
    ".hidden ra_restorer",
    "ra_restorer:",
    "mov eax, 15",
    "syscall",
    // ra_on_stack(top, function, argument): calls function(argument) on
    // another stack, whose first word says where the one before ends (`left_at`).
    ".globl ra_on_stack",
    ".hidden ra_on_stack",
    "ra_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdi",
    "push rbp",
    "push rbp",
    "mov rdi, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    hook = sym crate::hook::ra_hook,
    before = sym crate::hook::ra_before,
    closed = sym crate::hook::ra_closed,
    route = sym crate::interpose::ra_route,
    through = sym crate::interpose::ra_through,
    after = sym crate::interpose::ra_after,
    test_cancel = sym crate::interpose::TEST_CANCEL,
    thunks = const THUNKS_MAX,
    cancellable = const crate::interpose::CANCELLABLE,
    state = sym crate::state::STATE,
);

unsafe extern "C" {
    fn ra_syscall(
        number: usize,
        a0: usize,
        a1: usize,
        a2: usize,
        a3: usize,
        a4: usize,
        a5: usize,
    ) -> isize;
    fn ra_gate();
    fn ra_hook_entry();
    fn ra_before_entry();
    fn ra_closed_entry();
    fn ra_thunks();
    fn ra_restorer();
    fn ra_on_stack(top: usize, function: extern "C" fn(usize) -> isize, argument: usize) -> isize;
}

/// One system call; `-errno` on failure (syscall(2)).
///
/// # Safety
/// The call must be sound with these arguments: it can do anything.
#[inline]
pub unsafe fn syscall6(number: usize, args: [usize; 6]) -> isize {
    let [a0, a1, a2, a3, a4, a5] = args;
    // SAFETY: ra_syscall makes just this call; the caller vouches for it.
    unsafe { ra_syscall(number, a0, a1, a2, a3, a4, a5) }
}

/// The instruction pointer that the kernel sees for calls made by
/// [`syscall6`].
pub fn gate_address() -> usize {
    ra_gate as *const () as usize
}

/// Address of the restorer for `rt_sigaction`.
pub fn restorer_address() -> usize {
    ra_restorer as *const () as usize
}

/// Functions that can be hooked by their address.
pub const THUNKS_MAX: usize = 96;

/// A call of a library function, as a thunk hands it on.
#[derive(Debug)]
#[repr(C)]
pub struct Interposed {
    /// Its integer arguments.
    pub args: [usize; 6],
    accumulator: usize,
    /// Number of the thunk.
    pub index: usize,
    /// The library's function.
    pub original: usize,
}

impl Interposed {
    /// The seventh and the eighth argument of the function.
    ///
    /// # Safety
    /// A thunk must have made this, of a function with so many arguments.
    pub unsafe fn more(&self) -> [usize; 2] {
        // Behind the frame pointer that the thunk has saved, and where it goes back to.
        let at =
            core::ptr::from_ref(self) as usize + size_of::<Interposed>() + 2 * size_of::<usize>();
        // SAFETY: as the caller promises, they are on the stack there.
        unsafe { *(at as *const [usize; 2]) }
    }
}

/// Address of thunk number `index`, below [`THUNKS_MAX`].
pub fn thunk_address(index: usize) -> usize {
    const THUNK_LEN: usize = 16;
    ra_thunks as *const () as usize + index * THUNK_LEN
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
/// `top` must be 16-byte aligned, the end of writable memory that is large
/// enough for the call and used by nothing else meanwhile.
pub unsafe fn on_stack(
    top: usize,
    function: extern "C" fn(usize) -> isize,
    argument: usize,
) -> isize {
    // SAFETY: forwarded to the caller.
    unsafe { ra_on_stack(top, function, argument) }
}

/// Where the stack ends that a thread has left for the one with this `top`
/// ([`on_stack`]): what lies there and above does not change until it is back.
///
/// # Safety
/// The caller must run on that stack.
pub unsafe fn left_at(top: usize) -> usize {
    // SAFETY: `ra_on_stack` has put it there.
    unsafe { *((top - size_of::<usize>()) as *const usize) }
}

/// Time-stamp counter; 0 where nobody knows its rate.
#[inline]
pub fn ticks() -> u64 {
    if crate::config::CONFIG.ticks_per_us.load(core::sync::atomic::Ordering::Relaxed) == 0 {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: rdtsc reads a counter; where it is forbidden (PR_SET_TSC) no rate
    // is known.
    unsafe {
        asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Number of the processor that this runs on, as vgetcpu of the vDSO finds it:
/// in the limit of a segment that each has of its own.
#[inline]
pub fn processor() -> u32 {
    const GDT_CPU_NUMBER: u32 = 15 * 8 + 3;
    const NUMBER_MASK: u32 = 0xfff;
    let limit: u32;
    // SAFETY: lsl reads a segment's limit; of a selector that names none the
    // register stays as it was.
    unsafe {
        asm!("lsl {0:e}, {0:e}", inout(reg) GDT_CPU_NUMBER => limit, options(nomem, nostack));
    }
    limit & NUMBER_MASK
}

/// An address that tells the threads of a process apart: the thread control
/// block, whose first word points to itself in every x86-64 libc.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: hooks are reached through libc's own code, which needs the
    // thread control block for errno, so fs:0 is readable.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

/// The stack pointer here.
#[inline]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// A jump from `at` to `target` (`jmp rel32`), or `None` where it is too far.
pub fn jump(at: usize, target: usize) -> Option<[u8; 5]> {
    let distance = i32::try_from((target as i64).wrapping_sub(at as i64).wrapping_sub(5)).ok()?;
    let [b0, b1, b2, b3] = distance.to_le_bytes();
    Some([0xe9, b0, b1, b2, b3])
}

/// Registers of an interrupted speculative process, in a signal frame
/// (`struct sigcontext` inside `ucontext_t`, offset 40).
#[derive(Debug)]
#[repr(C)]
pub struct SignalContext {
    r8_to_r15: [u64; 8],
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    eflags: u64,
    segments: u64,
    error: u64,
    trap: u64,
    old_mask: u64,
    cr2: u64,
}

impl SignalContext {
    /// The registers in a `ucontext_t`.
    ///
    /// # Safety
    /// `ucontext` must be the third argument of a running signal handler.
    pub unsafe fn of<'a>(ucontext: usize) -> &'a mut SignalContext {
        // SAFETY: uc_mcontext lies 40 bytes into struct ucontext (uc_flags,
        // uc_link, uc_stack), and the kernel has filled it in.
        unsafe { &mut *((ucontext + 40) as *mut SignalContext) }
    }

    /// Makes the return from a handler go on with another signal mask and
    /// alternate stack (`stack_t`) than those that the kernel saved.
    ///
    /// # Safety
    /// `ucontext` must be the third argument of a running signal handler.
    pub unsafe fn resume_with(ucontext: usize, mask: u64, stack: &[usize; 3]) {
        const STACK_AT: usize = 16;
        const MASK_AT: usize = 40 + 256;
        // SAFETY: uc_stack and uc_sigmask of the kernel's struct ucontext.
        unsafe {
            *((ucontext + STACK_AT) as *mut [usize; 3]) = *stack;
            *((ucontext + MASK_AT) as *mut u64) = mask;
        }
    }

    /// The signal mask to which a handler returns.
    ///
    /// # Safety
    /// `ucontext` must be the third argument of a running signal handler.
    pub unsafe fn mask(ucontext: usize) -> u64 {
        // SAFETY: uc_sigmask of the kernel's struct ucontext.
        unsafe { *((ucontext + 40 + 256) as *const u64) }
    }

    /// The system call at which it was stopped.
    pub fn call(&self) -> (usize, [usize; 6]) {
        let [r8, r9, r10, ..] = self.r8_to_r15;
        (
            self.rax as usize,
            [self.rdi, self.rsi, self.rdx, r10, r8, r9].map(|register| register as usize),
        )
    }

    /// Sets the result of that call.
    pub fn set_result(&mut self, result: isize) {
        self.rax = result as u64;
    }

    /// Address of the interrupted instruction.
    pub fn instruction(&self) -> usize {
        self.rip as usize
    }

    /// Whether a page fault (trap 14) was a write.
    pub fn is_write_fault(&self) -> bool {
        self.trap == 14 && self.error & 2 != 0
    }
}

const _: () = assert!(size_of::<Frame>() == 64);
const _: () = assert!(size_of::<Interposed>() == 72);
const _: () = assert!(core::mem::offset_of!(SignalContext, rip) == 128);
const _: () = assert!(core::mem::offset_of!(SignalContext, cr2) == 176);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_reach_two_gibibytes_and_no_further() {
        assert_eq!(jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert!(jump(0x1000, 0x1000 + 0x8000_0004).is_some());
        assert!(jump(0x1000, 0x1000 + 0x8000_0005).is_none());
    }

    #[test]
    fn a_thread_knows_its_processor() {
        let mut seen = 0;
        for number in 0..64 {
            let mask = 1u64 << number;
            let args = [0, size_of_val(&mask), core::ptr::from_ref(&mask) as usize];
            // SAFETY: reads a mask; concerns this thread only.
            if unsafe { crate::sys::call(nr::SCHED_SETAFFINITY, &args) } == 0 {
                assert_eq!(processor(), number);
                seen += 1;
            }
        }
        assert!(seen > 0);
    }
}
