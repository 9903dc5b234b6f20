//! One manager for all hinting processes of a machine, behind a local socket.
//!
//! Each client has a thread that receives; one lock guards the engines, one for each memory
//! (cgroup). A client that ends, or sends what is no frame, is disconnected; nobody waits for
//! a client that does not take its frames.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::{ClientId, Engine, Options};
use crate::wire::{FromClient, send_action};

/// Clients at a time.
const CLIENTS_MAX: usize = 256;
/// How long a client may leave its frames lying about.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two looks for prefetches that nobody reports.
const TICK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Managers {
    engines: HashMap<String, Engine>,
    clients: HashMap<ClientId, (String, UnixStream)>,
    next: u32,
}

impl Managers {
    /// Sends what an engine decided to whom it concerns.
    fn deliver(&mut self, domain: &str) {
        loop {
            let Some(engine) = self.engines.get_mut(domain) else { return };
            let actions = engine.take_actions();
            if actions.is_empty() {
                return;
            }
            let mut gone = Vec::new();
            for (client, action) in &actions {
                let Some((_, stream)) = self.clients.get_mut(client) else { continue };
                if send_action(stream, action).is_err() {
                    gone.push(*client);
                }
            }
            for client in gone {
                if let Some((_, stream)) = self.clients.remove(&client) {
                    // Its receiving thread ends by that, too.
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
                engine.disconnect(client);
            }
        }
    }

    fn disconnect(&mut self, client: ClientId, domain: &str) {
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

fn locked(managers: &Mutex<Managers>) -> MutexGuard<'_, Managers> {
    managers.lock().unwrap_or_else(PoisonError::into_inner)
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
            let domains: Vec<String> = managers.engines.keys().cloned().collect();
            for domain in domains {
                if let Some(engine) = managers.engines.get_mut(&domain) {
                    engine.tick();
                }
                managers.deliver(&domain);
            }
        }
    })?;
    for stream in listener.incoming() {
        let stream = stream?;
        if locked(&managers).clients.len() >= CLIENTS_MAX {
            // It hints to an embedded manager of its own.
            continue;
        }
        let managers = Arc::clone(&managers);
        let started = std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || attend(stream, &managers));
        drop(started);
    }
    Ok(())
}

/// Serves one client to its end.
fn attend(mut stream: UnixStream, managers: &Mutex<Managers>) {
    let (Ok(()), Ok(outgoing)) = (stream.set_write_timeout(Some(SEND_TIMEOUT)), stream.try_clone())
    else {
        return;
    };
    let Ok(Some(FromClient::Hello { domain, mode, t_hit_us })) = FromClient::receive(&mut stream)
    else {
        return;
    };
    let client = {
        let mut managers = locked(managers);
        managers.next += 1;
        let client = ClientId(managers.next);
        managers.clients.insert(client, (domain.clone(), outgoing));
        let options = Options { mode, t_hit_us, ..Options::default() };
        managers
            .engines
            .entry(domain.clone())
            .or_insert_with(|| Engine::new(options))
            .connect(client);
        managers.deliver(&domain);
        client
    };
    while let Ok(Some(message)) = FromClient::receive(&mut stream) {
        let mut managers = locked(managers);
        let Some(engine) = managers.engines.get_mut(&domain) else { break };
        match message {
            FromClient::Hello { .. } => break,
            FromClient::File(number, info) => engine.file(client, number, &info),
            FromClient::Segments(segments) => engine.disclose(client, &segments),
            FromClient::Cancel(segments) => engine.cancel(client, segments),
            FromClient::Reads(notes) => engine.read(client, &notes),
            FromClient::Observed(bytes) => engine.observed(client, bytes),
            FromClient::Done(tag, report) => engine.done(client, tag, report),
            FromClient::Buffers(buffers) => engine.set_buffers(buffers),
        }
        managers.deliver(&domain);
    }
    locked(managers).disconnect(client, &domain);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::engine::{Action, ReadNote, Report, Segment};
    use crate::geometry::Geometry;
    use crate::layout::FileInfo;
    use crate::wire::Connection;

    fn info() -> FileInfo {
        let geometry = Geometry { disks: 2, stripe_unit: 65536, latency_us: 1000 };
        FileInfo { device: 1, inode: 2, bytes: 1 << 20, extents: Vec::new(), geometry }
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
        let open = || Connection::open(&path, "memory", &Options::default()).unwrap();
        let mut clients = vec![open(), open()];
        for connection in &mut clients {
            connection.send(&FromClient::Buffers(256));
            connection.send(&FromClient::File(4, info()));
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
}
