//! Noticing stalls: getting into a program, and learning of its page faults.

use std::io;
use std::path::Path;

use runahead_protocol::notice::{QUEUED_SIGNALS_MIN, SIGNAL};
use runahead_sites::SiteTable;

use super::trial::{Outcome, attempt, check, map, wrong};
use super::{Check, Standing, machine};
use crate::launch;

const AREA: &str = "noticing";
const PAGE: usize = 4096;

pub fn checks() -> Vec<Check> {
    let mut checks = vec![agent_place(), patching()];
    checks.extend(libraries());
    checks.push(opted_out());
    checks
}

/// Notices of page faults, for running ahead of mapped files.
pub fn fault_checks() -> Vec<Check> {
    vec![faults(), fault_signals(), watching()]
}

fn agent_place() -> Check {
    let name = "place for the agent";
    match launch::agent_directory() {
        (Some(directory), unusable) => {
            let mut found = format!("in {}", directory.display());
            if !unusable.is_empty() {
                found += &format!(" ({})", unusable.join("; "));
            }
            Check::new(AREA, name, Standing::Works, found)
        }
        (None, unusable) => Check::new(AREA, name, Standing::Reduced, unusable.join("; ")).or_lost(
            "each run analyses the C library anew (some 20 ms): set XDG_CACHE_HOME to a private \
             directory that is not mounted noexec",
        ),
    }
}

/// Code is written in place, as the agent does it.
fn patching() -> Check {
    let outcome = attempt(|| {
        const RETURN_7: [u8; 6] = [0xb8, 7, 0, 0, 0, 0xc3];
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let code = map(PAGE, libc::PROT_READ | libc::PROT_EXEC)?;
        // SAFETY: the page mapped above; what is called is `mov $7,%eax; ret`.
        unsafe {
            check(libc::mprotect(code, PAGE, all).into())?;
            std::ptr::copy_nonoverlapping(RETURN_7.as_ptr(), code.cast(), RETURN_7.len());
            check(libc::mprotect(code, PAGE, libc::PROT_READ | libc::PROT_EXEC).into())?;
            let call: extern "C" fn() -> i32 = std::mem::transmute(code);
            if call() == 7 { Ok(()) } else { Err(wrong()) }
        }
    });
    let standing = if outcome == Outcome::Works { Standing::Works } else { Standing::Reduced };
    Check::new(AREA, "patching code", standing, outcome.text()).or_lost(
        "reads that the C library makes inside itself (stdio) are not seen: memory-deny-write-\
         execute or SELinux's execmod forbids it; allow it for what is to run ahead",
    )
}

/// The C library of this system, by the dynamic linker of a program that
/// every system has.
fn libraries() -> Vec<Check> {
    let Some(interpreter) = launch::interpreter_of(Path::new("/bin/sh")) else {
        let check = Check::new(AREA, "C library", Standing::Reduced, "/bin/sh is static");
        return vec![check.or_lost("programs that are statically linked run plainly")];
    };
    let check = |path: &std::path::PathBuf| {
        let mut table = SiteTable::default();
        let name = path.display().to_string();
        let added = table.add(path);
        let sites = table.libraries().first().map_or(0, |library| library.sites.len());
        let (standing, found) = match added {
            Ok(_) if sites > 0 => (Standing::Works, format!("{sites} calls can be patched")),
            // Part of libc since glibc 2.34, and empty since.
            Ok(_) if name.contains("libpthread") => {
                (Standing::Fact, "none of the calls are its own".into())
            }
            Ok(_) => (Standing::Reduced, "no call can be patched safely".into()),
            Err(skip) => (Standing::Reduced, format!("{skip}")),
        };
        Check::new(AREA, &name, standing, found)
            .or_lost("calls are hooked by symbol only: reads inside stdio are not seen")
    };
    launch::libraries_of(&interpreter).iter().map(check).collect()
}

fn opted_out() -> Check {
    let name = runahead_protocol::session::OPT_OUT_VARIABLE;
    match std::env::var_os(name) {
        Some(value) if value == "off" => {
            Check::new(AREA, "environment", Standing::Fatal, format!("{name}=off"))
                .or_lost("every program runs plainly: unset it")
        }
        _ => Check::new(AREA, "environment", Standing::Works, "not opted out"),
    }
}

/// `struct perf_event_attr` up to `config2` (PERF_ATTR_SIZE_VER1), as
/// perf_event_open(2) has it.
#[repr(C)]
#[derive(Default)]
struct PerfAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
}

/// Opens the counter of major faults that a live notice needs.
fn open_fault_counter() -> io::Result<i32> {
    const SOFTWARE: u32 = 1;
    const MAJOR_FAULTS: u64 = 6;
    const SAMPLE_ADDRESS: u64 = 1 << 3;
    const EXCLUDE_KERNEL_AND_HV: u64 = 1 << 5 | 1 << 6;
    let attributes = PerfAttributes {
        kind: SOFTWARE,
        size: size_of::<PerfAttributes>() as u32,
        config: MAJOR_FAULTS,
        sample_period: 1,
        sample_type: SAMPLE_ADDRESS,
        flags: EXCLUDE_KERNEL_AND_HV,
        wakeup_events: 1,
        ..PerfAttributes::default()
    };
    let cloexec = 8i64;
    // SAFETY: reads one structure of the size that it states.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0i64, -1i64, -1i64, cloexec)
    };
    check(fd).map(|fd| fd as i32)
}

fn faults() -> Check {
    let outcome = attempt(|| open_fault_counter().map(|_| ()));
    let paranoid = machine::text("/proc/sys/kernel/perf_event_paranoid");
    let paranoid =
        paranoid.map_or_else(String::new, |level| format!(" (perf_event_paranoid {level})"));
    let standing = if outcome == Outcome::Works { Standing::Works } else { Standing::Reduced };
    Check::new("memory", "perf counter of major faults", standing, outcome.text() + &paranoid)
        .or_lost(
            "page faults of threads but the first are not noticed, and those of the first by \
             watching it; as root: sysctl kernel.perf_event_paranoid=2",
        )
}

/// The counter's notice to the thread, by the signal that the agent takes for
/// it.
fn fault_signals() -> Check {
    let outcome = attempt(|| {
        let mut queue = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes one structure.
        check(unsafe { libc::getrlimit(libc::RLIMIT_SIGPENDING, &raw mut queue) }.into())?;
        if queue.rlim_cur < QUEUED_SIGNALS_MIN {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        const F_SETSIG: i32 = 10;
        const F_SETOWN_EX: i32 = 15;
        let owner = [0i32, rustix::thread::gettid().as_raw_nonzero().get()];
        let fd = open_fault_counter()?;
        // SAFETY: a descriptor of ours; F_SETOWN_EX reads two integers.
        unsafe {
            check(libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()).into())?;
            check(libc::fcntl(fd, F_SETSIG, SIGNAL).into())?;
            check(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC).into())?;
        }
        Ok(())
    });
    let standing = if outcome == Outcome::Works { Standing::Works } else { Standing::Reduced };
    Check::new("memory", "its notice to the thread", standing, outcome.text())
        .or_lost("as above; so it is where fewer than 4096 signals may be queued (ulimit -i)")
}

/// Watching a process wait, as the agent's aide does where there is no such
/// notice: a child looks at its parent, which may go on by way of a restartable
/// sequence.
fn watching() -> Check {
    const ANYBODY: libc::c_ulong = libc::c_ulong::MAX;
    let path = format!("/proc/{0}/task/{0}/syscall\0", std::process::id());
    // SAFETY: who may look at this process (Yama).
    unsafe { libc::prctl(libc::PR_SET_PTRACER, ANYBODY) };
    let outcome = attempt(|| {
        // SAFETY: refused: there is no such area.
        let found = check(unsafe { libc::syscall(libc::SYS_rseq, 0, 0, 0, 0) });
        match found.err().and_then(|error| error.raw_os_error()) {
            Some(libc::EINVAL | libc::EBUSY) | None => {}
            Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
        }
        let mut text = [0u8; 128];
        // SAFETY: a path that ends in NUL, and a buffer of this length.
        unsafe {
            let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY);
            check(file.into())?;
            check(libc::read(file, text.as_mut_ptr().cast(), text.len()) as libc::c_long)?;
        }
        Ok(())
    });
    // SAFETY: as it was.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, 0) };
    let standing = if outcome == Outcome::Works { Standing::Works } else { Standing::Missing };
    Check::new("memory", "watching a program wait", standing, outcome.text()).or_lost(
        "where perf events are forbidden, too, programs that read through mappings gain nothing; \
         as root: sysctl kernel.perf_event_paranoid=2",
    )
}
