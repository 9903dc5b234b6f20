//! The everyday commands: readers, writers, compilers, interpreters,
//! databases, threaded and forking ones.

use crate::apps::FOUND_OR_NOT;
use crate::tools::{COREUTILS, DIFF, FINDUTILS, GCC, GIT, GREP, LD_BFD, RSYNC, TAR, Tool, tool};

/// One command. Its working directory is the data's.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name in the table.
    pub name: &'static str,
    /// The program that must be there.
    pub tool: Tool,
    /// Program and arguments; `@LIST` stands for the paths in that list.
    pub line: &'static [&'static str],
    /// What it writes, relative to the data; looked at and removed after each
    /// run.
    pub writes: &'static [&'static str],
    /// Exit statuses of one that did what it should.
    pub good: &'static [i32],
    /// Whether it is in the quick selection.
    pub quick: bool,
}

macro_rules! command {
    ($name:literal, $tool:expr, [$($word:literal),+ $(,)?]) => {
        command!($name, $tool, [$($word),+], writes [])
    };
    ($name:literal, $tool:expr, [$($word:literal),+ $(,)?], quick) => {
        Command { quick: true, ..command!($name, $tool, [$($word),+], writes []) }
    };
    ($name:literal, $tool:expr, [$($word:literal),+ $(,)?], writes [$($path:literal),*], quick) => {
        Command { quick: true, ..command!($name, $tool, [$($word),+], writes [$($path),*]) }
    };
    ($name:literal, $tool:expr, [$($word:literal),+ $(,)?], writes [$($path:literal),*]) => {
        Command {
            name: $name,
            tool: $tool,
            line: &[$($word),+],
            writes: &[$($path),*],
            good: &[0],
            quick: false,
        }
    };
}

/// The same of one that may end with other statuses, too.
const fn ends(good: &'static [i32], command: Command) -> Command {
    Command { good, ..command }
}

const SH: Tool = tool("sh", "dash");
const BASH: Tool = tool("bash", "bash");
const FILE: Tool = tool("file", "file");
const BINUTILS: Tool = tool("nm", "binutils");
const GZIP: Tool = tool("gzip", "gzip");
const XZ: Tool = tool("xz", "xz-utils");
const ZSTD: Tool = tool("zstd", "zstd");
/// bzip2.
pub const BZIP2: Tool = tool("bzip2", "bzip2");
/// Info-ZIP.
pub const ZIP: Tool = tool("zip", "zip");
const UNZIP: Tool = tool("unzip", "unzip");
const SED: Tool = tool("sed", "sed");
const AWK: Tool = tool("awk", "mawk");
const PERL: Tool = tool("perl", "perl");
const PYTHON: Tool = tool("python3", "python3");
/// SQLite's shell.
pub const SQLITE: Tool = tool("sqlite3", "sqlite3");
/// HDF5's tools.
pub const HDF5: Tool = tool("h5ls", "hdf5-tools");
/// The one of them that makes the data.
pub const HDF5_GROUPS: Tool = tool("h5mkgrp", "hdf5-tools");
const MAKE: Tool = tool("make", "make");
const CTAGS: Tool = tool("ctags", "universal-ctags");
const JQ: Tool = tool("jq", "jq");
const DPKG: Tool = tool("dpkg-query", "dpkg");
const GDB: Tool = tool("gdb", "gdb");

/// All commands.
pub const ALL: &[Command] = &[
    // Readers of many files.
    command!("cat", COREUTILS, ["cat", "@tree"]),
    command!("wc", COREUTILS, ["wc", "@tree"]),
    command!("head", COREUTILS, ["head", "-n1", "@tree"]),
    command!("tail", COREUTILS, ["tail", "-n1", "@tree"]),
    command!("md5sum", COREUTILS, ["md5sum", "@tree"]),
    command!("sha256sum", COREUTILS, ["sha256sum", "@tree"], quick),
    command!("b2sum", COREUTILS, ["b2sum", "@tree"]),
    command!("cksum", COREUTILS, ["cksum", "@tree"]),
    command!("file", FILE, ["file", "@tree"]),
    ends(
        FOUND_OR_NOT,
        command!("grep -r", GREP, ["grep", "-rF", "needle_in_a_haystack", "tree"], quick),
    ),
    ends(FOUND_OR_NOT, command!("grep -lr", GREP, ["grep", "-lr", "return", "tree"])),
    ends(FOUND_OR_NOT, command!("diff -r", DIFF, ["diff", "-r", "tree", "other"], quick)),
    command!("ctags", CTAGS, ["ctags", "-f", "-", "-R", "tree"]),
    // Metadata only.
    command!("find", FINDUTILS, ["find", "tree", "-size", "+8k"]),
    command!("du", COREUTILS, ["du", "-s", "--apparent-size", "tree"]),
    command!("ls -lR", COREUTILS, ["ls", "-lR", "--time-style=+", "tree"]),
    command!("dpkg-query -S", DPKG, ["dpkg-query", "-S", "bin/ls"]),
    // Readers of one large file.
    command!("cmp", DIFF, ["cmp", "big.txt", "big.copy"]),
    command!("awk", AWK, ["awk", "{ n += length($1) } END { print n }", "big.txt"]),
    command!("sed", SED, ["sed", "-n", "/needle/p", "big.txt"]),
    command!("sort", COREUTILS, ["sort", "big.txt"], quick),
    command!("sort -m", COREUTILS, ["sort", "-m", "@sorted"]),
    command!("join", COREUTILS, ["join", "sorted/00", "sorted/01"]),
    command!("base64", COREUTILS, ["base64", "big.txt"]),
    command!("od", COREUTILS, ["od", "-An", "-tx8", "big.copy"]),
    command!("tac", COREUTILS, ["tac", "big.txt"]),
    command!("gzip -t", GZIP, ["gzip", "-t", "big.gz"]),
    command!("gzip -c", GZIP, ["gzip", "-1c", "big.txt"]),
    command!("bzip2 -t", BZIP2, ["bzip2", "-t", "big.bz2"]),
    command!("unzip -t", UNZIP, ["unzip", "-tq", "tree.zip"]),
    command!("tar t", TAR, ["tar", "tf", "tree.tar"]),
    command!("jq", JQ, ["jq", "-c", ".[] | select(.id % 1000 == 7)", "big.json"]),
    // Writers.
    command!("tar c", TAR, ["tar", "cf", "-", "tree"], quick),
    command!("tar x", TAR, ["tar", "xf", "tree.tar", "-C", "out"], writes["out/tree"]),
    command!("cp -r", COREUTILS, ["cp", "-r", "tree", "out/copy"], writes["out/copy"], quick),
    command!("rsync -a", RSYNC, ["rsync", "-a", "tree", "out/rsync"], writes["out/rsync"]),
    command!("zip -r", ZIP, ["zip", "-qr", "-1", "-X", "out/t.zip", "tree"], writes["out/t.zip"]),
    command!("split", COREUTILS, ["split", "-b1M", "big.txt", "out/part."], writes [
        "out/part.aa",
        "out/part.ab"
    ]),
    command!(
        "dd",
        COREUTILS,
        ["dd", "if=big.txt", "of=out/dd", "bs=4k", "status=none"],
        writes["out/dd"]
    ),
    // Compilers, linkers and what looks at objects.
    command!(
        "gcc -c",
        GCC,
        ["gcc", "-O1", "-c", "src/all.c", "-o", "out/all.o"],
        writes["out/all.o"],
        quick
    ),
    command!("gcc -E", GCC, ["gcc", "-E", "src/all.c"]),
    command!("make", MAKE, ["make", "-s", "-C", "src", "O=../out/make"], writes["out/make"], quick),
    command!(
        "ld",
        LD_BFD,
        ["ld.bfd", "-e", "0", "-o", "out/linked", "@objects"],
        writes["out/linked"],
        quick
    ),
    command!("ar", BINUTILS, ["ar", "rcD", "out/all.a", "@objects"], writes["out/all.a"]),
    command!("nm", BINUTILS, ["nm", "-A", "@objects"]),
    command!("objdump -h", BINUTILS, ["objdump", "-h", "@objects"]),
    command!("readelf -S", BINUTILS, ["readelf", "-SW", "@objects"]),
    command!("strings", BINUTILS, ["strings", "@objects"]),
    command!("gdb", GDB, ["gdb", "-nx", "-batch", "-ex", "info types ^s1", "linked"]),
    // Interpreters.
    command!("perl", PERL, ["perl", "-ne", "$n += length; END { print \"$n\\n\" }", "@tree"]),
    command!(
        "python import",
        PYTHON,
        [
            "python3",
            "-c",
            "import asyncio, ctypes, decimal, email.mime.text, http.server, json, logging.config,\
         multiprocessing, sqlite3, ssl, tarfile, unittest, urllib.request, xml.dom.minidom, zipfile;\
         print(json.dumps(sorted(['ok'])))"
        ],
        quick
    ),
    command!(
        "python walk",
        PYTHON,
        [
            "python3",
            "-c",
            "import os\nn = 0\nfor d, s, f in os.walk('tree'):\n  s.sort()\n  for x in sorted(f):\n    \
         n += len(open(os.path.join(d, x), 'rb').read())\nprint(n)"
        ]
    ),
    command!(
        "bash loop",
        BASH,
        [
            "bash",
            "-c",
            "n=0; while read -r f; do read -r line < \"$f\"; n=$((n + ${#line})); done < tree.list; echo $n"
        ]
    ),
    // Databases: reads that depend on what was read before.
    command!(
        "sqlite3 index",
        SQLITE,
        ["sqlite3", "-readonly", "table.db", ".read lookups.sql"],
        quick
    ),
    command!(
        "sqlite3 scan",
        SQLITE,
        ["sqlite3", "-readonly", "table.db", "select count(*), sum(length(payload)) from t"]
    ),
    command!(
        "sqlite3 vacuum",
        SQLITE,
        ["sqlite3", "table.db", "vacuum into 'out/new.db'"],
        writes["out/new.db"]
    ),
    command!("h5ls -r", HDF5, ["h5ls", "-r", "groups.h5"], quick),
    // Git: maps, chains, threads.
    command!("git status", GIT, ["git", "-C", "repo", "status", "--porcelain"]),
    command!("git log", GIT, ["git", "-C", "repo", "log", "--format=%s", "--", "touched.c"], quick),
    ends(FOUND_OR_NOT, command!("git grep", GIT, ["git", "-C", "repo", "grep", "-c", "return"])),
    command!("git fsck", GIT, ["git", "-C", "repo", "fsck", "--no-progress"]),
    command!("git archive", GIT, ["git", "-C", "repo", "archive", "HEAD"]),
    // Threads and processes.
    command!("xz -T2", XZ, ["xz", "-0", "-T2", "-c", "big.txt"]),
    command!("zstd -T2", ZSTD, ["zstd", "-q", "-T2", "-c", "big.txt"]),
    command!("xargs -n1", FINDUTILS, ["xargs", "-a", "short.list", "-n1", "sha256sum"], quick),
    // Prints nothing: whichever of two comes first would print first. 123: some have
    // found nothing.
    ends(
        &[123],
        command!(
            "xargs -P2",
            FINDUTILS,
            ["xargs", "-a", "short.list", "-n40", "-P2", "grep", "-qF", "no such words"]
        ),
    ),
    command!(
        "find -exec",
        FINDUTILS,
        ["find", "tree/", "-name", "*_0[0-3].c", "-exec", "head", "-c20", "{}", ";"]
    ),
    command!(
        "sh pipe",
        SH,
        ["sh", "-c", "cat $(cat short.list) | sort | uniq -c | sort -rn | head"],
        quick
    ),
];

/// The commands of these names; all, or the quick ones, for an empty list.
///
/// # Errors
/// For an unknown name; the message lists those there are.
pub fn by_names(names: &[String], quick: bool) -> anyhow::Result<Vec<&'static Command>> {
    if names.is_empty() {
        return Ok(ALL.iter().filter(|command| command.quick || !quick).collect());
    }
    let find = |name: &String| {
        ALL.iter().find(|command| command.name == name).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|command| command.name).collect();
            anyhow::anyhow!("no command {name:?}: give some of {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_of_every_kind() {
        assert!(ALL.len() >= 40, "{}", ALL.len());
        let mut names: Vec<_> = ALL.iter().map(|command| command.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().filter(|command| !command.writes.is_empty()).count() >= 8);
        assert!((10..=20).contains(&by_names(&[], true).unwrap().len()));
        assert_eq!(by_names(&["ld".into()], true).unwrap().len(), 1);
        assert!(by_names(&["nonesuch".into()], false).is_err());
    }

    /// A command that writes what is not taken away would find it there at
    /// the next run.
    #[test]
    fn writers_write_below_out() {
        let outside = |path: &&str| !path.starts_with("out/");
        assert!(ALL.iter().all(|command| !command.writes.iter().any(outside)));
    }
}
