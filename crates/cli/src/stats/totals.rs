//! Sums over the processes of a run.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use runahead_protocol::stats::{Counter, Loss, Park, Slot};

/// Counters of all processes of one name, or of all.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The program's short name.
    pub name: String,
    /// Processes, an `execve` counted as another one.
    pub processes: u64,
    /// What they lost, in the order of [`Loss::ALL`].
    pub losses: Vec<Loss>,
    counters: Vec<u64>,
    most_prefetches: u64,
}

impl Program {
    /// A counter: the sum, the maximum, or the latest, whichever it is.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    /// A counter of which 0 means that nothing was measured.
    pub fn measured(&self, counter: Counter) -> Option<u64> {
        Some(self.get(counter)).filter(|value| *value != 0)
    }

    /// Reads predicted for each synchronisation that made a speculative
    /// process; `None` where there was none.
    pub fn predicted_per_synchronization(&self) -> Option<f64> {
        let made = self.measured(Counter::SyncsCompleted)?;
        Some(self.get(Counter::ReadsPredicted) as f64 / made as f64)
    }

    fn add(&mut self, slot: &Slot) {
        self.processes += 1;
        self.counters.resize(Counter::ALL.len(), 0);
        // What is not a sum is taken from the process that prefetched most.
        let issued = slot.get(Counter::PrefetchesIssued);
        let leads = issued > self.most_prefetches || self.processes == 1;
        self.most_prefetches = self.most_prefetches.max(issued);
        for (cell, counter) in self.counters.iter_mut().zip(Counter::ALL) {
            let value = slot.get(*counter);
            match counter {
                Counter::SpeculativePeakKib => *cell = value.max(*cell),
                Counter::DeviceLatencyNs
                | Counter::DeviceBytesPerS
                | Counter::DeviceParallelism
                | Counter::DeviceHorizon => {
                    if leads && value != 0 {
                        *cell = value;
                    }
                }
                _ => *cell = cell.saturating_add(value),
            }
        }
        let lost = slot.losses.load(Ordering::Relaxed);
        for loss in Loss::ALL.iter().filter(|loss| lost & 1 << **loss as u32 != 0) {
            if !self.losses.contains(loss) {
                self.losses.push(*loss);
            }
        }
    }
}

/// Name of the processes that share a slot.
const OTHERS: &str = "(others)";

/// Everything that was counted.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// All processes together.
    pub all: Program,
    /// By program, in the order of their first processes.
    pub programs: Vec<Program>,
    /// How often each reason ended a speculative process; only those that
    /// occurred.
    pub parked: Vec<(Park, u64)>,
    /// How often a system call was the last, by name; most frequent first.
    pub parked_calls: Vec<(String, u64)>,
    /// The first intervals of memory control of each process that had some:
    /// added and removed stalls and the threshold (in 1/1024), and the action.
    pub intervals: Vec<Vec<[u64; 4]>>,
    /// Processes that found all slots taken: they share the last one with the process
    /// that had it first, as one program.
    pub crowded: usize,
}

impl Totals {
    /// Sums up the slots, of which `taken` processes each wanted one.
    pub fn gather(slots: &[Slot], taken: usize) -> Totals {
        let mut totals = Totals { crowded: taken.saturating_sub(slots.len()), ..Totals::default() };
        let mut parked = vec![0u64; Park::ALL.len()];
        let mut calls = BTreeMap::<u64, u64>::new();
        let last = slots.len().wrapping_sub(1);
        for (index, slot) in slots.iter().enumerate() {
            if slot.pid.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let is_shared = totals.crowded > 0 && index == last;
            let name = if is_shared { OTHERS.to_owned() } else { name_of(slot) };
            totals.all.add(slot);
            let known = totals.programs.iter_mut().find(|program| program.name == name);
            match known {
                Some(program) => program.add(slot),
                None => {
                    let mut program = Program { name, ..Program::default() };
                    program.add(slot);
                    totals.programs.push(program);
                }
            }
            for (sum, count) in parked.iter_mut().zip(&slot.parked) {
                *sum += u64::from(count.load(Ordering::Relaxed));
            }
            let intervals: Vec<_> = slot.logged_intervals().collect();
            if !intervals.is_empty() {
                totals.intervals.push(intervals);
            }
            for call in &slot.parked_calls {
                let call = call.load(Ordering::Relaxed);
                if call != 0 {
                    *calls.entry(call >> 32).or_default() += call & 0xffff_ffff;
                }
            }
        }
        let reasons = Park::ALL.iter().copied().zip(parked);
        totals.parked = reasons.filter(|(_, count)| *count > 0).collect();
        totals.parked_calls = calls.into_iter().map(|(nr, n)| (call_name(nr), n)).collect();
        totals.parked_calls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        totals
    }

    /// Whether any process had the agent in it; if not, nothing was counted.
    pub fn is_measured(&self) -> bool {
        self.all.processes > 0
    }
}

fn name_of(slot: &Slot) -> String {
    let bytes: Vec<u8> =
        slot.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn call_name(number: u64) -> String {
    let known = usize::try_from(number).ok().and_then(syscalls::Sysno::new);
    known.map_or_else(|| format!("call {number}"), |call| call.name().to_owned())
}
