//! Whether the agent can be loaded into what is about to be executed. What cannot have
//! it, a static program or one of another class, finds its environment as it was given:
//! there it would stay in sight, and a dynamic linker of another class says on standard
//! error that the agent is none of its objects.
//!
//! A child by vfork(2) calls this on a small stack: what is read goes into [`Room`].

use crate::arch::nr;
use crate::config::CONFIG;
use crate::procfs;
use crate::sys::{self, call};
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::arch::nr as all_nr;
use runahead_policy::first;

/// Bytes of a file by which the kernel tells what it is (`BINPRM_BUF_SIZE`).
const HEAD_LEN: usize = 256;

/// Interpreters that are scripts themselves, one behind the other: with more the kernel
/// executes nothing (`exec_binprm`).
const SCRIPTS_MAX: usize = 5;

/// Longest table of program headers that the kernel loads, in bytes (`load_elf_phdrs`).
const PROGRAM_HEADERS_LEN_MAX: usize = 64 * 1024;

/// Length of a program header, ELF64.
const PROGRAM_HEADER_LEN: usize = 56;

const AT_EMPTY_PATH: usize = 0x1000;
const AT_SYMLINK_NOFOLLOW: usize = 0x100;

/// Words of a [`Room`]: the head of a file and a NUL behind it.
pub const ROOM_WORDS: usize = HEAD_LEN / size_of::<usize>() + 1;

/// Memory to work in.
pub type Room = [usize; ROOM_WORDS];

/// What execveat(2) names: directory, path and flags.
#[derive(Clone, Copy)]
pub struct Place {
    /// Descriptor of the directory.
    pub directory: usize,
    /// Address of the path.
    pub path: usize,
    /// Those of the flags that say what the path means.
    pub flags: usize,
}

impl Place {
    /// What an `execve` (`environment_arg` 2) or `execveat` (3) with these arguments
    /// names.
    #[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
    pub fn of(args: &[usize; 6], environment_arg: usize) -> Place {
        let [first, second, _, _, fifth, _] = *args;
        match environment_arg {
            2 => Place { directory: sys::AT_FDCWD, path: first, flags: 0 },
            _ => {
                let flags = fifth & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
                Place { directory: first, path: second, flags }
            }
        }
    }
}

/// What a file is to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A program that can have it.
    Loads,
    /// One that cannot, or nothing that is executed.
    Plain,
    /// A script; the path of its interpreter is in the room.
    Script,
    /// Nobody says: it may be executed but not read.
    Unknown,
}

/// What is known before a file is looked at.
#[derive(Clone, Copy)]
pub struct Known {
    /// What this process has locked lies below this descriptor.
    pub locks_end: usize,
    /// Its like have been executed with the agent.
    pub has_been_loaded: bool,
}

/// Whether what is executed may have the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// Its file says so.
    Surely,
    /// Nobody says otherwise, or the file of an interpreter does, which may be another one
    /// the next time.
    Perhaps,
    /// It may not.
    Never,
}

/// Whether what is at `place` may be executed with the agent.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn loads(place: Place, known: Known, room: &mut Room) -> Loads {
    let mut place = place;
    for scripts in 0..=SCRIPTS_MAX {
        // What has been executed is the script; its interpreter may be another one now.
        let has_been_loaded = known.has_been_loaded && scripts == 0;
        match look(place, Known { has_been_loaded, ..known }, room) {
            Kind::Loads if scripts == 0 => return Loads::Surely,
            Kind::Loads | Kind::Unknown => return Loads::Perhaps,
            Kind::Plain => return Loads::Never,
            Kind::Script => {
                place = Place { directory: sys::AT_FDCWD, path: room.as_ptr() as usize, flags: 0 };
            }
        }
    }
    Loads::Never
}

/// What is at `place`.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn look(place: Place, known: Known, room: &mut Room) -> Kind {
    // Nothing is opened by that: no FIFO waits, no device notices, no lease is broken.
    const O_PATH_CLOEXEC: usize = 0o12_000_000;
    const O_NOFOLLOW: usize = 0o400_000;
    const EFAULT: isize = -14;
    let follow = if place.flags & AT_SYMLINK_NOFOLLOW == 0 { 0 } else { O_NOFOLLOW };
    let args = [place.directory, place.path, O_PATH_CLOEXEC | follow];
    // SAFETY: the kernel reads the program's path, or answers EFAULT.
    let fd = unsafe { call(nr::OPENAT, &args) };
    let is_empty = matches!(fd, sys::ENOENT | EFAULT) && place.flags & AT_EMPTY_PATH != 0;
    match usize::try_from(fd) {
        Ok(fd) => {
            let kind = examine(fd, true, known, room);
            sys::close(fd as i32);
            kind
        }
        // fexecve(3): what is executed is open already.
        Err(_) if is_empty => examine(place.directory, false, known, room),
        Err(_) => Kind::Unknown,
    }
}

/// What a descriptor, one of ours or of the program's, refers to. It may be one that
/// allows nothing but that (`O_PATH`).
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn examine(fd: usize, is_ours: bool, known: Known, room: &mut Room) -> Kind {
    const ANYBODY_EXECUTES: u32 = 0o111;
    let Some((mode, file)) = stat(fd, room) else { return Kind::Unknown };
    if mode & sys::S_IFMT != sys::S_IFREG || mode & ANYBODY_EXECUTES == 0 {
        return Kind::Plain;
    }
    // POSIX locks are the process's, and are gone when it closes any descriptor of
    // the file; an exec keeps them.
    let others = (0..known.locks_end).filter(|&other| !(is_ours && other == fd));
    if others.into_iter().any(|other| has_locked(other, file, room)) {
        return Kind::Unknown;
    }
    let reader = reopen(fd, room);
    let Ok(reader) = usize::try_from(reader) else {
        // The kernel heeds that of programs only, and scripts have to be read. With no
        // descriptor left, or without /proc, nothing can be said.
        let may_be_executed = matches!(reader, sys::EACCES | sys::EPERM);
        return if sets_id(mode) || !may_be_executed { Kind::Plain } else { Kind::Unknown };
    };
    let kind = kind(reader, mode, known.has_been_loaded, room);
    sys::close(reader as i32);
    kind
}

/// Device and inode number.
type Identity = [usize; 2];

/// Type and permissions, and which file it is. By way of the room, because a struct stat
/// takes much of a small stack.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn stat(fd: usize, room: &mut Room) -> Option<(u32, Identity)> {
    const _: () = assert!(size_of::<Room>() >= size_of::<sys::Statx>());
    const _: () = assert!(size_of::<Room>() >= size_of::<sys::Stat>());
    // What other descriptors refer to, a server that does not answer need not say.
    // SAFETY: the room's own memory, for plain numbers that any bytes are.
    let statx = unsafe { &mut *room.as_mut_ptr().cast::<sys::Statx>() };
    match statx.ask(fd as i32) {
        0 => return Some((statx.mode.into(), [statx.dev() as usize, statx.ino as usize])),
        sys::EBADF => return None,
        _ => {}
    }
    // SAFETY: the kernel writes one struct stat, for which there is room.
    let asked = unsafe { call(nr::FSTAT, &[fd, room.as_mut_ptr() as usize]) };
    // The mode comes first in its word.
    let [device, inode, _links, mode, ..] = *room;
    (asked == 0).then_some((mode as u32, [device, inode]))
}

/// Whether `fd` is one of `file` by which this process has locked it, or may have, where
/// /proc does not say. A lock that lasts belongs to a description that is open
/// (`show_fd_locks` in fs/locks.c).
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn has_locked(fd: usize, file: Identity, room: &mut Room) -> bool {
    const LOCK: &[u8] = b"\nlock:";
    if stat(fd, room).is_none_or(|(_, identity)| identity != file) {
        return false;
    }
    let info = open(b"/proc/self/fdinfo/", fd, room);
    if info < 0 {
        return true;
    }
    let text = bytes(room);
    // Locks come after four short lines.
    let len = sys::read(info as i32, text);
    sys::close(info as i32);
    let Some(text) = usize::try_from(len).ok().and_then(|len| text.get(..len)) else {
        return true;
    };
    text.windows(LOCK.len()).any(|window| window == LOCK)
}

/// The file once more, to be read; negative where it may not be.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn reopen(fd: usize, room: &mut Room) -> isize {
    open(b"/proc/self/fd/", fd, room)
}

/// Opens what /proc has below `directory` for a descriptor; negative where that may not be.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn open(directory: &[u8], fd: usize, room: &mut Room) -> isize {
    let mut digits = [0; 20];
    let number = procfs::digits(fd as u32 as usize, &mut digits);
    let Some(path) = procfs::path(&[directory, number, b"\0"], bytes(room)) else {
        return sys::ENOENT;
    };
    sys::open_read(path)
}

/// Whether an executed program has another user's or group's rights: then the dynamic
/// linker loads no agent, whose session stays in sight. Without the group's execution
/// the bit is about locks.
fn sets_id(mode: u32) -> bool {
    const S_ISUID: u32 = 0o4000;
    const S_ISGID_IXGRP: u32 = 0o2010;
    mode & S_ISUID != 0 || mode & S_ISGID_IXGRP == S_ISGID_IXGRP
}

/// What the file that `reader` reads is.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn kind(reader: usize, mode: u32, has_been_loaded: bool, room: &mut Room) -> Kind {
    room.fill(0);
    if pread(reader, room, HEAD_LEN, 0).is_none() {
        return Kind::Unknown;
    }
    let head = bytes(room);
    if let Some((start, len)) = interpreter(head) {
        for index in 0..=len {
            let byte = head.get(start + index).filter(|_| index < len).copied();
            if let Some(slot) = head.get_mut(index) {
                *slot = byte.unwrap_or(0);
            }
        }
        return Kind::Script;
    }
    let Some((first, count)) = program_headers(head) else { return Kind::Plain };
    if sets_id(mode) || has_capabilities(reader) {
        return Kind::Plain;
    }
    match names_linker(reader, first, count, room) {
        Some(true) if !(has_been_loaded || is_musl()) && is_to_be_first(reader) => Kind::Plain,
        Some(true) => Kind::Loads,
        Some(false) => Kind::Plain,
        None => Kind::Unknown,
    }
}

/// Whether this is a program of musl, for which there is no AddressSanitizer, and whose
/// small stacks have no room for a look.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn is_musl() -> bool {
    CONFIG.is_musl.load(Relaxed) != 0
}

/// Whether a library of the program's must be loaded first, before the agent.
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn is_to_be_first(reader: usize) -> bool {
    first::is_needed(|offset, part| {
        let args = [reader, part.as_mut_ptr() as usize, part.len(), offset as usize];
        // SAFETY: the kernel writes at most so many bytes.
        usize::try_from(unsafe { call(nr::PREAD64, &args) }).ok()
    })
}

/// Whether the file gives capabilities, which the dynamic linker heeds as it does
/// another user's rights.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn has_capabilities(reader: usize) -> bool {
    let name = c"security.capability".as_ptr() as usize;
    // SAFETY: asks for the length only.
    unsafe { call(all_nr::FGETXATTR, &[reader, name, 0, 0]) >= 0 }
}

/// Where in the head of a script the path of its interpreter stands, and its length: as
/// `load_script` finds it, for which a line that does not end in the head must leave
/// the path whole.
fn interpreter(head: &[u8]) -> Option<(usize, usize)> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let rest = head.get(..HEAD_LEN)?.strip_prefix(b"#!")?;
    let blanks = rest.iter().take_while(|byte| is_blank(byte)).count();
    let path = rest.get(blanks..)?;
    let len = path.iter().position(|byte| is_blank(byte) || matches!(byte, b'\n' | 0))?;
    (len > 0).then_some((HEAD_LEN - rest.len() + blanks, len))
}

/// Offset and number of the program headers of an x86-64 program, ELF64, with this
/// head; `None` where it is none.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn program_headers(head: &[u8]) -> Option<(usize, usize)> {
    const EXECUTABLE_SHARED: [u16; 2] = [2, 3];
    const X86_64: u16 = 62;
    let half = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let first = u64::from_le_bytes(*head.get(32..)?.first_chunk()?);
    let count = usize::from(half(56)?);
    let is_one = head.starts_with(b"\x7fELF\x02\x01")
        && EXECUTABLE_SHARED.contains(&half(16)?)
        && half(18)? == X86_64
        && usize::from(half(54)?) == PROGRAM_HEADER_LEN
        && count * PROGRAM_HEADER_LEN <= PROGRAM_HEADERS_LEN_MAX;
    is_one.then_some((first as usize, count))
}

/// Whether one of the program headers names a dynamic linker that loads what is preloaded;
/// `None` where they cannot be read. The head is in the room; mostly it has this one.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn names_linker(reader: usize, table: usize, count: usize, room: &mut Room) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    for index in 0..count {
        let at = table.wrapping_add(index * PROGRAM_HEADER_LEN);
        // Kind and flags, offset in the file, two addresses, length there.
        let mut header = [0; 5];
        let len = size_of_val(&header);
        let whole = at.checked_add(len).filter(|&end| end <= HEAD_LEN);
        match whole.and_then(|end| bytes(room).get(at..end)) {
            Some(head) => {
                for (word, bytes) in header.iter_mut().zip(head.as_chunks().0) {
                    *word = usize::from_le_bytes(*bytes);
                }
            }
            // What is cut short the kernel does not execute.
            None if pread(reader, &mut header, len, at)? < len => return Some(false),
            None => {}
        }
        let [kind, offset, _, _, len] = header;
        if kind as u32 == PT_INTERP {
            let read = pread(reader, room, len, offset)?;
            // One that is longer nobody knows.
            let path = bytes(room).get(..len).filter(|_| read == len);
            let path = path.and_then(|path| path.split(|&byte| byte == 0).next());
            return Some(path.is_some_and(first::loads_preloaded));
        }
    }
    Some(false)
}

/// Reads `len` bytes at `offset` into `words`, which must have as many; how many there
/// were.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn pread(reader: usize, words: &mut [usize], len: usize, offset: usize) -> Option<usize> {
    let len = len.min(size_of_val(words));
    // SAFETY: the kernel writes at most so many bytes.
    let read = unsafe { call(nr::PREAD64, &[reader, words.as_mut_ptr() as usize, len, offset]) };
    usize::try_from(read).ok()
}

/// The room's bytes.
fn bytes(room: &mut Room) -> &mut [u8] {
    // SAFETY: the words' own memory, as bytes.
    unsafe { core::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), size_of::<Room>()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    fn head(text: &[u8]) -> std::vec::Vec<u8> {
        let mut head = text.to_vec();
        head.resize(size_of::<Room>(), 0);
        head
    }

    #[test]
    fn interpreters_are_those_of_the_kernel() {
        let named = |text: &[u8]| {
            let head = head(text);
            interpreter(&head).map(|(start, len)| head[start..start + len].to_vec())
        };
        for text in [&b"#!/bin/sh"[..], b"#!/bin/sh\n", b"#! \t/bin/sh -e\n", b"#!/bin/sh\t\n"] {
            assert_eq!(named(text).unwrap(), b"/bin/sh", "{text:?}");
        }
        let longest = [b"#!", &[b'x'; 253][..], b"\n"].concat();
        assert_eq!(named(&longest).unwrap().len(), 253);
        let too_long = [b"#!", &[b'x'; 254][..]].concat();
        for text in [&b"#!"[..], b"#!\n/bin/sh", b"#! \t\n", b"#/bin/sh", b"", &too_long] {
            assert_eq!(named(text), None, "{text:?}");
        }
    }

    /// Whether the file at `path` may be executed with the agent, by its path and by an
    /// open description.
    fn both(path: &std::path::Path) -> [Loads; 2] {
        let text = CString::new(path.to_str().unwrap()).unwrap();
        let by_path = Place { directory: sys::AT_FDCWD, path: text.as_ptr() as usize, flags: 0 };
        let file = std::fs::File::open(path).unwrap();
        let (fd, empty) = (file.as_raw_fd() as usize, c"".as_ptr() as usize);
        let open = Place { directory: fd, path: empty, flags: AT_EMPTY_PATH };
        let known = Known { locks_end: 32, has_been_loaded: false };
        [by_path, open].map(|place| loads(place, known, &mut [0; ROOM_WORDS]))
    }

    #[test]
    fn what_cannot_have_the_agent_is_told() {
        let directory = std::env::temp_dir().join(std::format!("loadable-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = |name: &str, content: &[u8], mode| {
            let path = directory.join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let own = std::fs::read("/proc/self/exe").unwrap();
        // As far as anybody looks: its program headers.
        let own = &own[..4096];
        let without = |at: usize, byte: u8| {
            let mut changed = own.to_vec();
            changed[at] = byte;
            changed
        };
        let mut is_static = own.to_vec();
        let (first, count) = program_headers(own).unwrap();
        for index in 0..count {
            let kind = first + index * PROGRAM_HEADER_LEN;
            is_static[kind] = if is_static[kind] == 3 { 4 } else { is_static[kind] };
        }
        let at = own.windows(9).position(|part| part == b"/ld-linux").unwrap();
        for (name, content, mode, expected) in [
            ("dynamic", own, 0o755, true),
            ("another-linker", &without(at + 4, b'm'), 0o755, false),
            ("static", &is_static, 0o755, false),
            ("32-bit", &without(4, 1), 0o755, false),
            ("another-machine", &without(18, 40), 0o755, false),
            ("object", &without(16, 1), 0o755, false),
            ("cut-short", &is_static[..first + PROGRAM_HEADER_LEN], 0o755, false),
            ("cut-in-its-header", &own[..50], 0o755, false),
            ("set-user-ID", own, 0o4755, false),
            ("set-group-ID", own, 0o2755, false),
            ("locked", own, 0o2745, true),
            ("not-executable", own, 0o644, false),
            ("text", b"echo\n", 0o755, false),
            ("empty", b"", 0o755, false),
        ] {
            let program = file(name, content, mode);
            let verdict = |loads| if expected { loads } else { Loads::Never };
            assert_eq!(both(&program), [verdict(Loads::Surely); 2], "{name}");
            let line = std::format!("#!{}\n", program.display());
            let script = file("script", line.as_bytes(), 0o4755);
            assert_eq!(both(&script), [verdict(Loads::Perhaps); 2], "{line}");
        }
        // One that names itself ends, too.
        let endless = std::format!("#!{}\n", directory.join("endless").display());
        assert_eq!(both(&file("endless", endless.as_bytes(), 0o755)), [Loads::Never; 2]);
        assert_eq!(both(&directory), [Loads::Never; 2]);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_this_process_has_locked_is_not_opened() {
        let path = std::env::temp_dir().join(std::format!("locked-{}", std::process::id()));
        std::fs::write(&path, b"text").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let text = CString::new(path.to_str().unwrap()).unwrap();
        let place = Place { directory: sys::AT_FDCWD, path: text.as_ptr() as usize, flags: 0 };
        let locks_end = file.as_raw_fd() as usize + 1;
        let known = Known { locks_end, has_been_loaded: false };
        assert_eq!(look(place, known, &mut [0; ROOM_WORDS]), Kind::Plain);
        // SAFETY: a valid struct flock for an open file.
        let locked = unsafe {
            let mut lock: libc::flock = core::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock)
        };
        assert_eq!(locked, 0);
        assert_eq!(look(place, known, &mut [0; ROOM_WORDS]), Kind::Unknown);
        let known = Known { locks_end: locks_end - 1, ..known };
        assert_eq!(look(place, known, &mut [0; ROOM_WORDS]), Kind::Plain);
        std::fs::remove_file(&path).unwrap();
    }
}
