//! A hostile client of the manager: its frames, and what the engine makes of
//! them. Every action is about a file that the client has named.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runahead_manager::engine::Report;
use runahead_manager::wire::FromClient;
use runahead_manager::{Action, ClientId, Engine, Options};

/// More messages than this are no other case.
const MESSAGES_MAX: usize = 24;

/// Reads of more bytes than this, all together, are none either: each block of
/// one is looked at, and up to 128 hints ahead of it, which takes the
/// instrumented manager half a minute for a few GiB.
const READ_BYTES_MAX: u64 = 256 << 20;

fuzz_target!(|input: &[u8]| {
    // The first byte: whether there is another client.
    let Some((&second, mut stream)) = input.split_first() else { return };
    let client = ClientId(1);
    let mut named = std::collections::BTreeSet::new();
    let mut engine = Engine::new(Options::default());
    engine.connect(client);
    let mut other = (second % 2 == 1).then_some(ClientId(2));
    if let Some(other) = other {
        engine.connect(other);
    }
    let mut read_bytes = 0u64;
    for _ in 0..MESSAGES_MAX {
        let Ok(Some(message)) = FromClient::receive(&mut stream) else { break };
        // As it came, it can be sent.
        let mut again = Vec::new();
        message.send(&mut again).unwrap();
        assert_eq!(FromClient::receive(&mut &again[..]).unwrap().as_ref(), Some(&message));
        match message {
            FromClient::Hello { mode, t_hit_us, .. } => {
                engine = Engine::new(Options { mode, t_hit_us, ..Options::default() });
                engine.connect(client);
                other = None;
                named.clear();
            }
            FromClient::File(number, info) => {
                named.insert(number);
                engine.file(client, number, &info);
            }
            FromClient::Segments(segments) => engine.disclose(client, &segments),
            FromClient::Cancel(segments) => engine.cancel(client, segments),
            FromClient::Reads(notes) => {
                for note in &notes {
                    read_bytes = read_bytes.saturating_add(note.length);
                }
                if read_bytes > READ_BYTES_MAX {
                    return;
                }
                engine.read(client, &notes);
            }
            FromClient::Observed(bytes) => {
                read_bytes = read_bytes.saturating_add(bytes);
                if read_bytes > READ_BYTES_MAX {
                    return;
                }
                engine.observed(client, bytes);
            }
            FromClient::Done(tag, report) => engine.done(client, tag, report),
            FromClient::Buffers(buffers) => engine.set_buffers(buffers),
        }
        for (to, action) in engine.take_actions() {
            // The other one, which names no files, is only given credit.
            let is_others = other == Some(to) && matches!(action, Action::Credit(_));
            assert!(to == client || is_others, "{to:?}: {action:?}");
            match action {
                Action::Prefetch { tag, file, .. } => {
                    assert!(named.contains(&file));
                    if tag % 2 == 0 {
                        let ok = tag % 3 == 0;
                        let report = Report { ok, started_ns: tag, ended_ns: 2, cpu_ns: 3 };
                        engine.done(client, tag, report);
                    }
                }
                Action::Release { file, .. } => assert!(named.contains(&file)),
                Action::Credit(_) => {}
            }
        }
    }
    engine.tick();
    engine.disconnect(client);
});
