//! Release by speculation, live: what lies behind a program is given back where
//! memory is tight, and not where it is not.

#[expect(dead_code, unused_macros, unused_imports, reason = "these tests use a part of it")]
mod bed;
mod cgroup;
mod support;

use std::fs;
use std::process::Command;

use cgroup::Cgroup;
use runahead_protocol::session::TEST_WITHOUT_RELEASE;
use support::Scratch;
use support::speculation::{EVERY_READ_STALLS, Run, plainly, run};

const MIB: usize = 1 << 20;
/// Both do not fit into the tight cgroup.
const STREAM_BYTES: usize = 64 * MIB;
const HOT_BYTES: usize = 12 * MIB;
const TIGHT_BYTES: u64 = 18 << 20;
const ROOMY_BYTES: u64 = 512 << 20;

/// Reads a file once and another one again and again meanwhile, so that pages
/// of the latter are evicted and read in again where memory is tight.
const SCANNER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static unsigned char bytes[16384];
static unsigned long sum;
static void add(long len) { for (long at = 0; at < len; at += 64) sum = sum * 31 + bytes[at]; usleep(200); }
int main(int argc, char **argv) {
    long len, since = 0;
    int stream = open(argv[1], O_RDONLY), hot = open(argv[2], O_RDONLY);
    while ((len = read(stream, bytes, sizeof bytes)) > 0) {
        add(len);
        if ((since += len) < 8 << 20) continue;
        since = 0;
        for (long at = 0; (len = pread(hot, bytes, sizeof bytes, at)) > 0; at += len) add(len);
    }
    printf("%lx\n", sum);
    return 3;
}
"#;

struct Scanner {
    scratch: Scratch,
    program: String,
}

/// What a run printed and how it ended.
type Ended = (String, Option<i32>);

impl Scanner {
    /// Runs it on new files, plainly first: the kernel remembers what it
    /// evicted of old ones.
    fn run(&self, name: &str, limit_bytes: u64, test: u64) -> Run {
        let file = |what: &str, len: usize| {
            let bytes = (0..len).map(|at| (at / 4096 * 7 + at) as u8).collect::<Vec<_>>();
            let path = self.scratch.file(&format!("{name}-{what}"), bytes, 0o644);
            forget(&path);
            path.to_str().unwrap().to_owned()
        };
        let (stream, hot) = (file("stream", STREAM_BYTES), file("hot", HOT_BYTES));
        let group = Cgroup::new(limit_bytes);
        let command = [self.program.as_str(), &stream, &hot];
        let test = test | EVERY_READ_STALLS;
        let run = run(&self.scratch, test, &command, |command| group.enter(command));
        let mut plain = Command::new(&self.program);
        let expected: Ended = plainly(plain.args([&stream, &hot]));
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{:#}", run.stats);
        for path in [stream, hot] {
            fs::remove_file(path).unwrap();
        }
        run
    }
}

fn forget(path: &std::path::Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn released(run: &Run) -> u64 {
    run.count("/speculation/released/pages")
}

#[test]
fn what_lies_behind_is_given_back_in_a_tight_cgroup_only() {
    const RUNS_MAX: usize = 12;
    /// With fewer reads that were predicted nothing could have been given back.
    const PREDICTED_MIN: u64 = 1000;
    if !support::is_root() {
        return support::skip("making a memory cgroup needs root");
    }
    let scratch = Scratch::new();
    let program = scratch.compile("scanner", SCANNER, &["-O1"]).to_str().unwrap().to_owned();
    let scanner = Scanner { scratch, program };
    // A copy runs on idle cycles only: on a busy machine nothing may come of
    // one in any one run.
    let until = |name: &str, limit_bytes, test, enough: fn(&Run) -> bool| {
        for nth in 0..RUNS_MAX {
            let run = scanner.run(&format!("{name}{nth}"), limit_bytes, test);
            if enough(&run) {
                return run;
            }
            assert!(nth + 1 < RUNS_MAX, "{name}: {:#}", run.stats);
        }
        unreachable!()
    };
    let tight = until("tight", TIGHT_BYTES, 0, |run| released(run) > 0);
    assert!(tight.count("/reads_predicted") > 0, "{:#}", tight.stats);
    let predicts = |run: &Run| run.count("/reads_predicted") >= PREDICTED_MIN;
    let without = until("without", TIGHT_BYTES, TEST_WITHOUT_RELEASE, predicts);
    assert_eq!(released(&without), 0, "switched off: {:#}", without.stats);
    let roomy = until("roomy", ROOMY_BYTES, 0, predicts);
    assert_eq!(released(&roomy), 0, "not tight: {:#}", roomy.stats);
}
