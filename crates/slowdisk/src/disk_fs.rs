//! The FUSE file system with one file: the contents of the device.
//!
//! One thread takes the requests, runs the model and sends the replies. On the
//! machines that this runs on a change to another process and back costs as
//! much as all else that a small request costs, so it sleeps as seldom as it can.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use fuser::{Filesystem, InitFlags, KernelConfig, Session, SessionACL};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::bad_blocks::BadBlocks;
use crate::engine::{Engine, Outlook, monotonic_ns, timespec};
use crate::error::Result;
use crate::model::{Completion, Request};
use crate::profile::Profile;
use crate::serve::mount;
use crate::store::Store;
use crate::wire::{Ask, Asked, Attributes, Body, REQUEST_ROOM_BYTES, out_header};

const ROOT_INODE: u64 = 1;
const DISK_INODE: u64 = 2;
/// Attributes never change.
const FOREVER_S: u64 = 1 << 30;
/// Largest read or write in one FUSE request (the kernel's own limit without
/// raising fs.fuse.max_pages_limit).
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests taken before replies that are due are looked for again.
const TAKEN_MAX: usize = 32;

/// Raises (or lowers) FUSE's own limits in `init`. Without this the kernel
/// lets 12 requests be in flight, and a 32-way device is a 12-way one.
pub fn configure(config: &mut KernelConfig, fuse_limit: u16) -> io::Result<()> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    config.set_max_background(fuse_limit).map_err(|_| invalid("max_background"))?;
    // The kernel's own ratio, as for its default of 12 and 9.
    let threshold = (u32::from(fuse_limit) * 3 / 4).max(1) as u16;
    config.set_congestion_threshold(threshold).map_err(|_| invalid("congestion_threshold"))?;
    config.set_max_write(REQUEST_BYTES_MAX).map_err(|_| invalid("max_write"))?;
    Ok(())
}

/// Agrees with the kernel on what is possible; the requests themselves are
/// [`DiskSession`]'s.
#[derive(Debug)]
struct Handshake {
    fuse_limit: u16,
}

impl Filesystem for Handshake {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config, self.fuse_limit)?;
        // Without it the loop device's direct reads go one after another.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::other("this kernel's FUSE has no asynchronous direct I/O"))
    }
}

/// What a device is made of.
#[derive(Debug, Clone)]
pub struct Disk {
    /// Name of the file.
    pub name: String,
    /// Its contents.
    pub store: Arc<Store>,
    /// Its model.
    pub engine: Arc<Engine<Reply>>,
    /// What it cannot read.
    pub bad: Arc<BadBlocks>,
    /// How often its requests are looked for.
    pub moderation: Moderation,
}

/// A reply that waits for its time.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    unique: u64,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// Bytes of the store.
    Read { offset: u64, len: usize },
    /// A block that cannot be read: known only when the disk has tried.
    Lost,
    /// So many bytes written (they are in the store already).
    Written(u32),
}

/// A mounted device. Its end unmounts it.
pub struct DiskSession {
    disk: Disk,
    session: Session<Handshake>,
}

impl DiskSession {
    /// Mounts a device.
    ///
    /// # Errors
    /// If FUSE cannot be mounted there.
    pub fn mount(disk: Disk, mountpoint: &Path, fuse_limit: u16) -> Result<Self> {
        let session = mount(Handshake { fuse_limit }, &disk.name, mountpoint, SessionACL::Owner)?;
        Ok(Self { disk, session })
    }

    /// Serves it until it is unmounted.
    ///
    /// # Errors
    /// If the kernel's end of it fails.
    pub fn run(self) -> io::Result<()> {
        let fuse = self.session.as_fd();
        rustix::io::ioctl_fionbio(fuse, true)?;
        let mut server = Server { disk: &self.disk, fuse, done: Vec::new(), contents: Vec::new() };
        let mut buffer = vec![0; REQUEST_BYTES_MAX as usize + REQUEST_ROOM_BYTES];
        // Since when it slept, if requests could not wake it.
        let mut asleep_ns = None;
        // Whether a request may have come.
        let mut asked = true;
        // How much earlier than the model says replies go.
        let mut lead_ns = 0;
        let mut wake = Wake { late_ns: 0, late_max_ns: self.disk.moderation.pause_ns / 2 };
        loop {
            let mut all = true;
            if asked {
                // One that came meanwhile counts from the look before.
                match server.take(asleep_ns.unwrap_or_else(monotonic_ns), &mut buffer)? {
                    Some(taken) => all = taken,
                    None => return Ok(()),
                }
            }
            let outlook = self.disk.engine.advance(lead_ns, &mut server.done);
            server.send_due();
            if !all {
                continue;
            }
            let now_ns = monotonic_ns();
            (asleep_ns, lead_ns) = (None, 0);
            asked = match self.disk.moderation.next(outlook, now_ns) {
                Wait::Request => await_request(fuse, None),
                Wait::RequestUntil(at_ns) => {
                    let (asked, early_ns) = wake.await_either(fuse, at_ns);
                    lead_ns = early_ns;
                    asked
                }
                Wait::Until(at_ns) => {
                    asleep_ns = Some(now_ns);
                    sleep_until(at_ns);
                    // With the last look before its time: the way out takes the rest.
                    lead_ns = self.disk.moderation.pause_ns;
                    true
                }
            }
        }
    }
}

/// Until when nothing has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Until a request comes.
    Request,
    /// Until a request comes, or this time (CLOCK_MONOTONIC).
    RequestUntil(u64),
    /// Until this time, whatever comes.
    Until(u64),
}

/// Keeps a busy device from being looked at for each request and each reply
/// separately, as the moderation of interrupts does. A device with few requests
/// in flight is looked at for each of them.
///
/// A request counts from the look before it was seen, and its reply goes with
/// the last look before its time: half a pause early each on the mean, which is
/// less than its way from the block device to this process and back takes.
#[derive(Debug, Clone, Copy)]
pub struct Moderation {
    /// Time between two looks at a busy device, nanoseconds; 0: none.
    pause_ns: u64,
    /// With so many in flight one comes and one goes in each pause. (With 8 in
    /// flight on `cloud`, fewer, looking for each cost less: they come in groups.)
    in_flight_min: usize,
}

impl Moderation {
    /// As the profile has it.
    pub fn of(profile: &Profile) -> Self {
        let pause_ns = profile.moderation_ns;
        let service_ns = profile.mean_random_ns(4096);
        let in_flight_min = service_ns.div_ceil(pause_ns.max(1)) as usize;
        Self { pause_ns, in_flight_min: in_flight_min.max(2) }
    }

    fn next(&self, outlook: Outlook, now_ns: u64) -> Wait {
        match outlook.next_ns {
            None => Wait::Request,
            Some(_) if self.pause_ns > 0 && outlook.in_flight >= self.in_flight_min => {
                Wait::Until(now_ns + self.pause_ns)
            }
            Some(at_ns) => Wait::RequestUntil(at_ns),
        }
    }
}

/// Being woken takes time, on a slow host a twentieth of `cloud`'s request: the
/// timer is set earlier by what that took lately, and the reply that it is set
/// for goes when it has fired.
#[derive(Debug)]
struct Wake {
    /// How late waking was, moving mean, nanoseconds.
    late_ns: u64,
    /// More than this is not made up for.
    late_max_ns: u64,
}

impl Wake {
    /// Waits for a request or for a reply that is due at `at_ns`: whether a
    /// request may have come, and how early the reply is that may go.
    fn await_either(&mut self, fuse: BorrowedFd<'_>, at_ns: u64) -> (bool, u64) {
        let aim_ns = at_ns.saturating_sub(self.late_ns);
        let early_ns = |now_ns| at_ns.saturating_sub(now_ns);
        let now_ns = monotonic_ns();
        let Some(left_ns) = aim_ns.checked_sub(now_ns) else { return (true, early_ns(now_ns)) };
        if await_request(fuse, Some(left_ns)) {
            return (true, 0);
        }
        let now_ns = monotonic_ns();
        self.note(now_ns.saturating_sub(aim_ns));
        (false, early_ns(now_ns))
    }

    fn note(&mut self, late_ns: u64) {
        self.late_ns = (self.late_ns * 7 + late_ns.min(self.late_max_ns)) / 8;
    }
}

/// Waits for a request, at most for `left_ns`: whether one may have come.
fn await_request(fuse: BorrowedFd<'_>, left_ns: Option<u64>) -> bool {
    let left = left_ns.map(timespec);
    let mut fuse = [PollFd::from_borrowed_fd(fuse, PollFlags::IN)];
    // An interruption does no harm.
    rustix::event::poll(&mut fuse, left.as_ref()) != Ok(0)
}

fn sleep_until(at_ns: u64) {
    let clock = rustix::thread::ClockId::Monotonic;
    let _ = rustix::thread::clock_nanosleep_absolute(clock, &timespec(at_ns));
}

/// The thread that serves.
struct Server<'a> {
    disk: &'a Disk,
    fuse: BorrowedFd<'a>,
    /// Replies whose time has come.
    done: Vec<Completion<Reply>>,
    /// Contents on their way from a file to the kernel.
    contents: Vec<u8>,
}

impl Server<'_> {
    /// Takes the requests that have come, at about `came_ns`: whether these were
    /// all; none when the device is unmounted.
    fn take(&mut self, came_ns: u64, buffer: &mut [u8]) -> io::Result<Option<bool>> {
        for _ in 0..TAKEN_MAX {
            match rustix::io::read(self.fuse, &mut *buffer) {
                Ok(len) => {
                    let asked = Asked::parse(&buffer[..len])
                        .ok_or_else(|| io::Error::other("a FUSE request that is cut short"))?;
                    if asked.ask == Ask::End {
                        self.reply(asked.unique, &[]);
                        return Ok(None);
                    }
                    self.answer(came_ns, &asked);
                }
                Err(Errno::AGAIN) => return Ok(Some(true)),
                // The request was taken back before it could be read.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(false))
    }

    fn answer(&mut self, came_ns: u64, asked: &Asked<'_>) {
        let unique = asked.unique;
        match asked.ask {
            Ask::Read { offset, len } => {
                let len = u64::from(len).min(self.disk.store.len().saturating_sub(offset));
                let what = if self.disk.bad.meets(offset, len) {
                    What::Lost
                } else {
                    What::Read { offset, len: len as usize }
                };
                let request = Request { offset, len, write: false };
                self.submit(came_ns, request, Reply { unique, what });
            }
            Ask::Write { offset, data } => {
                let len = match self.disk.store.write(offset, data) {
                    Ok(len) if len == data.len() => len,
                    Ok(_) => return self.refuse(unique, libc::ENOSPC),
                    Err(error) => return self.refuse(unique, number_of(&error)),
                };
                let request = Request { offset, len: len as u64, write: true };
                let what = What::Written(len as u32);
                self.submit(came_ns, request, Reply { unique, what });
            }
            Ask::Lookup(name) => match self.attributes(DISK_INODE) {
                Some(disk) if asked.inode == ROOT_INODE && name == self.disk.name.as_bytes() => {
                    self.reply(unique, Body::entry(&disk, FOREVER_S).bytes());
                }
                _ => self.refuse(unique, libc::ENOENT),
            },
            Ask::Attributes => match self.attributes(asked.inode) {
                Some(attributes) => {
                    self.reply(unique, Body::attr(&attributes, FOREVER_S).bytes());
                }
                None => self.refuse(unique, libc::ENOENT),
            },
            Ask::Open => self.reply(unique, Body::open().bytes()),
            Ask::Statistics => self.reply(unique, Body::statistics().bytes()),
            // A write is complete when it is answered: there is no cache to flush.
            Ask::Nothing => self.reply(unique, &[]),
            Ask::Allocate { offset, len, mode } => {
                // The loop device asks for this on discard and on writing zeros.
                let zeroing = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
                if mode as i32 & zeroing == 0 {
                    return self.refuse(unique, libc::EOPNOTSUPP);
                }
                match self.disk.store.discard(offset, len) {
                    Ok(()) => self.reply(unique, &[]),
                    Err(error) => self.refuse(unique, number_of(&error)),
                }
            }
            Ask::Forget | Ask::End => {}
            Ask::Unknown => self.refuse(unique, libc::ENOSYS),
        }
    }

    fn attributes(&self, inode: u64) -> Option<Attributes> {
        match inode {
            ROOT_INODE => Some(Attributes { inode, size: 0, mode: libc::S_IFDIR | 0o500 }),
            DISK_INODE => {
                let size = self.disk.store.len();
                Some(Attributes { inode, size, mode: libc::S_IFREG | 0o600 })
            }
            _ => None,
        }
    }

    fn submit(&mut self, came_ns: u64, request: Request, reply: Reply) {
        self.disk.engine.submit(came_ns, request, reply, &mut self.done);
    }

    fn send_due(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        let mut contents = std::mem::take(&mut self.contents);
        for Completion { payload: Reply { unique, what }, .. } in done.drain(..) {
            match what {
                What::Read { offset, len } => {
                    match self.disk.store.read(offset, len, &mut contents) {
                        Ok(bytes) => self.reply(unique, bytes),
                        Err(error) => self.refuse(unique, number_of(&error)),
                    }
                }
                What::Lost => self.refuse(unique, libc::EIO),
                What::Written(len) => self.reply(unique, Body::written(len).bytes()),
            }
        }
        (self.done, self.contents) = (done, contents);
    }

    fn refuse(&self, unique: u64, errno: i32) {
        self.send(&[IoSlice::new(&out_header(unique, errno, 0))]);
    }

    fn reply(&self, unique: u64, body: &[u8]) {
        self.send(&[IoSlice::new(&out_header(unique, 0, body.len())), IoSlice::new(body)]);
    }

    fn send(&self, parts: &[IoSlice<'_>]) {
        match rustix::io::writev(self.fuse, parts) {
            // ENOENT: nobody waits for it any more.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => log::warn!("a reply was refused: {error}"),
        }
    }
}

/// What the kernel calls an error.
fn number_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_is_made_up_for_within_a_limit() {
        let mut wake = Wake { late_ns: 0, late_max_ns: 50_000 };
        (0..100).for_each(|_| wake.note(30_000));
        assert!((29_900..=30_000).contains(&wake.late_ns));
        (0..100).for_each(|_| wake.note(u64::MAX));
        assert!((49_900..=50_000).contains(&wake.late_ns));
        let mut disk = Wake { late_ns: 0, late_max_ns: 0 };
        disk.note(30_000);
        assert_eq!(disk.late_ns, 0);
    }

    #[test]
    fn only_a_busy_network_device_makes_requests_wait() {
        let cloud = Profile::by_name("cloud").unwrap();
        let moderation = Moderation::of(&cloud);
        let outlook = |in_flight| Outlook { next_ns: Some(900), in_flight };
        assert_eq!(moderation.next(Outlook { next_ns: None, in_flight: 0 }, 5), Wait::Request);
        assert_eq!(moderation.next(outlook(1), 5), Wait::RequestUntil(900));
        assert_eq!(moderation.next(outlook(32), 5), Wait::Until(5 + cloud.moderation_ns));
        assert_eq!(moderation.next(outlook(8), 5), Wait::RequestUntil(900));
        assert!(moderation.in_flight_min <= 16);
        for name in ["array-2003", "hdd"] {
            let disk = Moderation::of(&Profile::by_name(name).unwrap());
            assert_eq!(disk.next(outlook(1000), 5), Wait::RequestUntil(900));
        }
    }
}
