//! Programs of glibc 2.41 or later, of which threads make calls that may wait in a function
//! that nobody may patch (`newer`). What hostile ones see is in `programs.rs`.

mod newer;
mod support;

use std::path::PathBuf;
use std::process::Command;

use support::Scratch;
use support::speculation::{self as speculation, EVERY_READ_STALLS, REFUSE_PATCHING};

/// A program of that library; `None` where there is none.
fn compile(scratch: &Scratch, name: &str, source: &str) -> Option<PathBuf> {
    let compiler = newer::compiler()?;
    let code = scratch.file(&format!("{name}.c"), source, 0o644);
    let path = scratch.join(name);
    let mut command = Command::new(compiler);
    command.args(["-O1", "-w", "-pthread", "-fexceptions", "-o"]).arg(&path).arg(code);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", support::text(&output.stderr));
    Some(path)
}

/// A thread reads the file piece by piece, while another one waits for a pipe.
const THREADS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int ends[2];
static const char *name;
static void *waits(void *none) {
    char byte;
    return (void *)read(ends[0], &byte, 1);
}
static void *reads(void *none) {
    static unsigned char bytes[4096];
    unsigned long sum = 0;
    ssize_t got;
    int fd = open(name, O_RDONLY);
    if (fd < 0) return 0;
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {
        for (ssize_t at = 0; at < got; at++) sum = sum * 31 + bytes[at];
        usleep(2000);
    }
    close(fd);
    return (void *)sum;
}
int main(int argc, char **argv) {
    pthread_t threads[2];
    void *got, *sum;
    name = argv[1];
    pipe(ends);
    pthread_create(&threads[0], 0, waits, 0);
    pthread_create(&threads[1], 0, reads, 0);
    pthread_join(threads[1], &sum);
    write(ends[1], "x", 1);
    pthread_join(threads[0], &got);
    printf("%lx %ld\n", (unsigned long)sum, (long)got);
    return 3;
}
"#;

#[test]
fn programs_of_several_threads_are_run_ahead_of() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 96);
    let Some(reader) = compile(&scratch, "threads", THREADS) else { return };
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    assert_eq!(expected.1, Some(3));
    let command = [reader.to_str().unwrap(), noise.to_str().unwrap()];
    let test = EVERY_READ_STALLS;
    let run = speculation::run_until_predicted(&scratch, test, &command, &expected, |_| {});
    assert_eq!(run.count("/sites/refused"), 0, "{}", run.stats);
}

#[test]
fn results_errors_and_cancellation_are_the_librarys() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    let Some(manners) = compile(&scratch, "manners", speculation::MANNERS) else { return };
    let expected = speculation::plainly(Command::new(&manners).arg(&noise));
    assert_eq!(expected.1, Some(6), "{}", expected.0);
    for cleaned in ["cleaned pipe", "cleaned file"] {
        assert!(expected.0.contains(cleaned), "{}", expected.0);
    }
    let command = [manners.to_str().unwrap(), noise.to_str().unwrap()];
    for test in [0, EVERY_READ_STALLS, REFUSE_PATCHING, REFUSE_PATCHING | EVERY_READ_STALLS] {
        let run = speculation::run(&scratch, test, &command, |_| {});
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{test}");
        assert_eq!(run.count("/exit_status"), 6, "{test}: {}", run.stats);
    }
}
