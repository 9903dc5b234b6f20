//! The process that serves one device: FUSE, the model, the control socket.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fuser::{Filesystem, MountOption, Session, SessionACL};
use rustix::mm::MlockAllFlags;

use crate::bad_blocks::BadBlocks;
use crate::control::{self, Answer, Ask, Switches};
use crate::disk_fs::{Disk, DiskSession, Moderation};
use crate::engine::Engine;
use crate::error::{Context, Error, Result};
use crate::model::Array;
use crate::object::ObjectFs;
use crate::profile::{Medium, Profile};
use crate::state::State;
use crate::store::Store;
use crate::sys::loop_device::READ_AHEAD_KIB;
use crate::sys::mounts;
use crate::timer::Timer;

/// What the process says on its standard output when the device can be used.
pub const READY: &str = "ready";

/// Begin of the source of our FUSE mounts in the table of mounts.
pub const FUSE_SOURCE: &str = "runahead-slowdisk";

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
    close_inherited();
    let _ = rustix::process::setsid();
    harden();
    let state = State::load(directory)?;
    let profile = state.options.resolve()?;
    match profile.medium {
        Medium::Disks | Medium::Network => serve_disk(&state, &profile),
        Medium::Object => serve_object(&state, &profile),
        Medium::Local => Err(Error::Usage("the machine's own disk needs no process".into())),
    }
}

/// The model, paused until `up` is through.
fn engine<P>(state: &State, profile: &Profile) -> Arc<Engine<P>> {
    let array = Array::new(profile, state.options.size_bytes, state.options.seed);
    let switches = Switches { paused: true, free_writes: state.options.free_writes };
    Arc::new(Engine::new(array, switches))
}

fn serve_disk(state: &State, profile: &Profile) -> Result<()> {
    let options = &state.options;
    let disk = Disk {
        name: options.emulated(),
        store: Arc::new(Store::new(options.size_bytes, options.backing.as_deref())?),
        engine: engine(state, profile),
        bad: Arc::new(BadBlocks::default()),
        moderation: Moderation::of(profile),
    };
    let mountpoint = state.fuse_directory();
    run(state, &mountpoint, &disk.engine, &disk.bad, || {
        let session = DiskSession::mount(disk.clone(), &mountpoint, profile.fuse_limit)?;
        // Nothing is looked up by name from here on, and no thread is started yet.
        mounts::leave_all()?;
        Ok(Box::new(|| session.run()))
    })
}

fn serve_object(state: &State, profile: &Profile) -> Result<()> {
    let engine = engine(state, profile);
    let timer = Timer::start(Arc::clone(&engine))?;
    let backing = state.object_directory();
    let mountpoint = &state.options.mountpoint;
    run(state, mountpoint, &engine, &BadBlocks::default(), || {
        let fs = ObjectFs::new(&backing, Arc::clone(&timer), profile.fuse_limit)?;
        let session = mount(fs, &state.options.emulated(), mountpoint, SessionACL::All)?;
        pin_readahead_of(mountpoint)?;
        Ok(Box::new(|| session.run()))
    })
}

/// Serves a mount until it is unmounted.
type Serving = Box<dyn FnOnce() -> std::io::Result<()> + Send>;

/// Mounts a file system and agrees with the kernel; nothing is served yet. `emulated`
/// is a part of its source: a stored profile goes by that.
pub fn mount<F: Filesystem>(
    fs: F,
    emulated: &str,
    mountpoint: &Path,
    acl: SessionACL,
) -> Result<Session<F>> {
    let mut config = fuser::Config::default();
    let source = MountOption::FSName(format!("{FUSE_SOURCE}-{emulated}"));
    config.mount_options = vec![source, MountOption::NoAtime];
    if acl == SessionACL::All {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config.acl = acl;
    Session::new(fs, mountpoint, &config)
        .context(|| format!("mount FUSE at {}", mountpoint.display()))
}

/// Pins the readahead of a FUSE mount by its device number. The handshake is
/// done by now, so that the root's attributes can be asked for from here only
/// once the session runs: mountinfo has the number without asking.
fn pin_readahead_of(mountpoint: &Path) -> Result<()> {
    let (major, minor) = mounts::device_at(mountpoint)
        .ok_or_else(|| Error::Usage(format!("{} is not mounted", mountpoint.display())))?;
    mounts::pin_readahead(major, minor, READ_AHEAD_KIB)
}

/// Serves until the end; returns only if it cannot start.
fn run<P>(
    state: &State,
    mountpoint: &Path,
    engine: &Engine<P>,
    bad: &BadBlocks,
    mut open_session: impl FnMut() -> Result<Serving>,
) -> Result<()> {
    let socket = state.socket();
    let _ = std::fs::remove_file(&socket);
    let listener =
        UnixListener::bind(&socket).context(|| format!("listen on {}", socket.display()))?;
    let remounting = Arc::new(AtomicBool::new(false));
    let mut serving = start_session(open_session()?, &remounting)?;
    println!("{READY}");
    for stream in listener.incoming() {
        let mut stop = false;
        let answered = stream.and_then(|stream| {
            control::answer(stream, |question| match question {
                Ask::Remount => {
                    remounting.store(true, Ordering::SeqCst);
                    let answer = mounts::unmount(mountpoint, false).and_then(|()| {
                        let _ = std::mem::replace(&mut serving, std::thread::spawn(|| {})).join();
                        remounting.store(false, Ordering::SeqCst);
                        serving = start_session(open_session()?, &remounting)?;
                        Ok(Answer::Done)
                    });
                    remounting.store(false, Ordering::SeqCst);
                    answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))
                }
                _ => {
                    stop = question == Ask::Stop;
                    respond(engine, bad, question)
                }
            })
        });
        if let Err(error) = answered {
            log::warn!("control: {error}");
        }
        if stop {
            // Whoever asked unmounts what is left: with this process goes FUSE's end.
            std::process::exit(0);
        }
    }
    Ok(())
}

/// Runs a session in a thread of its own. Its end is the end of the process,
/// unless another one follows.
fn start_session(session: Serving, remounting: &Arc<AtomicBool>) -> Result<JoinHandle<()>> {
    let remounting = Arc::clone(remounting);
    std::thread::Builder::new()
        .name("slowdisk-fuse".into())
        .spawn(move || {
            let ended = session();
            if let Err(error) = &ended {
                log::error!("FUSE ended: {error}");
            }
            if !remounting.load(Ordering::SeqCst) {
                std::process::exit(i32::from(ended.is_err()));
            }
        })
        .context(|| "start the FUSE thread".into())
}

fn respond<P>(engine: &Engine<P>, bad: &BadBlocks, question: Ask) -> Answer {
    match question {
        Ask::Stats => return Answer::Stats(Box::new(engine.snapshot())),
        Ask::Reset => engine.reset_stats(),
        Ask::Pause => engine.set_paused(true),
        Ask::Resume => engine.set_paused(false),
        Ask::Lose { ranges } => bad.lose(&ranges),
        Ask::Mend => bad.mend(),
        Ask::Stop | Ask::Remount => {}
    }
    Answer::Done
}

/// Lets go of what the caller of `up` had open: a lock or a pipe of its own
/// would last as long as the device.
fn close_inherited() {
    // SAFETY: called first of all, when this process has opened nothing beyond
    // its standard streams.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Makes the process as dependable as a device: real hardware is not swapped
/// out, not chosen by the OOM killer, does not wait for its own I/O, and does
/// not compete for the CPU with the programs that use it. Each is best effort.
fn harden() {
    // On fault, so that a sparse device stays sparse.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(flags) {
        log::info!("cannot lock memory: {error}");
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        log::info!("cannot leave the OOM killer's list: {error}");
    }
    // SAFETY: this prctl takes integers only.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } != 0 {
        log::info!("cannot become an I/O flusher: {}", std::io::Error::last_os_error());
    }
    // The kernel's sched_param: one integer. Not every libc makes this call.
    let priority: libc::c_int = 1;
    // SAFETY: the pointer is to a valid sched_param; 0 means this thread, whose
    // policy the threads that it starts inherit.
    if unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority)
    } != 0
    {
        log::info!("cannot take real-time priority: {}", std::io::Error::last_os_error());
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
