//! The striped array: address mapping, and two queues for each disk (section 5.3.5).

use std::collections::{BTreeMap, VecDeque};

use runahead_policy::tip::{Io, Priority};

use crate::disk::{Drive, DriveParameters, Micros};

/// Blocks in a stripe unit (64 KB).
pub const STRIPE_UNIT: u32 = 8;
/// Prefetches are forwarded only while fewer requests than this are at the drive.
const AT_DRIVE_MAX: usize = 2;

/// A request to one disk.
#[derive(Clone, Copy, Debug)]
struct Request {
    io: Io,
    first: u32,
}

/// What one disk did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskStats {
    /// Time serving requests, µs.
    pub busy_us: Micros,
    /// Requests served.
    pub ios: u64,
    /// Blocks moved.
    pub blocks: u64,
}

#[derive(Debug)]
struct Disk {
    drive: Drive,
    at_drive: VecDeque<Request>,
    low: BTreeMap<(u32, u64), Request>,
    /// CSCAN position: where the last forwarded prefetch began.
    scan: (u32, u64),
    serving_since: Option<Micros>,
    stats: DiskStats,
}

/// A request that the drive has begun and when it will be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Which disk.
    pub disk: u16,
    /// When it is done.
    pub done: Micros,
}

/// Several equal drives.
#[derive(Debug)]
pub struct Array {
    disks: Vec<Disk>,
    sequence: u64,
}

impl Array {
    /// An array of `disks` drives.
    pub fn new(disks: u16, parameters: DriveParameters) -> Self {
        let disk = |_| Disk {
            drive: Drive::new(parameters),
            at_drive: VecDeque::new(),
            low: BTreeMap::new(),
            scan: (0, 0),
            serving_since: None,
            stats: DiskStats::default(),
        };
        Self { disks: (0..disks).map(disk).collect(), sequence: 0 }
    }

    /// The disk and the block on it of a block of the array.
    pub fn locate(disks: u16, address: u32) -> (u16, u32) {
        let (unit, within) = (address / STRIPE_UNIT, address % STRIPE_UNIT);
        let disks = u32::from(disks);
        ((unit % disks) as u16, unit / disks * STRIPE_UNIT + within)
    }

    /// Queues a request for the blocks from `address` on. Returns what began, if the disk was
    /// idle.
    pub fn submit(&mut self, now: Micros, io: Io, address: u32) -> Option<Started> {
        let (disk, first) = Self::locate(self.disks.len() as u16, address);
        self.sequence += 1;
        let request = Request { io, first };
        let this = &mut self.disks[usize::from(disk)];
        match io.priority {
            Priority::Demand => this.at_drive.push_back(request),
            Priority::Prefetch => {
                this.low.insert((first, self.sequence), request);
                this.forward();
            }
        }
        this.start(disk, now, false)
    }

    /// The disk's current request is done: returns it, the time that it took, and what began
    /// next.
    pub fn complete(&mut self, disk: u16, now: Micros) -> (Io, Micros, Option<Started>) {
        let this = &mut self.disks[usize::from(disk)];
        let request = this.at_drive.pop_front().expect("only a busy disk completes");
        let since = this.serving_since.take().expect("only a busy disk completes");
        this.stats.busy_us += now - since;
        this.stats.ios += 1;
        this.stats.blocks += u64::from(request.io.blocks);
        this.forward();
        let started = this.start(disk, now, true);
        (request.io, now - since, started)
    }

    /// What each disk did so far.
    pub fn stats(&self) -> impl Iterator<Item = DiskStats> + '_ {
        self.disks.iter().map(|disk| disk.stats)
    }

    /// Requests waiting or being served.
    pub fn outstanding(&self) -> usize {
        self.disks.iter().map(|disk| disk.at_drive.len() + disk.low.len()).sum()
    }
}

impl Disk {
    /// Forwards prefetches in CSCAN order: upwards from the last one, then from the lowest.
    fn forward(&mut self) {
        while self.at_drive.len() < AT_DRIVE_MAX {
            let next = self.low.range(self.scan..).next().or_else(|| self.low.iter().next());
            let Some((&key, _)) = next else { return };
            self.scan = key;
            let request = self.low.remove(&key).expect("just found");
            self.at_drive.push_back(request);
        }
    }

    fn start(&mut self, disk: u16, now: Micros, queued: bool) -> Option<Started> {
        if self.serving_since.is_some() {
            return None;
        }
        let request = *self.at_drive.front()?;
        self.serving_since = Some(now);
        let Request { io, first } = request;
        let done = self.drive.serve(now, first, io.blocks, io.write, queued);
        Some(Started { disk, done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_policy::tip::{Block, FileId};

    fn io(number: u32, priority: Priority) -> Io {
        Io { first: Block { file: FileId(0), number }, blocks: 1, priority, write: false }
    }

    #[test]
    fn striping_is_round_robin_in_units() {
        assert_eq!(Array::locate(4, 0), (0, 0));
        assert_eq!(Array::locate(4, 9), (1, 1));
        assert_eq!(Array::locate(4, 8 * 4 + 3), (0, 8 + 3));
        assert_eq!(Array::locate(1, 12_345), (0, 12_345));
    }

    #[test]
    fn prefetches_are_served_in_cscan_order_and_demand_goes_before_them() {
        let mut array = Array::new(1, DriveParameters::HP_C2247);
        let mut started = array.submit(0, io(500, Priority::Prefetch), 500);
        for number in [900, 100, 700, 300, 600] {
            let more = array.submit(0, io(number, Priority::Prefetch), number);
            assert_eq!(more, None, "the disk is busy");
        }
        array.submit(0, io(5000, Priority::Demand), 5000);
        let mut order = Vec::new();
        while let Some(current) = started {
            let (io, _, next) = array.complete(0, current.done);
            order.push(io.first.number);
            started = next;
        }
        // Two were at the drive before the demand came.
        assert_eq!(order, [500, 900, 5000, 100, 300, 600, 700]);
        assert_eq!(array.outstanding(), 0);
    }
}
