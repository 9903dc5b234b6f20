//! Linux's asynchronous I/O (io_setup(2), linux/aio_abi.h): many reads in
//! flight from one thread.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;

/// IOCB_CMD_PREAD.
const PREAD: u16 = 0;

/// `struct iocb`; little-endian machines have the key before the flags.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// A read that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Which buffer.
    pub buffer: usize,
    /// Bytes read.
    pub len: usize,
}

/// Reads of a file into buffers of the caller, each at most once at a time.
#[derive(Debug)]
pub struct Reads<'a> {
    context: libc::c_ulong,
    file: &'a File,
    /// Where the buffers are, and how long.
    buffers: Vec<(u64, usize)>,
    controls: Vec<Iocb>,
    queued: Vec<usize>,
    events: Vec<IoEvent>,
    in_flight: usize,
    _buffers: PhantomData<&'a mut [u8]>,
}

impl<'a> Reads<'a> {
    /// Reads of `file` into these buffers, aligned as its direct I/O demands.
    ///
    /// # Errors
    /// If the kernel has no asynchronous I/O left.
    pub fn new(file: &'a File, buffers: impl Iterator<Item = &'a mut [u8]>) -> io::Result<Self> {
        let buffers: Vec<_> =
            buffers.map(|bytes| (bytes.as_mut_ptr() as u64, bytes.len())).collect();
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one context number to the pointer.
        check(unsafe {
            libc::syscall(libc::SYS_io_setup, buffers.len().max(1), &raw mut context)
        })?;
        let controls = vec![Iocb::default(); buffers.len()];
        let events = vec![IoEvent::default(); buffers.len().max(1)];
        let (queued, in_flight) = (Vec::new(), 0);
        Ok(Self {
            context,
            file,
            buffers,
            controls,
            queued,
            events,
            in_flight,
            _buffers: PhantomData,
        })
    }

    /// Queues a read that fills a buffer; it starts with [`Reads::submit`].
    pub fn queue(&mut self, buffer: usize, offset: u64) {
        let (address, len) = self.buffers[buffer];
        self.controls[buffer] = Iocb {
            data: buffer as u64,
            opcode: PREAD,
            descriptor: self.file.as_raw_fd() as u32,
            buffer: address,
            bytes: len as u64,
            offset: offset as i64,
            ..Iocb::default()
        };
        self.queued.push(buffer);
    }

    /// Starts what is queued.
    ///
    /// # Errors
    /// If the kernel takes less than all.
    pub fn submit(&mut self) -> io::Result<()> {
        let pointers: Vec<*const Iocb> =
            self.queued.iter().map(|buffer| &raw const self.controls[*buffer]).collect();
        if pointers.is_empty() {
            return Ok(());
        }
        // SAFETY: each pointer is to a control block that the kernel copies now;
        // the buffers in them outlive `self`, whose end waits for every read.
        let taken = check(unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, pointers.len(), pointers.as_ptr())
        })?;
        self.in_flight += taken;
        if taken < self.queued.len() {
            return Err(io::Error::other("the kernel takes no more asynchronous reads"));
        }
        self.queued.clear();
        Ok(())
    }

    /// How many are on their way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Waits for at least one; appends all that have ended.
    ///
    /// # Errors
    /// The first read's that failed.
    pub fn wait(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        let none: *const libc::timespec = std::ptr::null();
        // SAFETY: the kernel writes at most so many events; no time limit.
        let count = check(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                1,
                self.events.len(),
                self.events.as_mut_ptr(),
                none,
            )
        })?;
        self.in_flight -= count;
        for event in &self.events[..count] {
            let len = usize::try_from(event.result)
                .map_err(|_| io::Error::from_raw_os_error(-event.result as i32))?;
            ended.push(Ended { buffer: event.data as usize, len });
        }
        Ok(())
    }
}

impl Drop for Reads<'_> {
    fn drop(&mut self) {
        // SAFETY: waits for all that is in flight; the number is not used again.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_sizes() {
        assert_eq!(size_of::<Iocb>(), 64);
        assert_eq!(size_of::<IoEvent>(), 32);
    }

    #[test]
    fn every_read_ends_once_with_its_bytes() {
        let path = std::env::temp_dir().join(format!("slowdisk-aio-{}", std::process::id()));
        let bytes: Vec<u8> = (0..5 * 512_u32).map(|at| (at / 512) as u8).collect();
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut buffers = vec![vec![9; 512]; 6];
        let mut reads = Reads::new(&file, buffers.iter_mut().map(Vec::as_mut_slice)).unwrap();
        (0..6).for_each(|buffer| reads.queue(buffer, buffer as u64 * 512));
        reads.submit().unwrap();
        let mut ended = Vec::new();
        while reads.in_flight() > 0 {
            reads.wait(&mut ended).unwrap();
        }
        ended.sort_by_key(|ended| ended.buffer);
        assert!(ended.iter().map(|ended| ended.len).eq([512, 512, 512, 512, 512, 0]));
        drop(reads);
        assert!((0..5).all(|at| buffers[at] == [at as u8; 512]));
    }
}
