//! Which system calls are worth a hook: those that wait for storage, those
//! that a speculative process meets often enough that a trap each time would
//! hurt, and those at which a speculative process must be ended first.

use libc::c_long;

/// Calls of interest, grouped by why.
const INTERESTING: &[c_long] = &[
    // Reads, which may wait for storage.
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_getdents64,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    // Descriptors and their offsets.
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_ioctl,
    libc::SYS_fadvise64,
    // Metadata.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_umount2,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    // Effects, swallowed in a speculative process.
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_utimensat,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    // Waits for others.
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_futex,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    // Signals: what would disturb the handlers of a speculative process.
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    // Life of the process.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_getpgrp,
    libc::SYS_getsid,
    // Rights and filters: a speculative process of the old rights is wrong.
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    // A lock lasts as long as its description, which mappings hold.
    libc::SYS_flock,
    // System V segments count their attachments.
    libc::SYS_shmat,
    // Calls beside which no speculative process may live.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setsid,
    // The limit of queued signals, which notices of page faults count against.
    libc::SYS_prlimit64,
    libc::SYS_setrlimit,
    // What traced processes execute runs without the agent.
    libc::SYS_ptrace,
    // What is mapped counts in the limit of it.
    libc::SYS_mlockall,
    // Delicate users, beside whom nothing is reopened.
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_io_uring_setup,
    libc::SYS_fanotify_init,
    libc::SYS_userfaultfd,
];

/// Whether calls of this number get a hook.
pub fn is_interesting(number: i64) -> bool {
    INTERESTING.contains(&number)
}

/// Whether a normal process's calls of this number are made in one or two places of a C
/// library, and must not pass unseen: reads, and what changes what a copy may do, or ends
/// it. (close(2) is called here and there, in what asks about network interfaces as well.)
pub fn is_vital(number: i64) -> bool {
    const VITAL: &[c_long] = &[
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_readv,
        libc::SYS_preadv,
        libc::SYS_preadv2,
        libc::SYS_getdents64,
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_dup2,
        libc::SYS_dup3,
        libc::SYS_close_range,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_exit_group,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_prctl,
        libc::SYS_seccomp,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_umount2,
        libc::SYS_setsid,
        libc::SYS_flock,
        libc::SYS_shmat,
        libc::SYS_ptrace,
        libc::SYS_mlockall,
        libc::SYS_inotify_init1,
        libc::SYS_fanotify_init,
    ];
    makes_process(number) || VITAL.contains(&number)
}

/// Whether a call of this number returns twice or on another stack, so that
/// the stub executes the instruction itself.
pub fn makes_process(number: i64) -> bool {
    matches!(number, libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork)
}
