//! The media server: nginx, one worker with a pool of threads that send files.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Bed, Policy};
use crate::cgroup::Cgroup;
use crate::interrupt::Running;
use crate::process::{self, CommandSpec};
use crate::tools::NGINX;

/// Longest wait for the server's start or end.
const WAIT: Duration = Duration::from_secs(30);

/// A server that is up. Killed when it is dropped without being stopped.
pub struct Media {
    child: Child,
    port: u16,
    stopped: bool,
    _running: Running,
    _home: process::Scratch,
}

impl Media {
    /// Starts it with as many threads as there are clients.
    pub fn start(bed: &Bed<'_>, policy: Policy, clients: u32, memory: &Cgroup) -> Result<Self> {
        let home = process::scratch_directory()?;
        // Free at this moment, and nobody else asks for one meanwhile.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let directory = home.path().display();
        let configuration = format!(
            "user root;\nworker_processes 1;\ndaemon off;\npid {directory}/pid;\n\
             error_log {directory}/errors warn;\nthread_pool clips threads={clients};\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; sendfile on; aio threads=clips; keepalive_requests 100000000;\n\
             client_body_temp_path {directory}/a; proxy_temp_path {directory}/b;\n\
             fastcgi_temp_path {directory}/c; uwsgi_temp_path {directory}/d;\n\
             scgi_temp_path {directory}/e;\n\
             server {{ listen 127.0.0.1:{port}; root {}/clips; }} }}\n",
            bed.place.root().display()
        );
        let file = home.path().join("nginx.conf");
        fs::write(&file, configuration).context("write nginx's configuration")?;
        let nginx = NGINX.find().context("nginx is not installed")?;
        let spec = CommandSpec::new(nginx, "/").arg("-c").arg(&file);
        let mut command = memory.wrap(&bed.under(&spec, policy)).command();
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("start nginx")?;
        let running = Running::mark(child.id() as libc::pid_t);
        let mut server = Self { child, port, stopped: false, _running: running, _home: home };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                server.stopped = true;
                bail!("nginx ended: {}", process::describe(status));
            }
            if began.elapsed() > WAIT {
                bail!("nginx did not answer within {} s", WAIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: plain call; the child is not waited for yet.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        self.stopped = true;
        process::reap_within(pid, WAIT).context("end nginx")?;
        Ok(())
    }
}

impl Drop for Media {
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
