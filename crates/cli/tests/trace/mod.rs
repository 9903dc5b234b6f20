//! What the kernel does with the pages of one file, by its tracepoints: which
//! it reads in and for whom, which it evicts, which somebody reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Room for events, in KiB a processor: some 200,000.
const BUFFER_KIB: u32 = 16_384;

/// What happens to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Read from the disk into the page cache.
    ReadIn,
    /// Evicted.
    Evicted,
    /// Given to a reader.
    Used,
}

/// One event, of each of some pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traced {
    /// In whose context, as the kernel numbers threads.
    pub thread: u32,
    /// When, in seconds of the monotonic clock.
    pub at_s: f64,
    pub event: Event,
    /// The first page of the file, from 0.
    pub first: u64,
    pub pages: u64,
}

const EVENTS: [(&str, Event); 3] = [
    ("mm_filemap_add_to_page_cache", Event::ReadIn),
    ("mm_filemap_delete_from_page_cache", Event::Evicted),
    ("mm_filemap_get_pages", Event::Used),
];

/// A recording of its own (`Documentation/trace/ftrace.rst`, instances).
pub struct Trace(PathBuf);

impl Trace {
    /// Of the file with this inode number; `None` where there is no tracefs.
    pub fn start(inode: u64) -> Option<Trace> {
        let root = Path::new("/sys/kernel/tracing");
        let instance = root.join("instances").join(format!("runahead-{}", std::process::id()));
        // A machine without systemd has nothing mounted there.
        if !root.join("instances").is_dir() {
            Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(root).status().ok()?;
        }
        fs::create_dir(&instance).ok()?;
        let trace = Trace(instance);
        trace.set("buffer_size_kb", &BUFFER_KIB.to_string());
        // One order for all processors.
        trace.set("trace_clock", "mono");
        for (name, _) in EVENTS {
            trace.set(&format!("events/filemap/{name}/filter"), &format!("i_ino == {inode}"));
            trace.set(&format!("events/filemap/{name}/enable"), "1");
        }
        Some(trace)
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// All that has happened, in order; `None` where it was too much.
    pub fn stop(self) -> Option<Vec<Traced>> {
        self.set("tracing_on", "0");
        let text = fs::read_to_string(self.0.join("trace")).unwrap();
        let entries = text.lines().find_map(|line| line.split("entries-written: ").nth(1));
        let (there, written) = entries.unwrap().split_once('/').unwrap();
        let is_all = written.split(' ').next() == Some(there);
        is_all.then(|| text.lines().filter(|line| !line.starts_with('#')).map(parse).collect())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // A child that another test has just forked may have a file of it open until it
        // executes its program.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let gone = fs::remove_dir(&self.0);
            if gone.is_ok() || std::thread::panicking() {
                return;
            }
            assert!(Instant::now() < deadline, "{gone:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A line such as
/// `cat-12 [001] ..... 7.25: mm_filemap_add_to_page_cache: dev 254:0 ino 1f pfn=0x1 ofs=8192 order=1`.
fn parse(line: &str) -> Traced {
    let found = EVENTS.iter().find_map(|(name, event)| {
        let (head, fields) = line.split_once(&format!(": {name}: "))?;
        let (task, rest) = head.split_once(" [")?;
        let word = |key: &str| fields.split(' ').find_map(|word| word.strip_prefix(key));
        let number = |text: &str| text.parse::<u64>().unwrap();
        // Bytes: where the pages begin, and of some events the last one.
        let (first, last) = word("ofs=").map(|text| text.split_once('-').unwrap_or((text, "0")))?;
        let (first, last) = (number(first) / 4096, number(last) / 4096);
        let pages = match word("order=") {
            Some(order) => 1 << number(order),
            None => last + 1 - first,
        };
        Some(Traced {
            thread: task.trim_end().rsplit('-').next()?.parse().ok()?,
            at_s: rest.rsplit(' ').next()?.parse().ok()?,
            event: *event,
            first,
            pages,
        })
    });
    found.unwrap_or_else(|| panic!("not understood: {line}"))
}
