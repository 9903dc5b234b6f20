//! Sequential streams of a program: many in one file, many files at once
//! (Li et al., section 2).
//!
//! The only reads that are looked at are those that *stall*: one that finds
//! its data costs nothing here. So a stream is recognised by where it stalls.
//! The kernel's own readahead, which is the paper's original kernel, has
//! brought in a window after the last stall, and a reader that is sequential
//! comes to the end of that window next. From then on the stream's own runs
//! say where it should stall: at the end of the last one.
//!
//! A run is twice as long as the last one until it has the competitive depth
//! ("slow start"), which the bound does not need: it spares streams that are
//! short. Where most are longer than the depth, the first stall is followed by
//! a run of all of it. Runs are issued only while the stalls of streams show
//! that switches are being paid for: a program that reads alone is served by
//! the kernel's readahead, which never lets the device idle.

mod memory;
mod stream;
mod verdicts;

use self::memory::Memory;
use self::stream::{Stream, at_window, continues, reached};
use self::verdicts::{BEGUN, BEGUN_LONG_MIN, Beginning, ByBeginning, ENDS, ENDS_MIN};
use super::adapt::{Adapt, Arm};
use super::depth::{Device, SeekDistance, depth_bytes};

/// Streams that are followed at once.
pub const STREAMS_MAX: usize = 256;

/// Linux's default readahead window, in bytes.
pub const WINDOW_BYTES: u64 = 128 * 1024;

/// What the kernel keeps in memory ahead of a stream that it was told is
/// sequential (POSIX_FADV_SEQUENTIAL doubles its window): two windows.
pub const SEQUENTIAL_BYTES: u64 = 4 * WINDOW_BYTES;

/// Most bytes that are asked for by one call: the kernel caps one at its
/// device's largest request, 1280 KiB by default.
pub const PIECE_BYTES_MAX: u64 = 1 << 20;

/// First run of a stream: 16 pages, as in the paper.
pub const RUN_FIRST_BYTES: u64 = 64 * 1024;

/// Most bytes that are prefetched at once where the end is known.
pub const KNOWN_BYTES_MAX: u64 = 4 << 20;

/// How far behind a stall the stream that it belongs to may have stalled last if
/// all between is in memory, in bytes: who reads that does not stall.
pub const PASSED_BYTES_MAX: u64 = 4 << 20;

/// A stream that is being read stalls once in so many smoothed waits, about: its
/// thread may have others in turn.
const TURN_WAITS: u64 = 4;

/// A stream that has not stalled for so many smoothed waits is not being read
/// any more.
const ENDED_WAITS: u64 = 16;

/// And for so long, at least, in ns.
const ENDED_NS_MIN: u64 = 200_000_000;

/// One whose last stall ended so many of the longest waits ago, and for so long
/// in ns at least, has stopped: who goes on uses a run in less, also where one
/// stall between was not looked at. That a stream goes on shows at its next
/// stall; were it found much later that one has stopped, all streams of a
/// program's beginning would seem to go on.
const STOPPED_WAITS: u64 = 3;
const STOPPED_NS_MIN: u64 = 50_000_000;

/// So has one whose thread has had so many stalls elsewhere since, beyond the most
/// of late between two of one stream: as many as one that goes on takes to show
/// that it is longer than the depth. Behind a scheduler that serves one thread
/// several times in a row, those that get to the ends of their files do so long
/// before anybody has waited for three waits.
const STOPPED_BEYOND: u32 = 3;

/// The longest wait, and the most stalls between, are forgotten by this part at
/// each stall.
const LONGEST_FORGOTTEN: u64 = 64;

/// A read that stalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Miss {
    /// The file, by a number that is its own (from its device and inode).
    pub file: u64,
    /// The thread that reads, by a number that is its own; 0: nobody knows.
    pub by: u64,
    /// First byte read.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// The file's size, in bytes.
    pub size: u64,
    /// Bytes from `offset` on that are known to be read, in bytes: what a
    /// call that sends a file names; 0: nothing is known.
    pub known: u64,
    /// Bytes right before `offset` that are known to be in memory, of those that
    /// [`Streams::behind`] asks about.
    pub passed: u64,
    /// Where `offset` lies on the device, if anybody knows.
    pub place: Option<u64>,
    /// Now.
    pub now_ns: u64,
}

/// What to do about a miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// First byte to prefetch.
    pub offset: u64,
    /// Bytes; 0: nothing.
    pub len: u64,
    /// In pieces of so many bytes: a device that serves requests beside each
    /// other serves the pieces so.
    pub piece: u64,
    /// The kernel is to be told that the file is read sequentially: it keeps
    /// two windows in flight, and they are too short for this device.
    pub sequential: bool,
    /// Its wait says whether switches are being paid for.
    pub counts: bool,
    /// Whether prefetching pays here is being compared (see
    /// [`super::adapt`]).
    pub compared: bool,
    /// Number of the stream that it is about, from 1 on.
    pub stream: u16,
    /// The data of a run that should be there: if this many bytes from the
    /// miss on are not in memory, tell [`Streams::missing`]. 0: not to be
    /// asked.
    pub expected: u64,
}

/// The streams of one process on one device. All-zero is a valid start.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    table: [Stream; STREAMS_MAX],
    /// Entries used so far.
    used: u32,
    /// Streams that turned out to be sequential.
    established: u32,
    /// Smoothed wait of stalls at the ends of windows and runs, in ns.
    wait_ns: u64,
    /// When the last stall that counts ended, in ns.
    counted_ns: u64,
    /// Longest wait of late, in ns. The smoothed one is short for a while when
    /// many streams wait for the rest of a request that has just come.
    longest_ns: u64,
    /// Most stalls elsewhere that a thread had of late between two of one stream, in
    /// 1/[`LONGEST_FORGOTTEN`]: it reads so many at once.
    between: u32,
    /// How far the depth has fallen for want of memory.
    memory: Memory,
    /// Whether streams went on to the ends of their files, of those that were
    /// read without trusting that.
    ends: ByBeginning,
    /// Whether streams were longer than the competitive depth.
    beginnings: ByBeginning,
    seeks: SeekDistance,
    adapt: Adapt,
    /// Bytes that streams have come further. Reads that find their data are
    /// not seen, so half of a run counts when it is issued and the rest when
    /// the stream stalls at its end: a stream that stops somewhere in its
    /// last run has used half of that on the mean.
    used_bytes: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Streams {
    /// No stream yet: all zero.
    pub const EMPTY: Streams = Streams {
        table: [Stream::FREE; STREAMS_MAX],
        used: 0,
        established: 0,
        wait_ns: 0,
        counted_ns: 0,
        longest_ns: 0,
        between: 0,
        memory: Memory::AMPLE,
        ends: ByBeginning::NONE,
        beginnings: ByBeginning::NONE,
        seeks: SeekDistance::NONE,
        adapt: Adapt::NEW,
        used_bytes: 0,
    };

    /// A read has stalled: what to prefetch behind it.
    pub fn miss(&mut self, miss: &Miss, device: &Device) -> Action {
        let mut action = self.decide(miss, device);
        action.piece = self.piece(miss, device);
        // Every stall moves the head, whether a run follows it or not.
        if let Some(place) = miss.place {
            let read_end = miss.offset.saturating_add(miss.len);
            let end = action.offset.saturating_add(action.len).max(read_end).min(miss.size);
            self.seeks.request(place, end.saturating_sub(miss.offset));
        }
        action
    }

    fn decide(&mut self, miss: &Miss, device: &Device) -> Action {
        if !device.is_known() {
            self.adapt.doubt();
        }
        let depth = self.depth(miss, device);
        let Some(index) = self.find(miss) else {
            let index = self.begin(miss, device);
            let action = self.first(miss, device, index, depth);
            return Action { stream: index as u16 + 1, ..action };
        };
        let action = self.next(miss, device, index, depth);
        Action { stream: index as u16 + 1, ..action }
    }

    /// Another stall of a stream.
    fn next(&mut self, miss: &Miss, device: &Device, index: usize, depth: u64) -> Action {
        let Some(stream) = self.table.get_mut(index) else { return Action::default() };
        let last = *stream;
        stream.offset = miss.offset;
        stream.read_end = miss.offset.saturating_add(miss.len);
        (stream.at_ns, stream.waits) = (miss.now_ns, true);
        (stream.by, stream.elsewhere) = (miss.by, 0);
        stream.size = miss.size;
        stream.credited = last.credited.saturating_sub(miss.offset - last.offset);
        stream.stopped = false;
        if last.stopped && last.run != 0 && !last.judged {
            self.ends.of(&last).withdraw();
        }
        if last.stopped && last.long_at != 0 {
            self.beginnings.of(&last).withdraw();
        }
        if last.long_at != 0 && stream.read_end > last.long_at {
            stream.long_at = 0;
            self.beginnings.of(&last).judge(true);
        }
        let Some(stream) = self.table.get_mut(index) else { return Action::default() };
        if last.run != 0 && stream.read_end <= last.end {
            // Inside its run, which is on its way or has been evicted.
            let come = miss.offset.saturating_sub(last.offset);
            self.used_bytes = self.used_bytes.wrapping_add(come.saturating_sub(last.credited));
            // After as long as makes a stream an ended one it may well be
            // another reader's, who comes to what was read and used long ago. And
            // a thread that waits there now may be issuing the run.
            let passed_ns = miss.now_ns.saturating_sub(last.at_ns);
            let other = passed_ns > self.ended_ns() || last.waits && last.by != miss.by;
            let rest = last.end.min(miss.size).saturating_sub(miss.offset);
            let ran = last.end > last.read_end;
            let expected = if ran && !other { rest } else { 0 };
            return Action { expected, ..Action::default() };
        }
        stream.end = stream.read_end;
        let passed = miss.passed.min(miss.offset.saturating_sub(last.end));
        // Of what it has passed over no arm made anything, but for the kernel's windows.
        let free = passed.saturating_sub(last.slack.into());
        let come = miss.offset.saturating_sub(last.offset).saturating_sub(free);
        self.used_bytes = self.used_bytes.wrapping_add(come.saturating_sub(last.credited));
        self.credit(index, WINDOW_BYTES / 2);
        let Some(stream) = self.table.get_mut(index) else { return Action::default() };
        let continued = miss.offset - passed == last.read_end;
        if last.run == 0 && !continued && !at_window(&last, miss) {
            stream.forward = last.forward.saturating_add(1);
            if stream.forward < 2 {
                return self.known(
                    miss,
                    index,
                    depth,
                    Action { counts: true, ..Action::default() },
                );
            }
        }
        if last.run == 0 {
            // What has been read so far counts as the last run: where the
            // kernel has seen the stream, with the window that it has asked
            // for already.
            let ahead = if continued { 0 } else { WINDOW_BYTES };
            let window = miss.offset.saturating_sub(last.offset).min(WINDOW_BYTES) + ahead;
            stream.run = window.max(RUN_FIRST_BYTES) as u32;
            self.establish(index);
        }
        // What the last run has brought already is not asked for again.
        let issued = last.run != 0 && last.end > miss.offset;
        let start = if issued { last.end } else { miss.offset };
        self.run(miss, device, index, depth, start)
    }

    /// The first stall of a stream, or a random read.
    fn first(&mut self, miss: &Miss, device: &Device, index: usize, depth: u64) -> Action {
        let Some(stream) = self.table.get_mut(index) else { return Action::default() };
        if stream.long_at == 0 || !self.beginnings.seen(stream).are(BEGUN_LONG_MIN, BEGUN) {
            return self.known(miss, index, depth, Action::default());
        }
        stream.run = depth as u32;
        self.establish(index);
        self.run(miss, device, index, depth, miss.offset)
    }

    /// A stream has turned out to be sequential, or is taken for that.
    fn establish(&mut self, index: usize) {
        self.established = self.established.wrapping_add(1);
        if let Some(stream) = self.table.get_mut(index) {
            stream.sample = self.established.is_multiple_of(self.ends.seen(stream).sample());
        }
    }

    /// The next run of a stream that is known to be sequential, from `start`
    /// on.
    fn run(
        &mut self,
        miss: &Miss,
        device: &Device,
        index: usize,
        depth: u64,
        start: u64,
    ) -> Action {
        let Some(stream) = self.table.get(index) else { return Action::default() };
        let reach_ends = self.ends.seen(stream).are(ENDS_MIN, ENDS);
        let whole = reach_ends && !stream.sample;
        let len = if whole && self.memory.shrink == 0 {
            KNOWN_BYTES_MAX.max(depth)
        } else {
            (u64::from(stream.run) * 2).min(depth)
        };
        let deeper = self.deeper_than_kernel(miss, device);
        let sequential = device.is_parallel()
            && self.competitive(miss, device) >> self.memory.shrink > WINDOW_BYTES;
        if !deeper && self.memory.shrink != 0 {
            // The kernel's windows are the runs by which the depth recovers.
            self.memory.issued();
        }
        // Only the end of the file is deeper than two windows in flight.
        let to_end = sequential && whole && self.memory.shrink == 0;
        let compared = (deeper || to_end) && self.switches_are_paid(device);
        let action = Action { counts: true, compared, sequential, ..Action::default() };
        let Some(stream) = self.table.get_mut(index) else { return action };
        stream.slack = if sequential { SEQUENTIAL_BYTES as u32 } else { 0 };
        if sequential && !whole && !stream.judged && reached(stream) {
            stream.judged = true;
            self.ends.of(stream).judge(true);
        }
        if !compared || self.adapt.arm() == Arm::Kernel {
            // As far as the kernel's windows may bring it without a stall.
            stream.slack = stream.slack.max(2 * WINDOW_BYTES as u32);
            return self.known(miss, index, depth, action);
        }
        let rest = miss.size.saturating_sub(start);
        let Some(stream) = self.table.get_mut(index) else { return action };
        stream.run = len.min(depth) as u32;
        stream.slack = 0;
        // What is read now, too, but no more at once: who reads a file by one call is
        // served by the kernel.
        let now = stream.read_end.saturating_sub(start).min(KNOWN_BYTES_MAX >> self.memory.shrink);
        let len = len.max(now).min(rest);
        stream.end = start.saturating_add(len).max(stream.read_end);
        if whole && stream.end > stream.long_at {
            // It will not be seen.
            stream.long_at = 0;
        }
        if len == rest && !stream.judged {
            // Whether one that is trusted gets there will not be seen.
            stream.judged = true;
            if !whole {
                self.ends.of(stream).judge(true);
            }
        }
        let ends = len == rest && self.ends.seen(stream).are(ENDS_MIN, ENDS);
        self.credit(index, if ends { len } else { len / 2 });
        self.memory.issued();
        self.known(miss, index, depth, Action { offset: start, len, ..action })
    }

    /// Time without a stall after which a stream has ended, in ns.
    fn ended_ns(&self) -> u64 {
        (ENDED_WAITS * self.wait_ns).max(ENDED_NS_MIN)
    }

    /// The competitive depth at this place, in bytes.
    fn competitive(&self, miss: &Miss, device: &Device) -> u64 {
        if device.is_known() {
            device.depth_bytes(self.switch_ns(miss, device), miss.place)
        } else {
            depth_bytes(self.wait_ns, 0)
        }
    }

    /// C_switch for this stall, in ns: that of the mean distance, or of this
    /// one where that is further. With the mean alone, streams that lie far
    /// apart would pay more for their switches than their runs make up for.
    fn switch_ns(&self, miss: &Miss, device: &Device) -> u64 {
        let this = miss.place.and_then(|place| self.seeks.distance(place));
        let mean_ns = device.switch_ns(self.seeks.mean());
        this.map_or(mean_ns, |this| device.switch_ns(Some(this)).max(mean_ns))
    }

    /// How deep to prefetch there, in bytes.
    fn depth(&self, miss: &Miss, device: &Device) -> u64 {
        let depth = self.competitive(miss, device) >> self.memory.shrink;
        if self.adapt.arm() == Arm::Half { (depth / 2).max(WINDOW_BYTES) } else { depth }
    }

    /// Whether there is more to gain than the kernel's readahead does anyway.
    /// Its two windows are in flight at once, which a device that serves one
    /// request after the other makes nothing of.
    fn deeper_than_kernel(&self, miss: &Miss, device: &Device) -> bool {
        let kernel = if device.is_parallel() { SEQUENTIAL_BYTES } else { WINDOW_BYTES };
        self.competitive(miss, device) >> self.memory.shrink > kernel
    }

    /// Length of a request that transfers for as long as its latency.
    fn piece(&self, miss: &Miss, device: &Device) -> u64 {
        if device.is_parallel() {
            self.competitive(miss, device).clamp(WINDOW_BYTES, PIECE_BYTES_MAX)
        } else {
            PIECE_BYTES_MAX
        }
    }

    /// Whether waits are as long as switches make them. A stream that is
    /// alone waits for the transfer at most; where requests are served beside
    /// each other, whoever waits has too few of them in flight.
    fn switches_are_paid(&self, device: &Device) -> bool {
        device.is_parallel()
            || self.wait_ns != 0 && self.wait_ns >= device.switch_ns(self.seeks.mean()) / 2
    }

    /// A call that says how much it will read: that much at least.
    fn known(&mut self, miss: &Miss, index: usize, depth: u64, action: Action) -> Action {
        let rest = miss.size.saturating_sub(miss.offset);
        let len = miss.known.min(rest).min(KNOWN_BYTES_MAX >> self.memory.shrink);
        // What the kernel reads at once needs no help.
        if len <= WINDOW_BYTES / 2 || miss.offset + len <= action.offset + action.len {
            return action;
        }
        if action.len == 0 {
            self.memory.issued();
        }
        if let Some(stream) = self.table.get_mut(index) {
            // It has been read sequentially as far as this goes.
            stream.run = len.min(depth).max(RUN_FIRST_BYTES) as u32;
            stream.end = miss.offset.saturating_add(len).max(stream.read_end);
        }
        self.credit(index, len);
        Action { offset: miss.offset, len, ..action }
    }

    /// So many bytes behind a stream's last stall count as used.
    fn credit(&mut self, index: usize, bytes: u64) {
        let Some(stream) = self.table.get_mut(index) else { return };
        let more = bytes.saturating_sub(stream.credited);
        stream.credited += more;
        self.used_bytes = self.used_bytes.wrapping_add(more);
    }

    /// How many bytes right before a miss would all be in memory if it belonged to
    /// a stream of its thread that has come further without a stall: to be told
    /// in [`Miss::passed`] if they are. 0: not to be asked.
    pub fn behind(&self, miss: &Miss, device: &Device) -> u64 {
        if !self.deeper_than_kernel(miss, device) {
            return 0;
        }
        let entries = self.table.iter().take(self.used as usize);
        // What only may be a stream is one if this says so.
        let continued = entries
            .filter(|stream| stream.file == miss.file && continues(stream, miss))
            .any(|one| one.run != 0 || one.by != miss.by || at_window(one, miss));
        if continued { 0 } else { self.comes_from(miss).unwrap_or(0) }
    }

    /// How far behind a miss the nearest stream of its thread ends that it may have
    /// come from, in bytes.
    fn comes_from(&self, miss: &Miss) -> Option<u64> {
        let entries = self.table.iter().take(self.used as usize);
        let theirs = entries
            .filter(|one| miss.now_ns.saturating_sub(one.at_ns) <= self.ended_ns())
            .filter(|one| miss.by != 0 && (one.by, one.file) == (miss.by, miss.file));
        let distance = theirs.filter_map(|stream| miss.offset.checked_sub(stream.end)).min();
        distance.filter(|&bytes| bytes <= PASSED_BYTES_MAX)
    }

    /// The stream that a miss continues.
    fn find(&mut self, miss: &Miss) -> Option<usize> {
        let mut found: Option<(usize, u64)> = None;
        let stopped_ns = (STOPPED_WAITS * self.longest_ns).max(STOPPED_NS_MIN);
        let elsewhere_max =
            (self.between / LONGEST_FORGOTTEN as u32).saturating_add(STOPPED_BEYOND);
        for (index, stream) in self.table.iter_mut().enumerate().take(self.used as usize) {
            if stream.file == miss.file && continues(stream, miss) {
                // The nearest one behind.
                let behind = miss.offset - stream.offset;
                if found.is_none_or(|(_, least)| behind < least) {
                    found = Some((index, behind));
                }
                continue;
            }
            if miss.by != 0 && stream.by == miss.by {
                stream.elsewhere = stream.elsewhere.saturating_add(1);
            }
            let passed_ns = miss.now_ns.saturating_sub(stream.at_ns);
            let left = passed_ns > stopped_ns || stream.elsewhere > elsewhere_max;
            if !stream.waits && !stream.stopped && left {
                stopped(stream, &mut self.ends, &mut self.beginnings);
            }
        }
        let (index, _) = found?;
        // What only may be a stream says nothing: a random read may come after one.
        let known = self.table.get(index).filter(|stream| stream.run != 0);
        let between = known.map_or(0, |stream| stream.elsewhere.min(STREAMS_MAX as u32));
        let forgotten = self.between - self.between.div_ceil(LONGEST_FORGOTTEN as u32);
        self.between = (between * LONGEST_FORGOTTEN as u32).max(forgotten);
        Some(index)
    }

    /// A new stream, or a random read, in the place of the one that has not
    /// stalled for longest.
    fn begin(&mut self, miss: &Miss, device: &Device) -> usize {
        let competitive = self.competitive(miss, device);
        let beginning = match miss.offset {
            0 => Beginning::AtStart,
            _ if self.comes_from(miss).is_some() => Beginning::Skipped,
            _ => Beginning::Inside,
        };
        let index = if (self.used as usize) < STREAMS_MAX {
            self.used += 1;
            self.used as usize - 1
        } else {
            let oldest = self.table.iter().enumerate().min_by_key(|(_, stream)| stream.at_ns);
            oldest.map_or(0, |(index, _)| index)
        };
        let Some(stream) = self.table.get_mut(index) else { return index };
        if !stream.stopped {
            stopped(stream, &mut self.ends, &mut self.beginnings);
        }
        let read_end = miss.offset.saturating_add(miss.len);
        // What is to be read of files that are no longer than the depth is
        // prefetched at once anyway, and of what names its length, that.
        let long_at = miss.offset.saturating_add(competitive);
        let shows = miss.known == 0 && long_at < miss.size;
        *stream = Stream {
            long_at: if shows { long_at } else { 0 },
            beginning,
            file: miss.file,
            by: miss.by,
            offset: miss.offset,
            read_end,
            end: read_end,
            size: miss.size,
            at_ns: miss.now_ns,
            waits: true,
            ..Stream::default()
        };
        index
    }

    /// The stall for which there was this action took `ns` and ended at
    /// `now_ns`.
    pub fn waited(&mut self, action: &Action, ns: u64, now_ns: u64) {
        // Where another one has taken its place, that is judged too soon.
        if let Some(index) = usize::from(action.stream).checked_sub(1)
            && let Some(stream) = self.table.get_mut(index)
        {
            (stream.at_ns, stream.waits) = (now_ns, false);
        }
        self.longest_ns = ns.max(self.longest_ns - self.longest_ns / LONGEST_FORGOTTEN);
        if !action.counts {
            return;
        }
        // Time in which nothing was read says nothing of how it would have been.
        let idle_ns = now_ns.saturating_sub(ns).saturating_sub(self.counted_ns);
        if idle_ns > self.ended_ns() {
            self.adapt.paused();
        }
        self.counted_ns = self.counted_ns.max(now_ns);
        self.wait_ns = match self.wait_ns {
            0 => ns.max(1),
            old => (old - old / 8 + ns / 8).max(1),
        };
        if action.compared && self.adapt.stalled() {
            let recent_ns = TURN_WAITS * self.wait_ns;
            let entries = self.table.iter().take(self.used as usize);
            let recent = entries
                .filter(|one| {
                    one.run != 0 && !one.stopped && now_ns.saturating_sub(one.at_ns) <= recent_ns
                })
                .count();
            self.adapt.account(now_ns, self.used_bytes, recent as u32);
        }
    }

    /// So many bytes of the run that is to be issued are in memory already: its
    /// length, in bytes. What a switch has to be worth is what is transferred.
    pub fn extended(&mut self, miss: &Miss, action: &Action, resident: u64) -> u64 {
        let end = action.offset.saturating_add(action.len);
        let most = miss.size.saturating_sub(end).min(resident);
        // A call that says what it reads reads no more.
        if action.len <= miss.known {
            return action.len;
        }
        let index = usize::from(action.stream).checked_sub(1);
        let stream = index.and_then(|index| self.table.get_mut(index));
        // Another thread may have gone on with it.
        let Some(stream) = stream.filter(|one| one.file == miss.file && one.end == end) else {
            return action.len;
        };
        stream.end = end.saturating_add(most);
        // It has not come further by that.
        stream.credited = stream.credited.saturating_add(most);
        if stream.end >= miss.size {
            // How far it goes will not be seen.
            (stream.judged, stream.long_at) = (true, 0);
        }
        action.len.saturating_add(most)
    }

    /// Pages of the run that [`Action::expected`] asked about at this miss are
    /// missing: what to read once more. Where they have been `evicted`, and not
    /// left out, and that is more than an exception, the depth falls (section 4,
    /// "Memory contention").
    pub fn missing(
        &mut self,
        miss: &Miss,
        device: &Device,
        action: &Action,
        evicted: bool,
    ) -> Action {
        if evicted {
            self.memory.evicted();
        }
        let none = Action { stream: action.stream, ..Action::default() };
        let depth = self.depth(miss, device);
        let deeper = self.deeper_than_kernel(miss, device);
        let index = usize::from(action.stream).checked_sub(1);
        let stream = index.and_then(|index| self.table.get_mut(index));
        // Another thread may have gone on with it.
        let theirs = |one: &&mut Stream| (one.file, one.offset) == (miss.file, miss.offset);
        let Some(stream) = stream.filter(theirs) else { return none };
        let rest = stream.end.min(miss.size).saturating_sub(miss.offset).min(depth);
        if !deeper || self.adapt.arm() == Arm::Kernel || rest <= miss.len {
            stream.end = stream.read_end;
            return none;
        }
        stream.end = miss.offset.saturating_add(rest);
        stream.run = stream.run.max(rest as u32);
        Action { offset: miss.offset, len: rest, ..none }
    }

    /// The arm in force (for statistics and tests).
    pub fn arm(&self) -> Arm {
        self.adapt.arm()
    }
}

/// A stream has stopped, as far as one can see.
fn stopped(stream: &mut Stream, ends: &mut ByBeginning, beginnings: &mut ByBeginning) {
    stream.stopped = true;
    if stream.run != 0 && !stream.judged {
        stream.judged = reached(stream);
        ends.of(stream).judge(stream.judged);
    }
    if stream.long_at != 0 {
        beginnings.of(stream).judge(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else one chance hit would keep streams from being seen to stop for good.
    #[test]
    fn the_most_stalls_between_are_forgotten() {
        let mut streams = Streams::EMPTY;
        streams.between = 100 * LONGEST_FORGOTTEN as u32;
        for number in 0..1000u64 {
            let (offset, len, size) = (number * WINDOW_BYTES, WINDOW_BYTES, 1 << 40);
            let miss =
                Miss { file: 1, by: 1, offset, len, size, now_ns: number, ..Miss::default() };
            streams.miss(&miss, &Device::default());
        }
        assert_eq!(streams.between / LONGEST_FORGOTTEN as u32, 0);
    }
}
