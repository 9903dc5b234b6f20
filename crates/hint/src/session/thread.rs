//! The thread that serves a session for as long as the process lives: it takes what the program
//! put in, does what the manager decides, and sleeps where there is no news.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use runahead_manager::actor::{self, Actor};
use runahead_manager::memory::Memory;

use super::server::Server;
use super::{Session, locked};
use crate::backend::{Backend, HintMode};
use crate::environment::Environment;
use crate::observe::Observer;
use crate::sharers::Sharers;
use crate::signals::BlockedSignals;

/// How long the thread sleeps where hints are outstanding and something happens.
pub(super) const BUSY_SLEEP: Duration = Duration::from_millis(1);
/// The same where nothing happened lately; whoever has news wakes it.
const CALM_SLEEP: Duration = Duration::from_millis(50);
/// Looks at a program that reads nothing after which they become rare.
const LOOKS_BUSY: u32 = 100;
/// Between two looks at the memory.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

impl Session {
    /// Starts the thread that serves it, for as long as the process lives.
    pub(crate) fn start(&'static self, environment: Environment) {
        // A signal of the program's must not be handled in a thread that it does not know.
        let blocked = BlockedSignals::all();
        let spawned = std::thread::Builder::new()
            .name("runahead".into())
            .stack_size(512 << 10)
            .spawn(move || {
                let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    self.serve(environment);
                }));
                // Whatever ended it: from now on hints are taken and forgotten.
                self.forget();
                drop(served);
            });
        drop(blocked);
        match spawned {
            Ok(handle) => {
                let _ = self.thread.set(handle.thread().clone());
                handle.thread().unpark();
            }
            Err(_) => self.forget(),
        }
    }

    /// The manager's thread.
    fn serve(&self, environment: Environment) {
        let mode = environment.mode;
        if actor::own_descriptor_table().is_err() {
            return;
        }
        actor::ask_for_short_turns();
        let mut memory = Memory::of_self();
        let mut observer = Observer::new(self.observed_pid.unwrap_or_else(std::process::id));
        // What is read while a manager is found counts, too.
        observer.bytes(0);
        let domain = memory.domain();
        let mut sharers = Sharers::register(&domain);
        let socket = environment.socket.path();
        let opened = Backend::open(socket.as_deref(), mode, &domain, &mut memory, sharers.count());
        let Some(mut backend) = opened else { return };
        // The machine's manager has the whole memory for all of its clients.
        let mut sharers = backend.is_embedded().then_some(sharers);
        let mut server = Server::new(Actor::new(environment.disks));
        let mut memory_at = Instant::now();
        let mut looks_in_vain = 0_u32;
        loop {
            self.awake.store(true, Ordering::Release);
            let mut news = server.take(self, &mut backend);
            let outstanding = self.outstanding() > 0;
            if outstanding && !self.explicit.load(Ordering::Acquire) && mode != HintMode::NoHints {
                let own = if self.observed_pid.is_none() { memory.bytes_read } else { 0 };
                let bytes = observer.bytes(own);
                self.looks.fetch_add(1, Ordering::Relaxed);
                looks_in_vain = looks_in_vain.saturating_add(1);
                // Looked at again: the bytes may be of the first read that is noted.
                if bytes > 0 && !self.explicit.load(Ordering::SeqCst) {
                    news |= server.observe(bytes, &mut backend);
                }
            } else {
                observer.skip();
                server.observed = 0;
            }
            if outstanding && memory_at.elapsed() >= MEMORY_EVERY {
                memory_at = Instant::now();
                let in_use = backend.bytes_in_use();
                let sharers = sharers.as_mut().map_or(1, Sharers::count);
                backend.set_buffers(memory.buffers(in_use, sharers));
            }
            news |= server.act(self, &mut backend);
            if !backend.is_alive() {
                return;
            }
            *locked(&self.stats) = backend.stats();
            let observing = outstanding && !self.explicit.load(Ordering::Acquire);
            if news {
                looks_in_vain = 0;
                continue;
            }
            let active = outstanding || server.hints.is_busy();
            match (active, observing) {
                (false, _) if server.actor.is_lingering() => self.sleep(actor::LINGER),
                (true, true) if looks_in_vain < LOOKS_BUSY => {
                    std::thread::park_timeout(2 * BUSY_SLEEP);
                }
                (true, false) if locked(&self.inbox).reads > 0 => {
                    std::thread::park_timeout(BUSY_SLEEP);
                }
                _ => self.sleep(if active { CALM_SLEEP } else { Duration::from_secs(3600) }),
            }
        }
    }

    /// Sleeps until somebody has news.
    fn sleep(&self, longest: Duration) {
        self.awake.store(false, Ordering::Release);
        // What came before the store did not wake us.
        if locked(&self.inbox).events.is_empty() {
            std::thread::park_timeout(longest);
        }
    }
}
