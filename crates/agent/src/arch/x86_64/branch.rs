//! Calls and jumps of five bytes: `call rel32` and `jmp rel32`.

use super::{jump, stubs::CACHE_LINE};
use core::arch::asm;
use runahead_protocol::sites::JUMP_LEN;

/// The instruction: an opcode and a distance.
pub type Branch = [u8; JUMP_LEN];

/// Where a branch at `at` leads.
pub fn target_of(at: usize, [_, distance @ ..]: Branch) -> usize {
    (at + JUMP_LEN).wrapping_add_signed(i32::from_le_bytes(distance) as isize)
}

/// The same instruction as `branch` at `at`, leading to `target`, if that is near enough.
pub fn leading_to(at: usize, [opcode, ..]: Branch, target: usize) -> Option<Branch> {
    let [_, distance @ ..] = jump(at, target)?;
    let [b0, b1, b2, b3] = distance;
    Some([opcode, b0, b1, b2, b3])
}

/// Gives the branch at `at` the distance of `branch`. Other threads may be about to execute
/// it, and go where it led or where it leads. Not where its distance is in two cache lines,
/// unless this thread is `alone`; false then.
///
/// # Safety
/// What is there must be writable, and a branch with the opcode of `branch`.
pub unsafe fn lead(at: usize, [_, distance @ ..]: Branch, alone: bool) -> bool {
    let distance_at = at + 1;
    if !alone && distance_at % CACHE_LINE > CACHE_LINE - size_of_val(&distance) {
        return false;
    }
    let distance = u32::from_le_bytes(distance);
    // SAFETY: as the caller promises; one store.
    unsafe {
        asm!("mov dword ptr [{at}], {distance:e}", at = in(reg) distance_at,
            distance = in(reg) distance, options(nostack, preserves_flags));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_leads_where_it_is_told() {
        let at = 0x40_0000;
        for target in [at - 0x1000, at, at + JUMP_LEN, at + 0x7000_0000] {
            for opcode in [0xe8, 0xe9] {
                let branch = leading_to(at, [opcode, 1, 2, 3, 4], target).unwrap();
                assert_eq!((branch[0], target_of(at, branch)), (opcode, target));
            }
        }
        assert_eq!(leading_to(at, [0xe8; JUMP_LEN], at + (1 << 40)), None);
    }

    #[test]
    fn a_branch_changes_whole_or_not_at_all() {
        #[repr(align(64))]
        struct Lines([u8; 2 * CACHE_LINE]);
        for offset in 0..CACHE_LINE {
            for alone in [true, false] {
                let mut lines = Lines([0xe8; 2 * CACHE_LINE]);
                let at = lines.0[offset..].as_ptr() as usize;
                // SAFETY: memory of ours that nobody executes.
                let done = unsafe { lead(at, [0xe8, 1, 2, 3, 4], alone) };
                assert_eq!(
                    done,
                    alone || offset + JUMP_LEN <= CACHE_LINE || offset == 63,
                    "{offset}"
                );
                let found = core::hint::black_box(&mut lines);
                let expected = if done { [0xe8, 1, 2, 3, 4] } else { [0xe8; JUMP_LEN] };
                assert_eq!(found.0[offset..][..JUMP_LEN], expected, "at {offset}");
                assert_eq!(found.0[offset + JUMP_LEN], 0xe8);
            }
        }
    }
}
