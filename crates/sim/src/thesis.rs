//! The thesis's figures, to be printed beside simulated ones.

use crate::workload::App;

/// The array sizes of its experiments.
pub const DISKS: [u16; 5] = [1, 2, 3, 4, 10];

/// An application's elapsed time as a fraction of NH (table 6.25), by array size.
#[derive(Clone, Copy, Debug)]
pub struct SingleRow {
    /// The application.
    pub app: App,
    /// Prefetching to P̂ without caching.
    pub nc: [f64; 5],
    /// Full TIP.
    pub tip: [f64; 5],
}

/// Table 6.25.
pub const SINGLE: [SingleRow; 7] = [
    row(App::Davidson, [0.99, 0.98, 0.97, 0.96, 0.90], [0.63, 0.81, 0.88, 0.88, 0.83]),
    row(App::Xds, [0.74, 0.47, 0.35, 0.30, 0.18], [0.73, 0.47, 0.35, 0.30, 0.18]),
    row(App::Sphinx, [0.93, 0.83, 0.79, 0.79, 0.77], [0.93, 0.83, 0.80, 0.79, 0.78]),
    row(App::Agrep, [0.83, 0.48, 0.37, 0.28, 0.16], [0.83, 0.49, 0.37, 0.28, 0.16]),
    row(App::Gnuld, [0.81, 0.50, 0.41, 0.35, 0.26], [0.76, 0.46, 0.38, 0.34, 0.26]),
    row(App::Postgres20, [0.81, 0.61, 0.56, 0.54, 0.53], [0.77, 0.59, 0.54, 0.52, 0.51]),
    row(App::Postgres80, [0.72, 0.46, 0.38, 0.35, 0.33], [0.50, 0.35, 0.32, 0.31, 0.31]),
];

const fn row(app: App, nc: [f64; 5], tip: [f64; 5]) -> SingleRow {
    SingleRow { app, nc, tip }
}

/// A pair's time until both end as a fraction of neither hinting (table 6.26), by array size.
#[derive(Clone, Copy, Debug)]
pub struct PairRow {
    /// The two applications.
    pub apps: (App, App),
    /// Only the first hints.
    pub first: [f64; 5],
    /// Only the second hints.
    pub second: [f64; 5],
    /// Both hint.
    pub both: [f64; 5],
}

/// Table 6.26.
pub const PAIRS: [PairRow; 3] = [
    PairRow {
        apps: (App::Gnuld, App::Agrep),
        first: [0.72, 0.54, 0.49, 0.44, 0.38],
        second: [0.83, 0.88, 0.90, 0.91, 0.94],
        both: [0.64, 0.48, 0.42, 0.39, 0.33],
    },
    PairRow {
        apps: (App::Sphinx, App::Davidson),
        first: [0.95, 0.87, 0.84, 0.80, 0.88],
        second: [0.82, 0.88, 0.92, 0.88, 0.96],
        both: [0.74, 0.75, 0.83, 0.76, 0.85],
    },
    PairRow {
        apps: (App::Xds, App::Postgres80),
        first: [0.66, 0.62, 0.63, 0.63, 0.60],
        second: [0.62, 0.68, 0.75, 0.73, 0.80],
        both: [0.52, 0.39, 0.34, 0.33, 0.27],
    },
];
