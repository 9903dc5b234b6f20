//! Which `syscall` instructions can be replaced by a jump, and why the others
//! cannot; and which calls are redirected (`cancellable`).
//!
//! The jump takes [`JUMP_LEN`] bytes, `syscall` has two, so the instructions
//! after it move into the stub and run there. That is only the same program
//! if they do not depend on where they stand, and if nothing ever jumps to
//! one of them. (What may jump there is over-approximated: some sites are
//! refused in one build of a library and not in the next.) Where that is not
//! so, and the call must not pass unseen, the two bytes become a short jump to
//! padding, in which the other stands.

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register};
use runahead_protocol::sites::{
    JUMP_LEN, KIND_BEFORE, KIND_COPY, KIND_HOOK, LEN_BY_PADDING, OBJECT_SITES_MAX, SITE_LEN_MAX,
    Site,
};

use crate::calls;
use crate::cancellable;
use crate::constant::{Flow, is_syscall};
use crate::image::{Image, ImageError, Region};
use crate::sweep;
use crate::targets::Targets;

/// Why a `syscall` instruction is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No hook is wanted for this call.
    Uninteresting,
    /// `rt_sigreturn` needs the exact stack, and unwinders know its bytes.
    SignalReturn,
    /// A stack is unmapped in this straight line, so a stub has none.
    NoStack,
    /// The function's program counter is checked by somebody.
    ProgramCounterChecked,
    /// The function does not decode from start to end.
    Undecodable,
    /// Too few instructions after it can be moved.
    NoRoom,
    /// A branch may land on one of the bytes that the jump would replace.
    BranchTarget,
    /// The object has more sites than a table holds.
    TableFull,
}

/// What was found in one object.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The patchable sites of interest, and the calls to be redirected, sorted by address.
    pub sites: Vec<Site>,
    /// The instructions left alone: address and reason, sorted by address.
    pub refused: Vec<(u64, Refusal)>,
    /// Calls that matter are made where no site is: in glibc 2.41 and later by
    /// `__syscall_cancel_arch`, of which the sites do not have all calls (`cancellable`),
    /// beside one of these, as those of a program of one thread are, or in any glibc
    /// anywhere, if they are vital ([`calls::is_vital`]).
    pub unseen: bool,
}

/// Analyses a whole ELF file. Takes some 20 ms for a libc.
///
/// # Errors
/// [`ImageError`] where the file cannot be analysed at all.
pub fn find(file: &[u8]) -> Result<Found, ImageError> {
    let mut image = Image::parse(file)?;
    let cancellable = cancellable::find(&image);
    image.forbidden.extend(cancellable.iter().map(|function| function.start));
    let redirected = cancellable.map_or_else(Vec::new, |function| function.calls(&image));
    let targets = Targets::collect(&image);
    let has = |name: &[u8]| file.windows(name.len()).any(|found| found == name);
    let is_glibc = has(GLIBC) && has(STARTS_PROGRAMS);
    let unseen = redirected.is_empty() && has(GLIBC_2_41);
    let mut found = Found { unseen, ..Found::default() };
    let mut info = InstructionInfoFactory::new();
    for span in sweep::spans(&image) {
        if !span.bytes.windows(2).any(|pair| pair == [0x0f, 0x05]) {
            continue;
        }
        let mut instructions = Vec::new();
        let clean = sweep::decode(&span, |instruction| instructions.push(*instruction));
        let flow = Flow::new(&instructions);
        let within = |site: &Site| (span.address..span.end()).contains(&site.address);
        let mut function = Function {
            span,
            instructions: &instructions,
            flow,
            clean,
            ends_thread: false,
            waits: redirected.iter().any(within),
            is_glibc,
        };
        let calls: Vec<usize> =
            (0..instructions.len()).filter(|&at| is_syscall(&instructions[at])).collect();
        function.ends_thread = calls
            .iter()
            .any(|&at| function.number(at, &targets, &mut info) == Some(libc::SYS_exit));
        for at in calls {
            let address = function.instructions[at].ip();
            let has_room = found.sites.len() < OBJECT_SITES_MAX as usize;
            let site = function.site(at, &image, &targets, &mut info).and_then(|site| match site {
                _ if !has_room => Err(Refusal::TableFull),
                site if found.sites.iter().any(|other| overlap(other, &site)) => {
                    Err(Refusal::NoRoom)
                }
                site => Ok(site),
            });
            match site {
                Ok(site) => found.sites.push(site),
                Err(refusal) => {
                    let number = function.number(at, &targets, &mut info);
                    found.unseen |= function.is_vital(number);
                    found.refused.push((address, refusal));
                }
            }
        }
    }
    watch_threads_begin(&mut found.sites);
    if found.sites.len() + redirected.len() <= OBJECT_SITES_MAX as usize {
        found.sites.extend(redirected);
        found.sites.sort_unstable_by_key(|site| site.address);
    } else {
        found.unseen = true;
    }
    Ok(found)
}

/// The version of its symbols that each glibc for this processor defines.
const GLIBC: &[u8] = b"\0GLIBC_2.2.5\0";
/// The same of glibc 2.41 and later.
const GLIBC_2_41: &[u8] = b"\0GLIBC_2.41\0";
/// What the C library has, and not the dynamic linker.
const STARTS_PROGRAMS: &[u8] = b"\0__libc_start_main\0";

/// Whether two sites want the same padding.
fn overlap(one: &Site, other: &Site) -> bool {
    let places = |site: &Site| {
        let padding = site.padding().map(|(from, _)| site.address.wrapping_add_signed(from));
        let own = site.address..site.address + u64::from(site.len);
        [own, padding.map_or(0..0, |at| at..at + JUMP_LEN as u64)]
    };
    let (one, other) = (places(one), places(other));
    one.iter().any(|a| other.iter().any(|b| a.start < b.end && b.start < a.end))
}

/// Where no function could be told, or patched, that a thread begins with, the
/// signal mask is watched wherever it is changed.
fn watch_threads_begin(sites: &mut [Site]) {
    let is_mask = |site: &Site| i64::from(site.number) == libc::SYS_rt_sigprocmask;
    if !sites.iter().any(|site| is_mask(site) && site.kind == KIND_HOOK) {
        sites.iter_mut().filter(|site| is_mask(site)).for_each(|site| site.kind = KIND_HOOK);
    }
}

/// A span and its instructions.
struct Function<'d, 'i> {
    span: Region<'d>,
    instructions: &'i [Instruction],
    flow: Flow<'i>,
    clean: bool,
    /// One of its calls ends the thread: it is what a thread begins with.
    ends_thread: bool,
    /// It makes the calls that may wait (`__internal_syscall_cancel` of glibc 2.41 and
    /// later): by another function in a program of several threads, else by itself.
    waits: bool,
    /// It is glibc's.
    is_glibc: bool,
}

impl Function<'_, '_> {
    /// The site of the `syscall` at index `at`, or why it is none.
    fn site(
        &self,
        at: usize,
        image: &Image<'_>,
        targets: &Targets,
        info: &mut InstructionInfoFactory,
    ) -> Result<Site, Refusal> {
        let number = self.number(at, targets, info);
        if number == Some(libc::SYS_rt_sigreturn) {
            return Err(Refusal::SignalReturn);
        }
        if number.is_some_and(|number| !calls::is_interesting(number)) {
            return Err(Refusal::Uninteresting);
        }
        if !self.clean || targets.are_unreadable(self.span.address) {
            return Err(Refusal::Undecodable);
        }
        let within = |address: &u64| (self.span.address..self.span.end()).contains(address);
        if image.forbidden.iter().any(within) || self.has_label(targets) {
            return Err(Refusal::ProgramCounterChecked);
        }
        if self.is_without_stack(at, targets, info) {
            return Err(Refusal::NoStack);
        }
        let address = self.instructions[at].ip();
        let (len, bytes) = match self.in_line(at, targets) {
            Ok(found) => found,
            Err(refusal) if !self.is_vital(number) => return Err(refusal),
            Err(refusal) => self.by_padding(at, number, targets).ok_or(refusal)?,
        };
        Ok(Site {
            address,
            number: number.and_then(|number| i16::try_from(number).ok()).unwrap_or(-1),
            kind: match number {
                Some(number) if calls::makes_process(number) => KIND_BEFORE,
                Some(libc::SYS_rt_sigprocmask) if !self.ends_thread => KIND_COPY,
                _ => KIND_HOOK,
            },
            len,
            bytes,
        })
    }

    /// Whether a call of this number must not pass unseen. (musl's pass by symbol,
    /// the dynamic linker makes none that matters.)
    fn is_vital(&self, number: Option<i64>) -> bool {
        self.waits || self.is_glibc && number.is_some_and(calls::is_vital)
    }

    /// The instructions at the `syscall` at `at` that make room for a jump.
    fn in_line(&self, at: usize, targets: &Targets) -> Result<(u8, [u8; SITE_LEN_MAX]), Refusal> {
        let len = self.movable_len(at).ok_or(Refusal::NoRoom)?;
        let address = self.instructions[at].ip();
        if (address + 1..address + len as u64).any(|byte| targets.contains(byte)) {
            return Err(Refusal::BranchTarget);
        }
        let mut bytes = [0; SITE_LEN_MAX];
        bytes[..len].copy_from_slice(self.code(address, len)?);
        Ok((len as u8, bytes))
    }

    /// The `syscall` at `at` and padding of this function for the jump
    /// ([`LEN_BY_PADDING`]). Nobody else may know what is behind one that makes any call: that
    /// would be the end of a stretch in which somebody asks whether a thread is (musl's
    /// `__cp_end`).
    fn by_padding(
        &self,
        at: usize,
        number: Option<i64>,
        targets: &Targets,
    ) -> Option<(u8, [u8; SITE_LEN_MAX])> {
        let address = self.instructions[at].ip();
        let behind = address + u64::from(LEN_BY_PADDING);
        let may_be_asked_about = number.is_none() && targets.comes_from_elsewhere(behind);
        if targets.contains(address + 1) || may_be_asked_about {
            return None;
        }
        self.padding(targets).find_map(|padding| {
            let distance = i8::try_from(padding.wrapping_sub(behind).cast_signed()).ok()?;
            let mut site = Site {
                address,
                number: -1,
                kind: KIND_HOOK,
                len: LEN_BY_PADDING,
                bytes: [0; SITE_LEN_MAX],
            };
            let (call, rest) = site.bytes.split_at_mut(LEN_BY_PADDING.into());
            call.copy_from_slice(self.code(address, LEN_BY_PADDING.into()).ok()?);
            rest[0] = distance.cast_unsigned();
            rest[1..=JUMP_LEN].copy_from_slice(self.code(padding, JUMP_LEN).ok()?);
            site.padding().map(|_| (site.len, site.bytes))
        })
    }

    /// Where [`JUMP_LEN`] bytes and more of padding begin that nobody comes to: behind what
    /// does not go on, and nowhere led to.
    fn padding(&self, targets: &Targets) -> impl Iterator<Item = u64> {
        let mut ended = false;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for instruction in self.instructions {
            let (address, next) = (instruction.ip(), instruction.next_ip());
            if !is_padding(instruction) {
                ended = goes_nowhere(instruction);
                continue;
            }
            let led_to = (address..next).any(|byte| targets.contains(byte));
            ended &= !led_to;
            match runs.last_mut() {
                Some((_, end)) if ended && *end == address => *end = next,
                _ if ended => runs.push((address, next)),
                _ => {}
            }
        }
        runs.into_iter()
            .filter(|(start, end)| end - start >= JUMP_LEN as u64)
            .map(|(start, _)| start)
    }

    /// The bytes of the code here.
    fn code(&self, address: u64, len: usize) -> Result<&[u8], Refusal> {
        let start = address.wrapping_sub(self.span.address) as usize;
        self.span.bytes.get(start..start + len).ok_or(Refusal::NoRoom)
    }

    /// Whether the code takes the address of a place in the middle of this
    /// function: somebody may compare a program counter with it. An address
    /// that is only reached by jumping to it is the start of another function
    /// that has no symbol.
    fn has_label(&self, targets: &Targets) -> bool {
        targets.labels_inside(self.span.address, self.span.end()).iter().any(|label| {
            let Ok(at) = self.instructions.binary_search_by_key(label, Instruction::ip) else {
                return true;
            };
            let before = self.instructions[..at].iter().rev().find(|before| !is_padding(before));
            before.is_some_and(|before| !goes_nowhere(before))
        })
    }

    /// Length of the `syscall` at `at` with the instructions after it that
    /// have to move, in bytes. Behind a return, padding is run by nobody and may go
    /// (`__internal_syscall_cancel`, by which glibc 2.41 and later make nearly all
    /// calls of a program of one thread that may wait).
    fn movable_len(&self, at: usize) -> Option<usize> {
        let mut len = self.instructions[at].len();
        let mut has_returned = false;
        for instruction in &self.instructions[at + 1..] {
            if len >= JUMP_LEN {
                break;
            }
            let is_return = instruction.code() == Code::Retnq;
            let may_go = if has_returned {
                is_padding(instruction)
            } else {
                is_return || is_movable(instruction)
            };
            if !may_go {
                return None;
            }
            has_returned |= is_return;
            len += instruction.len();
        }
        (JUMP_LEN..=SITE_LEN_MAX).contains(&len).then_some(len)
    }

    /// The system call number at the `syscall` at `at`, where the code fixes it.
    fn number(
        &self,
        at: usize,
        targets: &Targets,
        info: &mut InstructionInfoFactory,
    ) -> Option<i64> {
        self.flow.constant(at, Register::RAX, targets, info)
    }

    /// Whether the `syscall` at `at` stands in a straight line in which one
    /// call unmaps and another follows, with no function call between: musl's
    /// thread exit gives its own stack back that way.
    fn is_without_stack(
        &self,
        at: usize,
        targets: &Targets,
        info: &mut InstructionInfoFactory,
    ) -> bool {
        let straight = |instruction: &&Instruction| {
            instruction.flow_control() == FlowControl::Next || is_syscall(instruction)
        };
        let before = self.instructions[..at].iter().rev().take_while(straight);
        let previous = before.into_iter().position(is_syscall).map(|back| at - 1 - back);
        let after = self.instructions[at + 1..].iter().take_while(straight);
        let is_followed = after.into_iter().any(is_syscall);
        let mut unmaps = |at| self.number(at, targets, info) == Some(libc::SYS_munmap);
        (is_followed && unmaps(at)) || previous.is_some_and(unmaps)
    }
}

/// Whether what stands behind an instruction is not come to from there.
fn goes_nowhere(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Exception
    ) || instruction.mnemonic() == Mnemonic::Hlt
}

/// Whether an instruction fills up room between two pieces of code.
fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// Whether an instruction does the same wherever it stands.
fn is_movable(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_ip_rel_memory_operand()
        && instruction.code() != Code::Endbr64
}
