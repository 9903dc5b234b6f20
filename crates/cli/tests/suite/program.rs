//! One program of `tests/programs`.
//!
//! A line `// needs: WORD...` at its start says what it cannot do without:
//! `root`; `resident` (not run on the slow device, where it would take too
//! long or the file system lacks something); `gate` (copies call by the agent's own
//! instructions, which ends them as a defect would). A line `// not: VARIANT (why)`
//! leaves a variant out: a limitation that docs/SAFETY.md lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

pub struct Program {
    pub name: String,
    pub binary: PathBuf,
    pub needs: Vec<String>,
    /// Variants that are left out.
    pub not: Vec<String>,
}

impl Program {
    pub fn needs(&self, what: &str) -> bool {
        self.needs.iter().any(|need| need == what)
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs")
}

/// Compiles every program into `into`, or those whose names contain the word
/// in `RUNAHEAD_TEST_PROGRAM`.
pub fn build_all(into: &Path) -> Vec<Program> {
    build_some(into, None, |_| true)
}

/// Those in C that make threads, with this compiler.
pub fn build_threaded(into: &Path, compiler: &Path) -> Vec<Program> {
    build_some(into, Some(compiler), |name| {
        let source = fs::read_to_string(sources().join(name)).unwrap();
        name.ends_with(".c") && source.contains("pthread_create")
    })
}

fn build_some(into: &Path, compiler: Option<&Path>, wanted: impl Fn(&str) -> bool) -> Vec<Program> {
    let only = std::env::var("RUNAHEAD_TEST_PROGRAM").unwrap_or_default();
    let mut names: Vec<String> = fs::read_dir(sources())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.ends_with(".c") || name.ends_with(".cpp"))
        .filter(|name| name.contains(&only) && wanted(name))
        .collect();
    names.sort();
    let waiting = Mutex::new(names.into_iter());
    let built = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(name) = waiting.lock().unwrap().next() else { break };
                    let program = build(name, into, compiler);
                    built.lock().unwrap().push(program);
                }
            });
        }
    });
    let mut built = built.into_inner().unwrap();
    built.sort_by(|a, b| a.name.cmp(&b.name));
    built
}

pub fn build(file: String, into: &Path, compiler: Option<&Path>) -> Program {
    let source = sources().join(&file);
    let (name, kind) = file.split_once('.').unwrap();
    let (variable, usual) = if kind == "cpp" { ("CXX", "c++") } else { ("CC", "cc") };
    let binary = into.join(name);
    let name = name.to_owned();
    let usual = || std::env::var_os(variable).unwrap_or_else(|| usual.into());
    let mut compiler = Command::new(compiler.map_or_else(usual, |path| path.into()));
    compiler.args(["-O1", "-w", "-D_GNU_SOURCE", "-pthread", "-fexceptions", "-o"]);
    let output = compiler.arg(&binary).arg(&source).arg("-lrt").output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&source).unwrap();
    let words = |start: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(start));
        lines.flat_map(|words| words.split_whitespace().map(str::to_owned)).collect()
    };
    Program { name, binary, needs: words("// needs:"), not: words("// not:") }
}
