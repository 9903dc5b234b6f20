//! Who decides: an engine in this process, or the manager of the machine.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use runahead_manager::engine::Report;
use runahead_manager::memory::Memory;
use runahead_manager::wire::{Connection, FromClient, READ_BYTES_MAX};
use runahead_manager::{
    Action, BLOCK_BYTES, ClientId, Engine, FileInfo, Mode, Options, ReadNote, Segment, Stats, wire,
};

/// What use is made of hints; `RUNAHEAD_HINT` in the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintMode {
    /// `full`: prefetching and caching.
    #[default]
    Full,
    /// `prefetch`: no caching.
    PrefetchOnly,
    /// `nohints`: the manager runs and takes no notice of hints.
    NoHints,
}

/// The one client of an embedded engine.
const SELF: ClientId = ClientId(0);

#[derive(Debug)]
pub(crate) enum Backend {
    Embedded(Box<Engine>),
    /// With what it has had this process do.
    Remote(Connection, Stats),
}

impl Backend {
    /// The machine's manager where one listens that takes us, else one of our own.
    pub(crate) fn open(
        socket: Option<&Path>,
        mode: HintMode,
        domain: &str,
        memory: &mut Memory,
        sharers: u64,
    ) -> Option<Self> {
        let options = Options {
            mode: engine_mode(mode),
            buffers: 0,
            t_hit_us: t_hit_us(memory),
            ..Options::default()
        };
        if let Some(path) = socket
            && let Ok(connection) = Connection::open(path, domain, &options)
        {
            let mut remote = Self::Remote(connection, Stats::default());
            remote.set_buffers(memory.buffers(0, 1));
            return Some(remote);
        }
        let mut engine = Box::new(Engine::new(options));
        engine.set_buffers(memory.buffers(0, sharers));
        engine.connect(SELF);
        Some(Self::Embedded(engine))
    }

    /// Whether this process alone decides, for itself.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded(_))
    }

    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Remote(connection, _) => connection.is_alive(),
        }
    }

    pub(crate) fn file(&mut self, number: u32, info: &FileInfo) {
        match self {
            Self::Embedded(engine) => engine.file(SELF, number, info),
            Self::Remote(connection, _) => connection.send(&FromClient::File(number, info.clone())),
        }
    }

    pub(crate) fn disclose(&mut self, segments: &[Segment]) {
        match self {
            Self::Embedded(engine) => engine.disclose(SELF, segments),
            Self::Remote(connection, _) => connection.disclose(segments),
        }
    }

    pub(crate) fn cancel(&mut self, segments: u32) {
        match self {
            Self::Embedded(engine) => engine.cancel(SELF, segments),
            Self::Remote(connection, _) => connection.send(&FromClient::Cancel(segments)),
        }
    }

    pub(crate) fn read(&mut self, notes: &[ReadNote]) {
        match self {
            Self::Embedded(engine) if notes.iter().any(|note| note.length > READ_BYTES_MAX) => {
                // What is decided on the way takes memory until the end of a call.
                for piece in wire::pieces_of_reads(notes) {
                    engine.read(SELF, &piece);
                }
            }
            Self::Embedded(engine) => engine.read(SELF, notes),
            Self::Remote(connection, _) => connection.read(notes),
        }
    }

    pub(crate) fn observed(&mut self, bytes: u64) {
        match self {
            Self::Embedded(engine) => engine.observed(SELF, bytes),
            Self::Remote(connection, _) => connection.observed(bytes),
        }
    }

    pub(crate) fn done(&mut self, tag: u64, report: Report) {
        match self {
            Self::Embedded(engine) => engine.done(SELF, tag, report),
            Self::Remote(connection, stats) => {
                stats.failed += u64::from(!report.ok);
                connection.send(&FromClient::Done(tag, report));
            }
        }
    }

    pub(crate) fn set_buffers(&mut self, buffers: u32) {
        match self {
            Self::Embedded(engine) => engine.set_buffers(buffers),
            Self::Remote(connection, _) => connection.send(&FromClient::Buffers(buffers)),
        }
    }

    pub(crate) fn bytes_in_use(&self) -> u64 {
        match self {
            Self::Embedded(engine) => engine.bytes_in_use(),
            Self::Remote(..) => 0,
        }
    }

    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        match self {
            Self::Embedded(engine) => {
                engine.take_actions().into_iter().map(|(_, action)| action).collect()
            }
            Self::Remote(connection, stats) => {
                let actions = connection.take_actions();
                actions.iter().for_each(|action| count(action, stats));
                actions
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match self {
            Self::Embedded(engine) => engine.stats(),
            Self::Remote(_, stats) => *stats,
        }
    }
}

/// Counts what a manager has decided.
fn count(action: &Action, stats: &mut Stats) {
    let blocks = |length: u64| length.div_ceil(BLOCK_BYTES);
    match *action {
        Action::Prefetch { length, .. } => {
            stats.prefetches += 1;
            stats.prefetched_blocks += blocks(length);
        }
        Action::Release { length, .. } => stats.released_blocks += blocks(length),
        Action::Credit(_) => {}
    }
}

/// What mode of the engine a mode of hinting is.
fn engine_mode(mode: HintMode) -> Mode {
    match mode {
        HintMode::Full => Mode::Full,
        HintMode::PrefetchOnly => Mode::PrefetchOnly,
        HintMode::NoHints => Mode::NoHints,
    }
}

/// T_hit: reading a block that is in the cache, microseconds, rounded up (section 6.2).
fn t_hit_us(memory: &mut Memory) -> u32 {
    const READS: u32 = 16;
    let Ok(file) = File::open("/proc/self/exe") else { return 2 };
    let mut block = [0; BLOCK_BYTES as usize];
    let mut best = u64::MAX;
    for _ in 0..READS {
        let started = runahead_manager::actor::now_ns();
        let Ok(read) = file.read_at(&mut block, 0) else { return 2 };
        memory.bytes_read += read as u64;
        best = best.min(runahead_manager::actor::now_ns() - started);
    }
    u32::try_from(best.div_ceil(1000)).unwrap_or(2).max(1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;

    fn open(path: &Path) -> Backend {
        let mut memory = Memory::of_self();
        Backend::open(Some(path), HintMode::Full, "test", &mut memory, 1).unwrap()
    }

    /// The directory of a manager that does so with all clients, and its socket.
    fn manager(treat: impl Fn(UnixStream) + Send + 'static) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || listener.incoming().flatten().for_each(treat));
        (directory, path)
    }

    /// What becomes of it where a manager does so with all clients.
    fn opened(treat: impl Fn(UnixStream) + Send + 'static) -> Backend {
        open(&manager(treat).1)
    }

    /// With a manager that serves, once that has a processor to answer on, at most half a
    /// minute.
    fn served(path: &Path) -> Backend {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let backend = open(path);
            if matches!(backend, Backend::Remote(..)) {
                return backend;
            }
            assert!(Instant::now() < deadline, "{backend:?}");
        }
    }

    #[test]
    fn who_is_turned_away_has_a_manager_of_its_own() {
        let turn_away = drop;
        let mut turned_away = opened(turn_away);
        assert!(matches!(turned_away, Backend::Embedded(_)), "{turned_away:?}");
        let credit = Action::Credit(runahead_manager::engine::CREDIT);
        assert_eq!(turned_away.take_actions(), [credit]);
        // As one that has no place does: it has read what the client sent.
        let listen_and_close = |mut stream: UnixStream| {
            let _ = FromClient::receive(&mut stream);
        };
        assert!(matches!(opened(listen_and_close), Backend::Embedded(_)));
    }

    #[test]
    fn a_manager_that_says_nothing_is_done_without() {
        let kept = std::sync::Mutex::new(Vec::new());
        let keep = move |stream| kept.lock().unwrap().push(stream);
        assert!(matches!(opened(keep), Backend::Embedded(_)));
    }

    #[test]
    fn a_manager_that_takes_us_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || runahead_manager::server::serve(&listener));
        let mut backend = served(&path);
        let credit = Action::Credit(runahead_manager::engine::CREDIT);
        assert_eq!(backend.take_actions(), [credit], "what it said first is not lost");
    }

    #[test]
    fn what_a_manager_has_this_process_do_is_counted() {
        let decided = [
            Action::Credit(7),
            Action::Prefetch { tag: 1, file: 0, offset: 0, length: 3 * BLOCK_BYTES },
            Action::Prefetch { tag: 2, file: 0, offset: 1 << 20, length: BLOCK_BYTES - 1 },
            Action::Release { file: 0, offset: 0, length: 2 * BLOCK_BYTES },
        ];
        let (_directory, path) = manager(move |mut stream| {
            for action in &decided {
                if wire::send_action(&mut stream, action).is_err() {
                    return;
                }
            }
            // Until it ends.
            while let Ok(Some(_)) = FromClient::receive(&mut stream) {}
        });
        let mut backend = served(&path);
        let mut actions = 0;
        while actions < decided.len() {
            actions += backend.take_actions().len();
            std::thread::park_timeout(Duration::from_millis(1));
        }
        backend.done(1, Report { ok: true, ..Report::default() });
        backend.done(2, Report::default());
        let wanted = Stats {
            prefetches: 2,
            prefetched_blocks: 4,
            released_blocks: 2,
            failed: 1,
            ..Stats::default()
        };
        assert_eq!(backend.stats(), wanted);
    }
}
