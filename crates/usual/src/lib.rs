//! The usual launch: a command without options, where nothing that matters
//! has changed since the last launch.
//!
//! `runahead PROGRAM` stands before a program that may itself run for less
//! than a millisecond. What a launch finds out is nearly always what the last
//! one found, so it is left in a record, and the next one compares: the same
//! cache directory, agent, site table and libraries, by their inodes and times
//! of change. Then the program is executed before the C library and Rust's
//! runtime have started, from the process's entry, and without a heap: whatever
//! the C library's start prepares (`errno`, `environ`, thread-local storage) is
//! not there yet. Wherever something is not as it was, or not understood
//! here, the launch goes the whole way (`launch` in the command), which leaves
//! a new record.
//!
//! The record lies beside the table of executables
//! ([`runahead_protocol::learnt`]), in memory: until the next boot, or the user's
//! last logout.
//!
//! A crate of its own, because the linker puts its code and constants, with
//! what they call of the C library, at the front of the command's file
//! (`crates/cli/front.ld`): each page that is touched elsewhere is a fault, and
//! where the file is not in memory a wait for storage, of which the kernel
//! makes a read of 128 KiB or more. So what is not inlined of other crates is
//! not called here.

pub mod memory;
pub mod text;
pub mod words;

use std::ffi::{CStr, c_char};
use std::os::unix::ffi::OsStrExt;

use runahead_protocol::learnt;
use runahead_protocol::session::{
    ADDRESSES_MIN_BYTES, LIMIT_MIN_BYTES, OPT_OUT_VARIABLE, SESSION_VARIABLE, STACK_MIN_BYTES,
};
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{Access, Advice, AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use memory::Groups;
use text::Text;
use words::{Given, Words};

/// First bytes of a record: "RAUSUAL" and the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RAUSUAL\x05");
/// Longest record, in bytes.
pub const RECORD_LEN_MAX: usize = 4096;
/// Files that every program needs: the agent and the site table.
const FILES_NEEDED: usize = 2;
/// Longest path that is dealt with, in bytes.
const PATH_LEN_MAX: usize = 1024;
/// Most variables of an environment.
const VARIABLES_MAX: usize = 250;
/// Bytes of a program that are looked at: its headers, and where they say
/// that its dynamic linker's name is.
const HEAD_LEN: usize = 1024;

/// First arguments that are not for `run`, a line each (an array would lie with
/// the pointers to its words, on another page): the other subcommands, and
/// questions about the command itself.
const NOT_RUN: &str = "\
bench
c++
cc
completions
doctor
fc
man-pages
profile
sim
slowdisk
hint
manager
tune
help
-h
--help
-V
--version";

/// First arguments that are not for `run`.
pub fn not_run() -> impl Iterator<Item = &'static [u8]> {
    NOT_RUN.as_bytes().split(|&byte| byte == b'\n')
}

/// The program and its arguments, where no option stands before them: what
/// parsing finds, but for a tenth of a launch less.
pub fn plain_command(words: Words) -> Option<Words> {
    let words = words.after(1);
    let words = match words.first().as_encoded_bytes() {
        b"run" => words.after(1),
        first if not_run().any(|word| first == word) => return None,
        _ => words,
    };
    let command = match words.first().as_encoded_bytes() {
        b"--" => words.after(1),
        [b'-', ..] => return None,
        _ => words,
    };
    (!command.is_empty()).then_some(command)
}

/// Executes the program that is `given` if this is a usual launch of one, or one that
/// is to run plainly for want of memory or room. Comes back where it is not, and nothing has
/// changed.
pub fn attempt(fingerprint: u64, given: Given) {
    if let Some(command) = plain_command(given.arguments) {
        let _ = execute(fingerprint, command, given.environment);
    }
}

fn execute(fingerprint: u64, command: Words, variables: Words) -> Option<()> {
    let given = Variables::look(variables)?;
    let program = find(command.first().as_bytes(), given.path)?;
    if limits_are_low() || is_tiny() {
        plainly(&program, command, variables);
        return None;
    }
    enlisted(fingerprint, &given, &program, command, variables)
}

/// The program as it is. Returns if it cannot be executed.
fn plainly(program: &PathText, command: Words, variables: Words) {
    let (arguments, environment) = (command.pointers(), variables.pointers());
    // SAFETY: both are what this process was given, which the ABI ends with null
    // pointers.
    unsafe { become_program(program.as_c_str(), arguments.as_ptr(), environment.as_ptr()) };
}

/// The program with the agent. By itself: before it is known that there is room, little
/// is taken of the stack.
#[inline(never)]
fn enlisted(
    fingerprint: u64,
    given: &Variables,
    program: &PathText,
    command: Words,
    variables: Words,
) -> Option<()> {
    let user = rustix::process::geteuid().as_raw();
    let mut buffer = [0; RECORD_LEN_MAX];
    let record = kept(fingerprint, given.runtime, user, &mut buffer)?;
    let cache = cache_directory(given.cache, given.home)?;
    if record.user != u64::from(user) || record.cache != cache.as_bytes() || !is_free() {
        return None;
    }
    record.ask_for_needed();
    if !is_the_systems(program.as_bytes())
        || !is_dynamic(program, record.interpreter)?
        || !record.is_up_to_date()
        || record.may_not_execute()
        || record.devices != Devices::of(&cache)?.0
    {
        return None;
    }
    let mut environment = [std::ptr::null(); VARIABLES_MAX + 3];
    let slots = environment.iter_mut();
    let added = [record.preload.as_ptr(), record.session.as_ptr()];
    for (slot, variable) in slots.zip(variables.strings().map(CStr::as_ptr).chain(added)) {
        *slot = variable;
    }
    // SAFETY: two null-terminated arrays of C strings, alive until the call
    // returns.
    unsafe {
        become_program(program.as_c_str(), command.pointers().as_ptr(), environment.as_ptr())
    };
    None
}

/// The record that an earlier launch of this user's has left.
fn kept<'b>(
    fingerprint: u64,
    runtime: Option<&[u8]>,
    user: u32,
    buffer: &'b mut [u8; RECORD_LEN_MAX],
) -> Option<Record<'b>> {
    let directory = directory_in_memory(runtime, user)?;
    if !is_private(&directory, user) {
        return None;
    }
    Record::read(&record_path(&directory, fingerprint)?, buffer)
}

/// `execve(2)`, without the C library, which would keep the error's number
/// where there is no room for it yet. Returns if it failed.
///
/// # Safety
/// Both arrays end with a null pointer, and all else in them is C strings.
#[inline(never)]
unsafe fn become_program(
    path: &CStr,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // SAFETY: the call reads what it is given and changes nothing where it
    // fails, but for the registers that are named (System V ABI, AMD64
    // supplement, appendix A.2.1).
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_execve => _,
            in("rdi") path.as_ptr(),
            in("rsi") arguments,
            in("rdx") environment,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

/// What of the environment matters.
#[derive(Default)]
struct Variables {
    path: Option<&'static [u8]>,
    cache: Option<&'static [u8]>,
    home: Option<&'static [u8]>,
    runtime: Option<&'static [u8]>,
}

impl Variables {
    /// `None`: something in it asks for more than the usual.
    fn look(variables: Words) -> Option<Variables> {
        let mut given = Variables::default();
        for (index, variable) in variables.strings().enumerate() {
            if index >= VARIABLES_MAX {
                return None;
            }
            let variable = variable.to_bytes();
            let Some(equals) = variable.iter().position(|&byte| byte == b'=') else { continue };
            let (name, value) = (&variable[..equals], &variable[equals + 1..]);
            let is = |other: &str| name == other.as_bytes();
            let is_out = is(OPT_OUT_VARIABLE) && value == b"off";
            // LD_PRELOAD, LD_TRACE_LOADED_OBJECTS, LD_AUDIT and LD_DEBUG, and others as rare.
            let is_linkers = matches!(name, [b'L', b'D', b'_', b'A' | b'D' | b'P' | b'T', ..]);
            if is_linkers || is(SESSION_VARIABLE) || is_out {
                return None;
            }
            let slot = match name {
                b"PATH" => &mut given.path,
                b"XDG_CACHE_HOME" => &mut given.cache,
                b"HOME" => &mut given.home,
                b"XDG_RUNTIME_DIR" => &mut given.runtime,
                _ => continue,
            };
            // The first of several, as getenv(3) has it.
            _ = slot.get_or_insert(value);
        }
        Some(given)
    }
}

/// A file that is read. Not an [`OwnedFd`]: that is closed through the C
/// library, which would keep an error's number where there is no room for it
/// yet.
struct File(RawFd);

impl File {
    fn open(path: &CStr, flags: OFlags) -> rustix::io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
        rustix::fs::open(path, flags, Mode::empty()).map(|fd: OwnedFd| File(fd.into_raw_fd()))
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open for as long as this lives.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is this one's, and nothing uses it any more.
        unsafe { rustix::io::close(self.0) };
    }
}

/// A path.
pub type PathText = Text<PATH_LEN_MAX>;

/// The file that the word `name` names (`launch::resolve::find` of the command).
fn find(name: &[u8], path: Option<&[u8]>) -> Option<PathText> {
    let mut file = Text::new();
    if text::contains(name, b'/') {
        file.add(&[name])?;
        return is_program(&file).then_some(file);
    }
    if name.is_empty() {
        return None;
    }
    for directory in path?.split(|&byte| byte == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        file.truncate(0);
        file.add(&[directory, b"/", name])?;
        if is_program(&file) {
            return Some(file);
        }
    }
    None
}

/// Whether it is a file that may be executed, by the user who calls.
fn is_program(path: &PathText) -> bool {
    let path = path.as_c_str();
    let Ok(status) = rustix::fs::stat(path) else { return false };
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Whether the agent can be loaded into the program, by this dynamic linker
/// (`launch::resolve::classify` of the command).
fn is_dynamic(program: &PathText, interpreter: &[u8]) -> Option<bool> {
    let path = program.as_c_str();
    let file = File::open(path, OFlags::NONBLOCK | OFlags::NOCTTY).ok()?;
    let mode = rustix::fs::fstat(&file).ok()?.st_mode;
    let mut head = [0; HEAD_LEN];
    let len = rustix::io::pread(&file, &mut head, 0).ok()?;
    let mut none: [u8; 0] = [];
    let has_capabilities = rustix::fs::getxattr(path, c"security.capability", &mut none[..]);
    Some(
        mode & (libc::S_ISUID | libc::S_ISGID) == 0
            && has_capabilities.is_err()
            && named_interpreter(head.get(..len)?)? == interpreter,
    )
}

/// Whether a program is the distribution's, as far as its name says, not one that somebody
/// has built. Others may have to be loaded first (`runahead_policy::first`), for which there
/// is no room here to look.
fn is_the_systems(path: &[u8]) -> bool {
    (path.starts_with(b"/usr/") || path.starts_with(b"/bin/"))
        && !path.starts_with(b"/usr/local/")
        && !path.windows(2).any(|part| part == b"/.")
}

/// The name in the PT_INTERP of a 64-bit x86 program that begins with `head`.
fn named_interpreter(head: &[u8]) -> Option<&[u8]> {
    const PT_INTERP: u64 = 3;
    const HEADER_LEN: usize = 56;
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)))
    };
    let (executable, shared, x86_64) = (2, 3, 62);
    if !head.starts_with(b"\x7fELF\x02\x01")
        || ![executable, shared].contains(&number(16, 2)?)
        || number(18, 2)? != x86_64
        || number(54, 2)? != HEADER_LEN as u64
    {
        return None;
    }
    let (first, count) = (usize::try_from(number(32, 8)?).ok()?, number(56, 2)? as usize);
    for index in 0..count {
        let at = first.checked_add(index * HEADER_LEN)?;
        if number(at, 4)? == PT_INTERP {
            let start = usize::try_from(number(at + 8, 8)?).ok()?;
            let len = usize::try_from(number(at + 32, 8)?).ok()?;
            return head.get(start..start.checked_add(len)?)?.split(|&byte| byte == 0).next();
        }
    }
    None
}

/// Whether memory is limited to so little ([`LIMIT_MIN_BYTES`]) that not even what the
/// agent takes is made up for. Asked at each launch: a cgroup's limit may be changed, and
/// each container calls its own "/". By itself for the stack, as [`enlisted`].
#[inline(never)]
pub fn is_tiny() -> bool {
    let limit = Groups::look().and_then(|groups| groups.limit_bytes());
    limit.is_some_and(|limit| limit < LIMIT_MIN_BYTES)
}

/// Whether addresses, data or the stack are limited to so little ([`ADDRESSES_MIN_BYTES`],
/// [`STACK_MIN_BYTES`]) that a program might not start with the agent.
pub fn limits_are_low() -> bool {
    let is_below = |resource, least| soft_limit(resource).is_some_and(|soft| soft < least);
    is_below(libc::RLIMIT_AS, ADDRESSES_MIN_BYTES)
        || is_below(libc::RLIMIT_DATA, ADDRESSES_MIN_BYTES)
        || is_below(libc::RLIMIT_STACK, STACK_MIN_BYTES)
}

/// `prlimit(2)`: the soft limit, `u64::MAX` where there is none; `None` where a filter
/// refuses to say, as a container's may. (rustix takes that for impossible.)
fn soft_limit(resource: impl Into<i64>) -> Option<u64> {
    let mut limit = [0u64; 2];
    let mut result = libc::SYS_prlimit64;
    // SAFETY: the call writes one struct rlimit64, and changes else only the registers
    // that are named (System V ABI, AMD64 supplement, appendix A.2.1).
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") 0,
            in("rsi") resource.into(),
            in("rdx") 0,
            in("r10") limit.as_mut_ptr(),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    (result == 0).then_some(limit[0])
}

/// Whether no seccomp filter watches this process (`launch::confinement` of the command).
fn is_free() -> bool {
    use rustix::thread::{SecureComputingMode, secure_computing_mode};
    secure_computing_mode() == Ok(SecureComputingMode::Disabled)
}

/// Whether it is a directory of the user's own (`launch::cache::make_private` of the command).
fn is_private(directory: &PathText, user: u32) -> bool {
    rustix::fs::lstat(directory.as_c_str()).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::Directory
            && status.st_uid == user
            && status.st_mode & 0o022 == 0
    })
}

/// Reads of the mount table after which it counts as too long, at up to 1 KiB each: some
/// hundred mounts.
const MOUNTS_PARTS_MAX: usize = 16;

/// What tells that other devices have been measured, or that others are here
/// (`launch::devices` of the command); 0 where none has been. Device numbers are given to
/// another device only with another mount. What is missed all the same costs
/// time at worst.
#[derive(Debug, PartialEq, Eq)]
pub struct Devices(pub u64);

impl Devices {
    /// With the profiles in this cache directory.
    pub fn of(cache: &PathText) -> Option<Devices> {
        let mut directory = PathText::new();
        directory.add(&[cache.as_bytes(), b"/devices"])?;
        let status = match rustix::fs::stat(directory.as_c_str()) {
            Err(Errno::NOENT) => return Some(Devices(0)),
            status => status.ok()?,
        };
        let numbers =
            [status.st_dev, status.st_ino, status.st_ctime as u64, status.st_ctime_nsec as u64];
        let profiles = numbers.into_iter().fold(1, mix);
        let mounts = File::open(c"/proc/self/mountinfo", OFlags::empty()).ok()?;
        let mut hash = profiles;
        let mut part = [0; 1024];
        for _ in 0..MOUNTS_PARTS_MAX {
            let len = rustix::io::read(&mounts, &mut part).ok()?;
            if len == 0 {
                return Some(Devices(hash.max(1)));
            }
            hash = part.get(..len)?.iter().fold(hash, |hash, &byte| mix(hash, u64::from(byte)));
        }
        // Reading them all would take longer than what may be missed.
        Some(Devices(profiles.max(1)))
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

/// The first of `launch::cache::candidates` of the command.
fn cache_directory(cache: Option<&[u8]>, home: Option<&[u8]>) -> Option<PathText> {
    let mut path = PathText::new();
    match (cache.unwrap_or_default(), home.unwrap_or_default()) {
        ([], []) => return None,
        ([], home) => path.add(&[home, b"/.cache/runahead"])?,
        (cache, _) => path.add(&[cache, b"/runahead"])?,
    }
    Some(path)
}

/// The user's directory in memory, of all that is kept from launch to launch: until
/// the next boot, or the user's last logout. Where `$XDG_RUNTIME_DIR` is another
/// user's (`su` keeps it), who could put another directory in its place, it is not
/// used.
pub fn directory_in_memory(runtime: Option<&[u8]>, user: u32) -> Option<PathText> {
    let mut path = PathText::new();
    let runtime = runtime.unwrap_or_default();
    if !runtime.is_empty() && path.add(&[runtime]).is_some() && is_private(&path, user) {
        path.add(&[b"/runahead"])?;
        return Some(path);
    }
    path.truncate(0);
    path.add(&[b"/dev/shm/runahead-"])?;
    path.add_number(u64::from(user))?;
    Some(path)
}

/// The record of launches with this agent.
fn record_path(directory: &PathText, fingerprint: u64) -> Option<PathText> {
    let mut path = PathText::new();
    path.add(&[directory.as_bytes(), b"/usual-"])?;
    path.add_number(fingerprint)?;
    Some(path)
}

/// What the last launch found: text and numbers one after the other, native
/// byte order, a text with its length in front.
#[derive(Clone, Copy)]
struct Record<'b> {
    user: u64,
    /// [`Devices`].
    devices: u64,
    /// The cache directory.
    cache: &'b [u8],
    /// The dynamic linker for which the site table was completed.
    interpreter: &'b [u8],
    /// `LD_PRELOAD=`, the agent's path and NUL.
    preload: &'b CStr,
    /// `RUNAHEAD_SESSION=`, its text and NUL.
    session: &'b CStr,
    /// The files that it rests on, each path with a NUL, and their [`Stamp`]s;
    /// first those that every program needs.
    files: Fields<'b>,
}

impl<'b> Record<'b> {
    fn read(path: &PathText, buffer: &'b mut [u8]) -> Option<Record<'b>> {
        let file = File::open(path.as_c_str(), OFlags::NOFOLLOW | OFlags::NONBLOCK).ok()?;
        let len = rustix::io::read(&file, &mut *buffer).ok()?;
        let mut fields = Fields(buffer.get(..len)?);
        if fields.number()? != MAGIC {
            return None;
        }
        Some(Record {
            user: fields.number()?,
            devices: fields.number()?,
            cache: fields.text()?,
            interpreter: fields.text()?,
            preload: fields.c_text()?,
            session: fields.c_text()?,
            files: fields,
        })
    }

    /// Has the kernel read the agent and the site table while the launch goes
    /// on, which costs next to nothing where they are in memory.
    fn ask_for_needed(&self) {
        let mut files = self.files;
        for _ in 0..FILES_NEEDED {
            let Some((path, _)) = files.file() else { return };
            if let Ok(file) = File::open(path, OFlags::NOFOLLOW | OFlags::NONBLOCK) {
                let _ = rustix::fs::fadvise(&file, 0, None, Advice::WillNeed);
            }
        }
    }

    /// Whether the agent cannot be loaded from where it lies, a mount having changed.
    fn may_not_execute(&self) -> bool {
        let mut files = self.files;
        let Some((agent, _)) = files.file() else { return true };
        rustix::fs::statvfs(agent)
            .is_ok_and(|status| status.f_flag.contains(StatVfsMountFlags::NOEXEC))
    }

    fn is_up_to_date(&self) -> bool {
        let mut files = self.files;
        while !files.0.is_empty() {
            let Some((path, stamp)) = files.file() else { return false };
            if Stamp::of(path) != Some(stamp) {
                return false;
            }
        }
        true
    }
}

/// Fields of a record.
#[derive(Clone, Copy)]
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn number(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*bytes))
    }

    fn text(&mut self) -> Option<&'b [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }

    /// A file: its path and stamp.
    fn file(&mut self) -> Option<(&'b CStr, Stamp)> {
        let path = self.c_text()?;
        let mut stamp = Stamp([0; 7]);
        for number in &mut stamp.0 {
            *number = self.number()?;
        }
        Some((path, stamp))
    }

    /// One with a NUL at its end.
    fn c_text(&mut self) -> Option<&'b CStr> {
        let text = self.text().filter(|text| text.ends_with(&[0]))?;
        // SAFETY: a NUL is there.
        Some(unsafe { CStr::from_ptr(text.as_ptr().cast()) })
    }
}

/// What tells that a file is another or has changed: nothing does so without
/// a new inode or a new time of change. That of a directory, and of the table
/// that programs write, changes all the time.
#[derive(Debug, PartialEq, Eq)]
pub struct Stamp(pub [u64; 7]);

impl Stamp {
    /// Of the file at `path`.
    pub fn of(path: &CStr) -> Option<Stamp> {
        let status = rustix::fs::stat(path).ok()?;
        let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
        let is_written = path.to_bytes().ends_with(learnt::FILE_NAME.as_bytes());
        let steady = !is_directory && !is_written;
        let if_steady = |number| if steady { number } else { 0 };
        Some(Stamp([
            status.st_dev,
            status.st_ino,
            u64::from(status.st_mode),
            u64::from(status.st_uid),
            if is_directory { 0 } else { status.st_size as u64 },
            if_steady(status.st_ctime as u64),
            if_steady(status.st_ctime_nsec as u64),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_has_built_is_not_the_systems() {
        for path in ["/bin/ls", "/usr/bin/ls", "/usr/lib/git-core/git", "/usr/libexec/x"] {
            assert!(is_the_systems(path.as_bytes()), "{path}");
        }
        for path in [
            "/usr/local/bin/own",
            "/usr/./local/bin/own",
            "/usr/lib/../local/bin/own",
            "/home/u/bin/own",
            "/binaries/own",
            "/usrbin/own",
            "bin/own",
            "./own",
            "",
        ] {
            assert!(!is_the_systems(path.as_bytes()), "{path}");
        }
    }
}
