//! One manager for all hinting processes of a machine, behind a local socket.
//!
//! Each client has a thread that receives; one lock guards the engines, one for each user and
//! memory (cgroup). A client that ends, or sends what is no frame, is disconnected; nobody
//! waits for a client that does not take its frames: they are queued, and another thread of
//! the client's sends them.
//!
//! What a client says of a file (its size, where it lies, that it cannot be read) counts for
//! all clients of an engine, and which ranges are prefetched tells what others read. So
//! clients of different users never share one, whatever they call their memory.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{ClientId, Engine, Options};
use crate::wire::{FromClient, send_action};

/// Clients at a time.
const CLIENTS_MAX: usize = 256;
/// Those of one user, who must not keep the others out, nor take all of the memory with their
/// hints. Further ones are turned away: they have managers of their own.
const CLIENTS_PER_USER_MAX: usize = 32;
/// Memories that one user may name: an engine takes up to 100 MiB. Who is turned away for that
/// is alone in its memory, and loses nothing.
const MEMORIES_PER_USER_MAX: usize = 4;
/// What is known of one user's files, in all engines: some 200,000 of them. Further ones are
/// ignored, and their hints pass as consumed.
const FILES_BYTES_PER_USER_MAX: usize = 64 << 20;
/// How long a client may leave its frames lying about where its socket is full.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that may be queued for a client. A socket's buffer does not do: it takes some hundred
/// frames, while a client that reads much in small segments, or whose memory shrinks, is told
/// thousands of things at once.
const OUTGOING_BYTES_MAX: usize = 1 << 20;
/// Stack of a thread that sends.
const SENDER_STACK_BYTES: usize = 64 << 10;

/// How long a client may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Until the next client is accepted where that failed: descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Work for one frame after which the client's next one waits as long: so nobody who reports
/// or discloses huge things has more than half of the manager, nor keeps the lock from others.
const REST_FROM: Duration = Duration::from_millis(1);
/// Longest rest: on a busy machine it was not all work.
const REST_MAX: Duration = Duration::from_millis(100);

/// Between two looks for prefetches that nobody reports.
const TICK: Duration = Duration::from_secs(1);

/// A user, and the name that its clients give to their memory.
type Domain = (u32, String);

/// Frames on their way to a client.
struct Outgoing {
    frames: Sender<Vec<u8>>,
    queued_bytes: Arc<AtomicUsize>,
    stream: UnixStream,
}

impl Outgoing {
    /// Starts the thread that sends them.
    fn start(stream: UnixStream) -> io::Result<Self> {
        let (frames, queue) = channel::<Vec<u8>>();
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let (queued, mut sending) = (Arc::clone(&queued_bytes), stream.try_clone()?);
        std::thread::Builder::new().stack_size(SENDER_STACK_BYTES).spawn(move || {
            for frames in queue {
                if sending.write_all(&frames).is_err() {
                    // Its receiving thread ends by that, too.
                    let _ = sending.shutdown(Shutdown::Both);
                    return;
                }
                queued.fetch_sub(frames.len(), Ordering::AcqRel);
            }
        })?;
        Ok(Self { frames, queued_bytes, stream })
    }

    /// Queues frames. False where the client has gone, or left more than
    /// [`OUTGOING_BYTES_MAX`] lying about; what is decided at once may be more than that.
    fn send(&self, frames: Vec<u8>) -> bool {
        let bytes = frames.len();
        let before = self.queued_bytes.fetch_add(bytes, Ordering::AcqRel);
        let fits = before == 0 || before + bytes <= OUTGOING_BYTES_MAX;
        fits && self.frames.send(frames).is_ok()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Both of its threads end by that.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

#[derive(Default)]
struct Managers {
    engines: HashMap<Domain, Engine>,
    clients: HashMap<ClientId, (Domain, Outgoing)>,
    next: u32,
}

impl Managers {
    /// Whether a client of this memory may be served.
    fn has_room_for(&self, domain: &Domain) -> bool {
        let of_user = self.engines.keys().filter(|(user, _)| *user == domain.0).count();
        self.engines.contains_key(domain) || of_user < MEMORIES_PER_USER_MAX
    }

    /// What is known of a user's files, in bytes.
    fn files_bytes(&self, user: u32) -> usize {
        let own = self.engines.iter().filter(|((of, _), _)| *of == user);
        own.map(|(_, engine)| engine.files_bytes()).sum()
    }

    /// Sends what an engine decided to whom it concerns.
    fn deliver(&mut self, domain: &Domain) {
        loop {
            let Some(engine) = self.engines.get_mut(domain) else { return };
            let actions = engine.take_actions();
            if actions.is_empty() {
                return;
            }
            let mut frames: BTreeMap<ClientId, Vec<u8>> = BTreeMap::new();
            for (client, action) in &actions {
                // Nothing fails in memory.
                let _ = send_action(frames.entry(*client).or_default(), action);
            }
            for (client, frames) in frames {
                let known = self.clients.get(&client);
                if known.is_some_and(|(_, outgoing)| !outgoing.send(frames)) {
                    self.clients.remove(&client);
                    engine.disconnect(client);
                }
            }
        }
    }

    /// Takes a client in; false where its memory finds no room.
    fn connect(
        &mut self,
        client: ClientId,
        domain: &Domain,
        new: Outgoing,
        as_it: Options,
    ) -> bool {
        if !self.has_room_for(domain) {
            return false;
        }
        self.clients.insert(client, (domain.clone(), new));
        let engine = self.engines.entry(domain.clone()).or_insert_with(|| Engine::new(as_it));
        engine.connect(client);
        self.deliver(domain);
        true
    }

    /// Takes a client's message; how long that took, none where the client is to go.
    fn take(&mut self, client: ClientId, domain: &Domain, message: FromClient) -> Option<Duration> {
        let began = Instant::now();
        let files_fit = self.files_bytes(domain.0) < FILES_BYTES_PER_USER_MAX;
        let engine = self.engines.get_mut(domain)?;
        match message {
            FromClient::Hello { .. } => return None,
            FromClient::File(number, info) if files_fit => engine.file(client, number, &info),
            FromClient::File(..) => {}
            FromClient::Segments(segments) => engine.disclose(client, &segments),
            FromClient::Cancel(segments) => engine.cancel(client, segments),
            FromClient::Reads(notes) => engine.read(client, &notes),
            FromClient::Observed(bytes) => engine.observed(client, bytes),
            FromClient::Done(tag, report) => engine.done(client, tag, report),
            FromClient::Buffers(buffers) => engine.set_buffers(buffers),
        }
        let worked = began.elapsed();
        self.deliver(domain);
        Some(worked)
    }

    /// Gives a memory up, and all who share it: they hint no more, and run on.
    fn abandon(&mut self, domain: &Domain) {
        self.engines.remove(domain);
        self.clients.retain(|_, (of, _)| of != domain);
    }

    fn disconnect(&mut self, client: ClientId, domain: &Domain) {
        self.clients.remove(&client);
        if let Some(engine) = self.engines.get_mut(domain) {
            engine.disconnect(client);
        }
        if !self.clients.values().any(|(of, _)| of == domain) {
            // Nobody shares that memory any more.
            self.engines.remove(domain);
        } else {
            self.deliver(domain);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works with the engine of a memory. Should that panic, the engine may be left in the middle
/// of something, and would fail the next one, too: that memory is [abandoned], no other.
///
/// [abandoned]: Managers::abandon
fn contained<T>(
    managers: &mut Managers,
    domain: &Domain,
    work: impl FnOnce(&mut Managers) -> T,
) -> Option<T> {
    let worked = catch_unwind(AssertUnwindSafe(|| work(managers)));
    if worked.is_err() {
        managers.abandon(domain);
    }
    worked.ok()
}

/// Serves clients for ever.
///
/// # Errors
/// The listener's.
pub fn serve(listener: &UnixListener) -> io::Result<()> {
    let managers = Arc::new(Mutex::new(Managers::default()));
    let ticking = Arc::clone(&managers);
    std::thread::Builder::new().spawn(move || {
        loop {
            std::thread::sleep(TICK);
            let mut managers = locked(&ticking);
            let domains: Vec<Domain> = managers.engines.keys().cloned().collect();
            for domain in domains {
                let _ = contained(&mut managers, &domain, |managers| {
                    if let Some(engine) = managers.engines.get_mut(&domain) {
                        engine.tick();
                    }
                    managers.deliver(&domain);
                });
            }
        }
    })?;
    let places = Arc::new(Mutex::default());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        // Who finds none is turned away, and hints to an embedded manager of its own.
        let Ok(user) = peer(&stream) else { continue };
        let Some(place) = Place::take(&places, user) else { continue };
        let managers = Arc::clone(&managers);
        let started = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            attend(stream, user, &managers);
            drop(place);
        });
        drop(started);
    }
    Ok(())
}

/// Connections by user.
type Places = Mutex<HashMap<u32, usize>>;

/// A connection's place among [`CLIENTS_MAX`], and its user's [`CLIENTS_PER_USER_MAX`].
struct Place {
    places: Arc<Places>,
    user: u32,
}

impl Place {
    /// A place; none where they are all taken.
    fn take(places: &Arc<Places>, user: u32) -> Option<Self> {
        let mut taken = locked(places);
        let of_user = taken.get(&user).copied().unwrap_or(0);
        if of_user >= CLIENTS_PER_USER_MAX || taken.values().sum::<usize>() >= CLIENTS_MAX {
            return None;
        }
        taken.insert(user, of_user + 1);
        Some(Self { places: Arc::clone(places), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = locked(&self.places);
        if let Some(of_user) = taken.get_mut(&self.user) {
            *of_user -= 1;
            if *of_user == 0 {
                taken.remove(&self.user);
            }
        }
    }
}

/// The user at the other end, as the kernel knows it from when it connected.
fn peer(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel fills at most `length` bytes of a structure of that size.
    let told = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if told < 0 { Err(io::Error::last_os_error()) } else { Ok(peer.uid) }
}

/// Serves one client of a user's to its end.
fn attend(mut stream: UnixStream, user: u32, managers: &Mutex<Managers>) {
    let timeouts = (
        stream.set_write_timeout(Some(SEND_TIMEOUT)),
        stream.set_read_timeout(Some(HELLO_TIMEOUT)),
    );
    let (Ok(()), Ok(()), Ok(sending)) = (timeouts.0, timeouts.1, stream.try_clone()) else {
        return;
    };
    let Ok(Some(FromClient::Hello { domain, mode, t_hit_us })) = FromClient::receive(&mut stream)
    else {
        return;
    };
    if stream.set_read_timeout(None).is_err() {
        return;
    }
    let Ok(outgoing) = Outgoing::start(sending) else { return };
    let domain = (user, domain);
    let client = {
        let mut managers = locked(managers);
        managers.next += 1;
        let client = ClientId(managers.next);
        let options = Options { mode, t_hit_us, ..Options::default() };
        let connect = |all: &mut Managers| all.connect(client, &domain, outgoing, options);
        if contained(&mut managers, &domain, connect) != Some(true) {
            return;
        }
        client
    };
    while let Ok(Some(message)) = FromClient::receive(&mut stream) {
        let mut managers = locked(managers);
        let took = |all: &mut Managers| all.take(client, &domain, message);
        let Some(Some(worked)) = contained(&mut managers, &domain, took) else { break };
        drop(managers);
        if worked > REST_FROM {
            std::thread::sleep(worked.min(REST_MAX));
        }
    }
    let mut managers = locked(managers);
    let _ = contained(&mut managers, &domain, |managers| managers.disconnect(client, &domain));
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use super::*;
    use crate::engine::{Action, Mode, ReadNote, Report, Segment};
    use crate::geometry::Geometry;
    use crate::layout::FileInfo;
    use crate::wire::Connection;

    fn info() -> FileInfo {
        let geometry = Geometry { disks: 2, stripe_unit: 65536, latency_us: 1000 };
        FileInfo { device: 1, inode: 2, born_ns: 0, bytes: 1 << 20, extents: Vec::new(), geometry }
    }

    /// Does what the clients are told until one of them is told what fits, at most half a
    /// minute; says which.
    fn wait_for(clients: &mut [Connection], fits: impl Fn(usize, &Action) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            for (i, client) in clients.iter_mut().enumerate() {
                for action in client.take_actions() {
                    if let Action::Prefetch { tag, .. } = action {
                        let report = Report { ok: true, started_ns: 1, ended_ns: 2, cpu_ns: 1 };
                        client.send(&FromClient::Done(tag, report));
                    }
                    if fits(i, &action) {
                        return;
                    }
                }
                assert!(client.is_alive(), "client {i} lost its manager");
            }
            assert!(Instant::now() < deadline, "nothing came");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    #[test]
    fn clients_share_a_manager_and_may_die() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || serve(&listener));
        let open = || open_when_there_is_room(&path, "memory");
        let mut clients = vec![open(), open()];
        for i in 0..clients.len() {
            clients[i].send(&FromClient::Buffers(256));
            clients[i].send(&FromClient::File(4, info()));
            // Of a file that nobody registered: the credit says how far it has been read.
            clients[i].disclose(&[Segment { file: 99, offset: 0, length: 1 }]);
            wait_for(&mut clients, |told, action| told == i && *action == Action::Credit(1));
        }
        for connection in &mut clients {
            connection.disclose(&[Segment { file: 4, offset: 0, length: 0 }]);
        }
        // The same file: whoever registered it last is told to prefetch it.
        wait_for(&mut clients, |i, action| i == 1 && matches!(action, Action::Prefetch { .. }));
        clients.pop();
        for block in 0..128 {
            let note = ReadNote { file: 4, offset: block * 8192, length: 8192, t_app_us: 1 };
            clients[0].read(&[note]);
        }
        wait_for(&mut clients, |_, action| *action == Action::Credit(1));
        // What is no frame ends that connection only.
        let mut rude = UnixStream::connect(&path).unwrap();
        std::io::Write::write_all(&mut rude, &[0xff; 64]).unwrap();
        clients[0].disclose(&[Segment { file: 99, offset: 0, length: 1 }]);
        wait_for(&mut clients, |_, action| *action == Action::Credit(1));
    }

    /// Runs as another user from now on: this thread only, as the kernel counts users by
    /// thread.
    fn become_user(uid: u32) -> bool {
        // SAFETY: plain call; it changes this thread only.
        unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0 }
    }

    #[test]
    fn users_do_not_share_a_manager_and_cannot_spoil_each_others_hints() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let open_to_all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open_to_all.clone()).unwrap();
        std::fs::set_permissions(&path, open_to_all).unwrap();
        std::thread::spawn(move || serve(&listener));
        let mut clients = vec![open_when_there_is_room(&path, "memory")];
        clients[0].send(&FromClient::Buffers(256));
        clients[0].send(&FromClient::File(4, info()));
        // Another user claims the same file in the same memory, and that it is empty.
        let of_other = path.clone();
        let other = std::thread::spawn(move || {
            if !become_user(65_534) {
                return None;
            }
            let mut other = open_when_there_is_room(&of_other, "memory");
            other.send(&FromClient::File(9, FileInfo { bytes: 0, ..info() }));
            let nothing = Segment { file: 77, offset: 0, length: 1 };
            other.disclose(&[nothing]);
            wait_for(std::slice::from_mut(&mut other), |_, a| *a == Action::Credit(1));
            Some(other)
        });
        let Some(mut other) = other.join().unwrap() else {
            let required = std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS");
            assert!(required.is_none(), "it takes root to be another user");
            return;
        };
        clients[0].disclose(&[Segment { file: 4, offset: 0, length: 0 }]);
        wait_for(&mut clients, |_, action| matches!(action, Action::Prefetch { file: 4, .. }));
        let told = other.take_actions();
        assert!(!told.iter().any(|a| matches!(a, Action::Prefetch { .. })), "{told:?}");
    }

    #[test]
    fn those_who_say_nothing_or_nonsense_do_not_keep_others_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || serve(&listener));
        let silent: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for i in 0..64_u8 {
            let mut rude = UnixStream::connect(&path).unwrap();
            let _ = std::io::Write::write_all(&mut rude, &[i; 40]);
        }
        let mut clients = vec![open_when_there_is_room(&path, "memory")];
        clients[0].disclose(&[Segment { file: 1, offset: 0, length: 1 }]);
        wait_for(&mut clients, |_, action| *action == Action::Credit(1));
        drop(silent);
    }

    /// Connects once those before that have gone have been seen off, and the manager had a
    /// processor to answer on, at most half a minute.
    fn open_when_there_is_room(path: &Path, domain: &str) -> Connection {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match Connection::open(path, domain, &Options::default()) {
                Ok(connection) => return connection,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Else what a client left behind failed all who came after it.
    #[test]
    fn a_panic_ends_one_memory_and_no_other() {
        let mut managers = Managers::default();
        let domains = ["one", "other"].map(|name| (7, name.to_owned()));
        let mut ends = Vec::new();
        for number in 0..4 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let outgoing = Outgoing::start(ours).unwrap();
            let (client, domain) = (ClientId(number), &domains[number as usize % 2]);
            assert!(managers.connect(client, domain, outgoing, Options::default()));
            ends.push(theirs);
        }
        let failed = contained(&mut managers, &domains[0], |_| panic!("in the engine"));
        assert_eq!(failed, None::<()>);
        let left: std::collections::BTreeSet<ClientId> = managers.clients.keys().copied().collect();
        assert!(left.into_iter().eq([ClientId(1), ClientId(3)]));
        assert!(managers.engines.keys().eq([&domains[1]]));
        // They are told so, by the end of their connections.
        for end in ends.iter_mut().step_by(2) {
            end.read_to_end(&mut Vec::new()).unwrap();
        }
        let buffers = |more: u32| FromClient::Buffers(100 + more);
        assert!(managers.take(ClientId(0), &domains[0], buffers(0)).is_none());
        assert!(managers.take(ClientId(1), &domains[1], buffers(1)).is_some());
        managers.disconnect(ClientId(0), &domains[0]);
        // That memory is served again, from the beginning.
        let outgoing = Outgoing::start(UnixStream::pair().unwrap().0).unwrap();
        assert!(managers.connect(ClientId(9), &domains[0], outgoing, Options::default()));
        assert!(managers.take(ClientId(9), &domains[0], buffers(9)).is_some());
    }

    /// A write that waits would wait for ever here.
    #[test]
    fn nobody_waits_for_a_client_that_takes_no_frames() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let outgoing = Outgoing::start(ours).unwrap();
        let frames = vec![0; 4096];
        let most = 4 * OUTGOING_BYTES_MAX / frames.len();
        let taken = (0..most).take_while(|_| outgoing.send(frames.clone())).count();
        assert!(taken >= OUTGOING_BYTES_MAX / frames.len(), "{taken}");
        assert!(taken < most, "no end");
    }

    #[test]
    fn a_client_that_is_slow_for_a_while_gets_everything_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let outgoing = Outgoing::start(ours).unwrap();
        let bytes: Vec<u8> = (0..OUTGOING_BYTES_MAX).map(|i| (i / 4096) as u8).collect();
        assert!(bytes.chunks(24).all(|frame| outgoing.send(frame.to_vec())));
        let mut received = vec![0; bytes.len()];
        theirs.read_exact(&mut received).unwrap();
        assert!(received == bytes, "something else came");
        // What is decided at once may be more; and it ends when its client is dropped.
        while outgoing.queued_bytes.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        assert!(outgoing.send(vec![1; 2 * OUTGOING_BYTES_MAX]));
        drop(outgoing);
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).unwrap();
    }

    /// The manager's actions for one that never reads them are dropped with it; another one
    /// is served meanwhile, and after.
    #[test]
    fn a_client_that_floods_and_never_reads_is_seen_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || serve(&listener));
        let mut clients = vec![open_when_there_is_room(&path, "memory")];
        let mut silent = UnixStream::connect(&path).unwrap();
        let served = |clients: &mut [Connection]| {
            clients[0].disclose(&[Segment { file: 1, offset: 0, length: 1 }]);
            wait_for(clients, |_, action| *action == Action::Credit(1));
        };
        let hello = FromClient::Hello { domain: "memory".into(), mode: Mode::Full, t_hit_us: 1 };
        hello.send(&mut silent).unwrap();
        let nothing = FromClient::Segments(vec![Segment { file: 9, offset: 0, length: 1 }]);
        let mut sent = 0_u64;
        while nothing.send(&mut silent).is_ok() {
            if sent.is_multiple_of(1 << 12) {
                served(&mut clients);
            }
            sent += 1;
        }
        served(&mut clients);
    }

    #[test]
    fn places_are_shared_by_users_and_come_free() {
        let places = Arc::new(Places::default());
        let mut taken = Vec::new();
        for user in 0..CLIENTS_MAX / CLIENTS_PER_USER_MAX {
            let own =
                (0..2 * CLIENTS_PER_USER_MAX).filter_map(|_| Place::take(&places, user as u32));
            taken.extend(own);
            assert_eq!(taken.len(), (user + 1) * CLIENTS_PER_USER_MAX);
        }
        assert!(Place::take(&places, 999).is_none(), "more than there are");
        taken.pop();
        assert!(Place::take(&places, 0).is_none(), "more than one user's");
        let freed = Place::take(&places, 999);
        assert!(freed.is_some());
        drop((taken, freed));
        assert!(locked(&places).is_empty());
    }

    /// Whatever memories it names, and however many connections it makes.
    #[test]
    fn a_user_has_a_share_of_the_manager() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || serve(&listener));
        let open = |domain: &str| Connection::open(&path, domain, &Options::default());
        let mut clients: Vec<Connection> = (0..MEMORIES_PER_USER_MAX)
            .map(|i| open_when_there_is_room(&path, &format!("memory {i}")))
            .collect();
        assert!(open("one more").is_err(), "turned away");
        clients.push(open_when_there_is_room(&path, "memory 0"));
        clients.swap_remove(1);
        clients.push(open_when_there_is_room(&path, "one more"));
        while clients.len() < CLIENTS_PER_USER_MAX {
            clients.push(open_when_there_is_room(&path, "memory 0"));
        }
        assert!(open("memory 0").is_err(), "turned away");
        clients[0].disclose(&[Segment { file: 1, offset: 0, length: 1 }]);
        wait_for(&mut clients, |told, action| told == 0 && *action == Action::Credit(1));
    }

    #[test]
    fn what_is_known_of_a_users_files_is_counted_over_its_memories() {
        let mut managers = Managers::default();
        for (client, user, domain) in [(1, 7, "one"), (2, 7, "other"), (3, 8, "one")] {
            let domain = (user, domain.to_owned());
            assert!(managers.has_room_for(&domain));
            let engine =
                managers.engines.entry(domain).or_insert_with(|| Engine::new(Options::default()));
            engine.connect(ClientId(client));
            for number in 0..100 {
                let file = FileInfo { inode: u64::from(number), ..info() };
                engine.file(ClientId(client), number, &file);
            }
        }
        let of_one = managers.files_bytes(8);
        assert!(of_one > 0 && managers.files_bytes(7) == 2 * of_one);
        assert_eq!(managers.files_bytes(9), 0);
    }
}
