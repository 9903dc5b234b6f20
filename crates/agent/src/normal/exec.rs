//! `execve`: the speculative process ends first, and the new program's
//! environment gets the session back, which the agent has taken out of this
//! one's at start, where the agent can be loaded into it.

use super::capture::UNSEEN_END;
use super::loadable::{self, Known, Loads, Place, ROOM_WORDS};
use super::{bars, end_speculation, learnt, own, scratch, tracing};
use crate::arch::{Frame, import_nr, nr, syscall6};
use crate::config::CONFIG;
use crate::hook::plain;
use crate::opening;
use crate::state::{FDS_MAX, State};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::arch::nr as all_nr;
use runahead_policy::first;
use runahead_protocol::session::{ADDRESSES_MIN_BYTES, STACK_MIN_BYTES};

/// Words of scratch memory on the stack, small or large; more is the arena's.
const SMALL_WORDS: usize = 128;
const LARGE_WORDS: usize = 320;

/// Most variables; a longer environment is handed on without the session.
const VARIABLES_MAX: usize = 64 * 1024;

/// Longest `LD_PRELOAD` that is joined with ours, in bytes.
const PRELOAD_LEN_MAX: usize = 64 * 1024;

const WORD: usize = size_of::<usize>();
const PRELOAD: &[u8] = b"LD_PRELOAD=";
const OPT_OUT: &[u8] = b"RUNAHEAD=off";
/// The dynamic linker lists what it would load, the agent too (ld.so(8)).
const LISTS: &[u8] = b"LD_TRACE_LOADED_OBJECTS=";
/// It tells a library of what it loads, or the standard error.
const AUDIT: &[u8] = b"LD_AUDIT=";
const DEBUG: &[u8] = b"LD_DEBUG=";

/// `execve` (`environment_arg` 2) or `execveat` (3).
#[cold]
pub fn execute(state: &'static State, frame: &mut Frame, environment_arg: usize) -> isize {
    let mut plainly = CONFIG.forbidden.load(Relaxed) != 0;
    if !plainly && tracing::is_traced(state) {
        plainly = true;
        if is_bare(state) {
            return plain(frame);
        }
    }
    let mut found = None;
    if !plainly {
        let (asked, file) = target(&frame.args, environment_arg);
        // Of a program that is looked for along PATH most calls fail, in a child
        // that has nothing to end. In any other the file may have come to be there.
        plainly = matches!(asked, sys::ENOENT | sys::ENOTDIR);
        if plainly && is_bare(state) {
            return plain(frame);
        }
        found = (asked == 0).then_some(file);
    }
    if own(state) {
        return as_itself(state, frame, environment_arg, found, plainly);
    }
    super::notice::before_childs_exec();
    if plainly {
        return plain(frame);
    }
    with_session(state, frame, environment_arg, found, false)
}

/// The same in a process that is no child by vfork(2). By itself, because such a
/// child's stack may be small.
#[cold]
#[inline(never)]
fn as_itself(
    state: &'static State,
    frame: &Frame,
    environment_arg: usize,
    found: Option<learnt::File>,
    plainly: bool,
) -> isize {
    let result = bars::within(state, || {
        end_speculation(state);
        super::notice::before_exec(state);
        if plainly {
            return plain(frame);
        }
        with_session(state, frame, environment_arg, found, true)
    });
    super::watch::again(state);
    result
}

/// Whether nothing of this process's has to end before it executes a program.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn is_bare(state: &State) -> bool {
    let copies = state.speculative.load(Relaxed) != 0 || super::ending::unreaped(state) != 0;
    !copies && state.aide.load(Relaxed) <= 0 && state.notice.load(Relaxed) == 0
}

/// The call itself, with the session in the environment. `found`: what is about
/// to be executed, where that is known; `own`: this is no child by vfork(2).
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn with_session(
    state: &'static State,
    frame: &Frame,
    environment_arg: usize,
    found: Option<learnt::File>,
    own: bool,
) -> isize {
    let arguments = frame.args.get(environment_arg - 1).copied().unwrap_or(0);
    let asked = |file| learnt::like(state, file, arguments);
    let like = found.map_or(learnt::Like::UNKNOWN, asked);
    let handed = hands_on(state, frame, environment_arg, &like, own);
    if own {
        // What cannot have it is no reason for this one to have it.
        let never = matches!(handed, Handed::Never);
        learnt::executes(state, if never { learnt::Target::LeftAlone } else { like.target });
    }
    let Handed::With(given) = handed else { return plain(frame) };
    let words = given.words();
    let is_small = is_small(own);
    if words <= SMALL_WORDS && !is_small {
        on_stack::<SMALL_WORDS>(frame, environment_arg, &given)
    } else if words <= LARGE_WORDS && own {
        on_stack::<LARGE_WORDS>(frame, environment_arg, &given)
    } else if own {
        let execute = |scratch: &mut [usize]| with(frame, environment_arg, &given, scratch);
        scratch::with_own(state, words, execute).unwrap_or_else(|| plain(frame))
    } else {
        let execute = |scratch: &mut [usize]| with(frame, environment_arg, &given, scratch);
        scratch::with(state, words, execute).unwrap_or_else(|| plain(frame))
    }
}

/// How the session is handed on.
enum Handed {
    /// In this environment.
    With(Given),
    /// Not at all.
    Plainly,
    /// Not at all, because the program cannot have the agent.
    Never,
}

/// How large the stack is of a child by vfork(2) is its maker's to say: glibc's
/// posix_spawn(3) gives it 32 KiB, musl's 5, less what a look along PATH takes.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn is_small(own: bool) -> bool {
    !own && CONFIG.is_musl.load(Relaxed) != 0
}

/// In its caller: a frame more is too much for musl's small stacks.
#[inline(always)]
fn hands_on(
    state: &'static State,
    frame: &Frame,
    environment_arg: usize,
    like: &learnt::Like,
    own: bool,
) -> Handed {
    let environment = frame.args.get(environment_arg).copied().unwrap_or(0);
    let target = like.target;
    if target == learnt::Target::LeftAlone || environment == 0 {
        return Handed::Plainly;
    }
    // A program that watches files would be told of our looks, and of what is read
    // ahead.
    if CONFIG.watches.load(Relaxed) != 0 || limits_are_low() || !agent_reachable(own) {
        return Handed::Plainly;
    }
    let Some(given) = Given::at(environment) else { return Handed::Plainly };
    if executes_with_others_rights() {
        return Handed::Plainly;
    }
    // A look opens the file once more, by way of /proc: some 40 µs.
    if !like.loads() {
        let place = Place::of(&frame.args, environment_arg);
        let locks_end = if own { descriptors_with_locks(state) } else { 0 };
        let has_been_loaded = target != learnt::Target::Unknown;
        let known = Known { locks_end, has_been_loaded };
        let may_look = locks_end <= FDS_MAX;
        match may_look.then(|| look(state, place, known, own)) {
            Some(Loads::Surely) => like.has_loaded(),
            Some(Loads::Perhaps) => {}
            Some(Loads::Never) => return Handed::Never,
            None => return Handed::Plainly,
        }
    }
    Handed::With(given)
}

#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn on_stack<const WORDS: usize>(frame: &Frame, environment_arg: usize, given: &Given) -> isize {
    with(frame, environment_arg, given, &mut [0; WORDS])
}

/// What is about to be executed, and what asking for it (stat(2)) returned. By itself:
/// of the room that asking takes on the stack the rest needs some.
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn target(args: &[usize; 6], environment_arg: usize) -> (isize, learnt::File) {
    let Place { directory, path, flags } = Place::of(args, environment_arg);
    let mut stat = sys::Stat::default();
    let at = core::ptr::from_mut(&mut stat) as usize;
    // SAFETY: the kernel reads the program's path, or answers EFAULT, and
    // writes one struct stat.
    let asked = unsafe { sys::call(import_nr::NEWFSTATAT, &[directory, path, at, flags]) };
    (asked, learnt::File::from(&stat))
}

/// Whether this process has another's rights, so that what it executes does, too: the
/// dynamic linker loads no agent there, whose session would stay in sight (`secureexec`,
/// `cap_bprm_creds_from_file` in security/commoncap.c).
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn executes_with_others_rights() -> bool {
    // SAFETY: queries.
    let ask = |number| unsafe { sys::call(number, &[]) };
    ask(all_nr::GETUID) != ask(all_nr::GETEUID) || ask(all_nr::GETGID) != ask(all_nr::GETEGID)
}

/// Whether what is executed might not start with the agent for want of room, where it would
/// alone. The limits are asked for each time: others may set them, too (prlimit(2)).
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn limits_are_low() -> bool {
    const RLIMIT_DATA: usize = 2;
    const RLIMIT_STACK: usize = 3;
    const RLIMIT_AS: usize = 9;
    let is_below = |resource, least| sys::soft_limit(resource).is_some_and(|soft| soft < least);
    is_below(RLIMIT_AS, ADDRESSES_MIN_BYTES)
        || is_below(RLIMIT_DATA, ADDRESSES_MIN_BYTES)
        || is_below(RLIMIT_STACK, STACK_MIN_BYTES)
}

/// Below which of this process's descriptors there may be some by which it has locked
/// files for itself (fcntl(2), F_SETLK); 0: there is none. A child has none of its
/// parent's locks. musl's lockf(3) no hook sees.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn descriptors_with_locks(state: &State) -> usize {
    let is_fresh = state.forked.load(Relaxed) != 0 && CONFIG.is_musl.load(Relaxed) == 0;
    if is_fresh && state.locks.load(Relaxed) == 0 {
        return 0;
    }
    state.fds_end.load(Relaxed).max(UNSEEN_END) as usize
}

/// Whether what is to be executed can have the agent; it cannot, too, where there is no
/// room to find out.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn look(state: &State, place: Place, known: Known, own: bool) -> Loads {
    if own {
        return look_undisturbed(place, known);
    }
    // A child by vfork(2) leaves nothing by a handler that it would go on without.
    if !is_small(own) {
        return look_on_stack(place, known);
    }
    let look = |room: &mut [usize]| match room.first_chunk_mut() {
        Some(room) => loadable::loads(place, known, room),
        None => Loads::Never,
    };
    scratch::with(state, ROOM_WORDS, look).unwrap_or(Loads::Never)
}

/// By itself, as [`look_on_stack`].
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn look_undisturbed(place: Place, known: Known) -> Loads {
    sys::undisturbed_or_ended(|| look_on_stack(place, known))
}

/// By itself: what it takes on the stack what comes after it has again.
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn look_on_stack(place: Place, known: Known) -> Loads {
    loadable::loads(place, known, &mut [0; ROOM_WORDS])
}

/// Whether the dynamic linker will be able to load the agent. After a change of
/// user or root, in a sandbox (Landlock refuses to open what access(2) allows), where
/// the directory is gone, or is mounted `noexec` by now, or where SELinux forbids it
/// may not, and would say so on the program's standard error.
fn agent_reachable(own: bool) -> bool {
    let Some(path) = CONFIG.preload.get().strip_prefix(PRELOAD) else { return false };
    if own {
        loads_undisturbed(path)
    } else {
        opening::below_any_root(path, can_be_mapped) == Some(true)
    }
}

/// By itself, as [`look_on_stack`].
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn loads_undisturbed(path: &[u8]) -> bool {
    sys::undisturbed(|| {
        opening::has_room() && opening::below_any_root(path, can_be_mapped) == Some(true)
    })
}

/// Whether the agent's file is as long as it was, and may be mapped to be executed. Of what
/// access(2) and statfs(2) say SELinux knows nothing.
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn can_be_mapped(fd: i32) -> bool {
    const SEEK_END: usize = 2;
    let fd = fd as usize;
    // SAFETY: of a description of ours.
    let len = unsafe { sys::call(nr::LSEEK, &[fd, 0, SEEK_END]) };
    if len < CONFIG.agent_len.load(Relaxed) as isize {
        return false;
    }
    let args = [0, sys::PAGE_SIZE, sys::PROT_READ | sys::PROT_EXEC, sys::MAP_PRIVATE, fd, 0];
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { sys::call(nr::MMAP, &args) };
    // SAFETY: that mapping, if it is one, which nobody else knows of.
    address > 0 && unsafe { sys::call(nr::MUNMAP, &[address as usize, sys::PAGE_SIZE]) } == 0
}

/// Makes the call with the session added. `scratch` has room for
/// [`Given::words`].
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn with(frame: &Frame, environment_arg: usize, given: &Given, scratch: &mut [usize]) -> isize {
    let Some((array, text)) = scratch.split_at_mut_checked(given.variables + 3) else {
        return plain(frame);
    };
    let mut preload = CONFIG.preload.get().as_ptr() as usize;
    let ours = CONFIG.preload.get().strip_suffix(b"\0").unwrap_or(&[]);
    let mut joined = Writer { words: text, len: 0 };
    if let Some(index) = given.preload_at {
        let theirs = given.pointer(index) + PRELOAD.len();
        // SAFETY: `Given::at` has found it readable, to the NUL.
        let fits = joined.add(ours) && joined.add(b":") && unsafe { joined.add_string(theirs) };
        if !(fits && joined.add(b"\0")) {
            return plain(frame);
        }
        preload = joined.words.as_ptr() as usize;
    }
    // In the place of the program's own, so that the environment can be given
    // back as it was.
    let variables = (0..given.variables).map(|index| match given.preload_at {
        Some(at) if at == index => preload,
        _ => given.pointer(index),
    });
    let added = given.preload_at.is_none().then_some(preload);
    let all = variables.chain(added).chain([CONFIG.session.get().as_ptr() as usize, 0]);
    for (slot, pointer) in array.iter_mut().zip(all) {
        *slot = pointer;
    }
    let mut args = frame.args;
    if let Some(slot) = args.get_mut(environment_arg) {
        *slot = array.as_ptr() as usize;
    }
    // SAFETY: the program's own call, with a longer environment.
    let result = unsafe { syscall6(frame.number, args) };
    // What has been added may be what is too much.
    if result == sys::E2BIG { plain(frame) } else { result }
}

/// The environment that the program gives.
struct Given {
    array: usize,
    variables: usize,
    /// Which of them is `LD_PRELOAD`.
    preload_at: Option<usize>,
    /// Bytes of its value, the separator counted in; 0: none.
    preload_len: usize,
}

impl Given {
    /// Looks at it; `None` where the call is to be made as it is: something
    /// is not readable, too long, opted out, or another launcher's (a
    /// runahead inside this one), or there are several `LD_PRELOAD`, of which
    /// glibc's dynamic linker uses the last and musl's the first.
    fn at(array: usize) -> Option<Given> {
        let variables = count(array, VARIABLES_MAX)?;
        if variables == VARIABLES_MAX {
            return None;
        }
        let mut given = Given { array, variables, preload_at: None, preload_len: 0 };
        // Mostly they lie side by side: a page is asked about once.
        let mut readable_page = usize::MAX;
        for index in 0..variables {
            let pointer = given.pointer(index);
            let page = pointer / sys::PAGE_SIZE;
            if page != readable_page && !sys::is_readable(pointer) {
                return None;
            }
            readable_page = page;
            // SAFETY: its page has just been found readable.
            unsafe {
                let plainly = [b"RUNAHEAD_SESSION=".as_slice(), OPT_OUT, LISTS, AUDIT, DEBUG];
                if plainly.iter().any(|name| begins(pointer, name)) {
                    return None;
                }
                if begins(pointer, PRELOAD) {
                    if given.preload_at.is_some() {
                        return None;
                    }
                    given.preload_at = Some(index);
                    given.preload_len = 1 + string_len(pointer + PRELOAD.len())?;
                }
            }
        }
        // What must be loaded first may be in that list, too.
        (!given.preloads_what_is_first()).then_some(given)
    }

    /// Whether [`first::names_one`] of its `LD_PRELOAD`.
    fn preloads_what_is_first(&self) -> bool {
        self.preload_at.is_some_and(|index| {
            let value = self.pointer(index) + PRELOAD.len();
            // SAFETY: `at` has read it to its end.
            let text =
                unsafe { core::slice::from_raw_parts(value as *const u8, self.preload_len - 1) };
            first::names_one(text)
        })
    }

    fn pointer(&self, index: usize) -> usize {
        // SAFETY: inside the array that `count` has walked, which may lie anywhere.
        unsafe { ((self.array + index * WORD) as *const usize).read_unaligned() }
    }

    /// Words of scratch memory that handing it on takes.
    fn words(&self) -> usize {
        let text = match self.preload_len {
            0 => 0,
            len => (CONFIG.preload.get().len() + len).div_ceil(WORD),
        };
        self.variables + 3 + text
    }
}

/// Text in memory that is handed out in words.
struct Writer<'a> {
    words: &'a mut [usize],
    len: usize,
}

impl Writer<'_> {
    /// Appends; false where it does not fit.
    fn add(&mut self, text: &[u8]) -> bool {
        let room = self.words.len() * WORD;
        // SAFETY: the words' own memory, as bytes.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), room) };
        let Some(room) = bytes.get_mut(self.len..self.len + text.len()) else { return false };
        room.copy_from_slice(text);
        self.len += text.len();
        true
    }

    /// Appends a NUL-terminated string without its NUL; false where it does not
    /// fit, or cannot be read.
    ///
    /// # Safety
    /// As for [`byte`].
    unsafe fn add_string(&mut self, pointer: usize) -> bool {
        // SAFETY: as the caller promises.
        let Some(len) = (unsafe { string_len(pointer) }) else { return false };
        // SAFETY: so many bytes have just been read.
        self.add(unsafe { core::slice::from_raw_parts(pointer as *const u8, len) })
    }
}

/// Bytes before the NUL; `None` where they are too many, or one cannot be read.
///
/// # Safety
/// As for [`byte`].
unsafe fn string_len(pointer: usize) -> Option<usize> {
    for len in 0..PRELOAD_LEN_MAX {
        // SAFETY: as the caller promises; the one before has just been read.
        if unsafe { byte(pointer + len) }? == 0 {
            return Some(len);
        }
    }
    None
}

/// Whether the string at `pointer` begins with `prefix`.
///
/// # Safety
/// As for [`byte`].
unsafe fn begins(pointer: usize, prefix: &[u8]) -> bool {
    prefix.iter().enumerate().all(|(index, &wanted)| {
        // SAFETY: as the caller promises; the one before has just been read, as
        // `all` stops at the first difference, thus at the NUL.
        (unsafe { byte(pointer + index) }) == Some(wanted)
    })
}

/// A byte of a string that the kernel is about to read; `None` where that cannot
/// be read.
///
/// # Safety
/// `address`'s page, or the byte before it, has been found readable.
unsafe fn byte(address: usize) -> Option<u8> {
    if address.is_multiple_of(sys::PAGE_SIZE) && !sys::is_readable(address) {
        return None;
    }
    // SAFETY: the kernel has just said so of its page, or the caller does.
    Some(unsafe { *(address as *const u8) })
}

/// Entries before the NULL of the array that the kernel is about to read, at most
/// `most`; `None` where that cannot be read.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub(super) fn count(array: usize, most: usize) -> Option<usize> {
    for index in 0..most {
        let at = array.wrapping_add(index * WORD);
        // One that is not aligned may lie across two pages.
        let last = at.wrapping_add(WORD - 1);
        let is_wild = index == 0 && !sys::is_readable(at);
        if is_wild || last % sys::PAGE_SIZE < WORD && !sys::is_readable(last) {
            return None;
        }
        // SAFETY: the pages of its first byte and its last have been found readable.
        if unsafe { (at as *const usize).read_unaligned() } == 0 {
            return Some(index);
        }
    }
    Some(most)
}
