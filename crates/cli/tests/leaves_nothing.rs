//! Many runs in a row leave no process and no file behind. Alone in its
//! file, because it adopts the orphans of its whole process.

mod support;

use std::fs;
use std::path::Path;

use support::Scratch;

const RUNS: usize = 100;

fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Waits for one child of any kind; `None` where there is none left.
fn reap() -> Option<i32> {
    let mut status = 0;
    // SAFETY: a word for the status.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
    (pid > 0).then_some(status)
}

#[test]
fn a_hundred_runs_leave_nothing() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    // SAFETY: a flag of this process. Orphans below it become its children,
    // so that each can be waited for.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let report = scratch.join("run.json");
    let run = |with_report: bool| {
        let mut command = scratch.runahead_with(&agent);
        if with_report {
            command.arg(format!("--stats={}", report.display()));
        }
        assert!(command.arg("true").status().unwrap().success());
    };
    run(false);
    let (home, cache) = (entries(scratch.path()), entries(&scratch.join(".cache/runahead")));
    // Where the runtime directory is in memory the agent lies there.
    let kept = [cache.clone(), entries(&scratch.join("runahead"))].concat();
    for name in ["agent-", "sites-", "tsc"] {
        assert!(kept.iter().any(|file| file.starts_with(name)), "{name}: {kept:?}");
    }
    assert!(cache.len() <= 3, "{cache:?}");

    for _ in 0..RUNS {
        run(false);
    }
    assert_eq!(reap(), None, "no process without --stats");
    for _ in 0..RUNS {
        run(true);
    }
    let mut collectors = 0;
    while let Some(status) = reap() {
        assert_eq!(status, 0, "a collector failed");
        collectors += 1;
    }
    assert_eq!(collectors, RUNS, "each collector ends by itself");
    fs::remove_file(&report).unwrap();
    assert_eq!(entries(scratch.path()), home);
    assert_eq!(entries(&scratch.join(".cache/runahead")), cache);
}
