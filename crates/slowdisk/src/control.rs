//! How the command talks to the process that serves a device: one JSON line
//! each way over a socket in the device's state directory.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{DeviceStats, Histogram};

/// Longest wait for an answer, and for a question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same where caches go cold: all that is dirty is written before, beside what the rest of
/// the machine writes.
const REMOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// Timing switches of a device.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Switches {
    /// Every request is answered at once.
    pub paused: bool,
    /// Writes are answered at once.
    pub free_writes: bool,
}

/// What a device did since its counters were reset.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Since the reset, nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the serving process since the reset, nanoseconds.
    pub cpu_ns: u64,
    /// Whether timing is off now.
    pub paused: bool,
    /// Requests in flight now.
    pub in_flight: u64,
    /// How long after the model's completion the replies were sent.
    pub late: Histogram,
    /// The device's own counters.
    pub device: DeviceStats,
}

/// What the command may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Ask {
    /// Send the counters.
    Stats,
    /// Set the counters to zero.
    Reset,
    /// Answer every request at once from now on.
    Pause,
    /// Take the model's time again.
    Resume,
    /// Reads of these bytes of the device fail from now on.
    Lose {
        /// First byte and the one behind the last.
        ranges: Vec<Range<u64>>,
    },
    /// Reads fail no more.
    Mend,
    /// Unmount and mount again, so that nothing is cached.
    Remount,
    /// Unmount and end.
    Stop,
}

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done.
    Done,
    /// The counters.
    Stats(Box<Snapshot>),
    /// It failed.
    Failed(String),
}

/// Asks the process behind `socket`.
///
/// # Errors
/// If it does not answer within ten seconds ([`Ask::Remount`]: within a minute), or not sensibly.
pub fn ask(socket: &Path, question: Ask) -> std::io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    let longest = if question == Ask::Remount { REMOUNT_TIMEOUT } else { ANSWER_TIMEOUT };
    stream.set_read_timeout(Some(longest))?;
    writeln!(stream, "{}", serde_json::to_string(&question)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Reads one question, lets `respond` answer it.
///
/// # Errors
/// If the other side hangs up.
pub fn answer(stream: UnixStream, respond: impl FnOnce(Ask) -> Answer) -> std::io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(question) => respond(question),
        Err(error) => Answer::Failed(format!("not a question: {error}")),
    };
    writeln!(&stream, "{}", serde_json::to_string(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_survive_the_wire() {
        let directory = std::env::temp_dir().join(format!("slowdisk-ctl-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("control");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let mut snapshot = Snapshot { elapsed_ns: 12, ..Snapshot::default() };
            snapshot.late.record(1000);
            for _ in 0..2 {
                let (stream, _) = listener.accept().unwrap();
                let reply = snapshot.clone();
                answer(stream, |question| match question {
                    Ask::Stats => Answer::Stats(Box::new(reply)),
                    _ => Answer::Failed("no".into()),
                })
                .unwrap();
            }
        });
        let Answer::Stats(stats) = ask(&socket, Ask::Stats).unwrap() else { panic!() };
        assert_eq!((stats.elapsed_ns, stats.late.count()), (12, 1));
        assert!(matches!(ask(&socket, Ask::Stop).unwrap(), Answer::Failed(why) if why == "no"));
        server.join().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
