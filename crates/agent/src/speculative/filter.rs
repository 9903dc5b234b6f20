//! The seccomp filter of a speculative process (seccomp(2), classic BPF).
//!
//! Default: trap into the emulator. Only calls from the agent's one gate are
//! let through, and of those only the numbers, with the scalar arguments,
//! that the emulator needs ([`GATE`]): so jumping into the gate wins nothing.
//! It is a sandbox for correctness, against code that computes on garbage.

use super::{Own, imports, readers};
use crate::arch::{AUDIT_ARCH, X32_BIT, gate_address, import_nr, nr};
use crate::import::desk;
use crate::sys::call;
use core::cell::UnsafeCell;
use core::ptr::from_ref;
use runahead_emulate::gate::{Check, GATE, GateRule};

const SECCOMP_SET_MODE_FILTER: usize = 1;
/// Speculative store bypass stays enabled: the mitigation costs up to 30% of
/// compute and there is no secret to keep from oneself.
const SECCOMP_FILTER_FLAG_SPEC_ALLOW: usize = 4;
const FUTEX_WAKE: u64 = 1;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_TRAP: u32 = 0x0003_0000;

const LD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const AT_NUMBER: u32 = 0;
const AT_ARCH: u32 = 4;
const AT_POINTER: u32 = 8;
const AT_ARGS: u32 = 16;

/// Instructions that there is room for (the kernel allows 4096).
const PROGRAM_MAX: usize = 512;

/// What the agent itself calls in a speculative process: its end, its clock,
/// its memory's counters, and its waits for the normal process.
const OWN: &[GateRule] = &[
    GateRule { number: nr::CLOCK_GETTIME, checks: &[] },
    GateRule { number: nr::NANOSLEEP, checks: &[] },
    // Of what it has opened itself, as preadv2 may: the cgroup's counters.
    GateRule { number: nr::READ, checks: &[] },
    // FUTEX_WAIT only: a wake would be felt outside.
    GateRule { number: nr::FUTEX, checks: &[Check { argument: 1, mask: 0xffff_ffff, value: 0 }] },
    // Of its own process only.
    GateRule {
        number: nr::SCHED_SETAFFINITY,
        checks: &[Check { argument: 0, mask: 0xffff_ffff, value: 0 }],
    },
    GateRule { number: nr::EXIT_GROUP, checks: &[] },
    // The end of a thread that reads directories.
    GateRule { number: nr::EXIT, checks: &[] },
    // Filling in missing pages of its own.
    GateRule { number: import_nr::IOCTL, checks: &[imports::COPY] },
    GateRule { number: import_nr::IOCTL, checks: &[imports::ZEROPAGE] },
];

/// `struct sock_filter`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    len: u16,
    instructions: *const Instruction,
}

struct Assembler {
    instructions: [Instruction; PROGRAM_MAX],
    len: usize,
    fits: bool,
}

static ASSEMBLER: Own<Assembler> = Own(UnsafeCell::new(Assembler {
    instructions: [Instruction { code: 0, if_true: 0, if_false: 0, value: 0 }; PROGRAM_MAX],
    len: 0,
    fits: true,
}));

impl Assembler {
    fn emit(&mut self, code: u16, if_true: u8, if_false: u8, value: u32) {
        match self.instructions.get_mut(self.len) {
            Some(slot) => *slot = Instruction { code, if_true, if_false, value },
            None => self.fits = false,
        }
        self.len += 1;
    }

    /// The whole filter, for a gate at `gate`.
    fn assemble(&mut self, gate: u64, scout: bool) {
        self.emit(LD_WORD, 0, 0, AT_ARCH);
        self.emit(JUMP_EQUAL, 1, 0, AUDIT_ARCH);
        self.emit(RETURN, 0, 0, RET_TRAP);
        self.emit(LD_WORD, 0, 0, AT_POINTER);
        self.emit(JUMP_EQUAL, 0, 2, gate as u32);
        self.emit(LD_WORD, 0, 0, AT_POINTER + 4);
        self.emit(JUMP_EQUAL, 4, 0, (gate >> 32) as u32);
        // Not from the gate: the restorer's return, else a trap.
        self.emit(LD_WORD, 0, 0, AT_NUMBER);
        self.emit(JUMP_EQUAL, 1, 0, 15);
        self.emit(RETURN, 0, 0, RET_TRAP);
        self.emit(RETURN, 0, 0, RET_ALLOW);
        // From the gate.
        self.emit(LD_WORD, 0, 0, AT_NUMBER);
        self.emit(JUMP_AT_LEAST, 0, 1, X32_BIT);
        self.emit(RETURN, 0, 0, RET_TRAP);
        for rule in OWN.iter().chain(GATE) {
            self.rule(rule);
        }
        if scout {
            // Its argument no filter can look at: only where no code but the
            // agent's runs.
            self.rule_of(nr::OPENAT2, &[]);
        }
        // Readers are made, and no other threads.
        self.rule_of(nr::CLONE, &readers::clone_checks());
        // Readers and the aide are woken, nobody else.
        readers::wake_words().into_iter().for_each(|word| self.wake(word));
        if let Some(desk) = desk() {
            self.wake(desk.asked.as_ptr() as u64);
        }
        self.emit(RETURN, 0, 0, RET_TRAP);
    }

    /// Lets a wake of who waits on one word through.
    fn wake(&mut self, word: u64) {
        self.rule_of(
            nr::FUTEX,
            &[
                Check { argument: 0, mask: !0, value: word },
                Check { argument: 1, mask: 0xffff_ffff, value: FUTEX_WAKE },
            ],
        );
    }

    /// `if number == rule && every check holds { allow }`; expects the number
    /// in the accumulator and leaves it there.
    fn rule(&mut self, rule: &GateRule) {
        self.rule_of(rule.number, rule.checks);
    }

    fn rule_of(&mut self, number: usize, checks: &[Check]) {
        let tests = || checks.iter().flat_map(halves);
        let count = tests().count();
        // Each test is three instructions; then the allowance, and the number
        // again for the next rule.
        self.emit(JUMP_EQUAL, 0, (count * 3 + 1) as u8, number as u32);
        for (index, half) in tests().enumerate() {
            let left = count - index - 1;
            self.emit(LD_WORD, 0, 0, half.at);
            self.emit(AND, 0, 0, half.mask);
            self.emit(JUMP_EQUAL, 0, (left * 3 + 1) as u8, half.value);
        }
        self.emit(RETURN, 0, 0, RET_ALLOW);
        if count > 0 {
            self.emit(LD_WORD, 0, 0, AT_NUMBER);
        }
    }
}

/// One half of a check: the filter computes in 32 bits.
struct Half {
    at: u32,
    mask: u32,
    value: u32,
}

/// The halves of a check that look at anything.
fn halves(check: &Check) -> impl Iterator<Item = Half> {
    let at = AT_ARGS + 8 * u32::from(check.argument);
    let low = Half { at, mask: check.mask as u32, value: check.value as u32 };
    let high =
        Half { at: at + 4, mask: (check.mask >> 32) as u32, value: (check.value >> 32) as u32 };
    [low, high].into_iter().filter(|half| half.mask != 0)
}

/// Puts this process under the filter, that of a scout or of a copy; false
/// where it is refused.
pub fn install(scout: bool) -> bool {
    // SAFETY: one thread, before the program runs.
    let assembler = unsafe { &mut *ASSEMBLER.0.get() };
    assembler.assemble(gate_address() as u64, scout);
    if !assembler.fits {
        return false;
    }
    let program =
        Program { len: assembler.len as u16, instructions: assembler.instructions.as_ptr() };
    let at = from_ref(&program) as usize;
    // Without the flag where it is refused: Linux before 4.17, a container's
    // filter. Slower code is no reason not to run ahead.
    [SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0].into_iter().any(|flags| {
        // SAFETY: the kernel reads the program; it holds for this process only.
        (unsafe { call(nr::SECCOMP, &[SECCOMP_SET_MODE_FILTER, flags, at]) }) == 0
    })
}
