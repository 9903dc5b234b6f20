//! What was measured, and what it says of Runahead.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Interference, SLOWER_MAX_NS};
use crate::results::Machine;
use crate::rounds::{Excess, Round, Verdict};
use crate::summary::Latencies;
use crate::table::seconds;

/// One call: how long it took and of what that consists. What is left was taken
/// by the machine below (a virtual machine's host), by interrupts, or, where
/// the thread never slept, by what the kernel does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// From before the call until after it.
    pub whole_ns: u64,
    /// On a processor.
    pub computed_ns: u64,
    /// Runnable, while others had the processors.
    pub queued_ns: u64,
    /// Waiting for something else.
    pub slept_ns: u64,
}

impl Call {
    /// What the call itself takes, whoever else wants the processors. Sleep is
    /// not among it where processes wait for each other's turn at a processor.
    pub(super) fn own_ns(&self, shares: bool) -> u64 {
        self.computed_ns + if shares { 0 } else { self.slept_ns }
    }
}

/// What one run showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Elapsed time, seconds.
    pub elapsed_s: f64,
    /// The slowest call.
    pub slowest: Call,
    /// Most that a call took of its own.
    pub own_max_ns: u64,
    /// What the host took of all processors meanwhile, seconds.
    pub stolen_s: f64,
}

/// What one side's runs showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideResult {
    /// Latencies of the calls of all runs.
    pub latencies: Latencies,
    /// Calls slower than plain's slowest of all runs and what is allowed.
    pub too_slow: u64,
    /// Each run.
    pub runs: Vec<RunResult>,
    /// Sums of what went wrong: `torn`, `lost`, `strange`.
    pub wrong: BTreeMap<String, u64>,
    /// Synchronisations that made a speculative process; unknown if a run
    /// does not tell.
    pub synchronizations: Option<f64>,
}

impl SideResult {
    /// The slowest call of all runs.
    pub(super) fn slowest(&self) -> Call {
        let calls = self.runs.iter().map(|run| run.slowest);
        calls.max_by_key(|call| call.whole_ns).unwrap_or_default()
    }
}

/// What one program showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the program.
    pub name: String,
    /// What it measures.
    pub calls: String,
    /// Plain runs.
    pub plain: SideResult,
    /// As many plain runs more, with which these are compared.
    pub control: SideResult,
    /// Runs under Runahead.
    pub runahead: SideResult,
    /// Rounds in which one side's slowest call was slower than both others'.
    pub slower: Excess,
    /// The same of what calls took of their own.
    pub own: Excess,
    /// Whether each output was the first plain run's.
    pub outputs_equal: bool,
}

impl CaseResult {
    /// Compares the sides.
    pub(super) fn new(one: &Interference, sides: [SideResult; 3], outputs_equal: bool) -> Self {
        let [plain, control, runahead] = sides;
        let excess = |of: fn(&RunResult) -> u64| {
            let runs = plain.runs.iter().zip(&control.runs).zip(&runahead.runs);
            let rounds: Vec<Round> = runs
                .map(|((plain, control), runahead)| Round {
                    plain_ns: of(plain),
                    control_ns: of(control),
                    runahead_ns: of(runahead),
                })
                .collect();
            Excess::of(&rounds, SLOWER_MAX_NS)
        };
        Self {
            name: one.name.into(),
            calls: one.calls.into(),
            slower: excess(|run| run.slowest.whole_ns),
            own: excess(|run| run.own_max_ns),
            plain,
            control,
            runahead,
            outputs_equal,
        }
    }

    /// Whether more rounds may say more.
    pub(super) fn is_undecided(&self) -> bool {
        [self.slower, self.own].iter().any(|excess| excess.verdict() == Verdict::Undecided)
    }

    /// Where Runahead was slower more often than its share, in words.
    pub(super) fn losses(&self, verdict: Verdict) -> Vec<String> {
        let loss = |excess: Excess, what: &str| {
            (excess.verdict() == verdict).then(|| {
                format!(
                    "{what} in {} of {} rounds (others {}; chance {:.2})",
                    excess.runahead,
                    excess.rounds,
                    excess.odd - excess.runahead,
                    excess.chance
                )
            })
        };
        let allowed = seconds(SLOWER_MAX_NS as f64 / 1e9);
        [
            loss(self.slower, &format!("a call {allowed} slower")),
            loss(self.own, &format!("a call {allowed} slower by itself")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Why it fails, in words; empty: it passes.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = self.losses(Verdict::Broken);
        for (what, count) in &self.runahead.wrong {
            let plain = [&self.plain, &self.control]
                .map(|side| side.wrong.get(what).copied().unwrap_or_default());
            if *count > plain[0].max(plain[1]) {
                failures.push(format!("{count} {what}"));
            }
        }
        if !self.outputs_equal {
            failures.push("output differs".into());
        }
        failures
    }
}

/// The whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterferenceResults {
    /// Version of this format.
    pub version: u32,
    /// `interference`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The place.
    pub profile: String,
    /// Spinning processes beside the program.
    pub busy_processes: usize,
    /// The programs.
    pub cases: Vec<CaseResult>,
}

impl InterferenceResults {
    /// Whether on idle processors, where copies are made, no program made one: then
    /// nothing was tested. One by itself may have none.
    pub(super) fn nothing_speculated(&self) -> bool {
        let made = |case: &CaseResult| case.runahead.synchronizations.unwrap_or(0.0);
        self.busy_processes == 0 && self.cases.iter().all(|case| made(case) == 0.0)
    }

    /// Whether no program fails, and something was tested.
    pub fn pass(&self) -> bool {
        self.cases.iter().all(|case| case.failures().is_empty()) && !self.nothing_speculated()
    }
}
