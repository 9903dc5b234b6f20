//! What a compiler's command line asks for, as far as it matters to the run-time layer.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// An argument, or what stands in the file that it names (`@file`).
#[derive(Clone, Debug)]
pub struct Word {
    pub text: OsString,
    /// The number of the argument that it comes from.
    pub argument: usize,
}

/// The arguments with those in files, and in files that these name. A file that cannot
/// be read is an argument like any.
pub fn expanded(arguments: &[OsString]) -> Vec<Word> {
    fn add(words: &mut Vec<Word>, argument: usize, text: OsString, depth: u32) {
        const DEPTH_MAX: u32 = 16; // of files that name each other the compiler complains
        let content = match text.as_encoded_bytes() {
            [b'@', path @ ..] if depth < DEPTH_MAX => fs::read(OsStr::from_bytes(path)).ok(),
            _ => None,
        };
        match content {
            Some(content) => {
                for word in split(&content) {
                    add(words, argument, word, depth + 1);
                }
            }
            None => words.push(Word { text, argument }),
        }
    }
    let mut words = Vec::new();
    for (argument, text) in arguments.iter().enumerate() {
        add(&mut words, argument, text.clone(), 0);
    }
    words
}

/// Does the driver become the compiler (`-cc1`, flang's `-fc1`), which it tells by the first word?
pub fn is_compiler_itself(words: &[Word]) -> bool {
    const BEGINNINGS: [&[u8]; 2] = [b"-cc1", b"-fc1"];
    let first = words.first().map_or(&[][..], |word| word.text.as_encoded_bytes());
    BEGINNINGS.iter().any(|beginning| first.starts_with(beginning))
}

/// The words of a file of arguments, as GCC and clang take them apart: at white space
/// that is neither between quotes of either kind nor behind a backslash.
pub fn split(content: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = content.iter().copied();
    while let Some(byte) = bytes.next() {
        if quote.is_none() && byte.is_ascii_whitespace() {
            words.extend(word.take().map(OsString::from_vec));
            continue;
        }
        let word = word.get_or_insert_default();
        match byte {
            b'\\' => word.extend(bytes.next()),
            _ if quote == Some(byte) => quote = None,
            b'"' | b'\'' if quote.is_none() => quote = Some(byte),
            _ => word.push(byte),
        }
    }
    words.extend(word.map(OsString::from_vec));
    words
}

/// What a command line asks for, as far as it matters to the run-time layer.
#[derive(Debug, Default)]
pub struct Line {
    /// It ends before linking, or in an object that is to be linked again: with
    /// the layer in it that would have it twice.
    pub ends_early: bool,
    has_input: bool,
    has_header: bool,
    has_library: bool,
    /// The program has no C library.
    is_freestanding: bool,
    /// The C library is not linked by itself, but (`-lc`) by name.
    pub leaves_out_c: bool,
    pub c_library: Option<OsString>,
    /// The machine to compile for, where it is named.
    target: Option<OsString>,
    /// Whether its pointers have 64 bits, where that is said.
    is_64_bit: Option<bool>,
    /// That of what follows; `none` where it goes by names.
    pub language: OsString,
    /// The argument behind which, or from which file on, all are inputs.
    pub options_end: Option<usize>,
}

impl Line {
    pub fn of(words: &[Word]) -> Self {
        const ENDS_EARLY: [&str; 32] = [
            "-c",
            "-S",
            "-E",
            "-M",
            "-MM",
            "-r",
            "-fsyntax-only",
            "--precompile",
            "--compile",
            "--assemble",
            "--preprocess",
            "--relocatable",
            "--version",
            "--help",
            "--analyze",
            "-emit-ast",
            "--emit-static-lib",
            "-rewrite-objc",
            "-rewrite-legacy-objc",
            "-fdriver-only",
            "-verify-pch",
            "-extract-api",
            "-print-search-dirs",
            "--print-supported-cpus",
            "-dumpmachine",
            "-dumpversion",
            "--dependencies",
            "--user-dependencies",
            "-emit-interface-stubs",
            "-emit-cir",
            "-fmodule-header",
            "-print-supported-cpus",
        ];
        // Those whose value is the next argument, which is no input then.
        const WITH_VALUE: [&str; 103] = [
            "-o",
            "-I",
            "-D",
            "-U",
            "-L",
            "-J",
            "-T",
            "-u",
            "-z",
            "-include",
            "-include-pch",
            "-imacros",
            "-isystem",
            "-iquote",
            "-idirafter",
            "-MF",
            "-MT",
            "-MQ",
            "-Xclang",
            "-Xpreprocessor",
            "-Xassembler",
            "-mllvm",
            "-module-dir",
            "-target",
            "-isysroot",
            "--sysroot",
            "--config",
            "-MJ",
            "-B",
            "-e",
            "-F",
            "-A",
            "-G",
            "-b",
            "-arch",
            "-rpath",
            "--param",
            "-iprefix",
            "-iwithprefix",
            "-iwithprefixbefore",
            "-iwithsysroot",
            "-iframework",
            "-isystem-after",
            "-ivfsoverlay",
            "-cxx-isystem",
            "-stdlib++-isystem",
            "-working-directory",
            "-resource-dir",
            "-specs",
            "-framework",
            "-undefined",
            "-dumpdir",
            "-ccc-gcc-name",
            "-Xanalyzer",
            "-Xarch_host",
            "-Xcuda-ptxas",
            "-Xopenmp-target",
            "--std",
            "--include",
            "--include-directory",
            "--define-macro",
            "--undefine-macro",
            "--library-directory",
            "--prefix",
            "--output",
            "--force-link",
            "-imultilib",
            "-iframeworkwithsysroot",
            "--imacros",
            "--include-directory-after",
            "--include-prefix",
            "--include-with-prefix",
            "--include-with-prefix-after",
            "--include-with-prefix-before",
            "--system-header-prefix",
            "--no-system-header-prefix",
            "-vfsoverlay",
            "-Xarch_device",
            "-Xcuda-fatbinary",
            "-Xflang",
            "-mmlir",
            "-mthread-model",
            "-meabi",
            "-fintrinsic-modules-path",
            "-module-dependency-dir",
            "-serialize-diagnostics",
            "--serialize-diagnostics",
            "-dependency-file",
            "-dependency-dot",
            "-fdebug-compilation-dir",
            "-fmodules-user-build-path",
            "-fmodule-implementation-of",
            "-fnew-alignment",
            "-ftrapv-handler",
            "-gen-cdb-fragment-path",
            "-object-file-name",
            "-ccc-install-dir",
            "--analyzer-output",
            "--assert",
            "--dyld-prefix",
            "--resource",
            "--rtlib",
            "--stdlib",
        ];
        // Those that name a machine and have a value all the same.
        const NAMED_WITH_VALUE: [&[u8]; 2] = [b"-Xarch_", b"-Xopenmp-target="];
        // Those whose value is an argument of the linker's.
        const TO_LINKER: [&str; 2] = ["-Xlinker", "--for-linker"];
        // Of the linker's arguments.
        const LINKED_AGAIN: [&[u8]; 3] = [b"-r", b"-i", b"--relocatable"];
        let mut line = Self { language: OsString::from("none"), ..Self::default() };
        let mut rest = words.iter();
        while let Some(Word { text: argument, argument: number }) = rest.next() {
            let text = argument.as_encoded_bytes();
            let is = |names: &[&str]| names.iter().any(|name| argument == *name);
            if line.options_end.is_some() {
                line.add_input(argument);
            } else if argument == "--" {
                line.options_end = Some(*number);
            } else if is(&["-x", "--language"]) {
                line.language = rest.next().map_or("none".into(), |value| value.text.clone());
            } else if let Some(value) =
                text.strip_prefix(b"-x").or_else(|| text.strip_prefix(b"--language="))
            {
                line.language = OsStr::from_bytes(value).to_owned();
            } else if is(&TO_LINKER) {
                let value = rest.next().map(|value| value.text.as_encoded_bytes());
                line.ends_early |= value.is_some_and(|value| LINKED_AGAIN.contains(&value));
                value.into_iter().for_each(|value| line.note_library(value));
            } else if argument == "-l" {
                let value = rest.next().map(|value| value.text.as_encoded_bytes());
                line.has_library = true;
                line.note_library(&[b"-l", value.unwrap_or_default()].concat());
            } else if argument == "-target" {
                line.target = rest.next().map(|target| target.text.clone());
            } else if let Some(target) = text.strip_prefix(b"--target=") {
                line.target = Some(OsStr::from_bytes(target).to_owned());
            } else if is(&WITH_VALUE) || NAMED_WITH_VALUE.iter().any(|name| text.starts_with(name))
            {
                rest.next();
            } else if let Some(values) = text.strip_prefix(b"-Wl,") {
                let values = || values.split(|byte| *byte == b',');
                line.has_library = true;
                line.ends_early |= values().any(|value| LINKED_AGAIN.contains(&value));
                values().for_each(|value| line.note_library(value));
            } else if text == b"-" || !text.starts_with(b"-") {
                line.add_input(argument);
            } else {
                line.ends_early |= is(&ENDS_EARLY);
                line.has_library |= text.starts_with(b"-l");
                line.is_freestanding |= is(&["-ffreestanding", "-fno-hosted"]);
                line.leaves_out_c |= is(&["-nostdlib", "-nodefaultlibs", "-nolibc"]);
                line.note_library(text);
                if is(&["-m64", "-m32", "-mx32", "-m16"]) {
                    line.is_64_bit = Some(argument == "-m64");
                }
            }
        }
        line
    }

    fn add_input(&mut self, argument: &OsStr) {
        if Path::new(argument).file_name().is_some_and(|name| is_c_library(name.as_bytes())) {
            self.c_library = Some(argument.to_owned());
        }
        let is_header = match self.language.as_encoded_bytes() {
            b"none" => is_header(Path::new(argument)),
            language => language.ends_with(b"-header"),
        };
        self.has_header |= is_header;
        self.has_input |= !is_header;
    }

    /// Takes note if an option (`-lc`, `-l:libc.a`) is the C library. A file among the
    /// linker's arguments may be another's value (`-soname,libc.so.6`).
    fn note_library(&mut self, option: &[u8]) {
        if option == b"-lc" || option.strip_prefix(b"-l:").is_some_and(is_c_library) {
            self.c_library = Some(OsStr::from_bytes(option).to_owned());
        }
    }

    /// Is there no C library, which the run-time layer needs?
    pub fn is_without_library(&self) -> bool {
        self.is_freestanding || (self.leaves_out_c && self.c_library.is_none())
    }

    /// Does it end in a linked program or library? Headers by themselves are
    /// compiled for later.
    pub fn links(&self) -> bool {
        let has_something = self.has_input || (self.has_library && !self.has_header);
        !self.ends_early && !self.is_for_another_machine() && has_something
    }

    /// The pass leaves code for other machines alone, and the layer does not link with it.
    /// Of several options the last one counts.
    fn is_for_another_machine(&self) -> bool {
        let with_m64 = self.is_64_bit == Some(true);
        let is_other = |target: &OsString| !is_for_layer(target.as_encoded_bytes(), with_m64);
        self.is_64_bit == Some(false) || self.target.as_ref().is_some_and(is_other)
    }
}

/// Is this the name of a file with the C library?
fn is_c_library(name: &[u8]) -> bool {
    name == b"libc.a" || name == b"libc.so" || name.starts_with(b"libc.so.")
}

/// Is code for this target (`x86_64-linux-gnu`), perhaps with `-m64`, for x86-64 on Linux,
/// with pointers of 64 bits, and not for Android, whose C library is another? Parts may be
/// missing and stand in any order.
fn is_for_layer(target: &[u8], with_m64: bool) -> bool {
    const X86_64: [&[u8]; 2] = [b"x86_64", b"amd64"];
    const X86: [&[u8]; 4] = [b"i386", b"i486", b"i586", b"i686"];
    let mut parts = target.split(|byte| *byte == b'-');
    let is_linux = parts.clone().any(|part| part.starts_with(b"linux"));
    let is_android = parts.clone().any(|part| part.starts_with(b"android"));
    let is_x32 = parts.clone().any(|part| part.ends_with(b"x32"));
    is_linux
        && !is_android
        && (with_m64 || !is_x32)
        && parts.any(|part| X86_64.contains(&part) || (with_m64 && X86.contains(&part)))
}

fn is_header(path: &Path) -> bool {
    const EXTENSIONS: [&str; 7] = ["h", "H", "hh", "hp", "hpp", "hxx", "h++"];
    path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}
