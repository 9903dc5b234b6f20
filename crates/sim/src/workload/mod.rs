//! Generators of the thesis's applications, from its descriptions (section 3.4) and counts
//! (tables 3.2 and 3.3, and the cache tables of chapter 6).

mod agrep;
mod davidson;
mod gnuld;
mod postgres;
mod sphinx;
mod xdataslice;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::filesystem::BLOCK_BYTES;
use crate::program::{Program, Range};
use crate::random::Random;

/// One of the benchmark applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum App {
    /// Sixty sequential passes over a file larger than the cache.
    Davidson,
    /// Planar slices through a blocked 512³ data set.
    Xds,
    /// Speech recognition with its language model on disk.
    Sphinx,
    /// A text search through 1349 small files.
    Agrep,
    /// Linking 562 object files in several passes.
    Gnuld,
    /// A database join, 20% of the outer tuples matching.
    Postgres20,
    /// A database join, 80% of the outer tuples matching.
    Postgres80,
}

impl App {
    /// In the order of the thesis's tables.
    pub const ALL: [Self; 7] = [
        Self::Davidson,
        Self::Xds,
        Self::Sphinx,
        Self::Agrep,
        Self::Gnuld,
        Self::Postgres20,
        Self::Postgres80,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Davidson => "davidson",
            Self::Xds => "xds",
            Self::Sphinx => "sphinx",
            Self::Agrep => "agrep",
            Self::Gnuld => "gnuld",
            Self::Postgres20 => "postgres20",
            Self::Postgres80 => "postgres80",
        }
    }

    /// Its program for a seed; `instance` tells apart several in one simulation.
    pub fn program(self, seed: u64, instance: usize) -> Program {
        let mut random = Random::new(seed.wrapping_mul(31) + self as u64 + 1000 * instance as u64);
        match self {
            Self::Davidson => davidson::program(&mut random),
            Self::Xds => xdataslice::program(&mut random),
            Self::Sphinx => sphinx::program(&mut random),
            Self::Agrep => agrep::program(&mut random),
            Self::Gnuld => gnuld::program(&mut random),
            Self::Postgres20 => postgres::program(&mut random, postgres::Match::TWENTY_PERCENT),
            Self::Postgres80 => postgres::program(&mut random, postgres::Match::EIGHTY_PERCENT),
        }
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no application's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownApp(String);

impl fmt::Display for UnknownApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = App::ALL.map(App::name).join(", ");
        write!(f, "no application is called '{}'; there are {names}", self.0)
    }
}

impl std::error::Error for UnknownApp {}

impl FromStr for App {
    type Err = UnknownApp;

    fn from_str(name: &str) -> Result<Self, UnknownApp> {
        let found = Self::ALL.into_iter().find(|app| app.name() == name);
        found.ok_or_else(|| UnknownApp(name.to_string()))
    }
}

/// Program text and libraries, read at the start without hints: `ios` scattered pieces. The
/// cache tables' misses under NC that are no part of the described work.
fn start_up(program: &mut Program, random: &mut Random, ios: u32) {
    let pieces = ios * 6;
    let file = program.file(u64::from(pieces) * BLOCK_BYTES, 90);
    let mut at: Vec<u32> = (0..pieces).step_by(6).collect();
    random.shuffle(&mut at);
    for first in at {
        program.read(Range::blocks(file, first, 1 + random.below(2) as u32));
        program.compute(500.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables 3.2 and 3.3: calls, blocks and bytes read; hinted segments and blocks.
    #[test]
    fn totals_are_near_the_thesis() {
        let expected = [
            (App::Davidson, [19_000, 144_425, 1_027_634_130], [61, 127_429]),
            (App::Xds, [46_356, 46_352, 370_663_914], [45_241, 45_241]),
            (App::Sphinx, [65_282, 77_714, 193_350_787], [62_586, 74_871]),
            (App::Agrep, [4_277, 2_928, 18_091_527], [1_349, 2_922]),
            (App::Gnuld, [13_037, 20_091, 60_158_290], [8_322, 15_371]),
            (App::Postgres20, [8_678, 8_676, 70_657_265], [4_047, 4_455]),
            (App::Postgres80, [31_245, 31_243, 255_526_130], [15_917, 16_325]),
        ];
        for (app, reads, hints) in expected {
            let totals = app.program(1, 0).totals();
            let found = [totals.read_calls, totals.read_blocks, totals.read_bytes];
            for (what, found, expected) in [
                ("read calls", found[0], reads[0]),
                ("read blocks", found[1], reads[1]),
                ("read bytes", found[2], reads[2]),
                ("hint segments", totals.hint_segments, hints[0]),
                ("hint blocks", totals.hint_blocks, hints[1]),
            ] {
                let ratio = found as f64 / expected as f64;
                assert!(
                    (0.88..1.12).contains(&ratio),
                    "{app}: {found} {what}, {expected} in the thesis"
                );
            }
        }
    }

    #[test]
    fn names_parse_back() {
        for app in App::ALL {
            assert_eq!(app.name().parse(), Ok(app));
        }
        assert!("emacs".parse::<App>().unwrap_err().to_string().contains("davidson"));
    }
}
