//! Runs the model against the clock: requests come in, their replies go out
//! when the model says so. One timer serves all of them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::control::{Snapshot, Switches};
use crate::error::{Context, Result};
use crate::model::{Array, Completion, Histogram, Request};

/// What is done when a request's time has come.
pub trait Finish: Send + 'static {
    /// Sends the reply.
    fn finish(self);
}

/// The model, the clock and the timer.
#[derive(Debug)]
pub struct Engine<P> {
    core: Mutex<Core<P>>,
    timer: OwnedFd,
    /// CLOCK_MONOTONIC at the model's time 0.
    epoch_ns: u64,
}

#[derive(Debug)]
struct Core<P> {
    array: Array<P>,
    switches: Switches,
    /// When the timer is set to fire, model time; `u64::MAX` when it is not.
    armed_ns: u64,
    /// How late replies went out against the model.
    late: Histogram,
    reset_ns: u64,
    reset_cpu_ns: u64,
}

impl<P: Finish> Engine<P> {
    /// Starts the timer thread for a model.
    ///
    /// # Errors
    /// If the timer or the thread cannot be made.
    pub fn start(array: Array<P>, switches: Switches) -> Result<Arc<Self>> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .context(|| "create a timer".into())?;
        let core = Core {
            array,
            switches,
            armed_ns: u64::MAX,
            late: Histogram::default(),
            reset_ns: 0,
            reset_cpu_ns: process_cpu_ns(),
        };
        let engine = Arc::new(Self { core: Mutex::new(core), timer, epoch_ns: monotonic_ns() });
        let background = Arc::clone(&engine);
        std::thread::Builder::new()
            .name("slowdisk-timer".into())
            .spawn(move || background.run())
            .context(|| "start the timer thread".into())?;
        Ok(engine)
    }

    /// Takes a request; `payload.finish()` is called when it is complete,
    /// from this thread or the timer's.
    pub fn submit(&self, request: Request, payload: P) {
        let mut done = Vec::new();
        let mut core = self.core.lock();
        if core.switches.paused || (request.write && core.switches.free_writes) {
            core.array.count_untimed();
            drop(core);
            payload.finish();
            return;
        }
        let now_ns = self.now_ns();
        core.array.submit(now_ns, request, payload, &mut done);
        self.note_late(&mut core, now_ns, &done);
        self.arm(&mut core);
        drop(core);
        finish_all(&mut done);
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

    fn note_late(&self, core: &mut Core<P>, now_ns: u64, done: &[Completion<P>]) {
        for completion in done {
            core.late.record(now_ns.saturating_sub(completion.finished_ns));
        }
    }

    /// Sets the timer to the model's next event, unless it fires by then anyway.
    fn arm(&self, core: &mut Core<P>) {
        let Some(next_ns) = core.array.next_event_ns() else { return };
        if next_ns >= core.armed_ns {
            return;
        }
        core.armed_ns = next_ns;
        let at_ns = self.epoch_ns + next_ns;
        let at = Timespec {
            tv_sec: (at_ns / 1_000_000_000) as i64,
            tv_nsec: (at_ns % 1_000_000_000) as i64,
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)
            .expect("a valid timer takes a valid time");
    }

    fn run(&self) {
        let mut done = Vec::new();
        let mut expirations = [0; 8];
        loop {
            // Interrupted reads and spurious expirations look at the clock, no more.
            let _ = rustix::io::read(&self.timer, &mut expirations);
            let mut core = self.core.lock();
            core.armed_ns = u64::MAX;
            let now_ns = self.now_ns();
            core.array.advance(now_ns, &mut done);
            self.note_late(&mut core, now_ns, &done);
            self.arm(&mut core);
            drop(core);
            finish_all(&mut done);
        }
    }
}

fn finish_all<P: Finish>(done: &mut Vec<Completion<P>>) {
    for completion in done.drain(..) {
        completion.payload.finish();
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// CPU time of this process, all threads, user and kernel.
fn process_cpu_ns() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::profile::Profile;

    struct Tell(Sender<(u64, Instant)>, u64);

    impl Finish for Tell {
        fn finish(self) {
            self.0.send((self.1, Instant::now())).unwrap();
        }
    }

    fn read(offset: u64) -> Request {
        Request { offset, len: 4096, write: false }
    }

    #[test]
    fn replies_come_once_each_and_never_before_their_time() {
        let profile = Profile::by_name("cloud").unwrap();
        let engine = Engine::start(Array::new(&profile, 1 << 30, 1), Switches::default()).unwrap();
        let (sender, receiver) = channel();
        let begin = Instant::now();
        for id in 0..100 {
            engine.submit(read(id * 4096), Tell(sender.clone(), id));
        }
        drop(sender);
        let mut seen: Vec<_> = (0..100).map(|_| receiver.recv().unwrap()).collect();
        let least = Duration::from_nanos(profile.mean_random_ns(4096));
        assert!(seen.iter().all(|(_, at)| *at - begin >= least));
        let rounds = seen.iter().filter(|(_, at)| *at - begin >= 3 * least).count();
        assert!(rounds >= 36, "96 of 100 requests fit into three rounds of 32");
        seen.sort();
        assert!(seen.iter().map(|(id, _)| *id).eq(0..100));
        assert_eq!(engine.snapshot().device.reads, 100);
        assert_eq!(engine.snapshot().late.count(), 100);
    }

    #[test]
    fn paused_replies_need_no_timer() {
        let profile = Profile::by_name("hdd").unwrap();
        let switches = Switches { paused: true, free_writes: false };
        let engine = Engine::start(Array::new(&profile, 1 << 30, 1), switches).unwrap();
        let (sender, receiver) = channel();
        engine.submit(read(0), Tell(sender, 7));
        assert_eq!(receiver.try_recv().unwrap().0, 7, "answered within submit");
        let snapshot = engine.snapshot();
        assert_eq!((snapshot.device.untimed, snapshot.device.reads), (1, 0));
    }
}
