//! What this machine permits, mechanism by mechanism. Nothing is believed
//! because of a version number: each mechanism is tried, in a child process
//! of its own, and nothing lasting remains.

mod copying;
mod files;
mod machine;
mod noticing;
mod self_test;
mod trial;

use std::path::PathBuf;

use serde_json::{Value, json};

/// How a mechanism stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It works.
    Works,
    /// It works in part, or something else stands in for it.
    Reduced,
    /// It does not work; speculation goes on without it.
    Missing,
    /// It does not work, and without it there is no speculation.
    Fatal,
    /// A fact that explains others.
    Fact,
}

impl Standing {
    /// The word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Standing::Works => "works",
            Standing::Reduced => "reduced",
            Standing::Missing => "missing",
            Standing::Fatal => "FATAL",
            Standing::Fact => "-",
        }
    }
}

/// One mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Area: what the mechanism is for.
    pub area: &'static str,
    /// Its name.
    pub name: String,
    /// How it stands.
    pub standing: Standing,
    /// What was found.
    pub found: String,
    /// What is lost, and what can be done; empty where nothing is.
    pub lost: String,
}

impl Check {
    fn new(area: &'static str, name: &str, standing: Standing, found: impl Into<String>) -> Self {
        let (name, found) = (name.to_owned(), found.into());
        Self { area, name, standing, found, lost: String::new() }
    }

    /// What is lost where it does not (fully) work; nothing where it does.
    fn or_lost(mut self, lost: &str) -> Self {
        if !matches!(self.standing, Standing::Works | Standing::Fact) {
            lost.clone_into(&mut self.lost);
        }
        self
    }

    fn fact(area: &'static str, name: &str, found: impl Into<String>) -> Self {
        Self::new(area, name, Standing::Fact, found)
    }
}

/// Everything that was found.
#[derive(Debug)]
pub struct Diagnosis {
    /// In the order of the areas.
    pub checks: Vec<Check>,
}

impl Diagnosis {
    /// Looks at this machine and at the file systems of the paths.
    pub fn make(paths: &[PathBuf], say: &dyn Fn(&str)) -> Self {
        let mut checks = Vec::new();
        say("machine");
        checks.extend(machine::checks());
        say("hooking programs");
        checks.extend(noticing::checks());
        say("speculative process");
        checks.extend(copying::checks());
        say("page faults and swap");
        checks.extend(noticing::fault_checks());
        checks.extend(copying::memory_checks());
        say("file systems");
        checks.extend(files::checks(paths));
        say("self-test");
        checks.extend(self_test::checks());
        Self { checks }
    }

    /// What keeps speculation from working at all.
    pub fn fatal(&self) -> Vec<&Check> {
        self.checks.iter().filter(|check| check.standing == Standing::Fatal).collect()
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        let checks: Vec<Value> = self.checks.iter().map(|check| {
            json!({
                "area": check.area,
                "name": check.name,
                "standing": if check.standing == Standing::Fact { "fact" } else { check.standing.word() }.to_lowercase(),
                "found": check.found,
                "lost": if check.lost.is_empty() { Value::Null } else { json!(check.lost) },
            })
        }).collect();
        json!({ "version": 1, "can_speculate": self.fatal().is_empty(), "checks": checks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fatal_check_is_enough() {
        let check = |standing| Check::new("a", "b", standing, "c").or_lost("d");
        let mut diagnosis =
            Diagnosis { checks: vec![check(Standing::Works), check(Standing::Missing)] };
        assert_eq!(diagnosis.to_json()["can_speculate"], true);
        assert_eq!(diagnosis.to_json()["checks"][0]["lost"], Value::Null);
        assert_eq!(diagnosis.to_json()["checks"][1]["lost"], "d");
        diagnosis.checks.push(check(Standing::Fatal));
        assert_eq!(diagnosis.to_json()["can_speculate"], false);
        assert_eq!(diagnosis.to_json()["checks"][2]["standing"], "fatal");
    }
}
