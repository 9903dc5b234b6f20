//! Finds the program that a command names, as a shell would, and what kind
//! of program it is.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use runahead_policy::first;
use runahead_sites::elf;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use super::Failure;

/// Where commands are looked for when PATH is not set (glibc's `execvp`).
const PATH_DEFAULT: &str = "/bin:/usr/bin";
/// Longest first line of a script that Linux looks at, in bytes
/// (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE_LEN_MAX: usize = 256;
/// What a script without `#!` is run by, as `execvp(3)` has it.
pub const SHELL: &str = "/bin/sh";

/// Why a program is run without the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// No PT_INTERP: nothing is loaded into it.
    Static,
    /// PT_INTERP names none that is known to heed LD_PRELOAD.
    OtherLinker,
    /// Another class or machine than the agent.
    OtherMachine,
    /// Set-user-ID or set-group-ID: the dynamic linker ignores LD_PRELOAD.
    SetId,
    /// File capabilities: the same.
    Capabilities,
    /// AddressSanitizer's run time ends a program in which another library is before it.
    Sanitized,
    /// It cannot be opened for reading.
    Unreadable,
    /// Neither ELF nor script; the kernel may know better (binfmt_misc).
    Unknown,
}

impl Plain {
    /// One line for the statistics: what was lost and why.
    pub fn text(self) -> &'static str {
        match self {
            Plain::Static => "it is statically linked, so nothing can be loaded into it",
            Plain::OtherLinker => "its dynamic linker is neither glibc's nor musl's",
            Plain::OtherMachine => "it is not a 64-bit x86 program",
            Plain::SetId => "it is set-user-ID or set-group-ID, so nothing may be loaded into it",
            Plain::Capabilities => "it has file capabilities, so nothing may be loaded into it",
            Plain::Sanitized => "its AddressSanitizer permits no library before its own",
            Plain::Unreadable => "it cannot be read, so its kind is unknown",
            Plain::Unknown => "it is neither an ELF program nor a script",
        }
    }
}

/// What a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Dynamically linked for x86-64; the agent can be loaded.
    Dynamic {
        /// Its dynamic linker (PT_INTERP).
        interpreter: PathBuf,
    },
    /// To be run without the agent.
    Plain(Plain),
}

/// Finds the file that a command's first word names.
///
/// # Errors
/// Exit status 127 where nothing is found and 126 where it cannot be
/// executed, with the words that bash uses.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let fail = |status, text: &str| Err(Failure::new(status, name, text));
    if name.as_bytes().contains(&b'/') {
        return match examine(Path::new(name)) {
            Ok(()) => Ok(PathBuf::from(name)),
            Err(Errno::NOENT) => fail(127, "No such file or directory"),
            Err(Errno::NOTDIR) => fail(126, "Not a directory"),
            Err(Errno::ISDIR) => fail(126, "Is a directory"),
            Err(errno) => fail(126, &super::error_text(&errno.into())),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    let mut denied = false;
    if !name.is_empty() {
        for directory in path.as_bytes().split(|&byte| byte == b':') {
            let directory = if directory.is_empty() { b"." } else { directory };
            let candidate = Path::new(OsStr::from_bytes(directory)).join(name);
            match examine(&candidate) {
                Ok(()) => return Ok(candidate),
                Err(Errno::ACCESS) => denied = true,
                Err(_) => {}
            }
        }
    }
    if denied { fail(126, "Permission denied") } else { fail(127, "command not found") }
}

/// Whether `path` is a file that may be executed.
fn examine(path: &Path) -> Result<(), Errno> {
    let status = rustix::fs::stat(path)?;
    match rustix::fs::FileType::from_raw_mode(status.st_mode) {
        rustix::fs::FileType::Directory => Err(Errno::ISDIR),
        rustix::fs::FileType::RegularFile => may_execute(path),
        _ => Err(Errno::ACCESS),
    }
}

/// Asks the kernel for the file's rights. A seccomp filter that is older than `faccessat2`
/// (Linux 5.8) may answer with any error, and not with the one of a call that does not
/// exist, so the older call is asked, too; it is about the real user, who nearly always is
/// the effective one.
fn may_execute(path: &Path) -> Result<(), Errno> {
    let ask = |flags| rustix::fs::accessat(CWD, path, Access::EXEC_OK, flags);
    match ask(AtFlags::EACCESS).or_else(|_| ask(AtFlags::empty())) {
        // No answers about a file that is to be executed: a filter's, and execve(2) decides.
        Err(Errno::PERM | Errno::NOSYS) => Ok(()),
        answer => answer,
    }
}

/// What kind of program a file is; of a script, what its interpreter is.
pub fn classify(path: &Path) -> Kind {
    let mut path = path.to_owned();
    // A script's interpreter may itself be a script; one level is followed,
    // the kernel follows a few.
    for _ in 0..2 {
        let Ok(file) = open(&path) else { return Kind::Plain(Plain::Unreadable) };
        match classify_file(&file, &path) {
            Step::Done(kind) => return kind,
            Step::Script(interpreter) => path = interpreter,
        }
    }
    Kind::Plain(Plain::Unknown)
}

enum Step {
    Done(Kind),
    Script(PathBuf),
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

fn classify_file(file: &File, path: &Path) -> Step {
    let plain = |why| Step::Done(Kind::Plain(why));
    let Ok(metadata) = file.metadata() else { return plain(Plain::Unreadable) };
    let head = match elf::read_head(file) {
        Ok(Some(head)) => head,
        Ok(None) => return script(file).map_or(plain(Plain::Unknown), Step::Script),
        Err(_) => return plain(Plain::Unreadable),
    };
    // Group execution decides between set-group-ID and mandatory locking.
    let mode = metadata.permissions().mode();
    if mode & libc::S_ISUID != 0
        || mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP
    {
        return plain(Plain::SetId);
    }
    let mut none: [u8; 0] = [];
    if metadata.size() > 0
        && rustix::fs::getxattr(path, "security.capability", &mut none[..]).is_ok()
    {
        return plain(Plain::Capabilities);
    }
    if !head.is_64_bit || !head.is_x86_64 || !head.is_loadable {
        return plain(Plain::OtherMachine);
    }
    if first::is_needed(|offset, part| file.read_at(part, offset).ok()) {
        return plain(Plain::Sanitized);
    }
    match head.interpreter {
        Some(interpreter) if !first::loads_preloaded(&interpreter) => plain(Plain::OtherLinker),
        Some(interpreter) => Step::Done(Kind::Dynamic {
            interpreter: PathBuf::from(OsString::from_vec(interpreter)),
        }),
        None => plain(Plain::Static),
    }
}

/// The interpreter that a file's first line names; the shell for text
/// without such a line.
fn script(file: &File) -> Option<PathBuf> {
    let line = first_line(file)?;
    named_interpreter(&line).or_else(|| is_text_line(&line).then(|| PathBuf::from(SHELL)))
}

/// Whether a file that the kernel does not know is left to the shell.
pub fn is_text(path: &Path) -> bool {
    open(path).ok().and_then(|file| first_line(&file)).is_some_and(|line| is_text_line(&line))
}

/// The interpreter that a script's first line names.
pub fn script_interpreter(path: &Path) -> Option<PathBuf> {
    named_interpreter(&first_line(&open(path).ok()?)?)
}

/// The first line, as much of it as Linux looks at.
fn first_line(file: &File) -> Option<Vec<u8>> {
    let mut line = [0; SCRIPT_LINE_LEN_MAX];
    let len = file.read_at(&mut line, 0).ok()?;
    line[..len].split(|&byte| byte == b'\n').next().map(<[u8]>::to_vec)
}

fn named_interpreter(line: &[u8]) -> Option<PathBuf> {
    let rest = line.strip_prefix(b"#!")?.trim_ascii_start();
    let end = rest.iter().position(|byte| b" \t\0".contains(byte)).unwrap_or(rest.len());
    (end > 0).then(|| PathBuf::from(OsStr::from_bytes(&rest[..end])))
}

/// The test that bash makes: binary where the first line has a NUL.
fn is_text_line(line: &[u8]) -> bool {
    !line.contains(&0) && !line.starts_with(b"\x7fELF")
}
