//! Gnuld: object code linking.

use std::fs;

use anyhow::{Context, Result};

use super::{Application, Case, CommandCase, Setup, save_list};
use crate::generate::{objects, scaled};
use crate::process::CommandSpec;
use crate::tools::{GCC, LD_BFD, Tool};

/// Section 3.1: 562 object files with debugging information are linked.
#[derive(Debug)]
pub struct Gnuld;

const OBJECTS: u64 = 562;

impl Application for Gnuld {
    fn name(&self) -> &'static str {
        "gnuld"
    }

    fn about(&self) -> &'static str {
        "ld.bfd over 562 objects with debug information, over 64 MB"
    }

    fn is_papers(&self) -> bool {
        true
    }

    fn tools(&self) -> &'static [Tool] {
        &[LD_BFD, GCC]
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        let count = scaled(OBJECTS, setup.scale, 4);
        let objects = setup.directory.join("objects");
        fs::create_dir(&objects).with_context(|| format!("create {}", objects.display()))?;
        let names = objects::make(&objects, &setup.cache, count, setup.seed)?;
        save_list(&setup.directory.join("objects.list"), &names)
    }

    fn cases(&self, setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        let program = setup.directory.join("program");
        let spec = CommandSpec::new("ld.bfd", setup.directory.join("objects"))
            .args(["-e", "f0_0", "-o"])
            .arg(&program)
            .arg("@../objects.list");
        Ok(vec![Box::new(CommandCase { spec, writes: vec![program], good: &[0] })])
    }
}
