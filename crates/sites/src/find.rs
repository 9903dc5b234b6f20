//! Which `syscall` instructions can be replaced by a jump, and why the others
//! cannot.
//!
//! The jump takes [`JUMP_LEN`] bytes, `syscall` has two, so the instructions
//! after it move into the stub and run there. That is only the same program
//! if they do not depend on where they stand, and if nothing ever jumps to
//! one of them.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use runahead_protocol::sites::{
    JUMP_LEN, KIND_BEFORE, KIND_HOOK, OBJECT_SITES_MAX, SITE_LEN_MAX, Site,
};

use crate::calls;
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
    /// The patchable sites of interest, sorted by address.
    pub sites: Vec<Site>,
    /// The instructions left alone: address and reason, sorted by address.
    pub refused: Vec<(u64, Refusal)>,
}

/// Analyses a whole ELF file. Takes some 20 ms for a libc.
///
/// # Errors
/// [`ImageError`] where the file cannot be analysed at all.
pub fn find(file: &[u8]) -> Result<Found, ImageError> {
    let image = Image::parse(file)?;
    let targets = Targets::collect(&image);
    let mut found = Found::default();
    let mut info = InstructionInfoFactory::new();
    for span in sweep::spans(&image) {
        if !span.bytes.windows(2).any(|pair| pair == [0x0f, 0x05]) {
            continue;
        }
        let mut instructions = Vec::new();
        let clean = sweep::decode(&span, |instruction| instructions.push(*instruction));
        let function = Function { span, instructions, clean };
        for at in 0..function.instructions.len() {
            if !is_syscall(&function.instructions[at]) {
                continue;
            }
            let address = function.instructions[at].ip();
            match function.site(at, &image, &targets, &mut info) {
                Ok(_) if found.sites.len() >= OBJECT_SITES_MAX as usize => {
                    found.refused.push((address, Refusal::TableFull));
                }
                Ok(site) => found.sites.push(site),
                Err(refusal) => found.refused.push((address, refusal)),
            }
        }
    }
    Ok(found)
}

/// A span and its instructions.
struct Function<'d> {
    span: Region<'d>,
    instructions: Vec<Instruction>,
    clean: bool,
}

impl Function<'_> {
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
        let len = self.movable_len(at).ok_or(Refusal::NoRoom)?;
        let address = self.instructions[at].ip();
        if (address + 1..address + len as u64).any(|byte| targets.contains(byte)) {
            return Err(Refusal::BranchTarget);
        }
        let start = (address - self.span.address) as usize;
        let mut bytes = [0; SITE_LEN_MAX];
        bytes[..len].copy_from_slice(&self.span.bytes[start..start + len]);
        Ok(Site {
            address,
            number: number.and_then(|number| i16::try_from(number).ok()).unwrap_or(-1),
            kind: if number.is_some_and(calls::makes_process) { KIND_BEFORE } else { KIND_HOOK },
            len: len as u8,
            bytes,
        })
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
            let is_padding = |instruction: &&Instruction| {
                matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
            };
            let before = self.instructions[..at].iter().rev().find(|before| !is_padding(before));
            before.is_some_and(|before| {
                !matches!(
                    before.flow_control(),
                    FlowControl::Return
                        | FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                        | FlowControl::Exception
                ) && before.mnemonic() != Mnemonic::Hlt
            })
        })
    }

    /// Length of the `syscall` at `at` with the instructions after it that
    /// have to move, in bytes.
    fn movable_len(&self, at: usize) -> Option<usize> {
        let mut len = self.instructions[at].len();
        for instruction in &self.instructions[at + 1..] {
            if len >= JUMP_LEN {
                break;
            }
            if !is_movable(instruction) {
                return None;
            }
            len += instruction.len();
        }
        (JUMP_LEN..=SITE_LEN_MAX).contains(&len).then_some(len)
    }

    /// The system call number at the `syscall` at `at`, where the straight
    /// line before it fixes it.
    fn number(
        &self,
        at: usize,
        targets: &Targets,
        info: &mut InstructionInfoFactory,
    ) -> Option<i64> {
        let mut next = &self.instructions[at];
        let mut low_byte = None;
        for instruction in self.instructions[..at].iter().rev() {
            // Someone may come to `next` by another way, or cannot come from
            // `instruction`.
            let falls_through = matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            );
            if targets.contains(next.ip()) || !falls_through {
                return None;
            }
            let writes_rax = info.info(instruction).used_registers().iter().any(|used| {
                used.register().full_register() == Register::RAX
                    && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
            });
            if let Some(byte) = loaded_low_byte(instruction) {
                // musl's assembly clears the register and loads the byte.
                low_byte = low_byte.or(Some(byte));
            } else if writes_rax {
                let constant = loaded_constant(instruction)?;
                return Some(low_byte.map_or(constant, |low| constant & !0xff | i64::from(low)));
            }
            next = instruction;
        }
        None
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

/// The two bytes `0f 05`, without prefixes.
fn is_syscall(instruction: &Instruction) -> bool {
    instruction.code() == Code::Syscall && instruction.len() == 2
}

/// Whether an instruction does the same wherever it stands.
fn is_movable(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_ip_rel_memory_operand()
        && instruction.code() != Code::Endbr64
}

/// The constant that an instruction leaves in `al`, if it is one.
fn loaded_low_byte(instruction: &Instruction) -> Option<u8> {
    let is_load =
        instruction.code() == Code::Mov_r8_imm8 && instruction.op0_register() == Register::AL;
    is_load.then(|| instruction.immediate8())
}

/// The constant that an instruction leaves in `rax`, if it is one.
fn loaded_constant(instruction: &Instruction) -> Option<i64> {
    let wide = |register| matches!(register, Register::EAX | Register::RAX);
    match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32 | Code::Mov_r64_imm64
            if instruction.op0_kind() == OpKind::Register && wide(instruction.op0_register()) =>
        {
            Some(instruction.immediate(1) as i64)
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Xor_r64_rm64 | Code::Xor_rm64_r64
            if instruction.op1_kind() == OpKind::Register
                && wide(instruction.op0_register())
                && instruction.op0_register() == instruction.op1_register() =>
        {
            Some(0)
        }
        _ => None,
    }
}
