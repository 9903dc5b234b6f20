//! Pipes, sockets, queues and waiting for them: what goes out is swallowed,
//! what would come in parks.

use crate::abi::*;
use crate::context::{Context, address_of};
use crate::descriptors::{File, Kind};
use crate::kernel::Kernel;
use crate::outcome::{Answer, Stop, errno, park};
use runahead_protocol::stats::Park;

const POLLIN: u16 = 0x001;
const POLLOUT: u16 = 0x004;
const POLLNVAL: u16 = 0x020;
const POLLRDNORM: u16 = 0x040;
const POLLWRNORM: u16 = 0x100;

/// Descriptors in one `poll`; more park.
const POLLED_MAX: usize = 1024;

/// What is known of a descriptor's readiness.
fn readiness(file: &File) -> u16 {
    match file.kind {
        Kind::Other | Kind::Socket | Kind::Terminal if file.writable() => POLLOUT | POLLWRNORM,
        Kind::Other | Kind::Socket | Kind::Terminal => 0,
        _ => POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM,
    }
}

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn pipe(&mut self, a: [usize; 6]) -> Answer {
        self.pipe2([a[0], 0, 0, 0, 0, 0])
    }

    pub(crate) fn pipe2(&mut self, a: [usize; 6]) -> Answer {
        let reader = self.add_imaginary(Kind::Other, O_RDONLY, a[1])?;
        let writer = self.add_imaginary(Kind::Other, O_WRONLY, a[1])?;
        // A number that no other pipe has while this is open.
        let number = u64::MAX - writer as u64;
        for end in [reader, writer] {
            let id = self.id(end)?;
            self.e.table.file_mut(id).ino = number;
        }
        // What was left in an earlier one.
        self.e.pipes.take((0, number), u64::MAX);
        self.e.pipes.watch((0, number));
        self.store_pair(a[0], reader, writer)
    }

    pub(crate) fn socketpair(&mut self, a: [usize; 6]) -> Answer {
        let one = self.add_imaginary(Kind::Socket, O_RDWR, a[1])?;
        let other = self.add_imaginary(Kind::Socket, O_RDWR, a[1])?;
        self.store_pair(a[3], one, other)
    }

    fn store_pair(&mut self, address: usize, one: usize, other: usize) -> Answer {
        self.store(address, &(one as u32).to_ne_bytes())?;
        self.store(address.wrapping_add(4), &(other as u32).to_ne_bytes())?;
        Ok(0)
    }

    /// `socket(family, type | flags, protocol)`: SOCK_CLOEXEC and
    /// SOCK_NONBLOCK have the values of the `O_` flags.
    pub(crate) fn socket(&mut self, a: [usize; 6]) -> Answer {
        self.add_imaginary(Kind::Socket, O_RDWR, a[1])
    }

    pub(crate) fn eventfd(&mut self, _: [usize; 6]) -> Answer {
        self.add_imaginary(Kind::Other, O_RDWR, 0)
    }

    /// `eventfd2`, `timerfd_create`: flags in the second argument.
    pub(crate) fn eventfd2(&mut self, a: [usize; 6]) -> Answer {
        self.add_imaginary(Kind::Other, O_RDWR, a[1])
    }

    /// `epoll_create1`, `inotify_init1`: flags in the first argument.
    pub(crate) fn epoll_create1(&mut self, a: [usize; 6]) -> Answer {
        self.add_imaginary(Kind::Other, O_RDWR, a[0])
    }

    pub(crate) fn epoll_create(&mut self, _: [usize; 6]) -> Answer {
        self.add_imaginary(Kind::Other, O_RDWR, 0)
    }

    /// `signalfd4(fd, mask, size, flags)`: a new one where fd is -1.
    pub(crate) fn signalfd4(&mut self, a: [usize; 6]) -> Answer {
        self.signalfd_of(a[0], a[3])
    }

    pub(crate) fn signalfd(&mut self, a: [usize; 6]) -> Answer {
        self.signalfd_of(a[0], 0)
    }

    fn signalfd_of(&mut self, fd: usize, flags: usize) -> Answer {
        if fd as i32 == -1 {
            return self.add_imaginary(Kind::Other, O_RDWR, flags);
        }
        self.id(fd)?;
        Ok(fd)
    }

    /// `pidfd_open(pid, flags)`.
    pub(crate) fn pidfd_open(&mut self, _: [usize; 6]) -> Answer {
        self.add_imaginary(Kind::Other, O_RDWR, O_CLOEXEC)
    }

    /// A call on a socket that succeeds and does nothing.
    pub(crate) fn on_socket(&mut self, a: [usize; 6]) -> Answer {
        self.must_be_socket(a[0])?;
        Ok(0)
    }

    /// A call on a socket that needs the other side.
    pub(crate) fn needs_peer(&mut self, a: [usize; 6]) -> Answer {
        self.must_be_socket(a[0])?;
        park(Park::NeedsInput)
    }

    /// `connect(fd, address, len)`. The C library asks a name service daemon
    /// for every user name (`getpwuid`), which on most machines is not there:
    /// that much can be answered from the socket's path.
    pub(crate) fn connect(&mut self, a: [usize; 6]) -> Answer {
        const AF_UNIX: u16 = 1;
        const SUN_PATH: usize = 2;
        const SUN_PATH_MAX_BYTES: usize = 108;
        self.must_be_socket(a[0])?;
        let len = (a[2] as u32 as usize).saturating_sub(SUN_PATH).min(SUN_PATH_MAX_BYTES);
        let mut family = [0u8; SUN_PATH];
        let mut path = [0u8; SUN_PATH_MAX_BYTES + 1];
        let text = path.get_mut(..len).unwrap_or_default();
        if !self.k.load(a[1], &mut family) || !self.k.load(a[1].wrapping_add(SUN_PATH), text) {
            return park(Park::BadPointer);
        }
        // Abstract names begin with a zero.
        let named = u16::from_ne_bytes(family) == AF_UNIX && text.first().is_some_and(|c| *c != 0);
        if named && !self.e.names.cwd_imaginary {
            // ENOENT, ENOTDIR, EACCES end here.
            self.stat_at(AT_FDCWD as usize, address_of(&path), 0)?;
        }
        park(Park::NeedsInput)
    }

    fn must_be_socket(&self, fd: usize) -> Result<(), Stop> {
        let id = self.id(fd)?;
        match self.e.table.file(id).kind {
            Kind::Socket => Ok(()),
            // What was inherited need not be known that exactly.
            Kind::Other => Ok(()),
            _ => errno(ENOTSOCK),
        }
    }

    /// `sendto(fd, buffer, len, …)`.
    pub(crate) fn sendto(&mut self, a: [usize; 6]) -> Answer {
        self.must_be_socket(a[0])?;
        let len = a[2].min(RW_MAX_BYTES as usize);
        self.e.counters.swallowed_bytes += len as u64;
        Ok(len)
    }

    /// `sendmsg(fd, msghdr, flags)`.
    pub(crate) fn sendmsg(&mut self, a: [usize; 6]) -> Answer {
        self.must_be_socket(a[0])?;
        // struct msghdr: name, namelen, iov, iovlen.
        let [_, _, vector, count] = self.load_words(a[1])?;
        Ok(self.vector_len(vector as usize, count as usize)? as usize)
    }

    /// `getsockopt(fd, level, name, value, len)`: "no error" is known.
    pub(crate) fn getsockopt(&mut self, a: [usize; 6]) -> Answer {
        const SOL_SOCKET: usize = 1;
        const SO_ERROR: usize = 4;
        self.must_be_socket(a[0])?;
        if (a[1], a[2]) != (SOL_SOCKET, SO_ERROR) || self.load_u32(a[4])? < 4 {
            return park(Park::Unanswerable);
        }
        self.store(a[3], &0u32.to_ne_bytes())?;
        self.store(a[4], &4u32.to_ne_bytes())?;
        Ok(0)
    }

    /// `poll(fds, count, timeout in ms)`.
    pub(crate) fn poll(&mut self, a: [usize; 6]) -> Answer {
        let waits = a[2] as i32 != 0;
        self.poll_all(a[0], a[1], waits)
    }

    /// `ppoll(fds, count, timeout, mask, size)`.
    pub(crate) fn ppoll(&mut self, a: [usize; 6]) -> Answer {
        let waits = a[2] == 0 || self.load_words::<2>(a[2])? != [0, 0];
        self.poll_all(a[0], a[1], waits)
    }

    fn poll_all(&mut self, fds: usize, count: usize, waits: bool) -> Answer {
        if count > POLLED_MAX {
            return park(Park::Unanswerable);
        }
        let (mut ready, mut wants_input) = (0, false);
        for index in 0..count {
            // struct pollfd: int fd; short events, revents.
            let at = fds.wrapping_add(index * 8);
            let [packed] = self.load_words(at)?;
            let (fd, events) = (packed as u32, (packed >> 32) as u16);
            let revents = match self.id(fd as usize) {
                _ if (fd as i32) < 0 => 0,
                Err(_) => POLLNVAL,
                Ok(id) => readiness(self.e.table.file(id)) & events,
            };
            wants_input |= events & (POLLIN | POLLRDNORM) != 0;
            ready += usize::from(revents != 0);
            self.store(at.wrapping_add(6), &revents.to_ne_bytes())?;
        }
        self.would_wait(ready, waits, wants_input)
    }

    fn would_wait(&self, ready: usize, waits: bool, wants_input: bool) -> Answer {
        match ready {
            0 if waits && wants_input => park(Park::NeedsInput),
            0 if waits => park(Park::NeedsOther),
            _ => Ok(ready),
        }
    }

    /// `select(count, read, write, except, timeout)`.
    pub(crate) fn select(&mut self, a: [usize; 6]) -> Answer {
        let waits = a[4] == 0 || self.load_words::<2>(a[4])? != [0, 0];
        let count = a[0] as i32;
        if count < 0 {
            return errno(EINVAL);
        }
        let count = (count as usize).min(crate::descriptors::DESCRIPTORS_MAX);
        let read = self.select_set(a[1], count, POLLIN)?;
        let write = self.select_set(a[2], count, POLLOUT)?;
        self.select_set(a[3], count, 0)?;
        self.would_wait(read + write, waits, a[1] != 0)
    }

    /// Leaves the ready ones of one set in it.
    fn select_set(&mut self, set: usize, count: usize, event: u16) -> Answer {
        let mut ready = 0;
        if set == 0 {
            return Ok(0);
        }
        for word in 0..count.div_ceil(64) {
            let at = set.wrapping_add(word * 8);
            let [mut bits] = self.load_words(at)?;
            for bit in 0..64 {
                let fd = word * 64 + bit;
                if fd >= count || bits >> bit & 1 == 0 {
                    continue;
                }
                let id = self.id(fd)?;
                if readiness(self.e.table.file(id)) & event == 0 {
                    bits &= !(1 << bit);
                } else {
                    ready += 1;
                }
            }
            self.store_words(at, &[bits])?;
        }
        Ok(ready)
    }

    /// `epoll_wait(fd, events, count, timeout)`: its interest list is not
    /// kept.
    pub(crate) fn epoll_wait(&mut self, a: [usize; 6]) -> Answer {
        self.id(a[0])?;
        if a[3] as i32 == 0 { Ok(0) } else { park(Park::NeedsOther) }
    }
}
