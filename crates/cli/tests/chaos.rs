//! Chaos from a seed: programs read a device that has lost blocks, write where
//! there is no room, live in small memory cgroups and by the hundred, while
//! their speculative processes are killed and stopped and the memory that they
//! share is overwritten. What they say and write is what they say and write
//! without Runahead.
//!
//! A few rounds by default. The whole of it, twenty minutes:
//! `cargo test --package runahead --test chaos -- --ignored`.
//! `RUNAHEAD_SEED` chooses another seed than 1; a round's number and the seed
//! decide everything about it but the moments at which the machine gets to it.
//! `RUNAHEAD_ROUND` repeats one round only.

#[expect(dead_code, reason = "these tests use a part of it")]
mod bed;
mod cgroup;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bed::{Bed, RUNAHEAD, bed, contents, ok};
use cgroup::Cgroup;
use runahead_slowdisk::SlowDisk;
use runahead_slowdisk::model::SplitMix;
use serde_json::Value;

/// No run takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Blocks are lost in units that no readahead straddles: where one page of a
/// large folio cannot be read, its other pages cannot either, and how large a
/// folio is is the kernel's choice at each readahead (docs/SAFETY.md).
const LOST_BYTES: u64 = 128 << 10;
/// Room for a run's output where it is short.
const SHORT_ROOM: &str = "size=300k";
/// Memory of a run where it is tight.
const TIGHT_BYTES: u64 = 24 << 20;
/// `--test=8`: a synchronisation at every read.
const EVERY_READ_STALLS: &str = "--test=8";

/// What programs are run, by the shell, with `$T` the tree and `$O` an empty
/// directory for what they write. Each is deterministic.
const PROGRAMS: &[(&str, &str)] = &[
    ("sha256sum", "find $T/a $T/b -type f | sort | xargs sha256sum"),
    ("grep", "grep -rc needle $T | sort"),
    ("tar", "tar cf $O/tar --sort=name --mtime=@0 -C $T a b"),
    ("cp", "cp -r $T/a $O/a"),
    ("diff", "diff -r $T/a $T/b"),
    ("many children", "for f in $T/a/*; do cat $f | cksum; done"),
    ("in parallel", "find $T -type f | sort | xargs -n 5 -P 4 cksum 2>&1 | sort"),
    // Its temporary files have random names.
    ("sort", "sort -S 2M -T $O $T/b/* 2>&1 >$O/sorted | sed s/sort......:/:/; cksum $O/sorted"),
    ("mapped", "$P map $T/a/* $T/b/*"),
    ("pieces", "$P pread $T/a/* $T/b/*"),
    ("threads", "$P threads $T/a/*"),
];
/// Five hundred at once, each a program of its own.
const CROWD: (&str, &str) = (
    "five hundred",
    "i=0; while [ $i -lt 500 ]; do cksum $T/a/f$((i % 24)) >$O/$i 2>&1 & i=$((i+1)); done; wait
    i=0; while [ $i -lt 500 ]; do cat $O/$i; i=$((i+1)); done | cksum; rm $O/*",
);

/// Reads files page by page through mappings, by reads of random places and
/// lengths, or in four threads, and prints what it found and what failed.
const READER: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
static sigjmp_buf out;
static void broken(int signal) { siglongjmp(out, signal); }
static uint64_t state;
static uint64_t next(uint64_t *s) { *s ^= *s << 13; *s ^= *s >> 7; return *s ^= *s << 17; }
static void map(const char *path, int fd, size_t size) {
    unsigned char *data = mmap(0, size, PROT_READ, MAP_PRIVATE, fd, 0);
    uint64_t sum = 0;
    int lost = 0;
    for (int i = 0; i < 64 && size; i++) {
        volatile size_t at = next(&state) % size;
        if (sigsetjmp(out, 1) == 0) sum = sum * 31 + data[at]; else lost++;
    }
    printf("%s %lx lost %d\n", path, (unsigned long)sum, lost);
    if (size) munmap(data, size);
}
static uint64_t pieces(int fd, size_t size, uint64_t seed) {
    char bytes[9000];
    uint64_t sum = 0;
    for (int i = 0; i < 40; i++) {
        size_t at = next(&seed) % (size + 100), want = next(&seed) % sizeof bytes;
        ssize_t got = pread(fd, bytes, want, at);
        for (ssize_t j = 0; j < got; j++) sum = sum * 31 + bytes[j];
        sum = sum * 31 + (uint64_t)got + (got < 0 ? errno : 0);
    }
    return sum;
}
static char **paths;
static uint64_t sums[4096];
static int count;
static void *some(void *from) {
    for (int i = (int)(intptr_t)from; i < count; i += 4) {
        struct stat status;
        int fd = open(paths[i], O_RDONLY);
        fstat(fd, &status);
        sums[i] = pieces(fd, status.st_size, 77 + i);
        close(fd);
    }
    return 0;
}
int main(int argc, char **argv) {
    struct sigaction action = { .sa_handler = broken };
    sigaction(SIGBUS, &action, 0);
    paths = argv + 2, count = argc - 2 < 4096 ? argc - 2 : 4096;
    if (!strcmp(argv[1], "threads")) {
        pthread_t threads[4];
        for (intptr_t i = 0; i < 4; i++) pthread_create(&threads[i], 0, some, (void *)i);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        for (int i = 0; i < count; i++) printf("%s %lx\n", paths[i], (unsigned long)sums[i]);
        return 3;
    }
    for (int i = 0; i < count; i++) {
        struct stat status;
        int fd = open(paths[i], O_RDONLY);
        if (fd < 0 || fstat(fd, &status) != 0) { perror(paths[i]); continue; }
        state = 88172645463325252u + i;
        if (!strcmp(argv[1], "map")) map(paths[i], fd, status.st_size);
        else printf("%s %lx\n", paths[i], (unsigned long)pieces(fd, status.st_size, state));
        close(fd);
    }
    return 3;
}
"#;

/// What one round does, from its number and the seed alone.
#[derive(Debug)]
struct Round {
    program: (&'static str, &'static str),
    /// Which 128 KiB of which file are lost.
    lost: Vec<(String, u64)>,
    short_of_room: bool,
    tight: bool,
    every_read_stalls: bool,
    kill: bool,
    stop: bool,
    noise: bool,
    seed: u64,
}

impl Round {
    fn new(seed: u64, number: u64) -> Round {
        let mut random = SplitMix::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let mut one_in = |count: u64| random.next_u64().is_multiple_of(count);
        let (short_of_room, tight) = (one_in(4), one_in(4));
        let (every_read_stalls, kill, stop) = (one_in(2), one_in(2), one_in(4));
        let (noise, crowd, lossy) = (one_in(4), one_in(25), one_in(2));
        let mut lost = Vec::new();
        if lossy {
            for _ in 0..=random.next_u64() % 4 {
                let directory = if random.next_u64().is_multiple_of(2) { "a" } else { "b" };
                let file = random.next_u64() % FILES;
                let size = size_of_file(file);
                let at = random.next_u64() % size.max(1) / LOST_BYTES * LOST_BYTES;
                lost.push((format!("{directory}/f{file}"), at));
            }
        }
        let nth = random.next_u64() as usize % PROGRAMS.len();
        let program = if crowd { CROWD } else { PROGRAMS[nth] };
        Round {
            program,
            lost,
            // Which of several ends first decides who gets the last room.
            short_of_room: short_of_room && !crowd,
            tight: tight && !crowd,
            every_read_stalls,
            kill,
            stop,
            noise,
            seed: random.next_u64(),
        }
    }
}

/// Files in each directory.
const FILES: u64 = 24;

fn size_of_file(number: u64) -> u64 {
    match number {
        0 => 0,
        1..=15 => number * 3001,
        _ => (number - 15) * 90_001,
    }
}

fn furnish(disk: &SlowDisk) {
    disk.pause().unwrap();
    for (directory, seed) in [("a", 1), ("b", 1000)] {
        let directory = disk.mountpoint().join("tree").join(directory);
        fs::create_dir_all(&directory).unwrap();
        for number in 0..FILES {
            let mut bytes = contents(seed + number % 20, size_of_file(number) as usize);
            if number % 3 == 0 && bytes.len() > 6000 {
                bytes[5000..5008].copy_from_slice(b"\nneedle\n");
            }
            fs::write(directory.join(format!("f{number}")), bytes).unwrap();
        }
    }
    disk.resume().unwrap();
}

/// What is compared.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: String,
    stdout: String,
    stderr: String,
    written: BTreeMap<String, u64>,
}

/// Names and sums of what was written.
fn written(directory: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(place) = left.pop() {
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            if path.is_dir() {
                found.insert(format!("{name}/"), 0);
                left.push(path);
            } else {
                let sum = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
                found.insert(name, fs::read(&path).unwrap().iter().fold(0, sum));
            }
        }
    }
    found
}

/// How often what was done.
#[derive(Debug, Default)]
struct Done {
    killed: AtomicU64,
    stopped: AtomicU64,
    noise: AtomicU64,
}

/// Every process below `root` that will not tell its parent of its end
/// (`exit_signal` 0 in /proc/PID/stat, proc(5)) and is no child of the launcher
/// (the collector): those of speculation; and the others.
fn family(root: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut speculative, mut programs, mut left) = (Vec::new(), Vec::new(), vec![root]);
    while let Some(pid) = left.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        programs.push(pid);
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
                let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
                // Behind the name, which may hold anything, come fields 3 to 52.
                let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
                match fields.split_whitespace().nth(38 - 3) {
                    Some("0") if is_runahead(child) => {}
                    Some("0") => speculative.push(child),
                    _ => left.push(child),
                }
            }
        }
    }
    (speculative, programs)
}

fn is_runahead(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|program| program == Path::new(RUNAHEAD))
}

/// Writes noise into some of the memory that a program shares: these programs
/// share none of their own.
fn scribble(pid: u32, random: &mut SplitMix) -> Option<()> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let shared = maps.lines().filter(|line| line.contains(" rw-s "));
    let ranges: Vec<(u64, u64)> = shared
        .filter_map(|line| line.split_once(' ')?.0.split_once('-'))
        .filter_map(|(start, end)| {
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        })
        .collect();
    let memory = fs::File::options().write(true).open(format!("/proc/{pid}/mem")).ok()?;
    for (start, end) in ranges {
        for _ in 0..16 {
            let at = start + random.next_u64() % (end - start) / 8 * 8;
            // Small numbers are lives and reasons: those hit hardest.
            let noise = random.next_u64() >> (random.next_u64() % 64);
            let _ = memory.write_all_at(&noise.to_le_bytes(), at);
        }
    }
    Some(())
}

/// Plagues everything below `root` until `over`.
fn plague(root: u32, round: &Round, over: &AtomicBool, done: &Done) {
    let mut random = SplitMix::new(round.seed);
    while !over.load(Ordering::Relaxed) {
        let (speculative, programs) = family(root);
        for pid in speculative {
            let chance = random.next_u64() % 4;
            let (signal, count) = match chance {
                0 if round.kill => (libc::SIGKILL, &done.killed),
                1 if round.stop => (libc::SIGSTOP, &done.stopped),
                _ => continue,
            };
            // SAFETY: only sends a signal.
            if unsafe { libc::kill(pid as i32, signal) } == 0 {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        if round.noise && !programs.is_empty() {
            let pid = programs[random.next_u64() as usize % programs.len()];
            if scribble(pid, &mut random).is_some() {
                done.noise.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::sleep(Duration::from_micros(random.next_u64() % 3000));
    }
}

struct Chaos {
    bed: Bed,
    disk: SlowDisk,
    program: PathBuf,
    done: Done,
    prefetches: u64,
    synchronisations: u64,
}

impl Chaos {
    fn new(bed: Bed) -> Chaos {
        let (source, program) = (bed.path("reader.c"), bed.path("reader"));
        fs::write(&source, READER).unwrap();
        let mut compile = Command::new("gcc");
        ok(&compile.args(["-O1", "-pthread", "-o"]).args([&program, &source]).output().unwrap());
        let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
        furnish(&disk);
        fs::create_dir(bed.path("out")).unwrap();
        Chaos { bed, disk, program, done: Done::default(), prefetches: 0, synchronisations: 0 }
    }

    /// Runs the round's program, plainly or not; the statistics are where they
    /// say.
    fn run(&mut self, round: &Round, statistics: Option<&Path>) -> Outcome {
        let out = self.bed.path("out");
        let room = if round.short_of_room { SHORT_ROOM } else { "size=64m" };
        let mount = |program: &str| {
            let mut command = Command::new(program);
            if program == "mount" {
                command.args(["-t", "tmpfs", "-o", room, "chaos"]);
            }
            ok(&command.arg(&out).output().unwrap());
        };
        mount("mount");
        self.disk.cold().unwrap();
        let cgroup = round.tight.then(|| Cgroup::new(TIGHT_BYTES));
        let (stdout, stderr) = (self.bed.path("stdout"), self.bed.path("stderr"));
        let mut command = Command::new(if statistics.is_some() { RUNAHEAD } else { "sh" });
        if let Some(statistics) = statistics {
            command.arg(format!("--stats={}", statistics.display()));
            if round.every_read_stalls {
                command.arg(EVERY_READ_STALLS);
            }
            command.args(["--", "sh"]);
        }
        command.args(["-c", round.program.1]).env("LC_ALL", "C");
        command.env("T", self.disk.mountpoint().join("tree")).env("O", &out);
        command.env("P", &self.program).env("XDG_CACHE_HOME", self.bed.path("cache"));
        command.env("XDG_RUNTIME_DIR", self.bed.path(""));
        command.stdin(Stdio::null()).stdout(fs::File::create(&stdout).unwrap());
        command.stderr(fs::File::create(&stderr).unwrap());
        if let Some(cgroup) = &cgroup {
            cgroup.enter(&mut command);
        }
        let mut child = command.spawn().unwrap();
        let over = AtomicBool::new(statistics.is_none());
        let pid = child.id();
        let done = &self.done;
        let status = std::thread::scope(|scope| {
            scope.spawn(|| plague(pid, round, &over, done));
            let begun = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break Some(status);
                }
                if begun.elapsed() > PATIENCE {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            over.store(true, Ordering::Relaxed);
            status
        });
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        let outcome = Outcome {
            status: status.map_or("hangs".into(), |status| status.to_string()),
            stdout: text(&stdout),
            stderr: text(&stderr),
            written: written(&out),
        };
        mount("umount");
        outcome
    }

    /// One round; what differed.
    fn round(&mut self, round: &Round) -> Option<String> {
        for (file, at) in &round.lost {
            let path = self.disk.mountpoint().join("tree").join(file);
            // An empty file has nothing to lose.
            let _ = runahead_slowdisk::lose(&path, *at..at + LOST_BYTES);
        }
        let statistics = self.bed.path("stats.json");
        let plain = self.run(round, None);
        let found = self.run(round, Some(&statistics));
        self.disk.mend().unwrap();
        if !round.noise {
            // It appears when the collector has seen the last one go.
            if !bed::eventually(|| read(&statistics).is_some()) {
                return Some(format!("{round:?}: no statistics"));
            }
            let said = read(&statistics).unwrap();
            let count = |at: &str| said.pointer(at).and_then(Value::as_u64).unwrap_or(0);
            self.prefetches += count("/speculation/prefetches/issued");
            self.synchronisations += count("/speculation/synchronizations/attempted");
        }
        let _ = fs::remove_file(&statistics);
        (plain != found).then(|| {
            let mut text = format!("{round:?}\n");
            let parts = |outcome: &Outcome| {
                [
                    outcome.status.clone(),
                    outcome.stdout.clone(),
                    outcome.stderr.clone(),
                    format!("{:#?}", outcome.written),
                ]
            };
            for (plain, found) in parts(&plain).iter().zip(parts(&found)) {
                let differs = plain.lines().zip(found.lines()).find(|(a, b)| a != b);
                if *plain != found {
                    let _ =
                        writeln!(text, "  plain {plain:.300}\n  found {found:.300}\n  {differs:?}");
                }
            }
            text
        })
    }
}

fn read(statistics: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(statistics).ok()?).ok()
}

/// Rounds until so many are through and so much time has passed.
fn chaos(rounds_min: u64, least: Duration) {
    let seed = std::env::var("RUNAHEAD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let only = std::env::var("RUNAHEAD_ROUND").ok().and_then(|round| round.parse::<u64>().ok());
    let mut chaos = Chaos::new(bed!());
    let begun = Instant::now();
    let (mut number, mut differences, mut lost) = (0, Vec::new(), 0);
    while number < rounds_min || begun.elapsed() < least {
        let round = Round::new(seed, only.unwrap_or(number));
        lost += usize::from(!round.lost.is_empty());
        differences.extend(chaos.round(&round).map(|what| format!("round {number}: {what}")));
        number += 1;
    }
    eprintln!(
        "seed {seed}: {number} rounds, {lost} with lost blocks, {} synchronisations, \
         {} prefetches; {:?}; {} differences",
        chaos.synchronisations,
        chaos.prefetches,
        chaos.done,
        differences.len()
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(chaos.prefetches > 0, "nothing was speculated: this proves nothing");
}

#[test]
fn chaos_makes_no_difference() {
    chaos(16, Duration::ZERO);
}

#[test]
#[ignore = "twenty minutes"]
fn twenty_minutes_of_chaos_make_no_difference() {
    chaos(200, Duration::from_secs(1200));
}
