//! The connection between a hinting process and the manager of the machine.
//!
//! A stream of frames over a local socket, each a length, a kind and little-endian words. The
//! manager decides and the client acts, so nothing in here gives anybody access to anything:
//! a client can only ask to be told to prefetch files that it has open itself.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use crate::engine::{Action, Mode, Options, ReadNote, Report, Segment};
use crate::geometry::Geometry;
use crate::layout::{EXTENTS_MAX, Extent, FileInfo};

/// Version of the frames: both sides must have the same.
const VERSION: u64 = 2;
/// Longest frame: a file with all its extents, or a piece of segments.
const FRAME_BYTES_MAX: usize = 256 << 10;
/// Elements of one frame of segments or reads.
const ELEMENTS_MAX: usize = 4096;
/// Most bytes that one frame reports as read, 8192 blocks; what is beyond is not counted. The
/// manager goes through them block by block, and one client must not keep it from the others
/// for long. Whoever has read more says so in several frames.
pub const READ_BYTES_MAX: u64 = 64 << 20;
/// Most bytes that a client tells of between two of its looks: more than memory is fast for.
const OBSERVED_BYTES_MAX: u64 = 4 << 30;

/// What the environment says of the socket of the machine's manager. Others read it: in a
/// thread that a program does not know the environment is not for reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// `RUNAHEAD_MANAGER`; `embedded`: there is none.
    pub given: Option<OsString>,
    /// `XDG_RUNTIME_DIR`.
    pub of_user: Option<OsString>,
}

impl Socket {
    /// Where the machine's manager listens: what is given, else the user's own, else the
    /// system's, where one is there.
    pub fn path(&self) -> Option<PathBuf> {
        if let Some(given) = &self.given {
            return (given != "embedded" && !given.is_empty()).then(|| given.into());
        }
        let of_user = self.of_user.as_ref().map(|directory| Path::new(directory).join(SOCKET));
        let of_system = Path::new("/run").join(SOCKET);
        of_user.into_iter().chain([of_system]).find(|path| path.exists())
    }
}

/// Below the directory for run-time files.
pub const SOCKET: &str = "runahead/manager.sock";

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromClient {
    /// First: the memory that it shares with others, and what it measured.
    Hello {
        /// Name of the memory.
        domain: String,
        /// Mode of hinting; only the first client's counts in a domain.
        mode: Mode,
        /// T_hit in microseconds.
        t_hit_us: u32,
    },
    /// A file that it has open.
    File(u32, FileInfo),
    /// Hints.
    Segments(Vec<Segment>),
    /// The first so many hints are void.
    Cancel(u32),
    /// It has read.
    Reads(Vec<ReadNote>),
    /// It has read so many bytes.
    Observed(u64),
    /// A prefetch is done.
    Done(u64, Report),
    /// Buffers in its memory.
    Buffers(u32),
}

/// A frame that makes no sense.
fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a frame of this version of runahead")
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> io::Result<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>().ok_or_else(nonsense)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> io::Result<T> {
        T::try_from(self.next()?).map_err(|_| nonsense())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn send(stream: &mut impl Write, kind: u64, words: &[u64], bytes: &[u8]) -> io::Result<()> {
    let length = 8 + words.len() * 8 + bytes.len();
    let mut frame = Vec::with_capacity(8 + length);
    frame.extend((length as u64).to_le_bytes());
    frame.extend(kind.to_le_bytes());
    frame.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    frame.extend(bytes);
    stream.write_all(&frame)
}

/// The next frame; none at the end of the stream.
fn receive(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    if stream.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[1..])?;
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| nonsense())?;
    if !(8..=FRAME_BYTES_MAX).contains(&length) {
        return Err(nonsense());
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(Some(frame))
}

impl FromClient {
    /// Sends it.
    ///
    /// # Errors
    /// The stream's.
    pub fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Hello { domain, mode, t_hit_us } => {
                let mode = match mode {
                    Mode::Full => 0,
                    Mode::PrefetchOnly => 1,
                    Mode::NoHints => 2,
                };
                send(stream, 0, &[VERSION, mode, u64::from(*t_hit_us)], domain.as_bytes())
            }
            Self::File(number, info) => {
                let Geometry { disks, stripe_unit, latency_us } = info.geometry;
                let mut words = vec![
                    u64::from(*number),
                    info.device,
                    info.inode,
                    info.born_ns,
                    info.bytes,
                    u64::from(disks),
                    stripe_unit,
                    u64::from(latency_us),
                ];
                words.extend(info.extents.iter().flat_map(|e| [e.logical, e.physical, e.length]));
                send(stream, 1, &words, &[])
            }
            Self::Segments(segments) => {
                let words: Vec<u64> =
                    segments.iter().flat_map(|s| [u64::from(s.file), s.offset, s.length]).collect();
                send(stream, 2, &words, &[])
            }
            Self::Cancel(segments) => send(stream, 3, &[u64::from(*segments)], &[]),
            Self::Reads(notes) => {
                let words: Vec<u64> = notes
                    .iter()
                    .flat_map(|n| [u64::from(n.file), n.offset, n.length, u64::from(n.t_app_us)])
                    .collect();
                send(stream, 4, &words, &[])
            }
            Self::Observed(bytes) => send(stream, 5, &[*bytes], &[]),
            Self::Done(tag, r) => {
                send(stream, 6, &[*tag, u64::from(r.ok), r.started_ns, r.ended_ns, r.cpu_ns], &[])
            }
            Self::Buffers(buffers) => send(stream, 7, &[u64::from(*buffers)], &[]),
        }
    }

    /// Receives the next one; none at the end of the stream.
    ///
    /// # Errors
    /// The stream's, and `InvalidData` for what is no frame.
    pub fn receive(stream: &mut impl Read) -> io::Result<Option<Self>> {
        receive(stream)?.map(|frame| Self::parse(&frame)).transpose()
    }

    fn parse(frame: &[u8]) -> io::Result<Self> {
        let mut words = Words(frame);
        Ok(match words.next()? {
            0 => {
                if words.next()? != VERSION {
                    return Err(nonsense());
                }
                let mode = match words.next()? {
                    0 => Mode::Full,
                    1 => Mode::PrefetchOnly,
                    2 => Mode::NoHints,
                    _ => return Err(nonsense()),
                };
                let t_hit_us = words.small()?;
                let domain = std::str::from_utf8(words.0).map_err(|_| nonsense())?;
                if domain.len() > 256 {
                    return Err(nonsense());
                }
                Self::Hello { domain: domain.to_owned(), mode, t_hit_us }
            }
            1 => {
                let number = words.small()?;
                let (device, inode) = (words.next()?, words.next()?);
                let (born_ns, bytes) = (words.next()?, words.next()?);
                let (disks, stripe_unit) = (words.small::<u16>()?, words.next()?);
                let latency_us = words.small()?;
                let geometry = Geometry {
                    disks: disks.clamp(1, crate::geometry::DISKS_MAX),
                    stripe_unit: stripe_unit.clamp(4096, 1 << 30),
                    latency_us,
                };
                let mut extents = Vec::new();
                while !words.is_empty() && extents.len() < EXTENTS_MAX {
                    let (logical, physical, length) = (words.next()?, words.next()?, words.next()?);
                    // Nothing may overflow where addresses are worked out.
                    if logical.max(physical).max(length) > 1 << 60 {
                        return Err(nonsense());
                    }
                    extents.push(Extent { logical, physical, length });
                }
                Self::File(number, FileInfo { device, inode, born_ns, bytes, extents, geometry })
            }
            2 => {
                let mut segments = Vec::with_capacity(words.0.len() / 24);
                while !words.is_empty() {
                    let (file, offset, length) = (words.small()?, words.next()?, words.next()?);
                    segments.push(Segment { file, offset, length });
                }
                Self::Segments(segments)
            }
            3 => Self::Cancel(words.small()?),
            4 => {
                let mut notes = Vec::with_capacity(words.0.len() / 32);
                let mut left = READ_BYTES_MAX;
                while !words.is_empty() {
                    let (file, offset) = (words.small()?, words.next()?);
                    let length = words.next()?.min(left);
                    left -= length;
                    notes.push(ReadNote { file, offset, length, t_app_us: words.small()? });
                }
                Self::Reads(notes)
            }
            5 => Self::Observed(words.next()?.min(READ_BYTES_MAX)),
            6 => {
                let (tag, ok) = (words.next()?, words.next()? == 1);
                let (started_ns, ended_ns) = (words.next()?, words.next()?);
                Self::Done(tag, Report { ok, started_ns, ended_ns, cpu_ns: words.next()? })
            }
            7 => Self::Buffers(words.small()?),
            _ => return Err(nonsense()),
        })
    }
}

/// Sends an action to a client.
///
/// # Errors
/// The stream's.
pub fn send_action(stream: &mut impl Write, action: &Action) -> io::Result<()> {
    match *action {
        Action::Prefetch { tag, file, offset, length } => {
            send(stream, 0, &[tag, u64::from(file), offset, length], &[])
        }
        Action::Release { file, offset, length } => {
            send(stream, 1, &[u64::from(file), offset, length], &[])
        }
        Action::Credit(segments) => send(stream, 2, &[u64::from(segments)], &[]),
    }
}

fn receive_action(stream: &mut impl Read) -> io::Result<Option<Action>> {
    let Some(frame) = receive(stream)? else { return Ok(None) };
    let mut words = Words(&frame);
    Ok(Some(match words.next()? {
        0 => Action::Prefetch {
            tag: words.next()?,
            file: words.small()?,
            offset: words.next()?,
            length: words.next()?,
        },
        1 => Action::Release { file: words.small()?, offset: words.next()?, length: words.next()? },
        2 => Action::Credit(words.small()?),
        _ => return Err(nonsense()),
    }))
}

/// A client's end. Whatever goes wrong ends it: then there is no manager any more.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// What the manager said first.
    first: Option<Action>,
    actions: Receiver<Action>,
    alive: Arc<AtomicBool>,
}

/// How long a manager may leave a client's frames lying about.
const SEND_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
/// How long a manager may take to say that it serves a client.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

impl Connection {
    /// Connects to a manager, and waits at most a second until it gives the first credit: one
    /// that turns a client away closes the connection only then, when all was sent well. The
    /// thread that calls is unparked when there are actions.
    ///
    /// # Errors
    /// If nobody listens there, or who does turns this client away, says what makes no sense
    /// or nothing at all.
    pub fn open(path: &Path, domain: &str, options: &Options) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        let hello = FromClient::Hello {
            domain: domain.to_owned(),
            mode: options.mode,
            t_hit_us: options.t_hit_us,
        };
        hello.send(&mut stream)?;
        let mut incoming = stream.try_clone()?;
        let (sender, actions) = channel();
        let alive = Arc::new(AtomicBool::new(true));
        let (still, owner) = (Arc::clone(&alive), std::thread::current());
        std::thread::Builder::new().name("runahead".into()).stack_size(128 << 10).spawn(
            move || {
                while let Ok(Some(action)) = receive_action(&mut incoming) {
                    if sender.send(action).is_err() {
                        break;
                    }
                    owner.unpark();
                }
                still.store(false, Ordering::Release);
                owner.unpark();
            },
        )?;
        let mut connection = Self { stream, first: None, actions, alive };
        match connection.actions.recv_timeout(ANSWER_TIMEOUT) {
            Ok(action) => connection.first = Some(action),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the manager turns this process away"));
            }
            Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
        }
        Ok(connection)
    }

    /// Whether the manager is there.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Sends something; the connection ends where that fails.
    pub fn send(&mut self, message: &FromClient) {
        if self.is_alive() && message.send(&mut self.stream).is_err() {
            self.alive.store(false, Ordering::Release);
        }
    }

    /// Sends hints, in pieces.
    pub fn disclose(&mut self, segments: &[Segment]) {
        for piece in segments.chunks(ELEMENTS_MAX) {
            self.send(&FromClient::Segments(piece.to_vec()));
        }
    }

    /// Sends what was read, in pieces.
    pub fn read(&mut self, notes: &[ReadNote]) {
        for piece in pieces_of_reads(notes) {
            self.send(&FromClient::Reads(piece));
        }
    }

    /// Sends how many bytes were read, in pieces.
    pub fn observed(&mut self, bytes: u64) {
        let mut left = bytes.min(OBSERVED_BYTES_MAX);
        while left > 0 {
            let piece = left.min(READ_BYTES_MAX);
            self.send(&FromClient::Observed(piece));
            left -= piece;
        }
    }

    /// Takes what the manager decided.
    pub fn take_actions(&mut self) -> Vec<Action> {
        self.first.take().into_iter().chain(self.actions.try_iter()).collect()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Notes for frames of at most `ELEMENTS_MAX` of them and [`READ_BYTES_MAX`] bytes; a read
/// that is longer becomes several.
pub fn pieces_of_reads(notes: &[ReadNote]) -> Vec<Vec<ReadNote>> {
    let mut pieces: Vec<Vec<ReadNote>> = Vec::new();
    let mut room = 0;
    for &note in notes {
        let mut rest = note;
        loop {
            if room == 0 || pieces.last().is_none_or(|piece| piece.len() == ELEMENTS_MAX) {
                pieces.push(Vec::new());
                room = READ_BYTES_MAX;
            }
            let length = rest.length.min(room);
            room -= length;
            pieces.last_mut().expect("just made").push(ReadNote { length, ..rest });
            if length == rest.length {
                break;
            }
            rest.offset = rest.offset.saturating_add(length);
            rest.length -= length;
            rest.t_app_us = 0;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(message: &FromClient) -> FromClient {
        let mut bytes = Vec::new();
        message.send(&mut bytes).unwrap();
        FromClient::receive(&mut &bytes[..]).unwrap().unwrap()
    }

    #[test]
    fn messages_survive_the_wire() {
        let geometry = Geometry { disks: 4, stripe_unit: 65536, latency_us: 77 };
        let extents = vec![Extent { logical: 0, physical: 5, length: 9 }];
        let messages = [
            FromClient::Hello { domain: "cgroup-1".into(), mode: Mode::PrefetchOnly, t_hit_us: 3 },
            FromClient::File(
                3,
                FileInfo { device: 1, inode: 2, born_ns: 4, bytes: 3, extents, geometry },
            ),
            FromClient::Segments(vec![Segment { file: 1, offset: 2, length: 3 }; 5]),
            FromClient::Cancel(9),
            FromClient::Reads(vec![ReadNote { file: 1, offset: 2, length: 3, t_app_us: 4 }; 2]),
            FromClient::Observed(1 << 20),
            FromClient::Done(5, Report { ok: true, started_ns: 1, ended_ns: 2, cpu_ns: 3 }),
            FromClient::Buffers(6),
        ];
        for message in &messages {
            assert_eq!(&round_trip(message), message);
        }
        for action in [
            Action::Prefetch { tag: 1, file: 2, offset: 3, length: 4 },
            Action::Release { file: 1, offset: 2, length: 3 },
            Action::Credit(7),
        ] {
            let mut bytes = Vec::new();
            send_action(&mut bytes, &action).unwrap();
            assert_eq!(receive_action(&mut &bytes[..]).unwrap(), Some(action));
        }
    }

    /// A frame that claims to have read everything would keep the manager busy for an hour.
    #[test]
    fn a_frame_reports_a_bounded_number_of_bytes() {
        let note = ReadNote { file: 1, offset: 0, length: u64::MAX / 2, t_app_us: 0 };
        let FromClient::Reads(notes) = round_trip(&FromClient::Reads(vec![note; 9])) else {
            panic!("other frames")
        };
        assert_eq!(notes.iter().map(|note| note.length).sum::<u64>(), READ_BYTES_MAX);
        let observed = round_trip(&FromClient::Observed(u64::MAX));
        assert_eq!(observed, FromClient::Observed(READ_BYTES_MAX));
    }

    #[test]
    fn long_reads_are_told_in_several_frames() {
        let note = |offset, length| ReadNote { file: 1, offset, length, t_app_us: 7 };
        let long = [note(5, READ_BYTES_MAX - 1), note(9, 3 * READ_BYTES_MAX), note(0, 0)];
        let short = vec![note(3, 1); 2 * ELEMENTS_MAX + 1];
        for notes in [&long[..], &short, &[]] {
            let pieces = pieces_of_reads(notes);
            let mut told: Vec<ReadNote> = Vec::new();
            for piece in &pieces {
                assert!(!piece.is_empty() && piece.len() <= ELEMENTS_MAX);
                let FromClient::Reads(received) = round_trip(&FromClient::Reads(piece.clone()))
                else {
                    panic!("other frames")
                };
                assert_eq!(&received, piece, "nothing is cut off");
                told.extend(received);
            }
            let bytes = |notes: &[ReadNote]| notes.iter().map(|note| note.length).sum::<u64>();
            let time = |notes: &[ReadNote]| notes.iter().map(|note| note.t_app_us).sum::<u32>();
            assert_eq!((bytes(&told), time(&told)), (bytes(notes), time(notes)));
        }
        let told = pieces_of_reads(&long).concat();
        let ends: Vec<u64> = told.iter().map(|note| note.offset + note.length).collect();
        assert_eq!(told[2].offset, ends[1], "it goes on where it was cut");
    }

    /// Every prefix and every changed byte of valid frames: an error or a message, no panic.
    #[test]
    fn broken_frames_are_errors() {
        let mut bytes = Vec::new();
        FromClient::Segments(vec![Segment { file: 1, offset: 2, length: 3 }; 2])
            .send(&mut bytes)
            .unwrap();
        FromClient::Hello { domain: "x".into(), mode: Mode::Full, t_hit_us: 3 }
            .send(&mut bytes)
            .unwrap();
        for length in 0..bytes.len() {
            let mut stream = &bytes[..length];
            while let Ok(Some(_)) = FromClient::receive(&mut stream) {}
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                let mut stream = &broken[..];
                while let Ok(Some(_)) = FromClient::receive(&mut stream) {}
            }
        }
    }
}
