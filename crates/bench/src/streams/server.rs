//! The servers: nginx with one worker and a pool of threads that send files,
//! and Sphinx's searchd.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Bed, Policy};
use crate::cgroup::Cgroup;
use crate::interrupt::Running;
use crate::process::{self, CommandSpec};
use crate::tools::{NGINX, SEARCHD, Tool};

/// Longest wait for a server's start or end.
const WAIT: Duration = Duration::from_secs(30);

/// The index of the search server, and where it lies on the device.
pub const INDEX: &str = "postings";
/// searchd's buffer for each list, KiB. By itself it reads 256 KiB at a time,
/// which is half of a disk's competitive depth, and would be a program that
/// prefetches; so it has what it uses for reads of unknown length.
const READ_BUFFER_KIB: u32 = 32;
/// Connections that may wait to be accepted; five by itself.
const BACKLOG: u32 = 256;
/// Memory of the indexer, MB.
const INDEXER_MB: u32 = 1024;

/// A server that is up. Killed when it is dropped without being stopped.
pub struct Server {
    name: &'static str,
    child: Child,
    port: u16,
    stopped: bool,
    _running: Running,
    _home: process::Scratch,
}

impl Server {
    /// nginx, with as many threads as there are clients.
    pub fn media(bed: &Bed<'_>, policy: Policy, clients: u32, memory: &Cgroup) -> Result<Self> {
        let root = bed.place.root().display().to_string();
        let configuration = |home: &Path, port| {
            let home = home.display();
            format!(
                "user root;\nworker_processes 1;\ndaemon off;\npid {home}/pid;\n\
                 error_log {home}/errors warn;\nthread_pool clips threads={clients};\n\
                 events {{ worker_connections 1024; }}\n\
                 http {{ access_log off; sendfile on; aio threads=clips;\n\
                 keepalive_requests 100000000;\n\
                 client_body_temp_path {home}/a; proxy_temp_path {home}/b;\n\
                 fastcgi_temp_path {home}/c; uwsgi_temp_path {home}/d;\n\
                 scgi_temp_path {home}/e;\n\
                 server {{ listen 127.0.0.1:{port}; root {root}/clips; }} }}\n",
            )
        };
        let start = |spec: &CommandSpec| memory.wrap(&bed.under(spec, policy));
        Self::start("nginx", NGINX, &["-c"], &[], configuration, start)
    }

    /// searchd. Without a memory cgroup it runs with all of the machine's
    /// memory.
    pub fn search(bed: &Bed<'_>, policy: Policy, memory: Option<&Cgroup>) -> Result<Self> {
        let root = bed.place.root().to_owned();
        let configuration = |home: &Path, port| search_configuration(&root, home, port);
        let start = |spec: &CommandSpec| {
            let spec = bed.under(spec, policy);
            memory.map_or_else(|| spec.clone(), |memory| memory.wrap(&spec))
        };
        Self::start("searchd", SEARCHD, &["--config"], &["--nodetach"], configuration, start)
    }

    fn start(
        name: &'static str,
        tool: Tool,
        before: &[&str],
        after: &[&str],
        configuration: impl Fn(&Path, u16) -> String,
        wrap: impl Fn(&CommandSpec) -> CommandSpec,
    ) -> Result<Self> {
        let home = process::scratch_directory()?;
        // Free at this moment, and nobody else asks for one meanwhile.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let file = home.path().join("configuration");
        fs::write(&file, configuration(home.path(), port)).context("write a configuration")?;
        let program = tool.find().with_context(|| format!("{name} is not installed"))?;
        let spec = CommandSpec::new(program, "/").args(before).arg(&file).args(after);
        let mut command = wrap(&spec).command();
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let running = Running::mark(child.id() as libc::pid_t);
        let mut server = Self { name, child, port, stopped: false, _running: running, _home: home };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                server.stopped = true;
                bail!("{name} ended: {}", process::describe(status));
            }
            if began.elapsed() > WAIT {
                bail!("{name} did not answer within {} s", WAIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Bytes that it has read so far, from files and memory.
    pub fn bytes_read(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let read = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.and_then(|bytes| bytes.parse().ok()).context("the kernel counts no bytes read")
    }

    /// Ends it.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: plain call; the child is not waited for yet.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        self.stopped = true;
        process::reap_within(pid, WAIT).with_context(|| format!("end {}", self.name))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stopped {
            let pid = self.child.id() as libc::pid_t;
            // SAFETY: plain call; the group is the child's own, and its number
            // is not used again while it is not waited for.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

/// For searchd and indexer: what is not said here has its default.
fn search_configuration(root: &Path, home: &Path, port: u16) -> String {
    let (root, home) = (root.display(), home.display());
    format!(
        "source documents {{\n type = tsvpipe\n tsvpipe_command = cat\n\
         \x20tsvpipe_field = text\n}}\n\
         index {INDEX} {{\n source = documents\n path = {root}/{INDEX}\n docinfo = none\n}}\n\
         indexer {{\n mem_limit = {INDEXER_MB}M\n}}\n\
         searchd {{\n listen = 127.0.0.1:{port}:mysql41\n pid_file = {home}/pid\n\
         \x20log = {home}/log\n binlog_path =\n max_children = 0\n\
         \x20read_buffer = {READ_BUFFER_KIB}K\n listen_backlog = {BACKLOG}\n}}\n"
    )
}

/// The indexer for the documents that it reads on its standard input.
pub fn index(
    indexer: &Tool,
    root: &Path,
    home: &Path,
    documents: &CommandSpec,
) -> Result<CommandSpec> {
    let file = home.join("configuration");
    // The port is searchd's business.
    fs::write(&file, search_configuration(root, home, 1)).context("write a configuration")?;
    let indexer = indexer.find().context("indexer is not installed")?;
    let mut arguments: Vec<OsString> = vec!["-c".into()];
    arguments.push("c=$1 i=$2; shift 2; \"$@\" | \"$i\" --quiet --config \"$c\" postings".into());
    arguments.extend(["sh".into(), file.into(), indexer.into(), documents.program.clone()]);
    arguments.extend(documents.arguments.iter().cloned());
    Ok(CommandSpec { program: "/bin/sh".into(), arguments, ..documents.clone() })
}
