//! Makes the agent and the site table available as files.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use runahead_sites::SiteTable;
use runahead_usual::memory::Groups;
use rustix::fs::MemfdFlags;

use super::collector::Collector;
use super::{cache, clock, libraries};
use crate::agent_image::Agent;

/// The agent and the site table as files that the program can open.
#[derive(Debug)]
pub struct Files {
    /// The agent library.
    pub agent: PathBuf,
    /// The site table.
    pub sites: PathBuf,
    /// The directory that outlives a boot, where there is one.
    pub cache: PathBuf,
    /// Rate of the time-stamp counter; 0: unknown.
    pub tsc_per_us: u64,
    /// They would lie in memory, but that this cgroup has little: not what the next
    /// launch, which may be in another, should go by.
    pub spare_memory: bool,
}

/// The same without a directory: memory files, to be held by a collector.
#[derive(Debug)]
pub struct MemoryFiles {
    agent: OwnedFd,
    sites: OwnedFd,
}

impl MemoryFiles {
    /// The descriptors that the collector has to keep.
    pub fn descriptors(&self) -> [i32; 2] {
        [self.agent.as_raw_fd(), self.sites.as_raw_fd()]
    }

    /// The files as seen through the collector.
    pub fn held_by(&self, collector: &Collector) -> Files {
        Files {
            agent: collector.path_of(self.agent.as_raw_fd()).into(),
            sites: collector.path_of(self.sites.as_raw_fd()).into(),
            cache: PathBuf::new(),
            tsc_per_us: clock::tsc_per_us(None),
            spare_memory: false,
        }
    }
}

/// Where the files are.
#[derive(Debug)]
pub enum Provided {
    /// In a directory.
    Installed(Files),
    /// In memory.
    InMemory(MemoryFiles),
}

/// Makes agent and site table available for programs of this dynamic linker,
/// as files of the user's directories, else as memory files of this run. What could not be
/// done on the way is added to `losses`.
///
/// # Errors
/// Not even memory files could be made.
pub fn provide(
    agent: Agent<'_>,
    interpreter: &Path,
    losses: &mut Vec<String>,
) -> io::Result<Provided> {
    let libraries = libraries::of(interpreter);
    for directory in cache::candidates() {
        match install(&directory, agent, &libraries, losses) {
            Ok(files) => return Ok(Provided::Installed(files)),
            Err(why) => losses.push(format!("{} was not used: {why}", directory.display())),
        }
    }
    losses.push("no directory can be used: the site table is made anew in every run".into());
    let mut table = SiteTable::default();
    for library in &libraries {
        if let Err(skip) = table.add(library) {
            losses.push(skipped(library, &skip));
        }
    }
    Ok(Provided::InMemory(MemoryFiles {
        agent: memory_file("runahead-agent.so", agent.bytes)?,
        sites: memory_file("runahead-sites", &table.to_bytes())?,
    }))
}

fn install(
    directory: &Path,
    agent: Agent<'_>,
    libraries: &[PathBuf],
    losses: &mut Vec<String>,
) -> Result<Files, cache::Unusable> {
    cache::make_private(directory)?;
    let sites = directory.join(runahead_sites::file_name());
    let update = SiteTable::load_or_update(&sites, libraries)?;
    losses.extend(update.skipped.iter().map(|(path, skip)| skipped(path, skip)));
    let memory = cache::in_memory();
    let spare_memory = !cache::has_agent(&memory, agent) && is_memory_tight(agent);
    let in_memory = || in_memory(&memory, agent, &sites, &update.table.to_bytes()).ok();
    let in_memory = if spare_memory { None } else { in_memory() };
    let (agent, sites) = match in_memory {
        Some(paths) => paths,
        None => {
            cache::prepare(directory)?;
            (cache::install_agent(directory, agent)?, sites)
        }
    };
    let (cache, tsc_per_us) = (directory.to_owned(), clock::tsc_per_us(Some(directory)));
    Ok(Files { agent, sites, cache, tsc_per_us, spare_memory })
}

/// Whether the agent would take a noticeable part of what this process's memory cgroups
/// may have: files in memory are charged to that of the process that writes them, as
/// long as they are there, and without swap space nothing pushes them out. In 24 MB,
/// just what `tar t` of a file of 21 uses, each run took 130 ms and not 30.
fn is_memory_tight(agent: Agent<'_>) -> bool {
    const NOTICEABLE_PART: u64 = 256;
    let limit_bytes = Groups::look().and_then(|groups| groups.limit_bytes());
    limit_bytes.is_some_and(|bytes| bytes / NOTICEABLE_PART < agent.bytes.len() as u64)
}

/// The agent and a copy of the site table, `bytes`, in `memory`, the user's directory there.
fn in_memory(
    memory: &Path,
    agent: Agent<'_>,
    sites: &Path,
    bytes: &[u8],
) -> Result<(PathBuf, PathBuf), cache::Unusable> {
    cache::prepare_in_memory(memory)?;
    let agent = cache::install_agent_in_memory(memory, agent)?;
    Ok((agent, cache::copy_sites(sites, bytes, memory)?))
}

fn skipped(library: &Path, skip: &runahead_sites::table::Skip) -> String {
    format!("{} {skip}: its calls were not patched", library.display())
}

fn memory_file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    // Linux 6.3 and later want to be told that a library is to be loaded
    // from it; earlier ones do not know the flag.
    let flags = MemfdFlags::CLOEXEC;
    let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create(name, flags))?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}
