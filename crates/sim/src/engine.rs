//! The discrete-event engine: one CPU, one array, one cache, some processes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use runahead_policy::tip::{
    Block, Config, FileId, Io, Layout, ProcessId, Read, ReadOutcome, Segment, Stats, Tip,
};

use crate::array::{Array, DiskStats, Started};
use crate::cost::CpuCosts;
use crate::disk::Micros;
use crate::filesystem::{BLOCK_BYTES, FileSystem};
use crate::program::{Op, Program, Range};

/// A process may compute so long before another one gets its turn.
const QUANTUM_US: Micros = 10_000;
/// A process that wakes up takes the CPU from one that used so much more of it lately.
const PREEMPT_MARGIN_US: f64 = 5_000.0;
/// The memory of "lately".
const USAGE_DECAY_US: f64 = 1_000_000.0;

/// A process to simulate.
#[derive(Clone, Debug)]
pub struct Task {
    /// What it does.
    pub program: Program,
    /// Whether it gives its hints.
    pub hints: bool,
}

/// Everything else that a simulation is set up with.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The cache manager.
    pub config: Config,
    /// CPU costs.
    pub costs: CpuCosts,
    /// All programs number one list of files, in place of one after the other's.
    pub shares_files: bool,
    /// Check the manager's invariants at every event: for tests.
    pub check: bool,
}

/// What one process did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskReport {
    /// When it ended, µs.
    pub elapsed_us: Micros,
    /// CPU time that it used, µs.
    pub cpu_us: Micros,
    /// Time that it waited for I/O, µs.
    pub stall_us: Micros,
}

/// What a simulation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// When the last process ended, µs.
    pub elapsed_us: Micros,
    /// CPU time of all, with interrupts, µs.
    pub cpu_us: Micros,
    /// The manager's counters.
    pub stats: Stats,
    /// Each process.
    pub tasks: Vec<TaskReport>,
    /// Each disk.
    pub disks: Vec<DiskStats>,
}

impl Report {
    /// Time that the CPU was idle, µs: the thesis's stall.
    pub fn stall_us(&self) -> Micros {
        self.elapsed_us.saturating_sub(self.cpu_us)
    }

    /// All disks together.
    pub fn disk_total(&self) -> DiskStats {
        self.disks.iter().fold(DiskStats::default(), |sum, disk| DiskStats {
            busy_us: sum.busy_us + disk.busy_us,
            ios: sum.ios + disk.ios,
            blocks: sum.blocks + disk.blocks,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    DiskDone(u16),
    BurstEnd { epoch: u64 },
    Submit(usize),
}

/// Where in a read or write call a process is.
#[derive(Clone, Copy, Debug)]
struct Call {
    file: FileId,
    start: u64,
    at: u64,
    end: u64,
    /// The block that was requested and is to be copied, and whether its hint matched.
    requested: Option<(Block, bool)>,
}

#[derive(Debug)]
struct Process {
    id: ProcessId,
    ops: std::vec::IntoIter<Op>,
    hints: bool,
    first_file: u32,
    call: Option<Call>,
    /// The block that it needs; it sleeps once the CPU time of starting the I/O is over.
    waits_for: Option<Block>,
    asleep_since: Option<Micros>,
    /// CPU still to be used before its next step.
    burst_us: Micros,
    usage_us: f64,
    usage_at: Micros,
    t_app_us: Micros,
    /// CPU time of all but this process at its last read.
    others_us_before: Micros,
    done: bool,
    report: TaskReport,
}

/// A simulation under way.
pub struct Simulation {
    machine: Machine,
    now: Micros,
    events: BinaryHeap<Reverse<(Micros, u64, Event)>>,
    sequence: u64,
    submissions: Vec<Option<Io>>,
    vacant: Vec<usize>,
    tip: Tip<FileSystem>,
    layout: FileSystem,
    array: Array,
    processes: Vec<Process>,
    ready: VecDeque<usize>,
    running: Option<usize>,
    running_since: Micros,
    slice_us: Micros,
    epoch: u64,
    cpu_us: Micros,
    ios: Vec<Io>,
}

/// Simulates the tasks, started together with a cold cache, until the last one has ended.
/// `layout` must hold the files of all programs, one program's after the other's unless they
/// share them.
pub fn simulate(machine: Machine, tasks: Vec<Task>, layout: FileSystem, array: Array) -> Report {
    Simulation::new(machine, tasks, layout, array).run()
}

impl Simulation {
    fn new(machine: Machine, tasks: Vec<Task>, layout: FileSystem, array: Array) -> Self {
        let mut first_file = 0;
        let mut processes = Vec::new();
        for (i, task) in tasks.into_iter().enumerate() {
            let files = task.program.files.len() as u32;
            processes.push(Process {
                id: ProcessId(i as u32),
                ops: task.program.ops.into_iter(),
                hints: task.hints,
                first_file,
                call: None,
                waits_for: None,
                asleep_since: None,
                burst_us: 0,
                usage_us: 0.0,
                usage_at: 0,
                t_app_us: 0,
                others_us_before: 0,
                done: false,
                report: TaskReport::default(),
            });
            if !machine.shares_files {
                first_file += files;
            }
        }
        Self {
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            submissions: Vec::new(),
            vacant: Vec::new(),
            tip: Tip::new(machine.config.clone(), layout.clone()),
            layout,
            array,
            ready: (0..processes.len()).collect(),
            processes,
            running: None,
            running_since: 0,
            slice_us: 0,
            epoch: 0,
            cpu_us: 0,
            ios: Vec::new(),
            machine,
        }
    }

    fn run(mut self) -> Report {
        self.dispatch();
        while self.processes.iter().any(|process| !process.done) {
            let Reverse((time, _, event)) =
                self.events.pop().expect("a process that is not done computes or waits");
            self.now = time;
            match event {
                Event::DiskDone(disk) => self.disk_done(disk),
                Event::BurstEnd { epoch } if epoch == self.epoch => self.burst_end(),
                Event::BurstEnd { .. } => {}
                Event::Submit(slot) => self.submit_slot(slot),
            }
            if self.machine.check {
                self.tip.check_invariants();
            }
        }
        Report {
            elapsed_us: self.processes.iter().map(|p| p.report.elapsed_us).max().unwrap_or(0),
            cpu_us: self.cpu_us,
            stats: *self.tip.stats(),
            tasks: self.processes.iter().map(|process| process.report).collect(),
            disks: self.array.stats().collect(),
        }
    }

    fn post(&mut self, time: Micros, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    // The CPU.

    /// Gives an idle CPU to the ready process that used it least lately.
    fn dispatch(&mut self) {
        if self.running.is_some() {
            return;
        }
        let now = self.now;
        let best = (0..self.ready.len()).min_by(|&a, &b| {
            let usage = |i: usize| self.processes[self.ready[i]].usage(now);
            usage(a).total_cmp(&usage(b))
        });
        if let Some(i) = best {
            let process = self.ready.remove(i).expect("it was just found");
            self.running = Some(process);
            self.slice_us = 0;
            self.start_burst();
        }
    }

    fn start_burst(&mut self) {
        let process = self.running.expect("a burst has a process");
        self.running_since = self.now;
        self.epoch += 1;
        let end = self.now + self.processes[process].burst_us.min(QUANTUM_US);
        self.post(end, Event::BurstEnd { epoch: self.epoch });
    }

    /// Accounts for what the running process used since it was last looked at.
    fn charge_running(&mut self) {
        if let Some(process) = self.running {
            let used = self.now - self.running_since;
            self.running_since = self.now;
            self.processes[process].use_cpu(used, self.now);
            self.cpu_us += used;
            self.slice_us += used;
        }
    }

    fn burst_end(&mut self) {
        self.charge_running();
        let process = self.running.expect("the burst was of the running process");
        while self.processes[process].burst_us == 0 {
            if !self.step(process) {
                self.running = None;
                return self.dispatch();
            }
        }
        if !self.ready.is_empty() && self.slice_us >= QUANTUM_US {
            self.running = None;
            self.ready.push_back(process);
            self.dispatch();
        } else {
            self.start_burst();
        }
    }

    /// The block that a process needs has come; `us` of the interrupt are left for it.
    fn wake(&mut self, process: usize, us: Micros) {
        let now = self.now;
        let this = &mut self.processes[process];
        this.waits_for = None;
        let Some(since) = this.asleep_since.take() else { return };
        this.report.stall_us += now - since;
        this.burst_us += us + self.machine.costs.switch_ns / 1000;
        self.ready.push_back(process);
        self.charge_running();
        if let Some(running) = self.running {
            let lead = self.processes[running].usage(now) - self.processes[process].usage(now);
            if lead > PREEMPT_MARGIN_US {
                self.running = None;
                self.ready.push_back(running);
            }
        }
        self.dispatch();
    }

    /// CPU time of an interrupt holds up the running process. False if the CPU is idle.
    fn interrupt(&mut self, us: Micros) -> bool {
        let Some(process) = self.running else { return false };
        self.charge_running();
        self.processes[process].burst_us += us;
        self.start_burst();
        true
    }

    // The processes.

    /// Takes a process's next step. False if it has to wait or has ended.
    fn step(&mut self, process: usize) -> bool {
        let this = &mut self.processes[process];
        if this.waits_for.is_some() {
            this.asleep_since = Some(self.now);
            return false;
        }
        if this.call.is_some() {
            self.continue_call(process);
            return true;
        }
        match this.ops.next() {
            None => {
                this.done = true;
                this.report.elapsed_us = self.now;
                let id = this.id;
                self.tip.exit(id, &mut self.ios);
                self.submit_all(Some(process));
                return false;
            }
            Some(Op::Compute(us)) => {
                this.burst_us += Micros::from(us);
                this.t_app_us += Micros::from(us);
            }
            Some(Op::Hint(segments)) => self.hint(process, &segments),
            Some(Op::Cancel) => {
                if this.hints {
                    this.burst_us += self.machine.costs.hint_call_ns / 1000;
                    let id = this.id;
                    // Cancelling when nothing is outstanding does nothing.
                    let _ = self.tip.cancel(id, &mut self.ios);
                    self.submit_all(Some(process));
                }
            }
            Some(Op::Read(range)) => self.begin_call(process, range),
            Some(Op::Write(range)) => self.write(process, range),
        }
        true
    }

    fn hint(&mut self, process: usize, segments: &[Range]) {
        let this = &mut self.processes[process];
        if !this.hints {
            return;
        }
        let costs = &self.machine.costs;
        this.burst_us +=
            (costs.hint_call_ns + costs.hint_segment_ns * segments.len() as u64) / 1000;
        let segments: Vec<Segment> = segments
            .iter()
            .map(|range| Segment {
                file: FileId(this.first_file + range.file),
                offset: range.offset,
                length: range.length,
            })
            .collect();
        let id = this.id;
        // What is above the cap is forgotten, as it is live.
        let _ = self.tip.disclose(id, &segments, &mut self.ios);
        self.submit_all(Some(process));
    }

    fn begin_call(&mut self, process: usize, range: Range) {
        let this = &mut self.processes[process];
        let file = FileId(this.first_file + range.file);
        let bytes = self.layout.file_bytes(file);
        let end = range.offset.saturating_add(range.length).min(bytes);
        this.burst_us += self.machine.costs.call_ns / 1000;
        if range.offset < end {
            this.call =
                Some(Call { file, start: range.offset, at: range.offset, end, requested: None });
        }
    }

    /// Requests the call's next block, or copies the one requested before.
    fn continue_call(&mut self, process: usize) {
        let this = &mut self.processes[process];
        let call = this.call.as_mut().expect("in a call");
        let block_end = ((call.at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(call.end);
        if let Some((block, hinted)) = call.requested.take() {
            this.burst_us += self.machine.costs.request_us(block_end - call.at, hinted);
            call.at = block_end;
            if call.at == call.end {
                this.call = None;
            }
            self.tip.release(block);
            return;
        }
        // The inter-access non-idle time that section 7.2 suggests under multiprogramming.
        let others_us = (self.cpu_us - this.report.cpu_us).saturating_sub(this.others_us_before);
        let read = Read {
            process: this.id,
            file: call.file,
            offset: call.at,
            length: block_end - call.at,
            call_start: call.start,
            call_end: call.end,
            t_app_us: (this.t_app_us + others_us) as u32,
        };
        this.t_app_us = 0;
        this.others_us_before = self.cpu_us - this.report.cpu_us;
        let block = Block { file: call.file, number: (call.at / BLOCK_BYTES) as u32 };
        let hinted_before = self.tip.stats().hinted_requests;
        let outcome = self.tip.read(&read, &mut self.ios);
        assert_ne!(outcome, ReadOutcome::Uncached, "`reserve` must cover all processes");
        let hinted = self.tip.stats().hinted_requests > hinted_before;
        let this = &mut self.processes[process];
        this.call.as_mut().expect("in a call").requested = Some((block, hinted));
        if outcome != ReadOutcome::Hit {
            this.waits_for = Some(block);
        }
        self.submit_all(Some(process));
    }

    fn write(&mut self, process: usize, range: Range) {
        let this = &mut self.processes[process];
        let costs = &self.machine.costs;
        let file = FileId(this.first_file + range.file);
        let id = this.id;
        let (first, last) =
            (range.offset / BLOCK_BYTES, (range.offset + range.length.max(1) - 1) / BLOCK_BYTES);
        let blocks = last - first + 1;
        this.burst_us +=
            costs.call_ns / 1000 + blocks * costs.request_us(range.length / blocks, false);
        for number in first..=last {
            self.tip.write(id, Block { file, number: number as u32 }, &mut self.ios);
        }
        self.submit_all(Some(process));
    }

    // The array.

    /// Submits the I/Os that the manager asked for, one after another as the CPU gets to
    /// start them; the CPU time is the process's, or an interrupt's.
    fn submit_all(&mut self, process: Option<usize>) {
        let mut ios = std::mem::take(&mut self.ios);
        let mut spent = 0;
        for io in ios.drain(..) {
            spent += self.machine.costs.io_start_us(io.blocks);
            let slot = self.vacant.pop().unwrap_or_else(|| {
                self.submissions.push(None);
                self.submissions.len() - 1
            });
            self.submissions[slot] = Some(io);
            self.post(self.now + spent, Event::Submit(slot));
        }
        self.ios = ios;
        match process {
            Some(process) => self.processes[process].burst_us += spent,
            None if spent > 0 && !self.interrupt(spent) => self.cpu_us += spent,
            None => {}
        }
    }

    fn submit_slot(&mut self, slot: usize) {
        let io = self.submissions[slot].take().expect("a slot is submitted once");
        self.vacant.push(slot);
        let address = self.layout.address(io.first).expect("the manager asks for what exists");
        let started = self.array.submit(self.now, io, address);
        self.note_started(started);
    }

    fn note_started(&mut self, started: Option<Started>) {
        if let Some(Started { disk, done }) = started {
            self.post(done, Event::DiskDone(disk));
        }
    }

    fn disk_done(&mut self, disk: u16) {
        let (io, service_us, started) = self.array.complete(disk, self.now);
        self.note_started(started);
        let mut us = self.machine.costs.io_end_us(io.blocks);
        if self.interrupt(us) {
            us = 0;
        }
        self.tip.io_done(&io, Some(service_us as u32), &mut self.ios);
        self.submit_all(None);
        for process in 0..self.processes.len() {
            let arrived = self.processes[process].waits_for.is_some_and(|block| {
                let range = io.first.number..io.first.number + io.blocks;
                !io.write && block.file == io.first.file && range.contains(&block.number)
            });
            if arrived {
                self.wake(process, std::mem::take(&mut us));
            }
        }
        // Nobody to hold up: the interrupt ran on an idle CPU.
        self.cpu_us += us;
    }
}

impl Process {
    fn usage(&self, now: Micros) -> f64 {
        self.usage_us * (-((now - self.usage_at) as f64) / USAGE_DECAY_US).exp()
    }

    fn use_cpu(&mut self, us: Micros, now: Micros) {
        self.burst_us = self.burst_us.saturating_sub(us);
        self.report.cpu_us += us;
        self.usage_us = self.usage(now.max(self.usage_at)) + us as f64;
        self.usage_at = now.max(self.usage_at);
    }
}
