//! The table: for each system call, what a speculative process does with it
//! and why. What is not here parks.

use crate::context::Context;
use crate::kernel::Kernel;
use crate::outcome::{Answer, errno, park};
use runahead_protocol::stats;

/// What is done with a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Made for real, as it is: no pointers, no effect beyond this process.
    Allow,
    /// Made for real after the buffer at argument `.0`, `.1` bytes long, has
    /// been made writable.
    Fill(usize, usize),
    /// A function answers; its name.
    Emulate(&'static str),
    /// Success (0) is reported and nothing is done.
    Swallow,
    /// This value is reported and nothing is done.
    Answer(usize),
    /// This errno is reported and nothing is done.
    Fail(i32),
    /// The speculative process cannot go on.
    Park(stats::Park),
}

/// A row of [`TABLE`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// System call number.
    pub number: usize,
    /// Its name, in capitals.
    pub name: &'static str,
    /// What is done with it.
    pub verdict: Verdict,
    /// Why.
    pub why: &'static str,
}

macro_rules! table {
    ($($name:ident => $verdict:ident $(($($argument:tt),+))?, $why:literal;)+) => {
        /// Every system call that has an answer, for people, documents and
        /// tests; [`Context::dispatch`] is made from the same rows.
        pub const TABLE: &[Row] = &[$(Row {
            number: crate::arch::nr::$name,
            name: stringify!($name),
            verdict: table!(@verdict $verdict $($($argument)+)?),
            why: $why,
        }),+];

        impl<K: Kernel> Context<'_, K> {
            /// Looks a call up and answers it.
            pub(crate) fn dispatch(&mut self, number: usize, a: [usize; 6]) -> Answer {
                use crate::arch::nr;
                match number {
                    $(nr::$name => table!(@run self number a $verdict $($($argument)+)?),)+
                    _ => park(stats::Park::UnknownCall),
                }
            }
        }
    };
    (@verdict Emulate $function:ident) => { Verdict::Emulate(stringify!($function)) };
    (@verdict Allow) => { Verdict::Allow };
    (@verdict Fill $argument:literal $len:literal) => { Verdict::Fill($argument, $len) };
    (@verdict Swallow) => { Verdict::Swallow };
    (@verdict Answer $value:literal) => { Verdict::Answer($value) };
    (@verdict Fail $code:ident) => { Verdict::Fail(crate::abi::$code) };
    (@verdict Park $reason:ident) => { Verdict::Park(stats::Park::$reason) };
    (@run $cx:ident $n:ident $a:ident Emulate $function:ident) => { $cx.$function($a) };
    (@run $cx:ident $n:ident $a:ident Allow) => { $cx.on_program($n, $a) };
    (@run $cx:ident $n:ident $a:ident Fill $argument:literal $len:literal) => {
        $cx.fill($n, $a, $argument, $len)
    };
    (@run $cx:ident $n:ident $a:ident Swallow) => { Ok(0) };
    (@run $cx:ident $n:ident $a:ident Answer $value:literal) => { Ok($value) };
    (@run $cx:ident $n:ident $a:ident Fail $code:ident) => { errno(crate::abi::$code) };
    (@run $cx:ident $n:ident $a:ident Park $reason:ident) => { park(stats::Park::$reason) };
}

table! {
    // Reads: what speculation is for.
    READ => Emulate(read), "resident bytes are copied, missing ones prefetched";
    PREAD64 => Emulate(pread64), "like read, at an offset";
    READV => Emulate(readv), "like read, into several buffers";
    PREADV => Emulate(preadv), "like readv, at an offset";
    PREADV2 => Emulate(preadv2), "like preadv; RWF_NOWAIT asks as the program itself would";
    SENDFILE => Emulate(sendfile), "a read of its input; what goes out is swallowed";
    COPY_FILE_RANGE => Emulate(copy_file_range), "a read of its input; what goes out is swallowed";
    SPLICE => Emulate(splice), "a read of its input where that is a file; of a pipe, what has so come there";
    READAHEAD => Emulate(readahead), "a prefetch that the program announces itself";
    FADVISE64 => Emulate(fadvise64), "WILLNEED prefetches; what would drop pages is left out";
    // Opening and descriptors.
    OPEN => Emulate(open), "read-only is opened again as a description of our own; else a sink";
    OPENAT => Emulate(openat), "see open";
    OPENAT2 => Emulate(openat2), "as openat, without restricted look-ups";
    CREAT => Emulate(creat), "a sink";
    MEMFD_CREATE => Emulate(memfd_create), "a sink without a name";
    CLOSE => Emulate(close), "our own descriptor, if any, is closed";
    CLOSE_RANGE => Emulate(close_range), "of the virtual table";
    DUP => Emulate(dup), "of the virtual table";
    DUP2 => Emulate(dup2), "of the virtual table";
    DUP3 => Emulate(dup3), "of the virtual table";
    FCNTL => Emulate(fcntl), "flags are virtual; locks are granted and never taken";
    IOCTL => Emulate(ioctl), "the few questions that can be answered from what is known";
    FLOCK => Emulate(any_fd), "granted and never taken: the kernel would keep it past the program's close";
    LSEEK => Emulate(lseek), "offsets are virtual: the normal process's must not move";
    // Looking.
    STAT => Emulate(stat), "looks only";
    FSTAT => Emulate(fstat), "looks only; sinks look like regular files";
    LSTAT => Emulate(lstat), "looks only";
    NEWFSTATAT => Emulate(newfstatat), "looks only";
    STATX => Emulate(statx), "looks only";
    ACCESS => Emulate(access), "looks only";
    FACCESSAT => Emulate(faccessat), "looks only";
    FACCESSAT2 => Emulate(faccessat2), "looks only";
    READLINK => Emulate(readlink), "looks only";
    READLINKAT => Emulate(readlinkat), "looks only";
    GETDENTS => Emulate(getdents), "of our own description";
    GETDENTS64 => Emulate(getdents64), "of our own description";
    STATFS => Emulate(statfs), "looks only";
    FSTATFS => Emulate(fstatfs), "looks only";
    GETXATTR => Emulate(getxattr), "looks only";
    LGETXATTR => Emulate(lgetxattr), "looks only";
    FGETXATTR => Emulate(fgetxattr), "looks only";
    LISTXATTR => Emulate(listxattr), "looks only";
    LLISTXATTR => Emulate(llistxattr), "looks only";
    FLISTXATTR => Emulate(flistxattr), "looks only";
    GETCWD => Emulate(getcwd), "looks only";
    CHDIR => Emulate(chdir), "the copy has a working directory of its own";
    FCHDIR => Emulate(fchdir), "the copy has a working directory of its own";
    UMASK => Allow, "the copy has a mask of its own";
    CACHESTAT => Fail(ENOSYS), "programs do without it on older kernels";
    NAME_TO_HANDLE_AT => Fail(EOPNOTSUPP), "file systems may refuse it, so programs are prepared";
    // Writing: success, and nothing done.
    WRITE => Emulate(write), "swallowed; sizes and offsets move";
    PWRITE64 => Emulate(pwrite64), "swallowed";
    WRITEV => Emulate(writev), "swallowed";
    PWRITEV => Emulate(pwritev), "swallowed";
    PWRITEV2 => Emulate(pwritev), "swallowed";
    FTRUNCATE => Emulate(ftruncate), "a size in appearance";
    TRUNCATE => Emulate(truncate), "a size in appearance";
    FALLOCATE => Emulate(fallocate), "a size in appearance";
    FSYNC => Emulate(fsync), "nothing was written";
    FDATASYNC => Emulate(fsync), "nothing was written";
    SYNC_FILE_RANGE => Emulate(any_fd), "nothing was written";
    SYNCFS => Emulate(any_fd), "nothing was written";
    SYNC => Swallow, "nothing was written";
    MSYNC => Swallow, "nothing shared was written";
    MKDIR => Emulate(mkdir), "remembered, not made";
    MKDIRAT => Emulate(mkdirat), "remembered, not made";
    MKNOD => Emulate(mknod), "remembered, not made";
    MKNODAT => Emulate(mknodat), "remembered, not made";
    SYMLINK => Emulate(symlink), "remembered, not made";
    SYMLINKAT => Emulate(symlinkat), "remembered, not made";
    LINK => Emulate(link), "remembered, not made";
    LINKAT => Emulate(linkat), "remembered, not made";
    UNLINK => Emulate(unlink), "remembered, not removed";
    UNLINKAT => Emulate(unlinkat), "remembered, not removed";
    RMDIR => Emulate(rmdir), "remembered, not removed";
    RENAME => Emulate(rename), "remembered, not renamed";
    RENAMEAT => Emulate(renameat), "remembered, not renamed";
    RENAMEAT2 => Emulate(renameat2), "remembered, not renamed; exchanges park";
    CHMOD => Swallow, "attributes of what was swallowed do not matter";
    FCHMOD => Swallow, "see chmod";
    FCHMODAT => Swallow, "see chmod";
    FCHMODAT2 => Swallow, "see chmod";
    CHOWN => Swallow, "see chmod";
    FCHOWN => Swallow, "see chmod";
    LCHOWN => Swallow, "see chmod";
    FCHOWNAT => Swallow, "see chmod";
    UTIME => Swallow, "see chmod";
    UTIMES => Swallow, "see chmod";
    FUTIMESAT => Swallow, "see chmod";
    UTIMENSAT => Swallow, "see chmod";
    SETXATTR => Swallow, "see chmod";
    LSETXATTR => Swallow, "see chmod";
    FSETXATTR => Swallow, "see chmod";
    REMOVEXATTR => Swallow, "see chmod";
    LREMOVEXATTR => Swallow, "see chmod";
    FREMOVEXATTR => Swallow, "see chmod";
    // Memory of this process alone.
    MMAP => Emulate(mmap), "private; shared mappings become private ones";
    MUNMAP => Emulate(munmap), "real, but never of the agent";
    MPROTECT => Emulate(mprotect), "real, but never of the agent nor of what is still shared";
    PKEY_MPROTECT => Park(Unanswerable), "protection keys are rare and per thread";
    MREMAP => Emulate(mremap), "real, but never of the agent nor of what is still shared";
    BRK => Emulate(brk), "real, within the budget";
    MADVISE => Emulate(madvise), "real where it changes this process alone";
    MINCORE => Emulate(mincore), "looks only";
    MLOCK => Swallow, "locked memory is the process's to account for";
    MLOCK2 => Swallow, "see mlock";
    MLOCKALL => Swallow, "see mlock";
    MUNLOCK => Swallow, "see mlock";
    MUNLOCKALL => Swallow, "see mlock";
    MSEAL => Swallow, "would seal memory that the agent must manage";
    MBIND => Swallow, "placement is a matter of speed only";
    SET_MEMPOLICY => Swallow, "see mbind";
    SET_MEMPOLICY_HOME_NODE => Swallow, "see mbind";
    GET_MEMPOLICY => Park(Unanswerable), "rare";
    PROCESS_MADVISE => Park(Unanswerable), "acts on another process";
    REMAP_FILE_PAGES => Park(Unanswerable), "needs shared mappings";
    MEMFD_SECRET => Park(Unanswerable), "rare";
    MAP_SHADOW_STACK => Park(Unanswerable), "control-flow state";
    // Who it is: the normal process.
    GETPID => Emulate(getpid), "the normal process's";
    GETTID => Emulate(gettid), "the normal thread's";
    GETPPID => Emulate(getppid), "the normal process's";
    GETPGRP => Emulate(getpgrp), "the normal process's: the copy has a group of its own";
    GETPGID => Emulate(getpgid), "the normal process's";
    GETSID => Emulate(getsid), "the normal process's";
    SET_TID_ADDRESS => Emulate(gettid), "the kernel would clear that address when the copy ends";
    GETUID => Allow, "the same user";
    GETEUID => Allow, "the same user";
    GETGID => Allow, "the same group";
    GETEGID => Allow, "the same group";
    GETRESUID => Emulate(getresuid), "the same user";
    GETRESGID => Emulate(getresgid), "the same group";
    GETGROUPS => Emulate(getgroups), "the same groups";
    SETPGID => Swallow, "the group is the normal process's";
    SETSID => Park(Unanswerable), "defeats idle scheduling (autogroup)";
    SETUID => Park(Unanswerable), "changes what may be reopened";
    SETGID => Park(Unanswerable), "see setuid";
    SETREUID => Park(Unanswerable), "see setuid";
    SETREGID => Park(Unanswerable), "see setuid";
    SETRESUID => Park(Unanswerable), "see setuid";
    SETRESGID => Park(Unanswerable), "see setuid";
    SETGROUPS => Park(Unanswerable), "see setuid";
    SETFSUID => Park(Unanswerable), "see setuid";
    SETFSGID => Park(Unanswerable), "see setuid";
    CAPGET => Emulate(capget), "looks only";
    CAPSET => Park(Unanswerable), "see setuid";
    PERSONALITY => Emulate(personality), "looks only";
    PRCTL => Emulate(prctl), "names and the like are swallowed";
    ARCH_PRCTL => Emulate(arch_prctl), "segment bases are registers of this process alone";
    // Time and the machine: looks only.
    CLOCK_GETTIME => Fill(1, 16), "looks only";
    CLOCK_GETRES => Fill(1, 16), "looks only";
    GETTIMEOFDAY => Emulate(gettimeofday), "looks only";
    TIME => Fill(0, 8), "looks only";
    TIMES => Fill(0, 32), "looks only";
    UNAME => Fill(0, 390), "looks only";
    SYSINFO => Fill(0, 112), "looks only";
    GETRUSAGE => Fill(1, 144), "looks only";
    GETRLIMIT => Fill(1, 16), "looks only";
    PRLIMIT64 => Emulate(prlimit64), "looks only; setting is swallowed";
    SETRLIMIT => Swallow, "limits are the normal process's";
    GETRANDOM => Emulate(getrandom), "as random as the program's";
    GETCPU => Emulate(getcpu), "looks only";
    SCHED_GETAFFINITY => Emulate(sched_getaffinity), "looks only";
    SCHED_GETSCHEDULER => Swallow, "the normal class is 0; the copy's own is not the program's";
    SCHED_GETPARAM => Emulate(sched_getparam), "priority 0, see sched_getscheduler";
    SCHED_GET_PRIORITY_MAX => Allow, "a constant";
    SCHED_GET_PRIORITY_MIN => Allow, "a constant";
    SCHED_SETAFFINITY => Swallow, "scheduling is the agent's";
    SCHED_SETSCHEDULER => Swallow, "scheduling is the agent's";
    SCHED_SETPARAM => Swallow, "scheduling is the agent's";
    SCHED_SETATTR => Swallow, "scheduling is the agent's";
    SCHED_GETATTR => Park(Unanswerable), "rare";
    SCHED_RR_GET_INTERVAL => Park(Unanswerable), "rare";
    SETPRIORITY => Swallow, "scheduling is the agent's";
    GETPRIORITY => Answer(20), "nice 0, as the kernel encodes it";
    IOPRIO_SET => Swallow, "scheduling is the agent's";
    IOPRIO_GET => Swallow, "none set";
    // Sleep: no reason to.
    SCHED_YIELD => Swallow, "nobody to yield to";
    NANOSLEEP => Swallow, "sleeps are over at once";
    CLOCK_NANOSLEEP => Swallow, "sleeps are over at once";
    ALARM => Swallow, "no timer ever fires";
    SETITIMER => Emulate(setitimer), "no timer ever fires";
    GETITIMER => Emulate(getitimer), "no timer runs";
    TIMER_CREATE => Emulate(timer_create), "no timer ever fires";
    TIMER_SETTIME => Emulate(timer_settime), "no timer ever fires";
    TIMER_GETTIME => Emulate(getitimer), "no timer runs";
    TIMER_GETOVERRUN => Swallow, "no timer ever fires";
    TIMER_DELETE => Swallow, "no timer exists";
    // Signals: shadow state.
    RT_SIGACTION => Emulate(rt_sigaction), "the kernel's actions stay the agent's";
    RT_SIGPROCMASK => Emulate(rt_sigprocmask), "a blocked SIGSYS would kill the copy";
    RT_SIGPENDING => Emulate(rt_sigpending), "none";
    SIGALTSTACK => Emulate(sigaltstack), "the kernel's stays the agent's";
    RT_SIGRETURN => Park(Signal), "returns into a context that the agent did not make";
    RT_SIGSUSPEND => Park(NeedsOther), "waits for a signal";
    RT_SIGTIMEDWAIT => Park(NeedsOther), "waits for a signal";
    PAUSE => Park(NeedsOther), "waits for a signal";
    KILL => Emulate(kill), "to others swallowed, to itself parks";
    TKILL => Emulate(tkill), "see kill";
    TGKILL => Emulate(tgkill), "see kill";
    RT_SIGQUEUEINFO => Emulate(kill), "see kill";
    RT_TGSIGQUEUEINFO => Emulate(tgkill), "see kill";
    PIDFD_SEND_SIGNAL => Swallow, "to others";
    // Other threads and processes.
    FUTEX => Emulate(futex), "a wait that would block waits for another thread";
    FUTEX_WAKE => Swallow, "nobody waits here";
    FUTEX_REQUEUE => Swallow, "nobody waits here";
    FUTEX_WAIT => Park(NeedsOther), "waits for another thread";
    FUTEX_WAITV => Park(NeedsOther), "waits for another thread";
    SET_ROBUST_LIST => Swallow, "the kernel would walk it when the copy ends";
    GET_ROBUST_LIST => Park(Unanswerable), "rare";
    RSEQ => Fail(EINVAL), "registered already, as for the program";
    MEMBARRIER => Swallow, "one thread";
    WAIT4 => Emulate(wait4), "waits for a child";
    WAITID => Park(NeedsOther), "waits for a child";
    CLONE => Park(Fork), "a second process";
    CLONE3 => Park(Fork), "a second process";
    FORK => Park(Fork), "a second process";
    VFORK => Park(Fork), "a second process";
    EXECVE => Park(Exec), "the agent would be lost";
    EXECVEAT => Park(Exec), "the agent would be lost";
    EXIT => Park(Exit), "ends";
    EXIT_GROUP => Park(Exit), "ends";
    // Pipes, sockets, queues.
    PIPE => Emulate(pipe), "imaginary";
    PIPE2 => Emulate(pipe2), "imaginary";
    SOCKETPAIR => Emulate(socketpair), "imaginary";
    SOCKET => Emulate(socket), "imaginary";
    EVENTFD => Emulate(eventfd), "imaginary";
    EVENTFD2 => Emulate(eventfd2), "imaginary";
    TIMERFD_CREATE => Emulate(eventfd2), "imaginary";
    TIMERFD_SETTIME => Emulate(timer_settime), "no timer ever fires";
    TIMERFD_GETTIME => Emulate(getitimer), "no timer runs";
    SIGNALFD => Emulate(signalfd), "imaginary";
    SIGNALFD4 => Emulate(signalfd4), "imaginary";
    EPOLL_CREATE => Emulate(epoll_create), "imaginary";
    EPOLL_CREATE1 => Emulate(epoll_create1), "imaginary";
    EPOLL_CTL => Swallow, "its interest list is not kept";
    INOTIFY_INIT => Emulate(epoll_create), "imaginary";
    INOTIFY_INIT1 => Emulate(epoll_create1), "imaginary";
    INOTIFY_ADD_WATCH => Answer(1), "a watch that never fires";
    INOTIFY_RM_WATCH => Swallow, "see inotify_add_watch";
    PIDFD_OPEN => Emulate(pidfd_open), "imaginary";
    SENDTO => Emulate(sendto), "swallowed";
    SENDMSG => Emulate(sendmsg), "swallowed";
    SENDMMSG => Park(Unanswerable), "rare";
    SHUTDOWN => Emulate(on_socket), "swallowed";
    BIND => Emulate(on_socket), "swallowed";
    LISTEN => Emulate(on_socket), "swallowed";
    SETSOCKOPT => Emulate(on_socket), "swallowed";
    GETSOCKOPT => Emulate(getsockopt), "no error is known";
    GETSOCKNAME => Park(Unanswerable), "not kept";
    GETPEERNAME => Park(Unanswerable), "not kept";
    CONNECT => Emulate(connect), "needs the other side, unless it is not there";
    ACCEPT => Emulate(needs_peer), "needs the other side";
    ACCEPT4 => Emulate(needs_peer), "needs the other side";
    RECVFROM => Emulate(needs_peer), "needs the other side";
    RECVMSG => Emulate(needs_peer), "needs the other side";
    RECVMMSG => Emulate(needs_peer), "needs the other side";
    POLL => Emulate(poll), "answered where something is ready for sure";
    PPOLL => Emulate(ppoll), "see poll";
    SELECT => Emulate(select), "see poll";
    PSELECT6 => Emulate(select), "see poll";
    EPOLL_WAIT => Emulate(epoll_wait), "waits for others";
    EPOLL_PWAIT => Emulate(epoll_wait), "waits for others";
    EPOLL_PWAIT2 => Park(NeedsOther), "waits for others";
    TEE => Park(NeedsInput), "needs a pipe's data";
    VMSPLICE => Park(NeedsOther), "gives pages away";
    MSGRCV => Park(NeedsInput), "needs a queue's data";
    MSGSND => Swallow, "swallowed";
    MSGGET => Park(Unanswerable), "makes something that outlives the copy";
    MSGCTL => Park(Unanswerable), "see msgget";
    SEMOP => Park(NeedsOther), "waits for another process";
    SEMTIMEDOP => Park(NeedsOther), "waits for another process";
    SEMGET => Park(Unanswerable), "makes something that outlives the copy";
    SEMCTL => Park(Unanswerable), "see semget";
    SHMGET => Park(Unanswerable), "makes something that outlives the copy";
    SHMAT => Park(Unanswerable), "shared memory";
    SHMDT => Park(Unanswerable), "shared memory";
    SHMCTL => Park(Unanswerable), "see shmget";
    MQ_OPEN => Park(Unanswerable), "makes something that outlives the copy";
    MQ_UNLINK => Park(Unanswerable), "see mq_open";
    MQ_TIMEDSEND => Swallow, "swallowed";
    MQ_TIMEDRECEIVE => Park(NeedsInput), "needs a queue's data";
    MQ_NOTIFY => Park(Unanswerable), "see mq_open";
    MQ_GETSETATTR => Park(Unanswerable), "see mq_open";
    // Never: they act past this process, or past the filter.
    IO_SETUP => Park(Unanswerable), "asynchronous I/O acts outside the filter";
    IO_DESTROY => Park(Unanswerable), "see io_setup";
    IO_SUBMIT => Park(Unanswerable), "see io_setup";
    IO_GETEVENTS => Park(Unanswerable), "see io_setup";
    IO_PGETEVENTS => Park(Unanswerable), "see io_setup";
    IO_CANCEL => Park(Unanswerable), "see io_setup";
    IO_URING_SETUP => Park(Unanswerable), "its rings act outside the filter";
    IO_URING_ENTER => Park(Unanswerable), "see io_uring_setup";
    IO_URING_REGISTER => Park(Unanswerable), "see io_uring_setup";
    PTRACE => Park(Unanswerable), "acts on another process";
    PROCESS_VM_READV => Park(Unanswerable), "acts on another process";
    PROCESS_VM_WRITEV => Park(Unanswerable), "acts on another process";
    PROCESS_MRELEASE => Park(Unanswerable), "acts on another process";
    PIDFD_GETFD => Park(Unanswerable), "takes what is another process's";
    KCMP => Park(Unanswerable), "looks at another process";
    MOVE_PAGES => Park(Unanswerable), "acts on the machine";
    MIGRATE_PAGES => Park(Unanswerable), "acts on the machine";
    BPF => Park(Unanswerable), "acts on the machine";
    PERF_EVENT_OPEN => Park(Unanswerable), "acts on the machine";
    USERFAULTFD => Park(Unanswerable), "would fight the agent over faults";
    SECCOMP => Park(Unanswerable), "the filter is the agent's";
    LANDLOCK_CREATE_RULESET => Park(Unanswerable), "restricts the agent";
    LANDLOCK_ADD_RULE => Park(Unanswerable), "restricts the agent";
    LANDLOCK_RESTRICT_SELF => Park(Unanswerable), "restricts the agent";
    UNSHARE => Park(Unanswerable), "moves to other namespaces";
    SETNS => Park(Unanswerable), "moves to other namespaces";
    CHROOT => Park(Unanswerable), "moves to another root";
    PIVOT_ROOT => Park(Unanswerable), "acts on the machine";
    MOUNT => Park(Unanswerable), "acts on the machine";
    UMOUNT2 => Park(Unanswerable), "acts on the machine";
    SWAPON => Park(Unanswerable), "acts on the machine";
    SWAPOFF => Park(Unanswerable), "acts on the machine";
    REBOOT => Park(Unanswerable), "acts on the machine";
    SYSLOG => Park(Unanswerable), "may consume the log";
    FANOTIFY_INIT => Park(Unanswerable), "acts on the machine";
    ADD_KEY => Park(Unanswerable), "keys outlive the copy";
    REQUEST_KEY => Park(Unanswerable), "keys outlive the copy";
    KEYCTL => Park(Unanswerable), "keys outlive the copy";
    MODIFY_LDT => Park(Unanswerable), "rare";
}
