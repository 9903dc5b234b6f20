//! Which constant a register holds at an instruction, whichever way it is come
//! to: reaching definitions, followed backwards through one function.
//!
//! Compilers load the number of a call that stands in a loop, or behind a few
//! branches, into another register first, and copy it.

use std::collections::HashSet;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};

use crate::targets::Targets;

/// Most places that are looked at for one answer.
const PLACES_MAX: usize = 4096;

/// The instructions of one function, and who jumps where among them.
pub(crate) struct Flow<'i> {
    instructions: &'i [Instruction],
    /// Jumps inside the function: target and index, sorted.
    jumps: Vec<(u64, usize)>,
}

/// Before an instruction, what is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    /// Index of the instruction.
    at: usize,
    /// A whole register.
    register: Register,
    /// What has been loaded into its lowest byte since.
    low_byte: Option<u8>,
}

impl<'i> Flow<'i> {
    /// Of a function's instructions, sorted by address.
    pub(crate) fn new(instructions: &'i [Instruction]) -> Flow<'i> {
        let jump = |(at, instruction): (usize, &Instruction)| {
            is_jump(instruction).then(|| (instruction.near_branch_target(), at))
        };
        let mut jumps: Vec<_> = instructions.iter().enumerate().filter_map(jump).collect();
        jumps.sort_unstable();
        Flow { instructions, jumps }
    }

    /// The constant in `register` before instruction `at`; `None` where it is
    /// not the same by all ways, or one of them is not known.
    pub(crate) fn constant(
        &self,
        at: usize,
        register: Register,
        targets: &Targets,
        info: &mut InstructionInfoFactory,
    ) -> Option<i64> {
        let mut seen = HashSet::new();
        let mut places = vec![Place { at, register, low_byte: None }];
        let mut constant = None;
        while let Some(place) = places.pop() {
            if !seen.insert(place) {
                continue;
            }
            if seen.len() > PLACES_MAX {
                return None;
            }
            for before in self.before(place.at, targets)? {
                match self.step(place, before, info)? {
                    Step::Further(place) => places.push(place),
                    Step::Loaded(loaded) if constant.is_none_or(|known| known == loaded) => {
                        constant = Some(loaded);
                    }
                    Step::Loaded(_) => return None,
                }
            }
        }
        constant
    }

    /// Indexes of the instructions that may be executed right before number
    /// `at`; `None` where others may be, too.
    fn before(&self, at: usize, targets: &Targets) -> Option<Vec<usize>> {
        let address = self.instructions.get(at)?.ip();
        if targets.comes_from_elsewhere(address) {
            return None;
        }
        // Before the first may come whoever calls the function.
        let previous = at.checked_sub(1)?;
        let first = self.jumps.partition_point(|&(target, _)| target < address);
        let mut before: Vec<usize> = self.jumps[first..]
            .iter()
            .take_while(|&&(target, _)| target == address)
            .map(|&(_, from)| from)
            .collect();
        let instruction = &self.instructions[previous];
        match instruction.flow_control() {
            FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::IndirectCall => {
                if instruction.next_ip() != address {
                    return None;
                }
                before.push(previous);
            }
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception => {}
            FlowControl::Interrupt | FlowControl::XbeginXabortXend => return None,
        }
        Some(before)
    }

    /// What instruction `before` does to what is asked about.
    fn step(&self, place: Place, before: usize, info: &mut InstructionInfoFactory) -> Option<Step> {
        let instruction = &self.instructions[before];
        let further = Step::Further(Place { at: before, ..place });
        if is_syscall(instruction) {
            let lost = [Register::RAX, Register::RCX, Register::R11].contains(&place.register);
            return (!lost).then_some(further);
        }
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return PRESERVED.contains(&place.register).then_some(further);
        }
        let is_written = info.info(instruction).used_registers().iter().any(|used| {
            used.register().full_register() == place.register
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
        });
        if !is_written {
            return Some(further);
        }
        if place.register == Register::RAX
            && let Some(byte) = loaded_low_byte(instruction)
        {
            // musl's assembly clears the register and loads the byte.
            let low_byte = place.low_byte.or(Some(byte));
            return Some(Step::Further(Place { at: before, low_byte, ..place }));
        }
        if let Some(register) = copied(instruction) {
            return Some(Step::Further(Place { at: before, register, ..place }));
        }
        let loaded = loaded_constant(instruction)?;
        let merged = |low| loaded & !0xff | i64::from(low);
        Some(Step::Loaded(place.low_byte.map_or(loaded, merged)))
    }
}

enum Step {
    Further(Place),
    Loaded(i64),
}

/// What a function that is called leaves as it was (System V ABI, 3.2.1).
const PRESERVED: &[Register] =
    &[Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Whether an instruction jumps to an address that it names.
pub(crate) fn is_jump(instruction: &Instruction) -> bool {
    let flow = instruction.flow_control();
    matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
        && instruction.op0_kind() == OpKind::NearBranch64
}

/// The two bytes `0f 05`, without prefixes.
pub(crate) fn is_syscall(instruction: &Instruction) -> bool {
    instruction.code() == Code::Syscall && instruction.len() == 2
}

/// The constant that an instruction leaves in `al`, if it is one.
fn loaded_low_byte(instruction: &Instruction) -> Option<u8> {
    let is_load =
        instruction.code() == Code::Mov_r8_imm8 && instruction.op0_register() == Register::AL;
    is_load.then(|| instruction.immediate8())
}

/// The whole register whose lower half, at least, an instruction copies to
/// another.
fn copied(instruction: &Instruction) -> Option<Register> {
    let is_copy = matches!(
        instruction.code(),
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
    ) && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register;
    is_copy.then(|| instruction.op1_register().full_register())
}

/// The constant that an instruction leaves in the register that it writes, if it
/// is one.
fn loaded_constant(instruction: &Instruction) -> Option<i64> {
    match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32 | Code::Mov_r64_imm64
            if instruction.op0_kind() == OpKind::Register =>
        {
            Some(instruction.immediate(1) as i64)
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Xor_r64_rm64 | Code::Xor_rm64_r64
            if instruction.op0_kind() == OpKind::Register
                && instruction.op1_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register() =>
        {
            Some(0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, Region};
    use crate::sweep;

    /// What is in `rax` before the only syscall of this code, which begins as a
    /// function does, and into which data may point.
    fn number(code: &[u8], pointer: Option<u64>) -> Option<i64> {
        const AT: u64 = 0x1000;
        let region = Region { address: AT, bytes: code };
        let pointers = pointer.map_or([0; 8], |into| (AT + into).to_le_bytes());
        let image = Image {
            code: vec![region],
            data: vec![Region { address: 0x8000, bytes: &pointers }],
            function_starts: vec![AT],
            frames: Vec::new(),
            named: Vec::new(),
            forbidden: Vec::new(),
        };
        let targets = Targets::collect(&image);
        let mut instructions = Vec::new();
        assert!(sweep::decode(&region, |instruction| instructions.push(*instruction)));
        let at = instructions.iter().position(is_syscall).unwrap();
        let flow = Flow::new(&instructions);
        flow.constant(at, Register::RAX, &targets, &mut InstructionInfoFactory::new())
    }

    // mov $202,%r8d
    const LOAD_R8: [u8; 6] = [0x41, 0xb8, 202, 0, 0, 0];
    // mov %r8d,%eax; syscall; ret
    const COPY_AND_CALL: [u8; 6] = [0x44, 0x89, 0xc0, 0x0f, 0x05, 0xc3];

    #[test]
    fn a_number_is_followed_through_another_register_and_a_loop() {
        // mov $202,%r8d; again: mov %r8d,%eax; syscall; jne again; ret
        let code = [&LOAD_R8[..], &COPY_AND_CALL[..5], &[0x75, 0xf9, 0xc3]].concat();
        assert_eq!(number(&code, None), Some(202));
        // Who points behind the load may come from anywhere.
        assert_eq!(number(&code, Some(6)), None);
        // At the load itself it makes no difference, nor does one behind the call.
        assert_eq!(number(&code, Some(0)), Some(202));
        assert_eq!(number(&code, Some(11)), None, "the loop comes back from there");
    }

    #[test]
    fn ways_that_disagree_tell_nothing() {
        // mov $202,%r8d; jne over; mov $N,%r8d; over: mov %r8d,%eax; ...
        let code = |number| {
            let other = [0x41, 0xb8, number, 0, 0, 0];
            [&LOAD_R8[..], &[0x75, 6], &other, &COPY_AND_CALL].concat()
        };
        assert_eq!(number(&code(202), None), Some(202));
        assert_eq!(number(&code(60), None), None);
    }

    #[test]
    fn what_a_call_may_change_is_unknown_behind_it() {
        // call the start of the function
        let call = |at: u8| [0xe8, 0u8.wrapping_sub(at + 5), 0xff, 0xff, 0xff];
        let code = [&LOAD_R8[..], &call(6), &COPY_AND_CALL].concat();
        assert_eq!(number(&code, None), None);
        // mov $202,%ebx; call; mov %ebx,%eax; syscall; ret
        let kept = [&[0xbb, 202, 0, 0, 0][..], &call(5), &[0x89, 0xd8, 0x0f, 0x05, 0xc3]].concat();
        assert_eq!(number(&kept, None), Some(202));
    }

    #[test]
    fn what_is_changed_in_part_or_perhaps_is_unknown() {
        for change in [
            // mov $1,%r8b; cmovne %ecx,%r8d; inc %r8d; mov (%rdi),%r8d
            &[0x41, 0xb0, 1][..],
            &[0x44, 0x0f, 0x45, 0xc1],
            &[0x41, 0xff, 0xc0],
            &[0x44, 0x8b, 0x07],
        ] {
            let code = [&LOAD_R8[..], change, &COPY_AND_CALL].concat();
            assert_eq!(number(&code, None), None, "{change:x?}");
        }
        // xor %eax,%eax; mov $39,%al; syscall; ret
        assert_eq!(number(&[0x31, 0xc0, 0xb0, 39, 0x0f, 0x05, 0xc3], None), Some(39));
        // mov $39,%al; syscall: the rest is the caller's.
        assert_eq!(number(&[0xb0, 39, 0x0f, 0x05, 0xc3], None), None);
    }
}
