//! A program that reads texts, and goes another way where one is none: what is missing of
//! them is blank to its copy (`emulate::blank`).

mod support;

use std::fs;
use std::path::Path;

use support::Scratch;
use support::speculation::{EVERY_READ_STALLS, plainly, run};

/// Reads each file whole, into memory that is zero, and stops at one that is no text.
const PARSER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    unsigned long sum = 0;
    for (int i = 1; i < argc; i++) {
        char *text = calloc(1, 4001);
        int fd = open(argv[i], O_RDONLY);
        if (fd < 0 || read(fd, text, 4000) != 4000) return 9;
        if (strlen(text) != 4000) return 8;
        for (int at = 0; at < 4000; at++) sum = sum * 31 + text[at];
        usleep(2000); /* its copy opens the same file */
        close(fd);
    }
    printf("%lx\n", sum);
    return 3;
}
"#;

fn forget(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn what_is_missing_of_a_text_is_blank() {
    let scratch = Scratch::new();
    let program = scratch.compile("parser", PARSER, &["-O1"]);
    let files: Vec<_> = (0..12)
        .map(|number| {
            let text = format!("line {number} of a text\n").repeat(300);
            scratch.file(&format!("text{number}"), &text.as_bytes()[..4000], 0o644)
        })
        .collect();
    let words = [&program].into_iter().chain(&files).map(|path| path.to_str().unwrap());
    let command: Vec<&str> = words.collect();
    let mut plain = std::process::Command::new(&program);
    let expected = plainly(plain.args(&files));
    assert_eq!(expected.1, Some(3));
    // A copy runs on idle cycles only: on a busy machine nothing may come of one in any
    // one run. Were what is missing zero, each would come to the next read and no further.
    const RUNS_MAX: usize = 100;
    const READS_PER_COPY: u64 = 4;
    let comes_far = |_: &usize| {
        let run = run(&scratch, EVERY_READ_STALLS, &command, |_| {
            files.iter().for_each(|path| forget(path));
        });
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{}", run.stats);
        let copies = run.count("/speculation/synchronizations/completed");
        // In memory nothing would be missing.
        let missed = run.count("/speculation/prefetches/issued");
        copies > 0 && missed > copies && run.count("/reads_predicted") >= READS_PER_COPY * copies
    };
    assert!((0..RUNS_MAX).any(|run| comes_far(&run)), "no copy came further than a file");
}
