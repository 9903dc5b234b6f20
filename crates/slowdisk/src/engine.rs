//! Runs the model against the clock: requests go in as they come, replies come
//! out when the model says so. Who waits, and how, is the caller's business.

use parking_lot::Mutex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::control::{Snapshot, Switches};
use crate::model::{Array, Completion, Histogram, Request};

/// The model and the clock.
#[derive(Debug)]
pub struct Engine<P> {
    core: Mutex<Core<P>>,
    /// CLOCK_MONOTONIC at the model's time 0.
    epoch_ns: u64,
}

#[derive(Debug)]
struct Core<P> {
    array: Array<P>,
    switches: Switches,
    /// How late replies went out against the model.
    late: Histogram,
    reset_ns: u64,
    reset_cpu_ns: u64,
}

/// What the model waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// When it wants to be looked at again, CLOCK_MONOTONIC; never, if nothing
    /// is in service.
    pub next_ns: Option<u64>,
    /// Requests that are not complete.
    pub in_flight: usize,
}

impl<P> Engine<P> {
    /// A model that starts now.
    pub fn new(array: Array<P>, switches: Switches) -> Self {
        let core = Core {
            array,
            switches,
            late: Histogram::default(),
            reset_ns: 0,
            reset_cpu_ns: process_cpu_ns(),
        };
        Self { core: Mutex::new(core), epoch_ns: monotonic_ns() }
    }

    /// Takes a request that came at `came_ns` (CLOCK_MONOTONIC, not after
    /// now). What is complete by then is appended to `done`: this one too where
    /// it takes no time.
    pub fn submit(
        &self,
        came_ns: u64,
        request: Request,
        payload: P,
        done: &mut Vec<Completion<P>>,
    ) -> Outlook {
        let mut core = self.core.lock();
        let now_ns = self.now_ns();
        if core.switches.paused || (request.write && core.switches.free_writes) {
            core.array.count_untimed();
            done.push(Completion { payload, finished_ns: now_ns });
        } else {
            let first = done.len();
            let came_ns = came_ns.saturating_sub(self.epoch_ns);
            core.array.submit(came_ns, request, payload, done);
            core.note_late(now_ns, &done[first..]);
        }
        self.outlook(&core)
    }

    /// Appends what is complete in `lead_ns` from now to `done`.
    pub fn advance(&self, lead_ns: u64, done: &mut Vec<Completion<P>>) -> Outlook {
        let mut core = self.core.lock();
        let (now_ns, first) = (self.now_ns(), done.len());
        core.array.advance_early(now_ns, lead_ns, done);
        core.note_late(now_ns, &done[first..]);
        self.outlook(&core)
    }

    /// Switches timing off or on; what is in flight keeps its time.
    pub fn set_paused(&self, paused: bool) {
        self.core.lock().switches.paused = paused;
    }

    /// Sets the counters to zero.
    pub fn reset_stats(&self) {
        let mut core = self.core.lock();
        core.array.reset_stats();
        core.late = Histogram::default();
        core.reset_ns = self.now_ns();
        core.reset_cpu_ns = process_cpu_ns();
    }

    /// The counters since the last reset.
    pub fn snapshot(&self) -> Snapshot {
        let core = self.core.lock();
        Snapshot {
            elapsed_ns: self.now_ns() - core.reset_ns,
            cpu_ns: process_cpu_ns() - core.reset_cpu_ns,
            paused: core.switches.paused,
            in_flight: core.array.in_flight() as u64,
            late: core.late.clone(),
            device: core.array.stats().clone(),
        }
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns() - self.epoch_ns
    }

    fn outlook(&self, core: &Core<P>) -> Outlook {
        let next_ns = core.array.next_event_ns().map(|at_ns| self.epoch_ns + at_ns);
        Outlook { next_ns, in_flight: core.array.in_flight() }
    }
}

impl<P> Core<P> {
    fn note_late(&mut self, now_ns: u64, done: &[Completion<P>]) {
        for completion in done {
            self.late.record(now_ns.saturating_sub(completion.finished_ns));
        }
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CLOCK_MONOTONIC, nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// So many nanoseconds, as the kernel takes them.
pub fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// CPU time of this process, all threads, user and kernel.
fn process_cpu_ns() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn engine(profile: &str, switches: Switches) -> Engine<u64> {
        let profile = Profile::by_name(profile).unwrap();
        Engine::new(Array::new(&profile, 1 << 30, 1), switches)
    }

    fn read(offset: u64) -> Request {
        Request { offset, len: 4096, write: false }
    }

    #[test]
    fn the_outlook_names_the_next_completion() {
        let engine = engine("cloud", Switches::default());
        let mut done = Vec::new();
        let before_ns = monotonic_ns();
        let first = engine.submit(before_ns, read(0), 1, &mut done);
        let least_ns = Profile::by_name("cloud").unwrap().mean_random_ns(4096);
        assert_eq!(first.next_ns, Some(before_ns + least_ns));
        let second = engine.submit(before_ns + 5, read(4096), 2, &mut done);
        assert_eq!(second, Outlook { next_ns: first.next_ns, in_flight: 2 });
        let second_ns = before_ns + 5 + least_ns;
        while engine.advance(0, &mut done).in_flight > 0 {}
        assert!(monotonic_ns() >= second_ns);
        assert!(done.iter().map(|completion| completion.payload).eq([1, 2]));
        assert_eq!(engine.advance(0, &mut done), Outlook { next_ns: None, in_flight: 0 });
        assert_eq!(engine.snapshot().late.count(), 2);
    }

    #[test]
    fn a_lead_completes_what_is_due_within_it() {
        let engine = engine("cloud", Switches::default());
        let mut done = Vec::new();
        let came_ns = monotonic_ns();
        let due_ns = engine.submit(came_ns, read(0), 1, &mut done).next_ns.unwrap();
        assert_eq!(engine.advance(due_ns - came_ns, &mut done).in_flight, 0);
        assert_eq!((done.len(), engine.snapshot().late.count()), (1, 1));
    }

    #[test]
    fn paused_requests_are_complete_at_once() {
        let engine = engine("hdd", Switches { paused: true, free_writes: false });
        let mut done = Vec::new();
        engine.submit(monotonic_ns(), read(0), 7, &mut done);
        assert_eq!(done[0].payload, 7);
        let snapshot = engine.snapshot();
        assert_eq!((snapshot.device.untimed, snapshot.device.reads), (1, 0));
        assert_eq!(snapshot.late.count(), 0);
    }
}
