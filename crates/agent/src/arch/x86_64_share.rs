//! x86-64: the clone that shares the program's memory, on a stack of its own.

use core::arch::global_asm;

/// Calls of the aide, besides those of [`super::nr`].
pub mod import_nr {
    #![allow(missing_docs)]
    pub const IOCTL: usize = 16;
    pub const MINCORE: usize = 27;
    pub const CHDIR: usize = 80;
    pub const SYSINFO: usize = 99;
    pub const NEWFSTATAT: usize = 262;
    pub const PROCESS_VM_READV: usize = 310;
}

global_asm!(
    // ra_clone_shared(flags, top, function, argument): clone(2) whose child
    // calls function(argument) on the stack that ends at `top` and never
    // returns. rdx is clone's parent_tid, which it ignores without the flag.
    ".globl ra_clone_shared",
    ".hidden ra_clone_shared",
    ".p2align 4",
    "ra_clone_shared:",
    ".cfi_startproc",
    "mov r9, rcx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "xor ebp, ebp",
    "mov rdi, r9",
    "call rdx",
    "ud2",
    ".cfi_endproc",
    // ra_thread_entry: where the gate returns to on a new thread's stack, on
    // which lie the argument and the function.
    ".globl ra_thread_entry",
    ".hidden ra_thread_entry",
    ".p2align 4",
    "ra_thread_entry:",
    "xor ebp, ebp",
    "pop rdi",
    "pop rax",
    "call rax",
    "ud2",
);

unsafe extern "C" {
    fn ra_clone_shared(
        flags: usize,
        top: usize,
        function: extern "C" fn(usize) -> !,
        argument: usize,
    ) -> isize;
    fn ra_thread_entry();
}

/// clone(2) with a child that calls `function(argument)` on the stack that
/// ends at `top`: the child's process id, or `-errno`.
///
/// # Safety
/// `flags` must ask for shared memory; `top` must be 16-byte aligned, the end
/// of memory that nothing else uses while the child lives.
pub unsafe fn clone_shared(
    flags: usize,
    top: usize,
    function: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    // SAFETY: forwarded to the caller.
    unsafe { ra_clone_shared(flags, top, function, argument) }
}

/// The same through the gate, as a speculative process must make it: clone(2)
/// with the word at `cleared` as its child_tid. Its result, in the parent only.
///
/// # Safety
/// As for [`clone_shared`]; the word must live as long as the child.
pub unsafe fn clone_through_gate(
    flags: usize,
    top: usize,
    function: extern "C" fn(usize) -> !,
    argument: usize,
    cleared: usize,
) -> isize {
    let words = [ra_thread_entry as *const () as usize, argument, function as *const () as usize];
    let stack = top - size_of_val(&words);
    // SAFETY: the last words of the stack. The child comes out of the gate on
    // it, so that the gate's return takes the first of them.
    unsafe {
        (stack as *mut [usize; 3]).write(words);
        super::syscall6(super::nr::CLONE, [flags, stack, 0, cleared, 0, 0])
    }
}
