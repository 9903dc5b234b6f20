//! Builds the agent for its freestanding target and links it into the shared
//! library that this command carries inside itself, so that an installation
//! is one file.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "src/fingerprint.rs"]
mod fingerprint;

const TARGET: &str = "x86_64-unknown-none";

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let root = manifest.parent().and_then(Path::parent).unwrap().to_path_buf();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    for room in ["agent", "emulate", "policy", "protocol"] {
        println!("cargo::rerun-if-changed={}", root.join("crates").join(room).display());
    }
    let archive = compile(&root, &out);
    let library = out.join("agent.so");
    link(&archive, &manifest.join("agent.map"), &library);
    let name = fingerprint::of(&std::fs::read(&library).expect("it has just been linked"));
    std::fs::write(out.join("agent.fingerprint"), format!("{name:#x}")).expect("OUT_DIR is ours");
    println!("cargo::rerun-if-changed={}", manifest.join("src/fingerprint.rs").display());
    println!("cargo::rerun-if-changed={}", manifest.join("agent.map").display());
    must_lie_where_it_is_linked();
    // Of the command: `src/inherited.rs`.
    println!("cargo::rustc-link-arg-bins=-Wl,-e,runahead_entry");
    put_in_front(&manifest.join("front.ld"));
}

/// Has the linker put what every usual launch runs at the front of the
/// command, as it is installed: with musl.
fn put_in_front(script: &Path) {
    if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "musl") {
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
    }
    println!("cargo::rerun-if-changed={}", script.display());
}

/// Its entry comes before the C library's start, which is what relocates a
/// static program that may lie anywhere.
fn must_lie_where_it_is_linked() {
    let musl = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "musl");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    assert!(
        !musl || flags.contains("relocation-model=static"),
        "build with `make build`: musl needs RUSTFLAGS=-Crelocation-model=static"
    );
}

/// Compiles the agent to a static library. The target is soft-float, so the
/// core library that comes with it uses no vector register either.
fn compile(root: &Path, out: &Path) -> PathBuf {
    let target_dir = out.join("agent");
    let flags = ["-Crelocation-model=pic", "-Cforce-unwind-tables=yes"].join("\x1f");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap());
    cargo
        .current_dir(root)
        .args(["rustc", "--package", "runahead-agent", "--lib", "--crate-type", "staticlib"])
        .args(["--target", TARGET, "--profile", "agent", "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        // Of the outer build, for its own target.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET");
    run(cargo, &format!("is the target installed? `rustup target add {TARGET}`"));
    target_dir.join(TARGET).join("agent/librunahead_agent.a")
}

/// Links it: no needs, no undefined symbols, nothing exported.
fn link(archive: &Path, map: &Path, library: &Path) {
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-shared", "-nostdlib", "-o"]).arg(library);
    cc.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    cc.arg(format!("-Wl,--version-script={}", map.display()));
    cc.args([
        "-Wl,--gc-sections",
        // A cancelled thread's destructors are found through the hook.
        "-Wl,--eh-frame-hdr",
        // What remains is a third of it, and inside every installation.
        "-Wl,--strip-debug",
        "-Wl,--no-undefined",
        "-Wl,-Bsymbolic",
        "-Wl,-z,now",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
        // One mapping of headers, constants and code, not three: each start makes
        // them, each fork copies them.
        "-Wl,-z,noseparate-code",
        "-Wl,-z,defs",
        // glibc runs its constructor before those of all libraries, which so find the
        // environment without what the launcher has put there.
        "-Wl,-z,initfirst",
        "-Wl,--hash-style=gnu",
        "-Wl,--build-id=none",
        "-Wl,-soname,runahead-agent.so",
    ]);
    run(cc, "is a C compiler installed? `apt install gcc`");
}

fn run(mut command: Command, hint: &str) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} failed: {status} ({hint})"),
        Err(error) => panic!("{command:?} could not be run: {error} ({hint})"),
    }
}
