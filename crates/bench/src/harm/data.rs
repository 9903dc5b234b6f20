//! The data of all commands, in one directory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::commands::{BZIP2, HDF5_GROUPS, SQLITE, ZIP};
use crate::apps::{Application, Case, Setup};
use crate::generate::tree::{self, TreeSpec};
use crate::generate::{objects, repository, scaled};
use crate::rng::Rng;
use crate::tools::Tool;

/// The data as an application of the other benchmarks' kind, so that it is
/// prepared and kept as theirs is.
#[derive(Debug)]
pub struct HarmData;

impl Application for HarmData {
    fn name(&self) -> &'static str {
        "harm"
    }

    fn about(&self) -> &'static str {
        "data of the everyday commands"
    }

    fn metadata(&self) -> &'static [crate::apps::Metadata] {
        &[crate::apps::Metadata::Cold]
    }

    fn tools(&self) -> &'static [Tool] {
        &[crate::tools::GCC, crate::tools::GIT, crate::tools::TAR]
    }

    /// Their files are made where they are there.
    fn data_tools(&self) -> &'static [Tool] {
        &[BZIP2, ZIP, SQLITE, HDF5_GROUPS]
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        prepare(setup)
    }

    fn cases(&self, _setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        Ok(Vec::new())
    }
}

const TREE: TreeSpec = TreeSpec {
    name: "harm",
    files: 0,
    bytes: 0,
    spread: 6.0,
    needle: Some(("needle_in_a_haystack", 40)),
};

fn prepare(setup: &Setup) -> Result<()> {
    let at = |name: &str| setup.directory.join(name);
    let (scale, seed) = (setup.scale, setup.seed);
    let files = scaled(2000, scale, 60);
    let spec = TreeSpec { files, bytes: files * 10_000, ..TREE };
    fs::create_dir_all(at("out"))?;
    let listed = tree::make(&at("tree"), &spec, seed)?;
    let listed: Vec<PathBuf> = listed.iter().map(|path| Path::new("tree").join(path)).collect();
    list(&at("tree.list"), &listed)?;
    list(&at("short.list"), &listed[..listed.len().min(scaled(600, scale, 40) as usize)])?;
    tree::make_pair(&at("unused"), &at("other"), &spec, seed)?;
    fs::remove_dir_all(at("unused"))?;
    let names = objects::make(&setup.directory, &setup.cache, scaled(160, scale, 12), seed)?;
    list(&at("objects.list"), &names)?;
    link(setup, &names)?;
    sources(&at("src"), scaled(120, scale, 12), seed)?;
    text(&at("big.txt"), scaled(40 << 20, scale, 1 << 20), seed)?;
    fs::copy(at("big.txt"), at("big.copy"))?;
    json(&at("big.json"), scaled(120_000, scale, 2000), seed)?;
    sorted(&setup.directory, scaled(24, scale, 4), seed)?;
    let archives = "gzip -1c big.txt > big.gz; tar cf tree.tar tree; \
                    ! command -v bzip2 > /dev/null || bzip2 -1c big.txt > big.bz2; \
                    ! command -v zip > /dev/null || zip -qr -1 -X tree.zip tree";
    shell(&setup.directory, archives)?;
    database(setup)?;
    groups(setup)?;
    let repository = TreeSpec { name: "harm-repo", files: scaled(1000, scale, 40), ..spec };
    history(&at("repo"), &TreeSpec { bytes: repository.files * 8000, ..repository }, setup)
}

fn list(path: &Path, files: &[PathBuf]) -> Result<()> {
    let lines: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
    fs::write(path, lines.join("\n") + "\n").with_context(|| format!("write {}", path.display()))
}

fn shell(directory: &Path, script: &str) -> Result<()> {
    let status = Command::new("/bin/sh")
        .args(["-ec", script])
        .current_dir(directory)
        .stdout(Stdio::null())
        .status()
        .context("start sh")?;
    ensure!(status.success(), "sh -c {script:?} failed");
    Ok(())
}

/// A linked program with debug information, for the debugger.
fn link(setup: &Setup, objects: &[PathBuf]) -> Result<()> {
    let done = Command::new("ld.bfd")
        .args(["-e", "0", "-o", "linked"])
        .args(objects)
        .current_dir(&setup.directory)
        .output()
        .context("start ld.bfd: install the package binutils")?;
    ensure!(done.status.success(), "ld: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// A C program of many headers and a few units, and its makefile.
fn sources(directory: &Path, headers: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "harm-sources");
    fs::create_dir_all(directory.join("include"))?;
    let mut includes = String::new();
    for header in 0..headers {
        let mut text = format!("#ifndef H{header}\n#define H{header}\n");
        for item in 0..40 {
            let value = rng.below(1 << 30);
            text += &format!(
                "struct s{header}_{item} {{ int a[{}]; struct s{header}_{item} *next; }};\n\
                 static inline int f{header}_{item}(int x) {{ return x * {value} + {item}; }}\n",
                item + 1
            );
        }
        fs::write(directory.join(format!("include/h{header}.h")), text + "#endif\n")?;
        includes += &format!("#include \"include/h{header}.h\"\n");
    }
    fs::write(
        directory.join("all.c"),
        format!("{includes}int main(void) {{ return f0_1(3) == 4; }}\n"),
    )?;
    let units = 12;
    for unit in 0..units {
        let some: Vec<&str> =
            includes.lines().skip(unit).step_by(units).chain(includes.lines().take(1)).collect();
        let body = format!("\nint unit{unit}(int x) {{ return f0_{unit}(x); }}\n");
        fs::write(directory.join(format!("u{unit}.c")), some.join("\n") + &body)?;
    }
    let makefile = "UNITS := $(wildcard u*.c)\n\
        all: $(UNITS:%.c=$(O)/%.o)\n\
        $(O)/%.o: %.c\n\t@mkdir -p $(O)\n\t@$(CC) -c $< -o $@\n";
    fs::write(directory.join("Makefile"), makefile)?;
    Ok(())
}

fn text(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "harm-text");
    let mut out = BufWriter::new(File::create(path)?);
    let mut written = 0;
    while written < bytes {
        let line = format!(
            "{:08x} {:>6} host{} request {} bytes {}\n",
            rng.next_u64() as u32,
            rng.below(1_000_000),
            rng.below(50),
            if rng.below(5000) == 0 { "needle" } else { "GET" },
            rng.below(90_000)
        );
        out.write_all(line.as_bytes())?;
        written += line.len() as u64;
    }
    Ok(out.into_inner()?.sync_all()?)
}

fn json(path: &Path, entries: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "harm-json");
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(b"[\n")?;
    for id in 0..entries {
        let comma = if id + 1 < entries { "," } else { "" };
        writeln!(
            out,
            "{{\"id\":{id},\"name\":\"n{}\",\"tags\":[1,2]}}{comma}",
            rng.below(1 << 40)
        )?;
    }
    out.write_all(b"]\n")?;
    Ok(())
}

/// Sorted files to be merged.
fn sorted(directory: &Path, count: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "harm-sorted");
    fs::create_dir_all(directory.join("sorted"))?;
    let mut names = Vec::new();
    for index in 0..count {
        let mut lines: Vec<String> =
            (0..20_000).map(|_| format!("{:012x} x", rng.next_u64() >> 20)).collect();
        lines.sort();
        let name = PathBuf::from(format!("sorted/{index:02}"));
        fs::write(directory.join(&name), lines.join("\n") + "\n")?;
        names.push(name);
    }
    list(&directory.join("sorted.list"), &names)
}

/// A table whose index order is unlike its row order, so that a lookup reads
/// pages here and there.
fn database(setup: &Setup) -> Result<()> {
    let rows = scaled(120_000, setup.scale, 4000);
    let mut rng = Rng::new(setup.seed, "harm-lookups");
    let lookups: String = (0..rows / 40)
        .map(|_| format!("select payload from t where key = {};\n", rng.below(rows) * 7919 % rows))
        .collect();
    fs::write(setup.directory.join("lookups.sql"), lookups)?;
    if SQLITE.find().is_none() {
        return Ok(());
    }
    let script = format!(
        "create table t(id integer primary key, key integer, payload text);\n\
         with recursive n(i) as (select 0 union all select i + 1 from n where i + 1 < {rows})\n\
         insert into t select i, i * 7919 % {rows}, printf('%0200d', i) from n;\n\
         create index k on t(key);\n"
    );
    let file = setup.directory.join("table.sql");
    fs::write(&file, script)?;
    shell(&setup.directory, "sqlite3 table.db < table.sql")?;
    fs::remove_file(file)?;
    Ok(())
}

/// An HDF5 file of nested groups: each is found through the one above.
fn groups(setup: &Setup) -> Result<()> {
    if HDF5_GROUPS.find().is_none() {
        return Ok(());
    }
    let count = scaled(1600, setup.scale, 40);
    let names: Vec<String> =
        (0..count).map(|group| format!("/a{}/b{}/c{group}", group % 7, group % 61)).collect();
    for some in names.chunks(400) {
        let done = Command::new("h5mkgrp")
            .args(["-p", "groups.h5"])
            .args(some)
            .current_dir(&setup.directory)
            .output()
            .context("start h5mkgrp: install the package hdf5-tools")?;
        ensure!(done.status.success(), "h5mkgrp: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}

/// A repository with a history: each commit changes some files.
fn history(directory: &Path, spec: &TreeSpec, setup: &Setup) -> Result<()> {
    repository::make(directory, spec, setup.seed)?;
    let commits = scaled(150, setup.scale, 10);
    let mut files: Vec<PathBuf> = walkdir::WalkDir::new(directory)
        .into_iter()
        .filter_entry(|entry| entry.file_name() != ".git")
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect();
    files.sort();
    for commit in 0..commits {
        for file in files.iter().skip(commit as usize % 50).step_by(50) {
            let mut text = fs::read_to_string(file)?;
            text += &format!("/* {commit} */\n");
            fs::write(file, text)?;
        }
        if commit % 10 == 0 {
            fs::write(directory.join("touched.c"), format!("int touched = {commit};\n"))?;
        }
        repository::git(directory, &["add", "."])?;
        repository::git(directory, &["commit", "-q", "-m", &format!("Change {commit}")])?;
    }
    repository::git(directory, &["repack", "-q", "-a", "-d"])?;
    repository::forget_times(directory)
}
