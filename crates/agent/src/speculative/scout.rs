//! A scout ([`runahead_emulate::scout`]): a child that runs nothing of the
//! program and reads directories ahead of it. It takes from itself what a copy
//! does, shares nothing with the program but the log, and keeps all signals
//! blocked: whatever goes wrong in it ends it.

use super::kernel::Inside;
use super::{exit, park, prologue, readers, stack_top};
use crate::arch::on_stack;
use crate::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use runahead_emulate::scout::Scout;
use runahead_emulate::trial::{Next, Trial};
use runahead_protocol::log::{Directories, Log, life};
use runahead_protocol::stats::Park;

/// Time between two looks at what the program has come to, in ns, where it
/// does not say so because it did not wait.
const LOOK_NS: u64 = 1_000_000;

/// Time without a directory after which the scout ends, in ns: the program does
/// something else.
const QUIET_NS: u64 = 300_000_000;

/// Waits of this length, in ns, and longer ones: the scout keeps the program's
/// priority.
///
/// Whoever reads a directory holds its lock until the device has answered and
/// the reader has been given a processor, and the program's next creation of a
/// file there waits for that. At idle priority beside busy processors it waited
/// up to 150 ms, and walks took up to four times as long as plain. Where waits
/// are shorter, 32 readers take what a processor has, and would take it from
/// the program (`du` on flash: 1.4 times as long as plain).
const SHARES_TIME_NS: u64 = 400_000;

/// Whether a scout made after waits of `usual_ns` keeps the program's priority.
pub fn shares_time(usual_ns: u64) -> bool {
    usual_ns >= SHARES_TIME_NS
}

/// In the child of the clone: becomes the scout.
pub fn begin(log: &'static Log) -> ! {
    // SAFETY: the stack of the emulator, which no scout uses.
    unsafe { on_stack(stack_top(), on_own_stack, core::ptr::from_ref(log) as usize) };
    exit()
}

extern "C" fn on_own_stack(log: usize) -> isize {
    // SAFETY: `begin` passes a log that stays mapped.
    let log = unsafe { &*(log as *const Log) };
    // Before the filter, which does not let it through.
    let fsuid = sys::file_system_user();
    prologue::run_scout(log, shares_time(log.directories.usual_ns.load(Relaxed)));
    log.life.store(life::RUNNING, Release);
    serve(log, Scout::new(fsuid, log.depth.load(Relaxed)))
}

fn serve(log: &'static Log, mut scout: Scout) -> ! {
    let directories = &log.directories;
    let mut trial = Trial::new(directories.usual_ns.load(Relaxed));
    let (mut seen, mut since_ns) = (0, sys::now_ns());
    loop {
        let word = directories.word.load(Acquire);
        let tail = directories.tail.load(Acquire);
        let now_ns = sys::now_ns();
        if seen != tail {
            since_ns = now_ns;
        }
        for number in Directories::kept(seen, tail) {
            let (directory, mut path) = (directories.get(number), directories.path(number));
            let Some(directory) = directory else { continue };
            let path = path.as_mut().filter(|_| !trial.leaves());
            let path = path.map(|path| path.as_mut_slice());
            let came = scout.came_to(&mut Inside { log }, &directory, path);
            trial.came(came, directory.ino, directory.waited_ns);
        }
        seen = tail;
        let next = trial.follows();
        directories.used.store(trial.used(), Relaxed);
        log.prefetches.store(readers::ahead(), Relaxed);
        if readers::is_in_memory() {
            park(Park::Disabled, -1);
        }
        match next {
            Next::Forget => readers::forget(),
            Next::End(reason) => park(reason, -1),
            Next::On if now_ns.saturating_sub(since_ns) >= QUIET_NS => park(Park::OffTrack, -1),
            Next::On => {}
        }
        sys::futex_wait(&directories.word, word, LOOK_NS);
    }
}
