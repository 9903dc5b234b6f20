//! Memory shared by programs and their speculative processes: LRU replacement,
//! one stall per page that is missing, and memory control by the same
//! [`Estimate`] that a live process uses (Fraser and Chang 2003, section 6).
//!
//! A program asks for one page per step. Its speculative process, while it is
//! enabled, prefetches what it believes comes `lead` steps later and makes
//! pages of its own. What speculation does to the program is thereby known
//! exactly: the same program is simulated without it.

use std::collections::{BTreeMap, HashMap};

use runahead_policy::memory_control::{
    Action, Estimate, EvictionList, Parameters, Reference, STALL, added_stalls,
};

/// A page of some program.
type Page = (usize, u32);

/// What a speculative process is like.
#[derive(Clone, Copy, Debug)]
pub struct Speculation {
    /// Steps that it runs ahead.
    pub lead: usize,
    /// Pages of its own that it makes in each interval, up to `own_pages`.
    pub own_pages_per_interval: u64,
    /// Most pages of its own.
    pub own_pages: u64,
    /// Share of its prefetches that are of another page, by step: 0 to 1.
    pub wrong: fn(usize) -> f64,
}

/// A program and, perhaps, its speculative process.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Pages that it asks for, one each step.
    pub pages: Vec<u32>,
    /// Its speculative process.
    pub speculation: Option<Speculation>,
}

/// The memory and how it is controlled.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Pages that fit.
    pub pages: usize,
    /// Steps in an interval.
    pub interval: usize,
    /// Memory control; none: speculation is never disabled.
    pub control: Option<Parameters>,
}

/// What one program came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Pages that it had to wait for.
    pub stalls: u64,
    /// Removed stalls that were counted.
    pub removed: u64,
    /// Times that its speculation was disabled.
    pub disabled: u64,
    /// Intervals for which it was.
    pub disabled_intervals: u64,
    /// Action at the end of each interval.
    pub actions: Vec<Action>,
}

/// What a simulation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Each program.
    pub outcomes: Vec<Outcome>,
    /// TotAddedStalls as the eviction list counted them.
    pub added: u64,
}

impl MemoryReport {
    /// Stalls of all programs.
    pub fn stalls(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.stalls).sum()
    }
}

#[derive(Debug)]
struct Simulation {
    list: EvictionList<Page>,
    /// Resident pages by when they were last used, and the reverse.
    lru: BTreeMap<u64, Page>,
    stamps: HashMap<Page, u64>,
    clock: u64,
    /// Pages of memory that hold pages.
    capacity: usize,
    /// Pages that speculative processes have made, each.
    own: Vec<u64>,
}

/// Simulates programs that take turns, a step each, until all have ended.
pub fn simulate_memory(memory: &Memory, subjects: &[Subject]) -> MemoryReport {
    let mut simulation = Simulation {
        list: EvictionList::new(subjects.len()),
        lru: BTreeMap::new(),
        stamps: HashMap::new(),
        clock: 0,
        capacity: memory.pages,
        own: vec![0; subjects.len()],
    };
    let mut report = MemoryReport { outcomes: vec![Outcome::default(); subjects.len()], added: 0 };
    let mut estimates = vec![Estimate::default(); subjects.len()];
    let mut removed = vec![0; subjects.len()];
    let mut added_before = 0;
    let steps = subjects.iter().map(|subject| subject.pages.len()).max().unwrap_or(0);
    for step in 0..steps {
        for (program, subject) in subjects.iter().enumerate() {
            if estimates[program].is_enabled() {
                simulation.speculate(program, subject, step);
            }
            let Some(&page) = subject.pages.get(step) else { continue };
            match simulation.ask((program, page)) {
                (Reference::RemovedStall(by), _) => removed[by] += 1,
                (reference, resident) => {
                    report.added += u64::from(reference == Reference::AddedStall);
                    report.outcomes[program].stalls += u64::from(!resident);
                }
            }
        }
        if (step + 1) % memory.interval != 0 {
            continue;
        }
        let total_added =
            (report.added - std::mem::replace(&mut added_before, report.added)) * STALL;
        let total_pages = simulation.list.pages_of_all();
        for (program, subject) in subjects.iter().enumerate() {
            let Some(speculation) = &subject.speculation else { continue };
            let pages = simulation.list.pages_of(program);
            let stalls = std::mem::take(&mut removed[program]);
            let outcome = &mut report.outcomes[program];
            outcome.removed += stalls;
            let mut action = Action::Run;
            if let Some(parameters) = &memory.control {
                let added = added_stalls(total_added, pages, total_pages);
                action = estimates[program].end_interval(added, stalls * STALL, parameters);
            }
            outcome.actions.push(action);
            match action {
                Action::Disable => {
                    outcome.disabled += 1;
                    simulation.make_own(program, 0);
                }
                Action::Wait => outcome.disabled_intervals += 1,
                Action::Run | Action::Enable => {
                    let more = simulation.own[program] + speculation.own_pages_per_interval;
                    simulation.make_own(program, more.min(speculation.own_pages));
                }
            }
        }
    }
    report
}

impl Simulation {
    /// The program asks for a page: what that means, and whether it was there.
    fn ask(&mut self, page: Page) -> (Reference, bool) {
        if self.stamps.contains_key(&page) {
            self.touch(page);
            return (self.list.used_by_normal(page), true);
        }
        let reference = self.list.read_by_normal(page);
        self.bring_in(page);
        (reference, false)
    }

    /// One step of a speculative process.
    fn speculate(&mut self, program: usize, subject: &Subject, step: usize) {
        let Some(speculation) = &subject.speculation else { return };
        let Some(&right) = subject.pages.get(step + speculation.lead) else { return };
        // Spread evenly: every n-th prefetch is of a page that is never asked for.
        let share = (speculation.wrong)(step);
        let wrong = (step as f64 * share).floor() != ((step + 1) as f64 * share).floor();
        let page = (program, if wrong { u32::MAX - step as u32 } else { right });
        if !self.stamps.contains_key(&page) {
            self.list.prefetched(page, program);
            self.bring_in(page);
        }
    }

    fn touch(&mut self, page: Page) {
        self.clock += 1;
        if let Some(before) = self.stamps.insert(page, self.clock) {
            self.lru.remove(&before);
        }
        self.lru.insert(self.clock, page);
    }

    fn bring_in(&mut self, page: Page) {
        self.touch(page);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.lru.len() > self.capacity.max(1) {
            let Some((_, page)) = self.lru.pop_first() else { return };
            self.stamps.remove(&page);
            self.list.evicted(page);
        }
    }

    /// The speculative process's own pages are now so many: they take memory away from
    /// everything else, or give it back.
    fn make_own(&mut self, program: usize, pages: u64) {
        let before = std::mem::replace(&mut self.own[program], pages);
        let more = pages as i64 - before as i64;
        self.list.own_memory(program, more);
        self.capacity = self.capacity.saturating_add_signed(-more as isize);
        self.shrink();
    }
}
