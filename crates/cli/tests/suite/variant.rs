//! The variants that every program runs in.

use std::path::Path;
use std::process::Command;

use runahead_protocol::session::{
    TEST_ALWAYS_WRONG, TEST_DIE_AT_RANDOM, TEST_EVERY_READ_STALLS, TEST_HANDS_OVER, TEST_IMPORTING,
    TEST_LEAVES_LATE, TEST_REFUSE_PATCHING, TEST_WITHOUT_PERF,
};

use super::RUNAHEAD;

/// User and group that own nothing.
pub const NOBODY: u32 = 65534;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Own,
    /// One who owns none of the files.
    Nobody,
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub name: &'static str,
    pub user: User,
    /// `None`: without runahead.
    mode: Option<&'static str>,
    test: u64,
    /// On a device that is slow and cold, where reads really wait.
    pub cold: bool,
    /// What must have happened over the whole suite.
    pub must: Must,
}

/// What shows that a variant tested what it is meant to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    Nothing,
    /// Speculative processes were made.
    Synchronise,
    /// They were made and prefetched.
    Prefetch,
}

const BASE: Variant = Variant {
    name: "plain",
    user: User::Own,
    mode: None,
    test: 0,
    cold: false,
    must: Must::Nothing,
};

pub const PLAIN: Variant = BASE;
pub const PLAIN_NOBODY: Variant = Variant { name: "plain-nobody", user: User::Nobody, ..BASE };

const SPECULATE: Variant = Variant {
    name: "speculate",
    mode: Some("speculate"),
    test: TEST_EVERY_READ_STALLS,
    must: Must::Synchronise,
    ..BASE
};

/// All that are compared with a plain run of the same user.
pub const ALL: &[Variant] = &[
    Variant { name: "observe", mode: Some("observe"), ..BASE },
    SPECULATE,
    Variant {
        name: "wrong",
        test: SPECULATE.test | TEST_ALWAYS_WRONG | TEST_LEAVES_LATE,
        ..SPECULATE
    },
    Variant { name: "importing", test: SPECULATE.test | TEST_IMPORTING, ..SPECULATE },
    Variant {
        name: "handed",
        test: SPECULATE.test | TEST_IMPORTING | TEST_HANDS_OVER,
        ..SPECULATE
    },
    Variant { name: "dying", test: SPECULATE.test | TEST_DIE_AT_RANDOM, ..SPECULATE },
    // Tier T0.
    Variant {
        name: "refused",
        test: SPECULATE.test | TEST_REFUSE_PATCHING | TEST_LEAVES_LATE,
        ..SPECULATE
    },
    // Page faults are noticed by watching.
    Variant { name: "watched", test: SPECULATE.test | TEST_WITHOUT_PERF, ..SPECULATE },
    Variant { name: "nobody", user: User::Nobody, ..SPECULATE },
    // With the switch, too: a busy machine would decline all synchronisations.
    Variant { name: "cold", cold: true, must: Must::Prefetch, ..SPECULATE },
];

impl Variant {
    /// The command that runs `binary`; statistics go to `statistics`.
    pub fn command(&self, binary: &Path, statistics: &Path) -> Command {
        let mut words: Vec<String> = Vec::new();
        if self.user == User::Nobody {
            let (uid, gid) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
            words.extend(["setpriv".into(), uid, gid, "--clear-groups".into()]);
        }
        if let Some(mode) = self.mode {
            words.extend([RUNAHEAD.into(), "run".into(), format!("--mode={mode}")]);
            words.push(format!("--test={}", self.test));
            // Another agent than this build's (`scripts/mutations`).
            words
                .extend(std::env::var("RUNAHEAD_TEST_AGENT").map(|path| format!("--agent={path}")));
            if self.must != Must::Nothing {
                words.push(format!("--stats={}", statistics.display()));
            }
            words.push("--".into());
        }
        words.push(binary.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}
