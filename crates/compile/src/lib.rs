//! `runahead cc`, `c++` and `fc`: the compilers of LLVM with the pass of
//! Mowry, Demke and Krieger (1996), which inserts prefetches and releases.
//!
//! The sources of the pass and of its run-time layer are inside this library.
//! They are built for the LLVM that is there, once, into the user's cache: a
//! pass must come from the headers of the very version that loads it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

mod line;

use line::{Line, Word, expanded, is_compiler_itself};

macro_rules! sources {
    ($directory:literal: $($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../compiler/", $directory, "/", $name)))),*]
    };
}
const PASS: [(&str, &str); 12] = sources!(
    "pass":
    "Nest.h",
    "Versions.h",
    "Locality.h",
    "Locality.cpp",
    "Insertion.h",
    "Insertion.cpp",
    "Strips.cpp",
    "Outline.h",
    "Outline.cpp",
    "Promises.h",
    "Promises.cpp",
    "Runahead.cpp"
);
const RUNTIME: [(&str, &str); 18] = sources!(
    "runtime":
    "runahead_rt.h",
    "calls.h",
    "internal.h",
    "plan.c",
    "hint.c",
    "advance.c",
    "ring.c",
    "indices.c",
    "small.c",
    "blocks.c",
    "behind.c",
    "helper.c",
    "mappings.c",
    "release.c",
    "windows.c",
    "disclose.c",
    "threads.c",
    "start.c"
);
/// What stays visible of the run-time layer in a program, which may have names
/// of its own: what the pass calls.
const CALLS: [&str; 4] = ["ra_begin_2", "ra_tick", "ra_memcpy", "ra_memset"];
/// How a plug-in of LLVM is compiled.
const PLUGIN_WORDS: [&str; 6] =
    ["-std=c++17", "-O2", "-shared", "-fPIC", "-fno-rtti", "-fvisibility-inlines-hidden"];
/// How the run-time layer is. What some set gcc up to do: calls of the C library become others
/// (`__memcpy_chk`), which the one that a program is linked with need not have.
const RUNTIME_WORDS: [&str; 6] =
    ["-std=gnu11", "-O2", "-U_FORTIFY_SOURCE", "-fPIC", "-nostdlib", "-r"];

/// How names of directories in the cache begin in which something is built.
const SCRATCH: &str = ".tmp";

/// Versions of LLVM that the pass is tested with, the preferred one first.
pub const VERSIONS: [u32; 3] = [22, 19, 14];

/// A language, and with it a compiler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Language {
    /// clang
    C,
    /// clang++
    Cxx,
    /// flang, from LLVM 19 on
    Fortran,
}

impl Language {
    /// Executables that may be there, the likeliest first.
    fn names(self, version: u32) -> Vec<String> {
        let plain: &[&str] = match self {
            Self::C => &["clang"],
            Self::Cxx => &["clang++"],
            Self::Fortran => &["flang", "flang-new"],
        };
        plain
            .iter()
            .flat_map(|name| {
                [format!("/usr/lib/llvm-{version}/bin/{name}"), format!("{name}-{version}")]
            })
            .collect()
    }
}

/// A compiler with what it needs.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The executable.
    pub program: PathBuf,
    /// Major version of LLVM.
    pub version: u32,
    language: Language,
    headers: PathBuf,
    pass: PathBuf,
    runtime: PathBuf,
}

impl Compiler {
    /// Finds a compiler for the language, of one version or of the newest that
    /// is there, and builds the pass and the run-time layer for it below
    /// `cache`, unless they are there.
    ///
    /// # Errors
    /// If there is no such compiler or it lacks its headers, with the packages
    /// to install; or if the pass does not compile.
    pub fn find(language: Language, version: Option<u32>, cache: &Path) -> Result<Self> {
        if let Some(version) = version {
            ensure!(
                VERSIONS.contains(&version),
                "LLVM {version}: the pass is tested with {VERSIONS:?} only"
            );
        }
        let versions: Vec<u32> = version.map_or_else(|| VERSIONS.to_vec(), |version| vec![version]);
        let mut lacking = None;
        for version in versions {
            let Some(program) =
                language.names(version).iter().find_map(|name| executable(OsStr::new(name)))
            else {
                continue;
            };
            let Some(headers) = headers(version) else {
                lacking.get_or_insert(version);
                continue;
            };
            let (pass, runtime) = build(version, &headers, cache)?;
            return Ok(Self { program, version, language, headers, pass, runtime });
        }
        if let Some(version) = lacking {
            bail!("the headers of LLVM {version} are missing: install llvm-{version}-dev");
        }
        bail!(not_there(language, version))
    }

    /// The command that compiles with `arguments`, which are the compiler's own.
    /// With `explain` it reports what was inserted where, and why not elsewhere.
    pub fn command(&self, arguments: &[OsString], explain: bool) -> Command {
        let mut command = Command::new(&self.program);
        let words = expanded(arguments);
        let line = Line::of(&words);
        // A driver that is told to be the compiler itself knows none of the driver's options.
        // Without a C library the run-time layer could not be linked.
        if is_compiler_itself(&words) || line.is_without_library() {
            command.args(arguments);
            return command;
        }
        let mut option = OsString::from("-fpass-plugin=");
        option.push(&self.pass);
        // Of no use where only assembler is compiled: clang warns of the remarks, and up to
        // some version before 19 of the pass. Flang compiles none.
        let may_be_unused = self.language != Language::Fortran && (self.version < 19 || explain);
        command.args(may_be_unused.then_some("--start-no-unused-arguments"));
        command.arg(option);
        if explain {
            command.args(["-Rpass=runahead", "-Rpass-missed=runahead"]);
        }
        command.args(may_be_unused.then_some("--end-no-unused-arguments"));
        if !line.links() {
            command.args(arguments);
            return command;
        }
        let end = line.options_end.unwrap_or(arguments.len());
        let (options, inputs) = arguments.split_at(end);
        let before: Vec<Word> = words.into_iter().filter(|word| word.argument < end).collect();
        let language = Line::of(&before).language;
        let is_given = language != "none";
        command.args(options);
        if is_given {
            command.args(["-x", "none"]); // or the run-time layer is taken for a source
        }
        // Threads of the run-time layer may be anywhere in its text: a library with such a
        // layer stays when the program closes it. To programs it makes no difference.
        // Not `-pthread`, which defines a macro for what is compiled in the same command.
        command.arg(&self.runtime).args(["-lpthread", "-lm", "-Wl,-z,nodelete"]);
        if let Some(c_library) = line.c_library.filter(|_| line.leaves_out_c) {
            // The layer needs more of it than what came before, and it something of the
            // compiler's library and perhaps of the loader (which -lc knows of) in turn.
            command.arg(c_library).arg("-Wl,--push-state,--as-needed,-lc,-lgcc,--pop-state");
        }
        if is_given && !inputs.is_empty() {
            command.arg("-x").arg(language);
        }
        command.args(inputs);
        command
    }

    /// Builds another pass for the same compiler, of a source in `directory`, where its name
    /// with `.so` in the end is returned. It may include `Versions.h` of our own.
    ///
    /// # Errors
    /// If a file cannot be written, or the source does not compile.
    pub fn build_pass(&self, directory: &Path, source: &str, options: &[&str]) -> Result<PathBuf> {
        for (name, text) in PASS.iter().filter(|(name, _)| *name == "Versions.h") {
            fs::write(directory.join(name), text).with_context(|| format!("write {name}"))?;
        }
        let plugin = directory.join(source).with_extension("so");
        let words = options.iter().copied().chain([source]).map(OsStr::new);
        build_plugin(&self.headers, directory, &words.collect::<Vec<_>>(), plugin.as_os_str())?;
        Ok(plugin)
    }

    /// The pass, for `-fpass-plugin=` and `opt -load-pass-plugin=`.
    pub fn pass(&self) -> &Path {
        &self.pass
    }
}

/// Why there is no compiler, of the version that was asked for if one was, and what to do.
fn not_there(language: Language, version: Option<u32>) -> String {
    let (what, wanted) = match (language, version) {
        (Language::Fortran, Some(14)) => {
            return "LLVM 14 has no flang: name 19 or 22 with --llvm".to_owned();
        }
        (Language::C | Language::Cxx, None) => ("clang", "22, 19 or 14".to_owned()),
        (Language::Fortran, None) => ("flang", "22 or 19".to_owned()),
        (Language::C | Language::Cxx, Some(version)) => ("clang", version.to_string()),
        (Language::Fortran, Some(version)) => ("flang", version.to_string()),
    };
    let package = version.unwrap_or(19);
    format!(
        "no {what} of LLVM {wanted} is installed: install {what}-{package} and \
         llvm-{package}-dev (the names on Debian and Ubuntu){}",
        if version.is_some() { ", or leave --llvm away" } else { "" }
    )
}

/// An executable by path or in PATH.
fn executable(name: &OsStr) -> Option<PathBuf> {
    let is_there = |path: &Path| path.is_file();
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return is_there(&path).then_some(path);
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|path| is_there(path))
}

fn headers(version: u32) -> Option<PathBuf> {
    let own = PathBuf::from(format!("/usr/lib/llvm-{version}/include"));
    if own.join("llvm/IR/PassManager.h").is_file() {
        return Some(own);
    }
    let config = executable(OsStr::new(&format!("llvm-config-{version}")))?;
    let output = Command::new(config).arg("--includedir").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.join("llvm/IR/PassManager.h").is_file().then_some(path)
}

/// Builds pass and run-time layer, unless they are there; the directory's name says from what,
/// and how.
fn build(version: u32, headers: &Path, cache: &Path) -> Result<(PathBuf, PathBuf)> {
    let exact = fs::read_to_string(headers.join("llvm/Config/llvm-config.h")).unwrap_or_default();
    let sources = PASS.into_iter().chain(RUNTIME).map(|(_, text)| text);
    let words = PLUGIN_WORDS.into_iter().chain(RUNTIME_WORDS).chain(CALLS);
    let mut hasher = blake3::Hasher::new();
    for text in sources.chain([exact.as_str()]).chain(words) {
        hasher.update(text.as_bytes());
    }
    let hash = hasher.finalize().to_hex();
    let directory = cache.join(format!("llvm-{version}-{}", &hash[..16]));
    let pass = directory.join(format!("Runahead-{version}.so"));
    let runtime = directory.join("runahead_rt.o");
    let is_built = || pass.is_file() && runtime.is_file();
    if !is_built() {
        fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
        // Of many compilers that begin together (`make -j`) one builds, the others wait for
        // it. Where the file system knows no locks each builds for itself.
        let lock = fs::File::create(cache.join("lock")).context("make a lock in the cache")?;
        let is_locked = lock.lock().is_ok();
        if is_locked {
            remove_unfinished(cache);
        }
        if !is_locked || !is_built() {
            build_into(&directory, version, headers, cache)?;
        }
    }
    Ok((pass, runtime))
}

/// What builds that were killed have left. For whoever holds the lock.
fn remove_unfinished(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(SCRATCH.as_bytes()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn build_into(directory: &Path, version: u32, headers: &Path, cache: &Path) -> Result<()> {
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH)
        .tempdir_in(cache)
        .context("make a directory to build the pass in")?;
    let write = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    for (name, text) in PASS.into_iter().chain(RUNTIME) {
        write(name, text)?;
    }
    let compile = |program: &str, package: &str, arguments: &[&OsStr]| {
        compile_in(scratch.path(), program, package, arguments)
    };
    let pass_name = OsString::from(format!("Runahead-{version}.so"));
    // As one unit: LLVM's headers take longer than the pass.
    let mut arguments = Vec::new();
    for name in ["Locality.cpp", "Promises.cpp", "Insertion.cpp", "Strips.cpp", "Outline.cpp"] {
        arguments.extend(["-include", name].map(OsStr::new));
    }
    arguments.push(OsStr::new("Runahead.cpp"));
    build_plugin(headers, scratch.path(), &arguments, &pass_name)?;
    let output = ["-o", "runahead_rt.o"];
    let sources = RUNTIME.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".c"));
    let arguments: Vec<&OsStr> =
        RUNTIME_WORDS.into_iter().chain(output).chain(sources).map(OsStr::new).collect();
    compile("gcc", "gcc", &arguments)?;
    let visible = CALLS.map(|name| OsString::from(format!("--keep-global-symbol={name}")));
    let mut arguments: Vec<&OsStr> = visible.iter().map(OsString::as_os_str).collect();
    arguments.push(OsStr::new("runahead_rt.o"));
    compile("objcopy", "binutils", &arguments)?;
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    for name in [&pass_name, OsStr::new("runahead_rt.o")] {
        fs::rename(scratch.path().join(name), directory.join(name))
            .with_context(|| format!("put {} into the cache", name.display()))?;
    }
    Ok(())
}

/// A plug-in of the LLVM whose headers these are, of sources in `directory`.
fn build_plugin(
    headers: &Path,
    directory: &Path,
    sources: &[&OsStr],
    plugin: &OsStr,
) -> Result<()> {
    let mut include = OsString::from("-isystem");
    include.push(headers);
    let mut arguments: Vec<&OsStr> = PLUGIN_WORDS.iter().map(OsStr::new).collect();
    arguments.push(&include);
    arguments.extend(sources);
    arguments.extend([OsStr::new("-o"), plugin]);
    compile_in(directory, "g++", "g++", &arguments)
}

fn compile_in(directory: &Path, program: &str, package: &str, arguments: &[&OsStr]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C")
        .output()
        .with_context(|| format!("start {program}: install {package}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed on a source of the pass:\n{errors}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::line::split;
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_run_time_layer_is_linked_where_something_is_linked() {
        for (line, expected) in [
            ("-O2 a.c -o a", true),
            ("a.o b.o", true),
            ("-c a.c", false),
            ("-O2 -S a.c", false),
            ("--version", false),
            ("-v", false),
            ("-v -O2 a.c", true),
            ("-O2 -x c -", true),
            ("-xc++ - -o a", true),
            ("-E a.c", false),
            ("-MD -MF a.d a.c", true),
            ("-M a.c", false),
            ("-r a.o b.o -o ab.o", false),
            ("-shared -o liba.so -Wl,--whole-archive -la", true),
            ("a.h", false),
            ("-O2 a.hpp -o a.hpp.gch -lm", false),
            ("-x c++-header a.h -o a.pch", false),
            ("-include a.h a.c", true),
            ("-x c a.h", true),
            ("-O2 -- a.c", true),
            ("-v --", false),
            ("--language=c++-header a -o a.pch", false),
            ("--language c++-header a -o a.pch", false),
            ("-Wl,-r a.o -o b.o", false),
            ("-Wl,-O1,--relocatable a.o -o b.o", false),
            ("-Xlinker -r a.o -o b.o", false),
            ("-Xlinker -shared a.o", true),
            ("--for-linker -r a.o -o b.o", false),
            ("-m32 a.c", false),
            ("-mx32 a.o -o a", false),
            ("-m32 -m64 a.c", true),
            ("-m64 -m32 a.c", false),
            ("--target=aarch64-linux-gnu a.c", false),
            ("--target=aarch64-linux-gnu --target=x86_64-linux-gnu a.c", true),
            ("--target=i686-linux-gnu a.c", false),
            ("--target=i686-linux-gnu -m64 a.c", true),
            ("--target=x86_64-linux-gnux32 -m64 a.c", true),
            ("-target x86_64-linux-gnu -m32 a.c", false),
            ("-target x86_64-pc-windows-msvc a.c", false),
            ("--target=x86_64-linux-gnux32 a.c", false),
            ("--target=x86_64-unknown-linux-gnu a.c", true),
            ("-target x86_64-linux-musl a.o", true),
            ("-target x86_64-linux-android21 a.o", false),
            ("-target x86_64-linux-gnu a.h -o a.h.gch", false),
            ("-isysroot / -v", false),
            ("--sysroot / -B bin -MJ a.json a.c", true),
            ("-l m", true),
            ("--analyze -Werror a.c", false),
            ("-emit-ast a.c", false),
            ("--user-dependencies a.c", false),
            ("-emit-interface-stubs a.c", false),
            ("-serialize-diagnostics a.dia a.h -o a.h.gch", false),
            ("-fdebug-compilation-dir / a.h -o a.h.gch", false),
            ("--stdlib libc++ a.h -o a.h.gch", false),
            ("-Xarch_x86_64 a -Xopenmp-target=x86_64 b a.h -o a.h.gch", false),
            ("--emit-static-lib a.o -o liba.a", false),
        ] {
            assert_eq!(Line::of(&expanded(&words(line))).links(), expected, "{line}");
        }
    }

    fn line_of(arguments: &str) -> Vec<OsString> {
        let compiler = Compiler {
            program: "clang".into(),
            version: 19,
            language: Language::C,
            headers: PathBuf::new(),
            pass: "pass.so".into(),
            runtime: "runahead_rt.o".into(),
        };
        compiler.command(&words(arguments), false).get_args().map(OsStr::to_owned).collect()
    }

    #[test]
    fn the_run_time_layer_is_no_source_whatever_the_language() {
        const LAYER: &str = "runahead_rt.o -lpthread -lm -Wl,-z,nodelete";
        for (line, expected) in [
            ("a.c", format!("a.c {LAYER}")),
            ("-x c a", format!("-x c a -x none {LAYER}")),
            ("-x c a -x none b.o", format!("-x c a -x none b.o {LAYER}")),
            ("--language=c a", format!("--language=c a -x none {LAYER}")),
            // Behind `--` it would be an input, and options no options.
            ("-O2 -- a.c", format!("-O2 {LAYER} -- a.c")),
            ("-x c -- a", format!("-x c -x none {LAYER} -x c -- a")),
            ("-c -- a.c", "-c -- a.c".to_owned()),
        ] {
            assert_eq!(
                line_of(line),
                words(&format!("-fpass-plugin=pass.so {expected}")),
                "{line}"
            );
        }
    }

    #[test]
    fn a_library_with_a_run_time_layer_stays_when_it_is_closed() {
        for line in ["-shared a.o", "-Wl,-shared a.o", "-Xlinker -shared a.o", "a.o -o a"] {
            assert!(line_of(line).contains(&"-Wl,-z,nodelete".into()), "{line}");
        }
        assert!(!line_of("-c a.c").contains(&"-Wl,-z,nodelete".into()));
    }

    #[test]
    fn without_a_c_library_there_is_no_run_time_layer_nor_what_calls_it() {
        for line in [
            "-nostdlib a.c -o a",
            "-nodefaultlibs a.c",
            "-ffreestanding -c a.c",
            "-nostartfiles -ffreestanding a.c",
        ] {
            assert_eq!(line_of(line), words(line));
        }
        // As libtool links libraries.
        for c in [
            "-lc",
            "-l c",
            "-Wl,--start-group,-lc,--end-group",
            "-Xlinker -lc",
            "-l:libc.so.6",
            "/usr/lib/libc.a",
            "sysroot/lib/libc.so.6",
        ] {
            let named = line_of(&format!("-shared -nostdlib crti.o a.o {c} -o a.so"));
            assert!(named.contains(&"runahead_rt.o".into()), "{named:?}");
        }
        for others in ["-lcrypto libcc.a", "-Wl,-soname,libc.so.6 libc_pic.a"] {
            let line = line_of(&format!("-shared -nostdlib crti.o a.o {others} -o a.so"));
            assert!(!line.contains(&"runahead_rt.o".into()), "{line:?}");
        }
    }

    #[test]
    fn a_driver_that_is_to_be_the_compiler_gets_its_arguments_alone() {
        for line in ["-cc1 -emit-obj a.c -o a.o", "-cc1as a.s", "-fc1 -emit-obj a.f90"] {
            assert_eq!(line_of(line), words(line));
        }
        assert_ne!(line_of("a.c -cc1"), words("a.c -cc1"));
    }

    #[test]
    fn a_c_library_that_is_named_is_searched_for_what_the_run_time_layer_needs() {
        const ITS: &str = "-Wl,--push-state,--as-needed,-lc,-lgcc,--pop-state";
        for (given, again) in [
            ("-lc", "-lc"),
            ("-l c", "-lc"),
            ("-Wl,--start-group,-lc,-lgcc,--end-group", "-lc"),
            ("-l:libc.a -lgcc", "-l:libc.a"),
            ("own/libc.a", "own/libc.a"),
        ] {
            let line = line_of(&format!("-nodefaultlibs a.o {given}"));
            assert!(line.ends_with(&words(&format!("{again} {ITS}"))), "{line:?}");
        }
        assert!(!line_of("a.o -lc").contains(&ITS.into()));
    }

    #[test]
    fn arguments_in_files_count_as_those_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            format!("@{}", path.display())
        };
        let compiles = file("compiles", "-O2\n  -c 'a file.c'\t-o \"a\\\" b.o\"\n");
        let nested = file("nested", &format!("-v {compiles}"));
        let texts = |line: &str| -> Vec<OsString> {
            expanded(&words(line)).into_iter().map(|word| word.text).collect()
        };
        let expected = ["-v", "-O2", "-c", "a file.c", "-o", "a\" b.o", "-g"].map(OsString::from);
        assert_eq!(texts(&format!("{nested} -g")), expected);
        assert!(!Line::of(&expanded(&words(&nested))).links());
        assert_eq!(texts("@/no/such/file"), words("@/no/such/file"));
        assert_eq!(split(b"a\\ b '' c'd e'f \\"), ["a b", "", "cd ef", ""].map(OsString::from));

        // Options end inside: what is added comes before the file.
        let inputs = file("inputs", "-x c -- a b");
        let line = line_of(&format!("-O2 {inputs} -g"));
        let layer = line.iter().position(|word| word == "runahead_rt.o").unwrap();
        assert!(layer < line.iter().position(|word| *word == *inputs).unwrap(), "{line:?}");
        assert!(!line.contains(&"none".into()), "{line:?}");
        let itself = directory.path().join("itself");
        fs::write(&itself, format!("-c @{}", itself.display())).unwrap();
        assert!(Line::of(&expanded(&words(&format!("@{}", itself.display())))).ends_early);
    }

    #[test]
    fn an_unknown_version_is_refused_by_name() {
        let cache = tempfile::tempdir().unwrap();
        let error = Compiler::find(Language::C, Some(3), cache.path()).unwrap_err().to_string();
        assert!(error.contains("LLVM 3"), "{error}");
    }

    #[test]
    fn the_version_that_is_missing_is_the_one_asked_for() {
        let message = not_there(Language::C, Some(22));
        assert!(message.contains("clang of LLVM 22 is"), "{message}");
        assert!(message.contains("clang-22 and llvm-22-dev"), "{message}");
        let message = not_there(Language::Fortran, Some(19));
        assert!(message.contains("flang-19 and llvm-19-dev"), "{message}");
        let message = not_there(Language::Fortran, Some(14));
        assert!(message.contains("19 or 22"), "{message}");
        let message = not_there(Language::Cxx, None);
        assert!(message.contains("LLVM 22, 19 or 14"), "{message}");
    }
}
