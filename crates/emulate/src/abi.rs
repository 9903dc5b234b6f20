//! Constants of the Linux system call interface that are the same on every
//! architecture that Runahead runs on, with the kernel's own names.
#![allow(missing_docs, reason = "the names are the kernel's; see the uapi headers")]

pub const EPERM: i32 = 1;
pub const ENOENT: i32 = 2;
pub const ESRCH: i32 = 3;
pub const EIO: i32 = 5;
pub const ENXIO: i32 = 6;
pub const EBADF: i32 = 9;
pub const EAGAIN: i32 = 11;
pub const ENOMEM: i32 = 12;
pub const EACCES: i32 = 13;
pub const EFAULT: i32 = 14;
pub const EEXIST: i32 = 17;
pub const EXDEV: i32 = 18;
pub const ENOTDIR: i32 = 20;
pub const EISDIR: i32 = 21;
pub const EINVAL: i32 = 22;
pub const ENFILE: i32 = 23;
pub const EMFILE: i32 = 24;
pub const ENOTTY: i32 = 25;
pub const ESPIPE: i32 = 29;
pub const ERANGE: i32 = 34;
pub const ENAMETOOLONG: i32 = 36;
pub const ENOSYS: i32 = 38;
pub const ENOTEMPTY: i32 = 39;
pub const ELOOP: i32 = 40;
pub const ENODATA: i32 = 61;
pub const EOVERFLOW: i32 = 75;
pub const ENOTSOCK: i32 = 88;
pub const EOPNOTSUPP: i32 = 95;

pub const AT_FDCWD: i32 = -100;
pub const AT_SYMLINK_NOFOLLOW: usize = 0x100;
pub const AT_REMOVEDIR: usize = 0x200;
pub const AT_EMPTY_PATH: usize = 0x1000;
pub const AT_EACCESS: usize = 0x200;

pub const O_ACCMODE: usize = 0o3;
pub const O_RDONLY: usize = 0;
pub const O_WRONLY: usize = 0o1;
pub const O_RDWR: usize = 0o2;
pub const O_CREAT: usize = 0o100;
pub const O_EXCL: usize = 0o200;
pub const O_NOCTTY: usize = 0o400;
pub const O_TRUNC: usize = 0o1000;
pub const O_APPEND: usize = 0o2000;
pub const O_NONBLOCK: usize = 0o4000;
pub const O_DSYNC: usize = 0o10000;
pub const O_ASYNC: usize = 0o20000;
pub const O_DIRECT: usize = 0o40000;
pub const O_LARGEFILE: usize = 0o100000;
pub const O_DIRECTORY: usize = 0o200000;
pub const O_NOFOLLOW: usize = 0o400000;
pub const O_NOATIME: usize = 0o1000000;
pub const O_CLOEXEC: usize = 0o2000000;
pub const O_PATH: usize = 0o10000000;
/// Without the `O_DIRECTORY` that `O_TMPFILE` includes.
pub const O_TMPFILE_BIT: usize = 0o20000000;

pub const S_IFMT: u32 = 0o170000;
pub const S_IFIFO: u32 = 0o010000;
pub const S_IFCHR: u32 = 0o020000;
pub const S_IFDIR: u32 = 0o040000;
pub const S_IFBLK: u32 = 0o060000;
pub const S_IFREG: u32 = 0o100000;
pub const S_IFLNK: u32 = 0o120000;
pub const S_IFSOCK: u32 = 0o140000;

pub const RWF_NOWAIT: usize = 0x8;

pub const SEEK_SET: usize = 0;
pub const SEEK_CUR: usize = 1;
pub const SEEK_END: usize = 2;
pub const SEEK_DATA: usize = 3;
pub const SEEK_HOLE: usize = 4;

pub const PROT_READ: usize = 1;
pub const PROT_WRITE: usize = 2;
pub const PROT_EXEC: usize = 4;
pub const MAP_DENYWRITE: usize = 0x800;
pub const MAP_SHARED: usize = 1;
pub const MAP_PRIVATE: usize = 2;
pub const MAP_SHARED_VALIDATE: usize = 3;
pub const MAP_TYPE: usize = 0xf;
pub const MAP_FIXED: usize = 0x10;
pub const MAP_ANONYMOUS: usize = 0x20;
pub const MAP_POPULATE: usize = 0x8000;
pub const MAP_HUGETLB: usize = 0x40000;
pub const MAP_LOCKED: usize = 0x2000;
pub const MAP_SYNC: usize = 0x80000;
pub const MAP_FIXED_NOREPLACE: usize = 0x100000;

pub const F_DUPFD: usize = 0;
pub const F_GETFD: usize = 1;
pub const F_SETFD: usize = 2;
pub const F_GETFL: usize = 3;
pub const F_SETFL: usize = 4;
pub const F_GETLK: usize = 5;
pub const F_SETLK: usize = 6;
pub const F_SETLKW: usize = 7;
pub const F_SETOWN: usize = 8;
pub const F_OFD_GETLK: usize = 36;
pub const F_OFD_SETLK: usize = 37;
pub const F_OFD_SETLKW: usize = 38;
pub const F_DUPFD_CLOEXEC: usize = 1030;
pub const F_SETPIPE_SZ: usize = 1031;
pub const F_GETPIPE_SZ: usize = 1032;
pub const F_ADD_SEALS: usize = 1033;
pub const F_GET_SEALS: usize = 1034;
pub const FD_CLOEXEC: usize = 1;

/// Size of a page, in bytes. The kernel's may be larger on other
/// architectures, where this remains a correct unit of residency.
pub const PAGE_BYTES: u64 = 4096;

/// Longest path with its NUL, in bytes (`PATH_MAX`).
pub const PATH_MAX_BYTES: usize = 4096;

/// Most buffers in one vector (`UIO_MAXIOV`).
pub const IOV_MAX: usize = 1024;

/// Most bytes in one read or write (`MAX_RW_COUNT`).
pub const RW_MAX_BYTES: u64 = 0x7fff_f000;
