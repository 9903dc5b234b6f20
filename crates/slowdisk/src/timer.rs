//! Replies from a thread of their own, when their time has come: for a file
//! system whose requests come in on threads that it does not own.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::engine::{Engine, Outlook, monotonic_ns, timespec};
use crate::error::{Context, Result};
use crate::model::{Completion, Request};

/// What is done when a request's time has come.
pub trait Finish: Send + 'static {
    /// Sends the reply.
    fn finish(self);
}

/// A model whose replies go out by themselves.
#[derive(Debug)]
pub struct Timer<P> {
    engine: Arc<Engine<P>>,
    timer: OwnedFd,
    /// When the timer is set to fire; `u64::MAX` when it is not.
    armed_ns: Mutex<u64>,
}

impl<P: Finish> Timer<P> {
    /// Starts the timer thread for a model.
    ///
    /// # Errors
    /// If the timer or the thread cannot be made.
    pub fn start(engine: Arc<Engine<P>>) -> Result<Arc<Self>> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .context(|| "create a timer".into())?;
        let this = Arc::new(Self { engine, timer, armed_ns: Mutex::new(u64::MAX) });
        let background = Arc::clone(&this);
        std::thread::Builder::new()
            .name("slowdisk-timer".into())
            .spawn(move || background.run())
            .context(|| "start the timer thread".into())?;
        Ok(this)
    }

    /// Takes a request; `payload.finish()` is called when it is complete,
    /// from this thread or the timer's.
    pub fn submit(&self, request: Request, payload: P) {
        let mut done = Vec::new();
        let outlook = self.engine.submit(monotonic_ns(), request, payload, &mut done);
        self.arm(outlook);
        finish_all(&mut done);
    }

    /// Sets the timer to the model's next event, unless it fires by then anyway.
    fn arm(&self, outlook: Outlook) {
        let Some(at_ns) = outlook.next_ns else { return };
        let mut armed_ns = self.armed_ns.lock();
        if at_ns >= *armed_ns {
            return;
        }
        *armed_ns = at_ns;
        let setting = Itimerspec { it_interval: timespec(0), it_value: timespec(at_ns) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)
            .expect("a valid timer takes a valid time");
    }

    fn run(&self) {
        let mut done = Vec::new();
        let mut expirations = [0; 8];
        loop {
            // Interrupted reads and spurious expirations look at the clock, no more.
            let _ = rustix::io::read(&self.timer, &mut expirations);
            // First, so that a request which comes from here on arms it again.
            *self.armed_ns.lock() = u64::MAX;
            let outlook = self.engine.advance(0, &mut done);
            self.arm(outlook);
            finish_all(&mut done);
        }
    }
}

fn finish_all<P: Finish>(done: &mut Vec<Completion<P>>) {
    for completion in done.drain(..) {
        completion.payload.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::control::Switches;
    use crate::model::Array;
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
        let engine = Arc::new(Engine::new(Array::new(&profile, 1 << 30, 1), Switches::default()));
        let timer = Timer::start(Arc::clone(&engine)).unwrap();
        let (sender, receiver) = channel();
        let begin = Instant::now();
        for id in 0..100 {
            timer.submit(read(id * 4096), Tell(sender.clone(), id));
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
        let engine = Arc::new(Engine::new(Array::new(&profile, 1 << 30, 1), switches));
        let timer = Timer::start(engine).unwrap();
        let (sender, receiver) = channel();
        timer.submit(read(0), Tell(sender, 7));
        assert_eq!(receiver.try_recv().unwrap().0, 7, "answered within submit");
    }
}
