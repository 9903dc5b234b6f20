//! Named pipes whose readers keep a fingerprint of what is written into them: output
//! that takes no memory of the program's.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode};

use crate::process;

/// Read at once, in bytes: what a pipe holds.
const READ_LEN: usize = 64 * 1024;

/// How long the reader sleeps at most while nothing comes.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// One pipe, and the thread that reads it.
#[derive(Debug)]
pub struct Pipe {
    heard: Arc<Mutex<Heard>>,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Heard {
    /// Open both ways: it is never at its end.
    pipe: File,
    hasher: blake3::Hasher,
}

impl Heard {
    /// Takes what has been written so far.
    fn hear(&mut self) {
        let mut bytes = [0; READ_LEN];
        loop {
            match self.pipe.read(&mut bytes) {
                Ok(len) => self.hasher.update(bytes.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // Empty.
                Err(_) => return,
            };
        }
    }
}

impl Pipe {
    /// Makes the pipe at `path`.
    ///
    /// # Errors
    /// If it cannot be made there, or no thread can be started.
    pub fn new(path: &Path) -> Result<Pipe> {
        let made = rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        made.with_context(|| format!("make the pipe {}", path.display()))?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let pipe = open.open(path).with_context(|| format!("open {}", path.display()))?;
        let waited = pipe.as_raw_fd();
        let heard = Arc::new(Mutex::new(Heard { pipe, hasher: blake3::Hasher::new() }));
        let is_over = Arc::new(AtomicBool::new(false));
        let (hears, ends) = (heard.clone(), is_over.clone());
        let reader = std::thread::Builder::new()
            .name("pipe".into())
            .spawn(move || read(waited, &hears, &ends))
            .context("start a thread")?;
        Ok(Pipe { heard, is_over, reader: Some(reader) })
    }

    /// The fingerprint of what has been written since it was last asked for.
    pub fn take_digest(&self) -> String {
        let mut heard = locked(&self.heard);
        heard.hear();
        let digest = heard.hasher.finalize().to_hex().to_string();
        heard.hasher.reset();
        digest
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Wakes the reader; where the pipe is full, it is awake.
        let _ = locked(&self.heard).pipe.write(&[0]);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn read(pipe: RawFd, heard: &Mutex<Heard>, is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        if process::wait_readable(pipe, LOOK_EVERY).is_ok() {
            locked(heard).hear();
        }
    }
}

fn locked(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fingerprint_is_of_what_was_written_since_the_last() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pipe");
        let pipe = Pipe::new(&path).unwrap();
        let write = |bytes: &[u8]| {
            // As a shell's `>` opens it.
            let opened = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
            opened.unwrap().write_all(bytes).unwrap();
        };
        let expected = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        assert_eq!(pipe.take_digest(), expected(b""));
        // More than the pipe holds.
        let many: Vec<u8> = (0..50 * READ_LEN).map(|at| (at / 7) as u8).collect();
        write(&many);
        assert_eq!(pipe.take_digest(), expected(&many));
        write(b"one ");
        write(b"two");
        assert_eq!(pipe.take_digest(), expected(b"one two"));
        assert_eq!(pipe.take_digest(), expected(b""));
    }
}
