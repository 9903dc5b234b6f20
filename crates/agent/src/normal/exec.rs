//! `execve`: the speculative process ends first, and the new program's
//! environment gets the session back, which the agent has taken out of this
//! one's at start.

use super::{end_speculation, own};
use crate::arch::{Frame, nr, syscall6};
use crate::hook::plain;
use crate::state::{AGENT_PATH_LEN_MAX, CONFIG, State};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::session::SESSION_VARIABLE;

/// Variables that fit on the stack; more need a mapping.
const ON_STACK_MAX: usize = 256;

/// Most variables; a longer environment is handed on without the session.
const VARIABLES_MAX: usize = 64 * 1024;

/// Longest `LD_PRELOAD` that is joined with ours, in bytes.
const PRELOAD_LEN_MAX: usize = 2048;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const OPT_OUT: &[u8] = b"RUNAHEAD=off";

/// `execve` (`environment_arg` 2) or `execveat` (3).
#[cold]
pub fn execute(state: &'static State, frame: &mut Frame, environment_arg: usize) -> isize {
    if own(state) {
        end_speculation(state);
    }
    let environment = frame.args.get(environment_arg).copied().unwrap_or(0);
    if CONFIG.forbidden.load(Relaxed) != 0
        || environment == 0
        || !readable(environment)
        || !agent_reachable()
    {
        return plain(frame);
    }
    // SAFETY: the kernel is about to read the same NULL-terminated array;
    // each page of it has been found readable.
    let Some(variables) = (unsafe { count(environment) }) else { return plain(frame) };
    let mut preload = [0u8; PRELOAD_LEN_MAX];
    let mut session = [0u8; SESSION_VARIABLE.len() + 1 + 2048 + 1];
    if variables + 3 <= ON_STACK_MAX {
        let mut array = [0usize; ON_STACK_MAX];
        return with(
            frame,
            environment_arg,
            environment,
            variables,
            &mut array,
            &mut preload,
            &mut session,
        );
    }
    let len = (variables + 3) * size_of::<usize>();
    let address = sys::map_anonymous(len, sys::MAP_PRIVATE);
    if address == 0 {
        return plain(frame);
    }
    // SAFETY: just mapped, zeroed, of this length, used by nobody else.
    let array = unsafe { core::slice::from_raw_parts_mut(address as *mut usize, variables + 3) };
    let result =
        with(frame, environment_arg, environment, variables, array, &mut preload, &mut session);
    // Only a failed exec comes here. (After a vfork, a successful one leaves
    // the mapping to the parent: a page or two.)
    // SAFETY: unmaps what was mapped above.
    unsafe { sys::call(nr::MUNMAP, &[address, len]) };
    result
}

/// Whether the dynamic linker will find the agent. After a change of user or
/// root it may not, and would say so on the program's standard error.
fn agent_reachable() -> bool {
    const R_OK: usize = 4;
    let agent = CONFIG.agent_path.get();
    let mut path = [0u8; AGENT_PATH_LEN_MAX + 1];
    let Some(room) = path.get_mut(..agent.len()) else { return false };
    room.copy_from_slice(agent);
    // SAFETY: a NUL-terminated path of ours.
    (unsafe { sys::call(nr::FACCESSAT, &[sys::AT_FDCWD, path.as_ptr() as usize, R_OK]) }) == 0
}

/// Makes the call with the session added.
fn with(
    frame: &Frame,
    environment_arg: usize,
    environment: usize,
    variables: usize,
    array: &mut [usize],
    preload: &mut [u8],
    session: &mut [u8],
) -> isize {
    let agent = CONFIG.agent_path.get();
    let mut text = Writer { bytes: session, len: 0 };
    let session_fits = text.add(SESSION_VARIABLE.as_bytes())
        && text.add(b"=")
        && text.add(CONFIG.session.get())
        && text.add(b"\0");
    let mut joined = Writer { bytes: preload, len: 0 };
    let mut preload_fits = joined.add(PRELOAD) && joined.add(agent);
    let mut len = 0usize;
    let mut opted_out = false;
    for index in 0..variables {
        // SAFETY: inside the array that `count` has walked.
        let pointer = unsafe { *((environment + index * size_of::<usize>()) as *const usize) };
        if !readable(pointer) {
            return plain(frame);
        }
        // SAFETY: a string that the kernel is about to read as well; `begins`
        // stops at its NUL.
        let (is_preload, is_session, is_off) = unsafe {
            (
                begins(pointer, PRELOAD),
                begins(pointer, b"RUNAHEAD_SESSION="),
                begins(pointer, OPT_OUT),
            )
        };
        opted_out |= is_off;
        if is_session {
            // Another launcher's: a runahead inside this one.
            return plain(frame);
        }
        if is_preload {
            preload_fits &= joined.add(b":");
            // SAFETY: as above.
            preload_fits &= unsafe { joined.add_string(pointer + PRELOAD.len()) };
            continue;
        }
        if let Some(slot) = array.get_mut(len) {
            *slot = pointer;
        }
        len += 1;
    }
    preload_fits &= joined.add(b"\0");
    if opted_out || !session_fits || !preload_fits {
        return plain(frame);
    }
    for pointer in [joined.bytes.as_ptr() as usize, text.bytes.as_ptr() as usize, 0] {
        let Some(slot) = array.get_mut(len) else { return plain(frame) };
        *slot = pointer;
        len += 1;
    }
    let mut args = frame.args;
    if let Some(slot) = args.get_mut(environment_arg) {
        *slot = array.as_ptr() as usize;
    }
    // SAFETY: the program's own call, with a longer environment.
    unsafe { syscall6(frame.number, args) }
}

/// Text in a fixed buffer.
struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    /// Appends; false where it does not fit.
    fn add(&mut self, text: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.len..self.len + text.len()) else { return false };
        room.copy_from_slice(text);
        self.len += text.len();
        true
    }

    /// Appends a NUL-terminated string without its NUL.
    ///
    /// # Safety
    /// `pointer` must point to a readable NUL-terminated string.
    unsafe fn add_string(&mut self, pointer: usize) -> bool {
        let mut at = pointer;
        loop {
            // SAFETY: up to the NUL, as the caller promises.
            let byte = unsafe { *(at as *const u8) };
            if byte == 0 {
                return true;
            }
            if !self.add(&[byte]) {
                return false;
            }
            at += 1;
        }
    }
}

/// Whether the string at `pointer` begins with `prefix`.
///
/// # Safety
/// `pointer` must point to a readable NUL-terminated string.
unsafe fn begins(pointer: usize, prefix: &[u8]) -> bool {
    prefix.iter().enumerate().all(|(index, &byte)| {
        // SAFETY: `all` stops at the first difference, thus at the NUL.
        (unsafe { *((pointer + index) as *const u8) }) == byte
    })
}

/// Number of entries before the NULL; `None` where there are too many or a
/// page of the array cannot be read.
///
/// # Safety
/// `array`'s own page must be readable.
unsafe fn count(array: usize) -> Option<usize> {
    for index in 0..VARIABLES_MAX {
        let at = array + index * size_of::<usize>();
        if at % sys::PAGE_SIZE < size_of::<usize>() && !readable(at) {
            return None;
        }
        // SAFETY: its page has just been found readable.
        if unsafe { *(at as *const usize) } == 0 {
            return Some(index);
        }
    }
    None
}

/// Whether the page at `address` can be read, asked of the kernel, which
/// answers EFAULT where a look of ours would kill the program.
fn readable(address: usize) -> bool {
    // rt_sigprocmask with an invalid `how` reads the set first and changes
    // nothing: EINVAL where it can be read, EFAULT where not.
    const NO_HOW: usize = 99;
    const EFAULT: isize = -14;
    // SAFETY: changes nothing (rt_sigprocmask(2): EINVAL for an unknown how).
    let result = unsafe { sys::call(nr::RT_SIGPROCMASK, &[NO_HOW, address & !7, 0, 8]) };
    result != EFAULT
}
