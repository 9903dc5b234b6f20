//! `runahead cc`, `c++`, `fc`: compile with inserted prefetch and release.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use runahead_bench::explicit::cache_directory;
use runahead_compile::{Compiler, Language};

/// Compile with inserted prefetch and release
///
/// Runs clang, clang++ or flang with a pass that finds the accesses of loops
/// over arrays, and has the program ask for their pages ahead and give back
/// those behind (Mowry, Demke and Krieger 1996), so that it runs at the
/// storage's speed where its data does not fit in memory: data in mapped files
/// or in memory that is swapped. All arguments are the compiler's own; needs
/// -O1 or more. Results do not change, but for the last bits of some under
/// -ffast-math.
#[derive(Debug, Args)]
#[command(
    // `--version` is for the compiler: build systems ask it that way.
    disable_version_flag = true,
    after_help = "EXAMPLES
  runahead cc -O2 -o solver solver.c
  runahead cc --explain -O2 -c loops.c    # says what was inserted, and why not
  CC='runahead cc' make"
)]
pub struct Compile {
    /// Report what was inserted where, and what not and why
    #[arg(long)]
    explain: bool,
    /// Major version of LLVM [default: the newest of 22, 19, 14 that is there]
    #[arg(long, value_name = "VERSION")]
    llvm: Option<u32>,
    /// The compiler's own arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<OsString>,
}

/// Becomes the compiler.
///
/// # Errors
/// If there is none, or the pass cannot be built for it.
pub fn run(language: Language, compile: &Compile) -> Result<ExitCode> {
    let cache = cache_directory()?.with_file_name("compiler");
    let compiler = Compiler::find(language, compile.llvm, &cache)?;
    let error = compiler.command(&compile.arguments, compile.explain).exec();
    Err(error).with_context(|| format!("start {}", compiler.program.display()))
}
