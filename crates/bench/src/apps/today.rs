//! Today's serial, read-heavy programs (facts: "Which programs wait
//! serially"), on generated trees.

use std::path::Path;

use anyhow::Result;

use super::{Application, Case, CommandCase, FOUND_OR_NOT, Metadata, Setup, load_list, save_list};
use crate::generate::tree::{self, TreeSpec};
use crate::generate::{repository, scaled};
use crate::process::CommandSpec;
use crate::tools::{COREUTILS, DIFF, FINDUTILS, GIT, GREP, RSYNC, TAR, Tool};

const NEEDLE: &str = "needle_in_a_haystack_41";

/// Trees of so many files and bytes at scale 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// 2000 small files: 20 MB.
    Tree2000,
    /// Files of mixed sizes: 2500, 100 MB.
    Mixed,
    /// Two trees that differ in a few files: 1200 files, 12 MB each.
    Pair,
    /// A repository of 2500 files, 30 MB.
    Repository,
}

/// One of today's programs.
#[derive(Debug)]
pub struct Today {
    name: &'static str,
    about: &'static str,
    data: Data,
    metadata: &'static [Metadata],
    tools: &'static [Tool],
    spec: fn(&Path) -> Result<CommandCase>,
}

const BOTH: &[Metadata] = &[Metadata::Warm, Metadata::Cold];
const COLD: &[Metadata] = &[Metadata::Cold];

/// All of them.
pub const ALL: &[Today] = &[
    Today {
        name: "grep2000",
        about: "grep -rF in 2000 small files, 20 MB, metadata warm and cold",
        data: Data::Tree2000,
        metadata: BOTH,
        tools: &[GREP],
        spec: |data| looks(CommandSpec::new("grep", data).args(["-rF", NEEDLE, "tree"])),
    },
    Today {
        name: "sha256sum",
        about: "sha256sum of 2000 small files, 20 MB, metadata warm and cold",
        data: Data::Tree2000,
        metadata: BOTH,
        tools: &[COREUTILS],
        spec: |data| {
            let files = load_list(&data.join("files.list"))?;
            reads(CommandSpec::new("sha256sum", data.join("tree")).args(files))
        },
    },
    Today {
        name: "tar",
        about: "tar c of 2500 files of mixed sizes, 100 MB",
        data: Data::Mixed,
        metadata: COLD,
        tools: &[TAR],
        // Not to /dev/null: tar would notice and read nothing.
        spec: |data| reads(CommandSpec::new("tar", data).args(["cf", "-", "tree"])),
    },
    Today {
        name: "diff",
        about: "diff -r of two trees of 1200 files, 12 MB each",
        data: Data::Pair,
        metadata: COLD,
        tools: &[DIFF],
        spec: |data| looks(CommandSpec::new("diff", data).args(["-r", "old", "new"])),
    },
    Today {
        name: "cp",
        about: "cp -r of 2000 small files, 20 MB, on the same device",
        data: Data::Tree2000,
        metadata: COLD,
        tools: &[COREUTILS],
        spec: |data| writes(CommandSpec::new("cp", data).args(["-r", "tree", "copy"]), data),
    },
    Today {
        name: "rsync",
        about: "rsync -a of 2000 small files, 20 MB, on the same device",
        data: Data::Tree2000,
        metadata: COLD,
        tools: &[RSYNC],
        spec: |data| writes(CommandSpec::new("rsync", data).args(["-a", "tree/", "copy/"]), data),
    },
    Today {
        name: "git-grep",
        about: "git grep with one thread in a repository of 2500 files, 30 MB",
        data: Data::Repository,
        metadata: COLD,
        tools: &[GIT],
        spec: |data| {
            let command = CommandSpec::new("git", data.join("repository")).args([
                "grep",
                "--threads=1",
                "-F",
                NEEDLE,
            ]);
            // Root may look at a repository that another user owns.
            looks(
                repository::ENVIRONMENT.iter().fold(command, |c, (name, value)| c.env(name, value)),
            )
        },
    },
    Today {
        name: "find-sha256sum",
        about: "find | xargs sha256sum: several processes, the same 2000 files",
        data: Data::Tree2000,
        metadata: COLD,
        tools: &[COREUTILS, FINDUTILS],
        spec: |data| {
            let script = "find tree -type f -print0 | sort -z | xargs -0 -n 500 sha256sum";
            reads(CommandSpec::new("sh", data).args(["-c", script]))
        },
    },
];

fn reads(spec: CommandSpec) -> Result<CommandCase> {
    Ok(CommandCase { spec, writes: Vec::new(), good: &[0] })
}

fn looks(spec: CommandSpec) -> Result<CommandCase> {
    Ok(CommandCase { good: FOUND_OR_NOT, ..reads(spec)? })
}

fn writes(spec: CommandSpec, data: &Path) -> Result<CommandCase> {
    Ok(CommandCase { writes: vec![data.join("copy")], ..reads(spec)? })
}

impl Application for Today {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn tools(&self) -> &'static [Tool] {
        self.tools
    }

    fn metadata(&self) -> &'static [Metadata] {
        self.metadata
    }

    /// git maps its index and its packs.
    fn maps_data(&self) -> bool {
        self.data == Data::Repository
    }

    fn data(&self) -> &'static str {
        match self.data {
            Data::Tree2000 => "tree2000",
            Data::Mixed => "mixed",
            Data::Pair => "pair",
            Data::Repository => "repository",
        }
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        let spec = |files, bytes, spread| TreeSpec {
            name: self.data(),
            files: scaled(files, setup.scale, 8),
            bytes: scaled(bytes, setup.scale, 1 << 16),
            spread,
            needle: Some((NEEDLE, 40)),
        };
        let directory = &setup.directory;
        match self.data {
            Data::Tree2000 => {
                let spec = spec(2000, 20_000_000, 4.0);
                let files = tree::make(&directory.join("tree"), &spec, setup.seed)?;
                save_list(&directory.join("files.list"), &files)
            }
            Data::Mixed => {
                let spec = spec(2500, 100_000_000, 12.0);
                tree::make(&directory.join("tree"), &spec, setup.seed).map(drop)
            }
            Data::Pair => {
                let spec = spec(1200, 12_000_000, 4.0);
                tree::make_pair(&directory.join("old"), &directory.join("new"), &spec, setup.seed)
            }
            Data::Repository => {
                let spec = spec(2500, 30_000_000, 6.0);
                repository::make(&directory.join("repository"), &spec, setup.seed)
            }
        }
    }

    fn cases(&self, setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        Ok(vec![Box::new((self.spec)(&setup.directory)?)])
    }
}
