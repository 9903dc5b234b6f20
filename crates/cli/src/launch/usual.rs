//! The record that a launch leaves for usual ones ([`runahead_usual`]).

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use runahead_protocol::session::SESSION_VARIABLE;
use runahead_sites::replace::replace;
use runahead_usual::{Devices, MAGIC, PathText, RECORD_LEN_MAX, Stamp};

use super::libraries;

/// What a launch has found that may be usual from now on.
#[derive(Debug)]
pub struct Found<'a> {
    /// Name of the agent ([`crate::agent_image`]).
    pub fingerprint: u64,
    /// The program's dynamic linker.
    pub interpreter: &'a Path,
    /// The agent.
    pub agent: &'a Path,
    /// The site table, beside it.
    pub sites: &'a Path,
    /// The cache directory.
    pub cache: &'a Path,
    /// The table of executables.
    pub learnt: &'a Path,
    /// The session's text.
    pub session: &'a OsStr,
}

/// Leaves a record for the next launch. Where that cannot be, it goes the
/// whole way, too.
pub fn remember(found: &Found<'_>) {
    let _ = write(found);
}

fn write(found: &Found<'_>) -> Option<()> {
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend(u64::from(rustix::process::geteuid().as_raw()).to_ne_bytes());
    let mut directory = PathText::new();
    directory.add(&[found.cache.as_os_str().as_bytes()])?;
    bytes.extend(Devices::of(&directory)?.0.to_ne_bytes());
    let add = |bytes: &mut Vec<u8>, parts: &[&[u8]]| {
        let text = parts.concat();
        bytes.extend((text.len() as u64).to_ne_bytes());
        bytes.extend(text);
    };
    let of = |path: &Path| path.as_os_str().as_bytes().to_vec();
    add(&mut bytes, &[&of(found.cache)]);
    add(&mut bytes, &[&of(found.interpreter)]);
    add(&mut bytes, &[b"LD_PRELOAD=", &of(found.agent), b"\0"]);
    let variable = SESSION_VARIABLE.as_bytes();
    add(&mut bytes, &[variable, b"=", found.session.as_bytes(), b"\0"]);
    let mut files: Vec<PathBuf> =
        [found.agent, found.sites, found.cache, found.learnt].map(Path::to_owned).into();
    files.extend(libraries::of(found.interpreter));
    for file in files {
        let path = [&of(&file)[..], b"\0"].concat();
        let stamp = Stamp::of(CStr::from_bytes_with_nul(&path).ok()?)?;
        add(&mut bytes, &[&path]);
        stamp.0.iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
    }
    if bytes.len() > RECORD_LEN_MAX {
        return None;
    }
    let directory = found.learnt.parent()?;
    let path = directory.join(format!("usual-{}", found.fingerprint));
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Some(());
    }
    replace(&path, 0o600, |file| file.write_all(&bytes)).ok()
}
