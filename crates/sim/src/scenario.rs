//! One simulation by names: applications, policy, disks, seed.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use runahead_policy::tip::{Config, Extensions, Mode, Valuation};
use serde::Serialize;

use crate::workload::App;
use crate::{
    Array, Bounds, CpuCosts, DriveParameters, FileSpec, FileSystem, Machine, PlacementParameters,
    Program, Random, Report, Task, bounds, simulate,
};

/// A system to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The base system: LRU and sequential readahead.
    Du,
    /// TIP, with applications that do not hint.
    Nh,
    /// TIP, hints neither prefetched nor read ahead nor clustered.
    Np,
    /// TIP, prefetching to a fixed depth, no caching.
    Nc {
        /// Accesses ahead.
        depth: u64,
    },
    /// TIP.
    Tip,
    /// Prefetch P̂ ahead; eject what is used last.
    FixedHorizon,
    /// Prefetch whenever a disk is free.
    Aggressive,
    /// Fixed horizon, aggressive from constrained disks.
    Forestall,
    /// TIP, deep prefetching from constrained disks.
    Tiptoe,
    /// TIP with the finite-disk model of Eq 7.5.
    Finite,
    /// TIP with the post-hint estimator.
    PostHint,
    /// TIP with each process's own prefetch horizon.
    OwnHorizon,
    /// TIP with all extensions but the last.
    Extended,
}

/// Buffers that mapped pages occupy: "typically about half" of the annex's limit of 500
/// (section 5.3.3). The simulated programs map nothing, so these are taken off the cache.
const MAPPED_BUFFERS: u32 = 250;

/// Tells the random sequence of placement from those of the programs.
const PLACEMENT_SEED: u64 = 0x706c_6163_656d_656e;

impl Policy {
    /// Every policy, NC at the thesis's depth.
    pub const ALL: [Self; 13] = [
        Self::Du,
        Self::Nh,
        Self::Np,
        Self::Nc { depth: 73 },
        Self::Tip,
        Self::FixedHorizon,
        Self::Aggressive,
        Self::Forestall,
        Self::Tiptoe,
        Self::Finite,
        Self::PostHint,
        Self::OwnHorizon,
        Self::Extended,
    ];

    /// Its name without parameters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Du => "du",
            Self::Nh => "nh",
            Self::Np => "np",
            Self::Nc { .. } => "nc",
            Self::Tip => "tip",
            Self::FixedHorizon => "fixed-horizon",
            Self::Aggressive => "aggressive",
            Self::Forestall => "forestall",
            Self::Tiptoe => "tiptoe",
            Self::Finite => "finite",
            Self::PostHint => "post-hint",
            Self::OwnHorizon => "own-horizon",
            Self::Extended => "extended",
        }
    }

    /// Whether applications hint under it.
    pub fn hints(self) -> bool {
        !matches!(self, Self::Du | Self::Nh)
    }

    /// The manager's configuration.
    pub fn config(self) -> Config {
        let mut config = Config { buffers: 1536 - MAPPED_BUFFERS, ..Config::thesis() };
        match self {
            Self::Np => config.mode = Mode::NoPrefetch,
            Self::Nc { depth } => config.mode = Mode::Static { depth, cluster_slack: 16 },
            Self::FixedHorizon => config.valuation = Valuation::FixedHorizon,
            Self::Aggressive => config.valuation = Valuation::Aggressive,
            Self::Forestall => config.valuation = Valuation::Forestall,
            Self::Tiptoe => config.valuation = Valuation::Tiptoe,
            Self::Finite => config.extensions.finite_disks = true,
            Self::PostHint => config.extensions.post_hint = true,
            Self::OwnHorizon => config.extensions.process_horizon = true,
            Self::Extended => {
                config.valuation = Valuation::Tiptoe;
                config.extensions =
                    Extensions { finite_disks: true, post_hint: true, process_horizon: false };
            }
            Self::Du | Self::Nh | Self::Tip => {}
        }
        config
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nc { depth } if *depth != 73 => write!(f, "nc:{depth}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Policy::ALL.map(Policy::name).join(", ");
        write!(f, "no policy is called '{}'; there are {names}, and nc:DEPTH", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        if let Some(depth) = name.strip_prefix("nc:") {
            return depth
                .parse()
                .map(|depth| Self::Nc { depth })
                .map_err(|_| UnknownPolicy(name.into()));
        }
        let found = Self::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy(name.to_string()))
    }
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Applications started together, and whether each one hints.
    pub apps: Vec<(App, bool)>,
    /// The system.
    pub policy: Policy,
    /// Disks in the array.
    pub disks: u16,
    /// Seed of workloads and placement.
    pub seed: u64,
    /// The drives.
    pub drive: DriveParameters,
    /// Where files lie.
    pub placement: PlacementParameters,
    /// CPU costs.
    pub costs: CpuCosts,
}

impl Scenario {
    /// One application on the thesis's machine, hinting if the policy uses hints.
    pub fn single(app: App, policy: Policy, disks: u16, seed: u64) -> Self {
        Self::of(vec![(app, policy.hints())], policy, disks, seed)
    }

    /// Applications on the thesis's machine.
    pub fn of(apps: Vec<(App, bool)>, policy: Policy, disks: u16, seed: u64) -> Self {
        Self {
            apps,
            policy,
            disks,
            seed,
            drive: DriveParameters::HP_C2247,
            placement: PlacementParameters::default(),
            costs: CpuCosts::THESIS,
        }
    }

    /// Lower bounds for its first application alone, without TIP's own CPU time.
    pub fn bounds(&self) -> Bounds {
        let program = self.apps.first().map(|&(app, _)| app.program(self.seed, 0));
        self.bounds_of(&program.unwrap_or_default())
    }

    /// Lower bounds for a program alone.
    pub fn bounds_of(&self, program: &Program) -> Bounds {
        self.bounds_with(program, self.policy.config().buffers)
    }

    /// The same with so many buffers.
    pub fn bounds_with(&self, program: &Program, buffers: u32) -> Bounds {
        bounds(program, buffers as usize, self.disks, &self.drive, &self.costs.without_tip())
    }

    /// Simulates it.
    pub fn run(&self) -> Report {
        self.run_with(self.policy.config())
    }

    /// Simulates it with another configuration of the manager.
    pub fn run_with(&self, config: Config) -> Report {
        let apps = self.apps.iter().enumerate();
        let tasks = apps
            .map(|(i, &(app, hints))| Task { program: app.program(self.seed, i), hints })
            .collect();
        self.run_tasks(tasks, config)
    }

    /// Simulates other programs in place of its applications.
    ///
    /// # Panics
    ///
    /// If their files do not fit on the array ([`Scenario::fits`]).
    pub fn run_tasks(&self, tasks: Vec<Task>, config: Config) -> Report {
        let mut files = Vec::new();
        // No two programs share one, whatever their numbers are.
        let mut directories = HashMap::new();
        for (i, task) in tasks.iter().enumerate() {
            for file in &task.program.files {
                let next = directories.len() as u32;
                let directory = *directories.entry((i, file.directory)).or_insert(next);
                files.push(FileSpec { directory, ..*file });
            }
        }
        let layout = self.layout(&files).expect("the files fit on the array");
        self.simulate(tasks, config, layout, false)
    }

    /// Simulates programs that share one list of files in place of its applications; `None` if
    /// the files do not fit on the array. There must be two buffers more than programs.
    pub fn run_sharing(&self, tasks: Vec<Task>, config: Config) -> Option<Report> {
        let files = tasks.first().map_or(&[][..], |task| &task.program.files);
        let layout = self.layout(files)?;
        Some(self.simulate(tasks, config, layout, true))
    }

    /// Whether files fit on the array.
    pub fn fits(&self, files: &[FileSpec]) -> bool {
        self.layout(files).is_some()
    }

    fn layout(&self, files: &[FileSpec]) -> Option<FileSystem> {
        let mut random = Random::new(self.seed ^ PLACEMENT_SEED);
        FileSystem::try_place(files, self.disks, self.drive.blocks, self.placement, &mut random)
    }

    fn simulate(
        &self,
        tasks: Vec<Task>,
        mut config: Config,
        layout: FileSystem,
        shares_files: bool,
    ) -> Report {
        let costs = match self.policy {
            Policy::Du => self.costs.without_tip(),
            _ => self.costs,
        };
        // Each may wait for a buffer at the same time.
        config.reserve = config.reserve.max(tasks.len() as u32);
        let machine = Machine { config, costs, shares_files, check: false };
        simulate(machine, tasks, layout, Array::new(self.disks, self.drive))
    }
}
