//! The machine: facts that explain the rest, and the limits of this session.

use std::fs;
use std::path::Path;

use runahead_protocol::session::LIMIT_MIN_BYTES;
use runahead_usual::memory::Groups;

use super::{Check, Standing};

const AREA: &str = "machine";

pub fn checks() -> Vec<Check> {
    vec![
        kernel(),
        processors(),
        clock(),
        container(),
        process_limit(),
        memory_cgroup(),
        yama(),
        security_module(),
    ]
}

pub fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn kernel() -> Check {
    let release = text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    Check::fact(AREA, "kernel", format!("{release}, {}", std::env::consts::ARCH))
}

fn processors() -> Check {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let standing = if count > 1 { Standing::Works } else { Standing::Reduced };
    let found = format!("{count} for this session");
    Check::new(AREA, "processors", standing, found)
        .or_lost("with one processor a copy computes only while its program waits, never beside it")
}

fn clock() -> Check {
    let invariant = crate::launch::is_tsc_invariant();
    let standing = if invariant { Standing::Works } else { Standing::Reduced };
    let found = if invariant { "runs at one rate" } else { "may change its rate" };
    Check::new(AREA, "time-stamp counter", standing, found)
        .or_lost("stalls are timed by a clock call instead: some 30 ns more for each read")
}

fn container() -> Check {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let root = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == "/").then(|| fields.next().map(str::to_owned))?
    });
    let root = root.unwrap_or_else(|| "unknown".into());
    let inside = Path::new("/.dockerenv").exists()
        || Path::new("/run/.containerenv").exists()
        || root == "overlay";
    let found = if inside { "yes" } else { "no sign of one" };
    Check::fact(AREA, "container", format!("{found}; / is {root}"))
}

fn process_limit() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nproc).current;
    let user = rustix::process::getuid();
    let tasks = tasks_of(user.as_raw());
    let cgroup = cgroup_value("pids.max", "pids");
    let found = match limit {
        None => format!("{tasks} tasks of this user, no limit"),
        Some(limit) => format!("{tasks} tasks of this user, limit {limit}"),
    };
    let found = match cgroup {
        Some(max) if max != "max" => format!("{found}; pids cgroup {max}"),
        _ => found,
    };
    // Each program has one speculative process more, and one that is dying.
    let tight = limit.is_some_and(|limit| limit < tasks + 16) && !user.is_root();
    let standing = if tight { Standing::Reduced } else { Standing::Works };
    Check::new(AREA, "room for processes", standing, found)
        .or_lost("programs near the limit run without speculation: raise `ulimit -u`")
}

/// Threads of a user, as RLIMIT_NPROC counts them.
fn tasks_of(user: u32) -> u64 {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let threads = processes.filter_map(|entry| {
        let path = entry.ok()?.path();
        path.file_name()?.to_str()?.parse::<u32>().ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        let number = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        (number("Uid:")? == u64::from(user)).then(|| number("Threads:").unwrap_or(1))
    });
    threads.sum()
}

/// A value of this process's own cgroup, version 2 or 1.
fn cgroup_value(file: &str, controller: &str) -> Option<String> {
    let table = fs::read_to_string("/proc/self/cgroup").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let root = match controllers {
            "" => "/sys/fs/cgroup".to_owned(),
            names if names.split(',').any(|name| name == controller) => {
                format!("/sys/fs/cgroup/{controller}")
            }
            _ => return None,
        };
        text(format!("{root}{path}/{file}"))
    })
}

fn memory_cgroup() -> Check {
    let name = "memory cgroup";
    let Some(groups) = Groups::look() else { return Check::fact(AREA, name, "none seen") };
    if groups.are_ended_together() {
        let found = "ended as a whole, or waits, where memory runs out";
        return Check::new(AREA, name, Standing::Fatal, found).or_lost(
            "a copy would not be ended alone, so that none is made: set memory.oom.group \
             (version 1: memory.oom_control) to 0",
        );
    }
    match groups.limit_bytes() {
        // Version 1 says "no limit" by a number near 2^63.
        Some(bytes) if bytes < 1 << 60 => {
            let found = format!("limit {} MiB", bytes >> 20);
            if bytes >= LIMIT_MIN_BYTES {
                return Check::fact(AREA, name, found);
            }
            Check::new(AREA, name, Standing::Fatal, found).or_lost(
                "that is too little for the agent beside a program, so that programs run \
                 plainly: raise memory.max to 16 MiB or more",
            )
        }
        _ => Check::fact(AREA, name, "no limit"),
    }
}

fn yama() -> Check {
    let scope = text("/proc/sys/kernel/yama/ptrace_scope");
    let (standing, found) = match scope.as_deref() {
        None => (Standing::Works, "not there".to_owned()),
        Some("0") => (Standing::Works, "ptrace_scope 0".into()),
        Some(scope) => (Standing::Reduced, format!("ptrace_scope {scope}")),
    };
    Check::new(AREA, "Yama", standing, found).or_lost(
        "a copy cannot import memory by process_vm_readv; plain copies are not concerned; as \
             root: sysctl kernel.yama.ptrace_scope=0",
    )
}

fn security_module() -> Check {
    let modules = text("/sys/kernel/security/lsm").unwrap_or_else(|| "not told".into());
    let selinux = match text("/sys/fs/selinux/enforce").as_deref() {
        Some("1") => "; SELinux enforces",
        Some(_) => "; SELinux is permissive",
        None => "",
    };
    Check::fact(AREA, "security modules", format!("{modules}{selinux}"))
}
