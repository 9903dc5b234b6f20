//! `runahead doctor`: what it says of this machine, and of one that forbids
//! what speculation needs.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;

const RUNAHEAD: &str = env!("CARGO_BIN_EXE_runahead");

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn check<'a>(diagnosis: &'a Value, name: &str) -> &'a Value {
    let checks = diagnosis["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"].as_str().unwrap().contains(name));
    found.unwrap_or_else(|| panic!("no {name} in {diagnosis}"))
}

#[test]
fn the_verdict_is_the_exit_status() {
    let output = Command::new(RUNAHEAD).args(["doctor", "--json"]).output().unwrap();
    let diagnosis = json(&output);
    assert_eq!(diagnosis["can_speculate"].as_bool(), Some(output.status.success()));
    for name in ["kernel", "patching code", "seccomp filter with traps", "SCHED_IDLE", "pagemap"] {
        assert_ne!(check(&diagnosis, name)["found"], "");
    }
    for check in diagnosis["checks"].as_array().unwrap() {
        let standing = check["standing"].as_str().unwrap();
        let works = ["works", "fact"].contains(&standing);
        assert_eq!(check["lost"].is_null(), works, "what is lost is said: {check}");
    }
}

#[test]
fn an_opted_out_session_cannot_speculate() {
    let mut command = Command::new(RUNAHEAD);
    let output = command.args(["doctor", "--json"]).env("RUNAHEAD", "off").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let diagnosis = json(&output);
    assert_eq!(check(&diagnosis, "environment")["standing"], "fatal");
    let text = Command::new(RUNAHEAD).arg("doctor").env("RUNAHEAD", "off").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("cannot be run ahead") && text.contains("unset it"), "{text}");
    assert!(!text.contains('\x1b'), "colours are for terminals");
}

/// PR_SET_MDWE (Linux 6.3): pages may not become executable again.
#[test]
fn refused_patching_is_found_by_trying() {
    const PR_SET_MDWE: i32 = 65;
    const REFUSE_EXEC_GAIN: u64 = 1;
    let mut command = Command::new(RUNAHEAD);
    command.args(["doctor", "--json"]);
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0u64, 0u64, 0u64) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = match command.output() {
        Ok(output) => output,
        // An older kernel has nothing to refuse with.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
        Err(error) => panic!("{error}"),
    };
    let diagnosis = json(&output);
    assert_eq!(check(&diagnosis, "patching code")["standing"], "reduced");
}

#[test]
fn a_path_that_is_not_there_is_said_so() {
    let output =
        Command::new(RUNAHEAD).args(["doctor", "--json", "/nonexistent"]).output().unwrap();
    let diagnosis = json(&output);
    let check = check(&diagnosis, "/nonexistent");
    assert_eq!(check["standing"], "missing");
    assert!(check["found"].as_str().unwrap().contains("No such file"), "{check}");
}
