//! `runahead bench`: the paper's tables and today's programs.

mod common;
mod compiler;
mod explicit;
mod faults;
mod harm;
mod interference;
mod memory;
mod overhead;
mod sharing;
mod streams;
mod tip;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::say;

#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// The paper's explicit-I/O applications and today's programs (Table 2)
    ///
    /// Each application runs alternately by itself and under runahead, with
    /// the caches emptied before each run and read_ahead_kb at 128. Printed
    /// are the columns of the paper's Table 2, elapsed times with their spread,
    /// the ratio, and the ideal: max(CPU time, bytes / bandwidth, reads ×
    /// latency / parallelism). Each run's output is compared with the plain
    /// run's; the exit status is 1 if one differs or, with all of the data, a
    /// promise of docs/SPECIFICATION.md is missed. Unless --app names some,
    /// applications whose programs are missing are left out and named, and the
    /// exit status is 1, too.
    Explicit(explicit::Explicit),
    /// Programs that wait in page faults of mapped files
    ///
    /// Random touches, LMDB, numpy.memmap, SQLite through a mapping, and
    /// MATVEC of the paper's Table 1. As `explicit` otherwise.
    ///
    /// With `--over swap`: FFTPDE, MGRID, MATVEC and Sphinx of Table 1, and
    /// random touches, in a memory cgroup of the paper's proportion over an
    /// emulated swap device (root; at scale 1 the device has up to 600 MB).
    /// Printed are the paper's Tables 2, 3 and 4.
    ///
    /// With `--sync`: what a synchronisation costs a program with 1 GiB of
    /// resident memory, by a full and by an importing copy. The exit status is 1
    /// where an importing one takes longer than is promised.
    Faults(faults::Faults),
    /// What memory control is worth: the paper's Table 5, figures 5 and 6
    ///
    /// FFTPDE, MGRID, MATVEC and Sphinx over an emulated swap device (root),
    /// Sphinx in five sizes of memory: without speculation, with it, and with
    /// memory control besides (section 6). The exit status is 1 where a
    /// program takes more than 1.01 times as long with control as without
    /// speculation, or less than 95% of what speculation gains is kept, by the
    /// whole 95% interval, or nothing speculated.
    ///
    /// With `--release`: what it is worth to give back what lies behind a
    /// program (section 8), on an emulated device.
    Memory(memory::Memory),
    /// What speculation does to a program's own calls, processors busy
    ///
    /// Small programs time their own calls (mmap and munmap, fork, reads of
    /// their own and through a shared descriptor, exec while holding locks,
    /// page faults of a second thread) while their other reads stall, by
    /// themselves and under runahead, beside one spinning process per
    /// processor. It fails where a call is more than 5 ms slower than plain's
    /// slowest more often than a second plain side's is, a record is torn or a
    /// lock lost; with --idle, also where nothing speculated.
    Interference(interference::Interference),
    /// What runahead costs where everything is in memory
    ///
    /// Resident reads of 4 KiB, the start of a thousand processes, touches of
    /// a mapped file, whole programs that run a second or longer, idle and
    /// busy processors; and a heap of 4 GiB with rare page faults, where 5 GiB of
    /// memory are available.
    Overhead(overhead::Overhead),
    /// Whether anything becomes slower: everyday commands, unkind conditions
    ///
    /// 68 commands of Debian packages with cold and warm caches, busy
    /// processors, a memory cgroup of half, three quarters and all of the
    /// working set, and a plain reader on the same device. Plain runs and runs
    /// under runahead alternate, and a cell counts as harm where the lower 95%
    /// bound of its slowdown is above 1.03. The worst is printed on top; the
    /// exit status is 1 if one is harmed, the geometric mean is above 1, or a
    /// cell could not be measured.
    Harm(harm::Harm),
    /// A plain reader beside four speculating programs on one device
    ///
    /// It may lose at most 3% of its throughput and at most 10% at the 99th
    /// percentile of its latency, against the same programs run plainly; the
    /// exit status is 1 where it loses more, or nothing speculated.
    Sharing(sharing::Sharing),
    /// TIP (Patterson 1997): simulated tables beside the thesis's
    ///
    /// Elapsed time as a fraction of not hinting: seven applications on five
    /// arrays with prefetching alone and with full TIP (table 6.25), and three
    /// pairs (table 6.26), with the mean and worst difference to the thesis.
    /// Needs no device and no root; `runahead sim` simulates other policies.
    ///
    /// With --live: hinting programs on the emulated array (root), in memory
    /// cgroups, the caches emptied before each run: ten passes over a file of
    /// 1.5 times the memory, oblique slices, a join, pairs of them, and a
    /// neighbour without hints; then what a hint costs. Exit status 1 if an
    /// output differs or a target is missed.
    Tip(tip::Tip),
    // The programs that `tip --live` measures.
    #[command(hide = true)]
    TipProgram {
        #[arg(trailing_var_arg = true)]
        arguments: Vec<String>,
    },
    /// Many sequential streams at once (Li et al. 2004, figures 3 to 8)
    ///
    /// The paper's microbenchmarks, an index search server and a media server
    /// (nginx) on an emulated disk, under the kernel's default readahead, an
    /// aggressive one, the competitive depth set in the kernel (`runahead
    /// tune`) and under runahead; for each number of handlers the throughput,
    /// what the paper's model gives for the switch cost that the default
    /// shows, and the estimated optimum. The exit status is 1 where a target is
    /// missed for certain.
    Streams(streams::Streams),
    /// Programs compiled with inserted prefetches (Mowry and others 1996)
    ///
    /// MATVEC and the eight kernels of the paper's Table 2, data in a mapped
    /// file, memory limited by a cgroup: compiled as usual and by `runahead
    /// cc`, alternately, the caches emptied before each run. Printed are
    /// elapsed times, the share of the time that an ideal prefetcher could
    /// remove (Figure 3), coverage (Figure 4), what the run-time layer drops,
    /// disk requests (Figure 5), memory kept free (Table 3), and both in memory,
    /// warm (Figure 6). Results are compared byte by byte; the exit status is 1
    /// where they differ.
    Compiler(compiler::Kernels),
    /// A short selection: three applications, smaller data, three runs
    Quick(explicit::Quick),
}

/// Runs the benchmark that the arguments name.
///
/// # Errors
/// If something is missing or a run cannot be made.
pub fn run(bench: Bench) -> Result<ExitCode> {
    for scheme in runahead_bench::damon::paging_out() {
        say(format_args!(
            "warning: a DAMON scheme pages out memory that nobody lacks; what is \
             measured as resident may be read again. Where the machine is yours: \
             echo off > {}",
            scheme.ancestors().nth(4).unwrap_or(&scheme).join("state").display()
        ));
    }
    match bench.which {
        Which::Explicit(arguments) => explicit::run(arguments),
        Which::Faults(arguments) => faults::run(arguments),
        Which::Memory(arguments) => memory::run(arguments),
        Which::Interference(arguments) => interference::run(arguments),
        Which::Overhead(arguments) => overhead::run(arguments),
        Which::Harm(arguments) => harm::run(arguments),
        Which::Sharing(arguments) => sharing::run(arguments),
        Which::Tip(arguments) => tip::run(&arguments),
        Which::TipProgram { arguments } => tip::program(&arguments),
        Which::Streams(arguments) => streams::run(arguments),
        Which::Compiler(arguments) => compiler::run(arguments),
        Which::Quick(arguments) => explicit::quick(&arguments),
    }
}
