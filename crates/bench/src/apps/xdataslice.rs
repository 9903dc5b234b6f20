//! `XDataSlice`: slices through a volume.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Application, Case, Setup};
use crate::c_program::CProgram;
use crate::generate::volume;
use crate::launch::{Launch, Measured};
use crate::process::CommandSpec;
use crate::tools::{GCC, Tool};

/// Section 3.1: 25 random slices of 512³ 32-bit values, 512 MB.
#[derive(Debug)]
pub struct XDataSlice;

const SLICES: u64 = 25;
const PROGRAM: CProgram = CProgram {
    name: "xdataslice",
    source: include_str!("../../../../bench/xdataslice/xdataslice.c"),
    headers: &[],
};

impl Application for XDataSlice {
    fn name(&self) -> &'static str {
        "xdataslice"
    }

    fn about(&self) -> &'static str {
        "25 oblique slices of a 512³ 32-bit volume in 8 KiB blocks, 512 MB"
    }

    fn is_papers(&self) -> bool {
        true
    }

    fn tools(&self) -> &'static [Tool] {
        &[GCC]
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        volume::make(&setup.directory.join("volume"), volume::side(setup.scale), setup.seed)
    }

    fn cases(&self, setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        let program = PROGRAM.build(&setup.cache)?;
        let side = volume::side(setup.scale).to_string();
        let spec = CommandSpec::new(program, &setup.directory).args([
            "volume",
            &side,
            &SLICES.to_string(),
            &setup.seed.to_string(),
        ]);
        Ok(vec![Box::new(Slices(spec))])
    }
}

struct Slices(CommandSpec);

impl Case for Slices {
    fn shown(&self) -> String {
        let name = |path: &Path| path.file_name().map(PathBuf::from).unwrap_or_default();
        let program = name(Path::new(&self.0.program)).into_os_string();
        CommandSpec { program, ..self.0.clone() }.display()
    }

    fn run(&self, launch: &Launch<'_>) -> Result<Measured> {
        launch.run(&self.0, &[])
    }

    /// The user asks for a slice when the one before is on the screen, so the
    /// ideal is a sum over slices (the program prints the blocks of each).
    fn phases(&self, run: &Measured) -> Result<Vec<f64>> {
        let path = run.output.path("stderr");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        blocks_of_slices(&text)
    }
}

/// Blocks of each slice from lines such as `slice 3: 1810 blocks`.
fn blocks_of_slices(text: &str) -> Result<Vec<f64>> {
    let blocks: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split_once(": ")?.1.strip_suffix(" blocks")?.parse().ok())
        .collect();
    ensure!(!blocks.is_empty(), "the program names no slice: {text:?}");
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_parsed() {
        let text = "slice 0: 46 blocks\nnoise\nslice 1: 3448 blocks\n";
        assert_eq!(blocks_of_slices(text).unwrap(), [46.0, 3448.0]);
        assert!(blocks_of_slices("nothing\n").is_err());
    }
}
