//! Small C programs that the benchmarks carry as source and build on the spot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct CProgram {
    /// Name of the executable.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
    /// Headers that it includes: name and text.
    pub headers: &'static [(&'static str, &'static str)],
}

impl CProgram {
    /// Builds it below `cache`, unless it is there already, and returns the
    /// path of the executable, which changes with the source.
    ///
    /// # Errors
    /// Without a C compiler, or if it does not compile.
    pub fn build(&self, cache: &Path) -> Result<PathBuf> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.source.as_bytes());
        for (_, text) in self.headers {
            hasher.update(text.as_bytes());
        }
        let hash = hasher.finalize().to_hex();
        let directory = cache.join(format!("{}-{}", self.name, &hash[..16]));
        let program = directory.join(self.name);
        if program.is_file() {
            return Ok(program);
        }
        fs::create_dir_all(&directory)
            .with_context(|| format!("create {}", directory.display()))?;
        for (name, text) in self.headers {
            let header = directory.join(name);
            fs::write(&header, text).with_context(|| format!("write {}", header.display()))?;
        }
        let source = directory.join(format!("{}.c", self.name));
        fs::write(&source, self.source).with_context(|| format!("write {}", source.display()))?;
        let partial = directory.join("partial");
        let compiled = Command::new("gcc")
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread", "-o"])
            .args([&partial, &source])
            .arg("-lm")
            .env("LC_ALL", "C")
            .output()
            .context("start gcc: install the package gcc")?;
        let errors = String::from_utf8_lossy(&compiled.stderr);
        ensure!(compiled.status.success(), "gcc failed on {}:\n{errors}", source.display());
        fs::rename(&partial, &program).with_context(|| format!("rename {}", partial.display()))?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_built_once_and_errors_are_shown() {
        let cache = tempfile::tempdir().unwrap();
        let good = CProgram {
            name: "good",
            source: "#include \"three.h\"\nint main(void) { return THREE; }\n",
            headers: &[("three.h", "#define THREE 3\n")],
        };
        let built = good.build(cache.path()).unwrap();
        assert_eq!(Command::new(&built).status().unwrap().code(), Some(3));
        let when = fs::metadata(&built).unwrap().modified().unwrap();
        assert_eq!(good.build(cache.path()).unwrap(), built);
        assert_eq!(fs::metadata(&built).unwrap().modified().unwrap(), when);
        let bad =
            CProgram { name: "bad", source: "int main(void) { return oops; }\n", headers: &[] };
        let error = bad.build(cache.path()).unwrap_err().to_string();
        assert!(error.contains("oops"), "{error}");
    }
}
