//! Random workloads, and what the device spends on them beside the optimum.

use core::ops::RangeInclusive;

use runahead_policy::competitive::depth::Device;
use runahead_policy::competitive::streams::{Action, Miss, RUN_FIRST_BYTES, Streams};

pub const READ_BYTES: u64 = 64 * 1024;
const PAGE: u64 = 4096;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in its logarithm.
    pub fn spread(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.unit() * (high.ln() - low.ln())).exp()
    }
}

/// Streams that have waited `wait_ns` for their switches so far.
pub fn waited(wait_ns: u64) -> Box<Streams> {
    let mut streams = Box::<Streams>::default();
    streams.waited(&Action { counts: true, ..Action::default() }, wait_ns, 0);
    streams
}

/// One who reads files from their beginnings, one after another, as a request
/// handler does.
#[derive(Default)]
pub struct Reader {
    file: u64,
    /// The thread; 0: nobody knows.
    pub by: u64,
    /// Where its file lies.
    place: u64,
    length: u64,
    size: u64,
    position: u64,
    fetched: u64,
    pub switches: u64,
    switching_s: f64,
    /// Still in slow start: no run has taken as long to transfer as its switch
    /// took.
    slowly: bool,
    slow_switches: u64,
    slow_switching_s: f64,
}

impl Reader {
    /// Begins with another file.
    pub fn open(file: u64, place: u64, length: u64, size: u64) -> Self {
        Self { file, place, length, size, slowly: true, ..Self::default() }
    }

    fn open_any(random: &mut Random, device: &Device, file: u64) -> Self {
        let length = random.spread(RUN_FIRST_BYTES as f64, 8e6) as u64 / PAGE * PAGE;
        let size = length + random.between(0, 1000) * PAGE;
        let place = random.next() % device.size_bytes.saturating_sub(size).max(1);
        Self::open(file, place, length, size)
    }

    pub fn is_at_end(&self) -> bool {
        self.position >= self.length
    }

    /// Reads the next block; of the stream's length, the share `known` is known
    /// beforehand. Returns what was prefetched if it had to wait.
    pub fn read(&mut self, streams: &mut Streams, disk: &mut Disk, known: f64) -> Option<Action> {
        let len = READ_BYTES.min(self.length - self.position);
        let offset = self.position;
        self.position += len;
        if offset + len <= self.fetched {
            return None;
        }
        let lower_bound = (self.length as f64 * known) as u64;
        let place = self.place + offset;
        let miss = Miss {
            file: self.file,
            by: self.by,
            offset,
            len,
            size: self.size,
            passed: 0,
            known: lower_bound.saturating_sub(offset),
            place: Some(place),
            now_ns: disk.now_ns,
        };
        let action = streams.miss(&miss, &disk.device);
        let end = (offset + len).max(action.offset + action.len).min(self.size);
        let bytes = end - self.fetched.max(offset);
        let (switch_s, transfer_s) = disk.serve(place, end - offset, bytes);
        self.fetched = end;
        self.switches += 1;
        self.switching_s += switch_s;
        // Pages are whole, and a run of the depth may be half a page short.
        self.slowly &= transfer_s < 0.99 * switch_s;
        if self.slowly {
            self.slow_switches += 1;
            self.slow_switching_s += switch_s;
        }
        // The wait is over; how long it was is for the caller to say.
        streams.waited(&Action { counts: false, ..action }, 0, disk.now_ns);
        Some(action)
    }

    /// Switching that is slow start's, beyond that of a fixed depth which pays
    /// `switch_s` a switch, in seconds. "The number of resulting additional
    /// I/O switches is bounded by a small constant for each request processing"
    /// (Li et al., footnote 1): that they are is asserted here.
    fn slow_start_s(&self, device: &Device, switch_s: f64, known: f64) -> f64 {
        let rate = device.bytes_per_s(Some(self.place)) as f64;
        let doublings = |depth: u64| u64::from((depth / RUN_FIRST_BYTES).max(1).ilog2()) + 1;
        if device.has_places() {
            let deepest = device.depth_bytes(device.switch_ns(Some(u64::MAX)), Some(self.place));
            // One more may be cut short by the end of the file.
            let most = doublings(deepest) + 1;
            assert!(self.slow_switches <= most, "{} {most}", self.slow_switches);
            // Equation 2: a fixed depth has S_tot / S_p + 1 switches at most.
            let fixed_s = self.length as f64 / rate + switch_s;
            return (self.switching_s - fixed_s).clamp(0.0, self.slow_switching_s);
        }
        let depth = device.depth_bytes(device.switch_ns(None), None);
        let beyond = self.switches.saturating_sub(self.length.div_ceil(depth));
        let most = doublings(depth);
        assert!(known > 0.0 || beyond <= most, "{beyond} {most}");
        beyond.min(most) as f64 * switch_s
    }
}

/// The device, with a head and a clock.
pub struct Disk {
    pub device: Device,
    head: u64,
    now_ns: u64,
    busy_s: f64,
    /// Bytes read so far.
    pub bytes: u64,
    /// The dearest switch so far, at least that of independent random places,
    /// in seconds.
    dearest_s: f64,
}

impl Disk {
    pub fn new(device: Device) -> Self {
        let dearest_s = device.switch_ns(None) as f64 / 1e9;
        Self { device, head: 0, now_ns: 1, busy_s: 0.0, bytes: 0, dearest_s }
    }

    /// Serves a request of which `bytes` are new; returns the time of the
    /// switch and of the transfer.
    fn serve(&mut self, place: u64, len: u64, bytes: u64) -> (f64, f64) {
        let switch_s = self.device.switch_ns(Some(place.abs_diff(self.head))) as f64 / 1e9;
        let transfer_s = bytes as f64 / self.device.bytes_per_s(Some(place)) as f64;
        self.head = place + len;
        self.busy_s += switch_s + transfer_s;
        self.bytes += bytes;
        self.now_ns += ((switch_s + transfer_s) * 1e9) as u64;
        self.dearest_s = self.dearest_s.max(switch_s);
        (switch_s, transfer_s)
    }
}

/// Time that the device spent on a workload, in seconds.
#[derive(Debug, Default)]
pub struct Cost {
    pub total_s: f64,
    /// See [`Reader::slow_start_s`].
    pub slow_start_s: f64,
    /// The optimum with C_switch of independent random places.
    pub optimal_s: f64,
    /// The optimum with C_switch of [`Disk::dearest_s`], and slow start's switches beyond those of a fixed depth at that cost.
    pub dearest: (f64, f64),
}

impl Cost {
    /// Throughput as a share of the optimum, the footnote's switches left out.
    pub fn share(&self) -> f64 {
        self.optimal_s / (self.total_s - self.slow_start_s)
    }

    /// The same beside the optimum that pays the workload's dearest switch.
    pub fn share_of_dearest(&self) -> f64 {
        let (optimal_s, slow_start_s) = self.dearest;
        optimal_s / (self.total_s - slow_start_s)
    }

    /// With slow start's switches.
    pub fn whole_share(&self) -> f64 {
        self.optimal_s / self.total_s
    }
}

/// Handlers of a server, each with `files_each` open files that it reads in
/// turns, all of them up to some length.
pub struct Server<'a> {
    streams: &'a mut Streams,
    pub disk: Disk,
    files: u64,
    handlers: Vec<Handler>,
    pub order: Order,
}

/// Which handler the disk serves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the order of arrival.
    Arrival,
    /// One for as long as it reads the files of a request, as schedulers do that
    /// anticipate its next read.
    Anticipated,
}

#[derive(Default)]
struct Handler {
    readers: Vec<Reader>,
    /// When the disk served it last.
    served_ns: u64,
}

pub const FILE_BYTES: u64 = 4 << 20;

impl<'a> Server<'a> {
    pub fn new(streams: &'a mut Streams, device: Device, handlers: usize) -> Self {
        let handlers = (0..handlers).map(|_| Handler::default()).collect();
        Self { streams, disk: Disk::new(device), files: 0, handlers, order: Order::Arrival }
    }

    /// Opens `requests` times `files_each` files of 4 MiB, of each of which a
    /// handler reads so much from the beginning as `length` says; returns the
    /// throughput as a share of the optimum's, slow start counted.
    pub fn serve(
        &mut self,
        requests: usize,
        files_each: usize,
        mut length: impl FnMut() -> u64,
        random: &mut Random,
    ) -> f64 {
        let (mut optimal_s, began_s) = (0.0, self.disk.busy_s);
        let device = self.disk.device;
        let mut left = requests;
        while left != 0 {
            for handler in 0..self.handlers.len() {
                if self.handlers[handler].readers.iter().all(Reader::is_at_end) {
                    if left == 0 {
                        continue;
                    }
                    left -= 1;
                    self.handlers[handler].readers = (0..files_each)
                        .map(|_| {
                            self.files += 1;
                            let length = length();
                            optimal_s += length as f64 / device.bytes_per_s(None) as f64
                                + device.switch_ns(None) as f64 / 1e9;
                            let places = device.size_bytes.saturating_sub(FILE_BYTES).max(1);
                            Reader::open(self.files, random.next() % places, length, FILE_BYTES)
                        })
                        .collect();
                }
                self.until_stall(handler);
            }
        }
        optimal_s / (self.disk.busy_s - began_s)
    }

    /// Lets a handler read until it has waited for the disk, or until its request
    /// has been answered.
    fn until_stall(&mut self, handler: usize) {
        let (number, count) = (handler as u64 + 1, self.handlers.len() as u64);
        let Some(Handler { readers, served_ns }) = self.handlers.get_mut(handler) else { return };
        while readers.iter().any(|reader| !reader.is_at_end()) {
            let mut stalled = false;
            for reader in readers.iter_mut().filter(|reader| !reader.is_at_end()) {
                let began_ns = self.disk.now_ns;
                reader.by = number;
                let Some(action) = reader.read(self.streams, &mut self.disk, 0.0) else { continue };
                stalled = true;
                let now_ns = self.disk.now_ns;
                let wait_ns = match self.order {
                    // All others' requests came first.
                    Order::Arrival => (now_ns - began_ns) * count,
                    Order::Anticipated => now_ns - *served_ns,
                };
                *served_ns = now_ns;
                self.streams.waited(&action, wait_ns, now_ns);
            }
            if stalled && self.order == Order::Arrival {
                return;
            }
        }
    }
}

/// Up to six readers in turns at random, each of some of `requests` files; each
/// read that finds nothing costs a switch and a transfer. `known`: the share
/// of a stream's length that is known beforehand.
pub fn workload(
    random: &mut Random,
    device: &Device,
    requests: RangeInclusive<u64>,
    known: f64,
) -> Cost {
    // Switches are being paid for from the beginning.
    let mut streams = waited(1 << 40);
    let mut disk = Disk::new(*device);
    let mut files = 0;
    let mut open = |random: &mut Random| {
        files += 1;
        Reader::open_any(random, device, files)
    };
    let count = random.between(1, 6);
    let mut readers: Vec<(Reader, u64)> = (0..count)
        .map(|_| {
            let more = random.between(*requests.start(), *requests.end()) - 1;
            (open(random), more)
        })
        .collect();
    let mut finished = Vec::new();
    while !readers.is_empty() {
        let turn = random.between(0, readers.len() as u64 - 1) as usize;
        let (reader, more) = &mut readers[turn];
        reader.read(&mut streams, &mut disk, known);
        if !reader.is_at_end() {
            continue;
        }
        if *more == 0 {
            finished.push(readers.swap_remove(turn).0);
        } else {
            *more -= 1;
            finished.push(core::mem::replace(reader, open(random)));
        }
    }
    let optimal = |switch_s: f64| {
        let of = |reader: &Reader| {
            // Equation 1.
            let rate = device.bytes_per_s(Some(reader.place)) as f64;
            let minimal_s = reader.length as f64 / rate + switch_s;
            (minimal_s, reader.slow_start_s(device, switch_s, known))
        };
        let sum = |a: (f64, f64), b: (f64, f64)| (a.0 + b.0, a.1 + b.1);
        finished.iter().map(of).fold((0.0, 0.0), sum)
    };
    let (optimal_s, slow_start_s) = optimal(device.switch_ns(None) as f64 / 1e9);
    Cost { total_s: disk.busy_s, slow_start_s, optimal_s, dearest: optimal(disk.dearest_s) }
}
