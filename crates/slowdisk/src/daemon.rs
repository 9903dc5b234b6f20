//! Starting the serving process.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};
use crate::options::UpOptions;
use crate::serve::READY;
use crate::state::State;
use crate::sys::process::ProcessId;

/// Names the executable in programs that are not `runahead` themselves.
const EXECUTABLE_VARIABLE: &str = "RUNAHEAD_BIN";

/// The `runahead` that can serve a device.
pub fn executable(options: &UpOptions) -> Result<PathBuf> {
    if let Some(path) = &options.daemon {
        return Ok(path.clone());
    }
    if let Some(path) = std::env::var_os(EXECUTABLE_VARIABLE) {
        return Ok(path.into());
    }
    let me = std::env::current_exe().context(|| "find this executable".into())?;
    if me.file_name().is_some_and(|name| name == "runahead") {
        return Ok(me);
    }
    // Tests and benchmarks: target/PROFILE/deps/NAME beside target/PROFILE/runahead.
    let near = me.ancestors().skip(1).take(2).map(|directory| directory.join("runahead"));
    near.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::Usage(format!(
            "cannot find the runahead executable that serves the device: set \
             {EXECUTABLE_VARIABLE} (looked beside {})",
            me.display()
        ))
    })
}

/// Starts the process for a state and waits until the device can be used.
pub fn start(state: &State) -> Result<ProcessId> {
    let executable = executable(&state.options)?;
    let log = File::create(state.log()).context(|| format!("create {}", state.log().display()))?;
    let mut child = Command::new(&executable)
        .args(["slowdisk", "serve"])
        .arg(&state.directory)
        .current_dir("/")
        .env("RUNAHEAD", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context(|| format!("start {}", executable.display()))?;
    let id = ProcessId::of(child.id() as i32);
    let stdout = child.stdout.take().expect("standard output is piped");
    let mut line = String::new();
    // Ends with the first line, or when the process does.
    let heard = BufReader::new(stdout).read_line(&mut line);
    if heard.is_ok() && line.trim() == READY {
        // Reaped here when this program lives on, by init otherwise.
        std::thread::spawn(move || child.wait());
        return id.ok_or_else(|| state.died());
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(state.died())
}
