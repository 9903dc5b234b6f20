//! Noise: random system calls with random arguments must never panic, never
//! make a call outside the gate (the machine asserts it) and never change a
//! file.

mod machine;

use machine::{Copy, FileSystem, TempDir};
use runahead_emulate::{Inherited, Kind, Outcome, table::TABLE};
use std::collections::BTreeMap;

/// xorshift64*: the same noise in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// A call's argument: mostly something that means something.
fn argument(noise: &mut Noise, pointers: &[usize]) -> usize {
    match noise.below(12) {
        0 => 0,
        1..=3 => noise.below(8),
        4..=7 => pointers[noise.below(pointers.len())],
        8 => libc::AT_FDCWD as usize,
        9 => 1 << noise.below(64),
        10 => noise.below(100_000),
        _ => noise.next() as usize,
    }
}

fn run(seed: u64, fs: FileSystem, calls: usize) -> BTreeMap<String, usize> {
    let dir = TempDir::new("fuzz");
    let file = dir.file("file", 50_000);
    std::fs::create_dir(dir.0.join("directory")).unwrap();
    let mut noise = Noise(seed);
    let mut ends = BTreeMap::new();
    let mut memory: Vec<u64> = (0..4096).map(|_| noise.next() & 0x0000_ffff_0000_ffff).collect();
    let mut left = calls;
    while left > 0 {
        let mut copy = Copy::new();
        copy.machine.fs = fs;
        copy.machine.cold = true;
        copy.machine.pretend_memory = true;
        let mut pointers = vec![copy.machine.own(&mut memory)];
        pointers.push(pointers[0] + 8 * 4000);
        for path in ["file", "directory", "new", "directory/new", "directory/.."] {
            pointers.push(copy.path(dir.0.join(path)));
        }
        for fd in 0..3 {
            copy.open(&file, [libc::O_RDONLY, libc::O_RDWR, libc::O_WRONLY][fd]);
        }
        let other = Inherited {
            kind: Kind::Other,
            dev: 1,
            ino: noise.next(),
            offset: noise.next(),
            size: noise.next(),
            mode: 0,
            status_flags: noise.next() as u32,
            cloexec: false,
        };
        copy.emulator.inherit(5, other);
        copy.emulator.inherit(noise.next() as i32, other);
        while left > 0 {
            left -= 1;
            let number = match noise.below(10) {
                0 => noise.below(600),
                1..=3 => noise.below(20),
                _ => TABLE[noise.below(TABLE.len())].number,
            };
            // A mapping of wild address and a sleep for ever are the
            // kernel's to refuse; getrandom of gigabytes only takes long.
            let args = [(); 6].map(|()| argument(&mut noise, &pointers));
            match copy.outcome(number, &args) {
                Outcome::Return(_) => {}
                Outcome::Park(reason) => {
                    *ends.entry(format!("{reason:?}")).or_insert(0) += 1;
                    // Some go on after what would have ended them, to see
                    // that the state holds.
                    if noise.below(4) == 0 {
                        break;
                    }
                }
            }
        }
        // What garbage may do to the log must not matter.
        copy.log.consumed.store(noise.next(), std::sync::atomic::Ordering::Relaxed);
    }
    let names: Vec<_> =
        std::fs::read_dir(&dir.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(std::fs::read(&file).unwrap(), machine::contents(50_000));
    ends
}

#[test]
fn noise_does_no_harm() {
    for (seed, fs) in
        [(1, FileSystem::NoWait), (2, FileSystem::Cachestat), (3, FileSystem::Foreign)]
    {
        let ends = run(seed, fs, 20_000);
        // The noise reaches far: most kinds of ends are seen.
        assert!(ends.len() >= 8, "{ends:?}");
    }
}
