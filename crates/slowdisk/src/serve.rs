//! The process that serves one device: FUSE, the model, the control socket.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use fuser::{MountOption, Session};
use rustix::mm::MlockAllFlags;

use crate::control::{self, Answer, Ask, Switches};
use crate::disk_fs::{DiskFs, DiskReply};
use crate::engine::{Engine, Finish};
use crate::error::{Context, Error, Result};
use crate::model::Array;
use crate::profile::{Medium, Profile};
use crate::state::State;
use crate::store::Store;

/// What the process says on its standard output when the device can be used.
pub const READY: &str = "ready";

/// `prctl(PR_SET_IO_FLUSHER)` of linux/prctl.h, Linux 5.6.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Serves the device whose state is in `directory` until it is told to stop or
/// its file system is unmounted. Prints [`READY`] when it can be used.
///
/// # Errors
/// If the device cannot be set up; afterwards it ends the process by itself.
pub fn serve(directory: &Path) -> Result<()> {
    log::set_logger(&StderrLog).map(|()| log::set_max_level(log::LevelFilter::Warn)).ok();
    // A device that hangs leaves processes that cannot be killed: rather none.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let _ = rustix::process::setsid();
    harden();
    let state = State::load(directory)?;
    let profile = state.options.resolve()?;
    match profile.medium {
        Medium::Disks | Medium::Network => serve_disk(&state, &profile),
        Medium::Object => Err(Error::Usage("this build does not serve object stores".into())),
        Medium::Local => Err(Error::Usage("the machine's own disk needs no process".into())),
    }
}

fn serve_disk(state: &State, profile: &Profile) -> Result<()> {
    let options = &state.options;
    let store = Arc::new(Store::new(options.size_bytes, options.backing.as_deref())?);
    let array: Array<DiskReply> = Array::new(profile, options.size_bytes, options.seed);
    // Paused until `up` has made the file system.
    let switches = Switches { paused: true, free_writes: options.free_writes };
    let engine = Engine::start(array, switches)?;
    let fs = DiskFs::new(store, Arc::clone(&engine), profile.fuse_limit);
    let mut config = fuser::Config::default();
    config.mount_options =
        vec![MountOption::FSName("runahead-slowdisk".into()), MountOption::NoAtime];
    let mountpoint = state.fuse_directory();
    let session = Session::new(fs, &mountpoint, &config)
        .context(|| format!("mount FUSE at {}", mountpoint.display()))?;
    run(state, session, &engine)
}

/// Serves until the end; does not return after the device is ready.
fn run<F: fuser::Filesystem, P: Finish>(
    state: &State,
    mut session: Session<F>,
    engine: &Engine<P>,
) -> Result<()> {
    let socket = state.socket();
    let _ = std::fs::remove_file(&socket);
    let listener =
        UnixListener::bind(&socket).context(|| format!("listen on {}", socket.display()))?;
    let mut unmounter = session.unmount_callable();
    std::thread::Builder::new()
        .name("slowdisk-fuse".into())
        .spawn(move || {
            let ended = session.run();
            if let Err(error) = &ended {
                log::error!("FUSE ended: {error}");
            }
            std::process::exit(i32::from(ended.is_err()));
        })
        .context(|| "start the FUSE thread".into())?;
    println!("{READY}");
    for stream in listener.incoming() {
        let mut stop = false;
        let answered = stream.and_then(|stream| {
            control::answer(stream, |question| {
                stop = question == Ask::Stop;
                respond(engine, question)
            })
        });
        if let Err(error) = answered {
            log::warn!("control: {error}");
        }
        if stop {
            if let Err(error) = unmounter.unmount() {
                log::warn!("unmount: {error}");
            }
            std::process::exit(0);
        }
    }
    Ok(())
}

fn respond<P: Finish>(engine: &Engine<P>, question: Ask) -> Answer {
    match question {
        Ask::Stats => return Answer::Stats(Box::new(engine.snapshot())),
        Ask::Reset => engine.reset_stats(),
        Ask::Pause => engine.set_paused(true),
        Ask::Resume => engine.set_paused(false),
        Ask::Stop => {}
    }
    Answer::Done
}

/// Makes the process as dependable as a device: real hardware is not swapped
/// out, not chosen by the OOM killer, does not wait for its own I/O, and does
/// not compete for the CPU with the programs that use it. Each is best effort.
fn harden() {
    // On fault, so that a sparse device stays sparse.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(flags) {
        log::warn!("cannot lock memory: {error}");
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        log::warn!("cannot leave the OOM killer's list: {error}");
    }
    // SAFETY: this prctl takes integers only.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } != 0 {
        log::warn!("cannot become an I/O flusher: {}", std::io::Error::last_os_error());
    }
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a valid sched_param; 0 means this thread, whose
    // policy the threads that it starts inherit.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } != 0 {
        log::warn!("cannot take real-time priority: {}", std::io::Error::last_os_error());
    }
}

struct StderrLog;

impl log::Log for StderrLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}: {}: {}", record.level(), record.target(), record.args());
        }
    }

    fn flush(&self) {}
}
