//! The emulator's state machine: any sequence of system calls, over the
//! machine of its own tests, which asserts that nothing but the gate's calls
//! reaches the kernel. No file changes.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use runahead_emulate::table::TABLE;
use runahead_emulate::{Inherited, Kind, Outcome, arch::nr};
use std::cell::RefCell;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

#[path = "../../../../crates/emulate/tests/machine/mod.rs"]
#[allow(dead_code, clippy::undocumented_unsafe_blocks)]
mod machine;
use machine::{Copy, FileSystem, TempDir};

/// Calls of one sequence.
const CALLS_MAX: usize = 200;

#[derive(Arbitrary, Debug)]
enum Argument {
    Small(u8),
    /// Into the program's memory, with a displacement.
    Memory(u16),
    Path(u8),
    Here,
    Bit(u8),
    Wild(u64),
}

#[derive(Arbitrary, Debug)]
struct Call {
    /// Of the table, or any.
    index: u16,
    any: bool,
    args: [Argument; 6],
    /// What the other side says meanwhile.
    consumed: Option<u64>,
}

#[derive(Arbitrary, Debug)]
struct Input {
    fs: u8,
    cold: bool,
    memory: Vec<u32>,
    inherited: [(i32, u8, u64, u32); 3],
    calls: Vec<Call>,
}

const NAMES: [&str; 5] = ["file", "directory", "new", "directory/new", "directory/.."];
const FILE_LEN: usize = 50_000;

struct World {
    dir: TempDir,
    memory: Vec<u64>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn world() -> World {
    let dir = TempDir::new("coverage");
    dir.file("file", FILE_LEN);
    std::fs::create_dir(dir.0.join("directory")).unwrap();
    World { dir, memory: vec![0; 4096] }
}

fuzz_target!(|input: Input| {
    WORLD.with_borrow_mut(|slot| {
        let world = slot.get_or_insert_with(world);
        let mut copy = Copy::new();
        copy.machine.fs = match input.fs % 3 {
            0 => FileSystem::NoWait,
            1 => FileSystem::Cachestat,
            _ => FileSystem::Foreign,
        };
        copy.machine.cold = input.cold;
        copy.machine.pretend_memory = true;
        let path = |name| CString::new(world.dir.0.join(name).as_os_str().as_bytes()).unwrap();
        let mut texts = NAMES.map(|name| path(name).into_bytes_with_nul());
        let paths = texts.each_mut().map(|text| copy.machine.own(text));
        for (cell, value) in world.memory.iter_mut().zip(input.memory.iter().cycle()) {
            *cell = u64::from(*value);
        }
        let memory = copy.machine.own(&mut world.memory);
        for flags in [libc::O_RDONLY, libc::O_RDWR, libc::O_WRONLY] {
            copy.call(nr::OPENAT, &[libc::AT_FDCWD as usize, paths[0], flags as usize]);
        }
        for (fd, kind, number, flags) in input.inherited {
            let kind = if kind % 2 == 0 { Kind::Other } else { Kind::Regular };
            let (offset, size) = (number.rotate_left(7), number.rotate_left(31));
            let inherited = Inherited {
                kind,
                dev: 1,
                ino: number,
                offset,
                size,
                mode: flags,
                status_flags: flags,
                cloexec: flags & 1 != 0,
            };
            copy.emulator.inherit(fd, inherited);
        }
        for call in input.calls.iter().take(CALLS_MAX) {
            let index = usize::from(call.index);
            let number = if call.any { index % 600 } else { TABLE[index % TABLE.len()].number };
            let args = [0, 1, 2, 3, 4, 5].map(|at: usize| match call.args[at] {
                Argument::Small(value) => usize::from(value),
                Argument::Memory(at) => memory + usize::from(at) % (4096 * 8),
                Argument::Path(index) => paths[usize::from(index) % paths.len()],
                Argument::Here => libc::AT_FDCWD as usize,
                Argument::Bit(bit) => 1 << (bit % 64),
                Argument::Wild(value) => value as usize,
            });
            if let Some(consumed) = call.consumed {
                copy.log.consumed.store(consumed, Ordering::Relaxed);
            }
            match copy.outcome(number, &args) {
                Outcome::Return(_) | Outcome::Park(_) => {}
            }
        }
        drop(copy);
        let names = std::fs::read_dir(&world.dir.0).unwrap().count();
        assert_eq!(names, 2, "something was made or removed");
        let metadata = std::fs::metadata(world.dir.0.join("file")).unwrap();
        assert_eq!(metadata.len(), FILE_LEN as u64);
    });
});
