//! Filters that judge calls by where they are made (seccomp(2),
//! `seccomp_data.instruction_pointer`): a program that bars injected code allows calls
//! from its C library only, whose calls the agent's stubs make.

use crate::sys;

/// `struct sock_fprog`.
#[derive(Default)]
#[repr(C)]
struct Program {
    len: u16,
    filter: usize,
}

/// `struct sock_filter`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u16,
    jumps: [u8; 2],
    value: u32,
}

/// Instructions that are looked at together.
const CHUNK: usize = 32;

/// `BPF_LD | BPF_W | BPF_ABS`, the only way to look at a call.
const LOAD: u16 = 0x20;

/// Where the instruction pointer is in `struct seccomp_data`.
const PLACE: core::ops::Range<u32> = 8..16;

/// Whether the filter whose `struct sock_fprog` is at `program` asks where calls are made.
/// What cannot be read is the kernel's to find.
pub fn is_asked_by(program: usize) -> bool {
    let mut found = Program::default();
    let into = core::ptr::from_mut(&mut found).cast();
    // SAFETY: into a struct of plain numbers of ours.
    if !unsafe { sys::copy_own(program, into, size_of::<Program>()) } {
        return false;
    }
    let mut chunk = [Instruction { code: 0, jumps: [0; 2], value: 0 }; CHUNK];
    let (mut at, mut left) = (found.filter, usize::from(found.len));
    while left > 0 {
        let count = left.min(CHUNK);
        let bytes = count * size_of::<Instruction>();
        // SAFETY: into an array of plain numbers of ours, of CHUNK or fewer.
        if !unsafe { sys::copy_own(at, chunk.as_mut_ptr().cast(), bytes) } {
            return false;
        }
        let asks = |one: &Instruction| one.code == LOAD && PLACE.contains(&one.value);
        if chunk.iter().take(count).any(asks) {
            return true;
        }
        (at, left) = (at.wrapping_add(bytes), left - count);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn asks(filter: &[Instruction]) -> bool {
        let program = Program { len: filter.len() as u16, filter: filter.as_ptr() as usize };
        is_asked_by(core::ptr::from_ref(&program) as usize)
    }

    #[test]
    fn a_filter_that_looks_at_the_instruction_pointer_is_told_from_others() {
        let of = |code, value| Instruction { code, jumps: [1, 0], value };
        let others: Vec<_> = [0, 4, 16, 60].map(|at| of(LOAD, at)).to_vec();
        assert!(!asks(&others) && !asks(&[]));
        // A jump that compares with what would be its place.
        assert!(!asks(&[of(0x15, 8)]));
        let mut long: Vec<_> = (0..1000).map(|_| of(LOAD, 0)).collect();
        assert!(!asks(&long));
        for (at, place) in [(0, 8), (31, 12), (32, 8), (999, 12)] {
            long[at].value = place;
            assert!(asks(&long), "{at}");
            long[at].value = 0;
        }
        assert!(!is_asked_by(16), "nothing is there");
    }
}
