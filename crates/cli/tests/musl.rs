//! Programs of musl, whose dynamic linker is its libc and passes nothing to
//! constructors.

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::Scratch;
use support::speculation::{self as speculation, EVERY_READ_STALLS, REFUSE_PATCHING};

/// Compiles with musl; `None` where it is not installed (Debian: musl-tools).
fn compile(scratch: &Scratch, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let code = scratch.file(&format!("{name}.c"), source, 0o644);
    let path = scratch.join(name);
    let made = Command::new("musl-gcc").args(flags).arg("-o").arg(&path).arg(code).output();
    match made {
        Ok(output) => {
            assert!(output.status.success(), "{}", support::text(&output.stderr));
            Some(path)
        }
        Err(error) => {
            eprintln!("skipped: musl-gcc: {error}");
            None
        }
    }
}

#[test]
fn programs_of_musl_are_run_ahead_of() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 96);
    for (source, flags, test) in [
        (speculation::READER, &["-O1"][..], 0),
        (speculation::READER, &["-O1", "-no-pie"], 0),
        (speculation::READER, &["-O1"], REFUSE_PATCHING),
    ] {
        let Some(reader) = compile(&scratch, "reader", source, flags) else { return };
        let expected = speculation::plainly(Command::new(&reader).arg(&noise));
        assert_eq!(expected.1, Some(3));
        let command = [reader.to_str().unwrap(), noise.to_str().unwrap()];
        let test = test | EVERY_READ_STALLS;
        let run = speculation::run_until_predicted(&scratch, test, &command, &expected, |_| {});
        assert_eq!(run.count("/sites/patched") > 0, test & REFUSE_PATCHING == 0, "{}", run.stats);
    }
}

#[test]
fn results_errors_and_cancellation_are_the_librarys() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    let Some(manners) = compile(&scratch, "manners", speculation::MANNERS, &["-O1"]) else {
        return;
    };
    let expected = speculation::plainly(Command::new(&manners).arg(&noise));
    assert_eq!(expected.1, Some(6), "{}", expected.0);
    assert!(expected.0.contains("cleaned file"), "{}", expected.0);
    let command = [manners.to_str().unwrap(), noise.to_str().unwrap()];
    for test in [0, EVERY_READ_STALLS, REFUSE_PATCHING, REFUSE_PATCHING | EVERY_READ_STALLS] {
        let run = speculation::run(&scratch, test, &command, |_| {});
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{test}");
        assert_eq!(run.count("/exit_status"), 6, "{test}: {}", run.stats);
    }
}

#[test]
fn a_wait_for_a_pipe_that_has_a_files_number_is_cancelled() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static int fd;
        static void *thread(void *none) {
            char byte;
            read(fd, &byte, 1);
            return none;
        }
        int main(int argc, char **argv) {
            int (*unseen)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "close");
            char bytes[16];
            int pair[2];
            pthread_t id;
            void *result;
            alarm(20);
            fd = open(argv[1], O_RDONLY);
            if (read(fd, bytes, sizeof bytes) != sizeof bytes || unseen(fd)) return 1;
            if (pipe(pair) || pair[0] != fd) return 2;
            pthread_create(&id, NULL, thread, NULL);
            usleep(50000);
            pthread_cancel(id);
            pthread_join(id, &result);
            printf("%d\n", result == PTHREAD_CANCELED);
            fflush(stdout);
            return 3;
        }
    "#;
    let Some(program) = compile(&scratch, "cancelled", source, &["-O1"]) else { return };
    let expected = speculation::plainly(Command::new(&program).arg(&noise));
    assert_eq!(expected, ("1\n".into(), Some(3)));
    let command = [program.to_str().unwrap(), noise.to_str().unwrap()];
    for test in [0, EVERY_READ_STALLS, REFUSE_PATCHING, REFUSE_PATCHING | EVERY_READ_STALLS] {
        let run = speculation::run(&scratch, test, &command, |_| {});
        assert_eq!((run.stdout, run.status), expected, "{test}");
    }
}

#[test]
fn the_environment_is_the_one_that_was_given() {
    let scratch = Scratch::new();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        extern char **environ;
        int main(int argc, char **argv) {
            for (char **variable = environ; *variable; variable++) puts(*variable);
            fflush(stdout);
            return argc > 1 ? system("env") : 0;
        }
    "#;
    let Some(program) = compile(&scratch, "env", source, &["-O1"]) else { return };
    // `_` and `PWD` are the shell's.
    let prepare = |command: &mut Command| {
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", scratch.path());
        command.env("LD_PRELOAD", "/nonexistent.so").env("A", "1");
    };
    let mut plain = Command::new(&program);
    prepare(&mut plain);
    let expected = speculation::plainly(plain.arg("x"));
    assert!(expected.0.contains("LD_PRELOAD=/nonexistent.so"), "{}", expected.0);
    let mut command = scratch.runahead();
    prepare(&mut command);
    let found = speculation::plainly(command.arg("--").arg(&program).arg("x"));
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&found.0), sorted(&expected.0));
    assert_eq!(found.1, expected.1);
}

/// musl's posix_spawnp executes on a small stack in its caller's frame, which it shares
/// with what it makes of PATH.
#[test]
fn programs_are_spawned_from_small_stacks() {
    let scratch = Scratch::new();
    let source = r#"
        #define _GNU_SOURCE
        #include <link.h>
        #include <spawn.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        extern char **environ;
        static int is_agent(struct dl_phdr_info *object, size_t size, void *found) {
            *(int *)found |= strstr(object->dlpi_name, "/agent-") != NULL;
            return 0;
        }
        int main(int argc, char **argv) {
            if (argc == 1) {
                int agent = 0, count = 0;
                for (char **variable = environ; *variable; variable++) count++;
                dl_iterate_phdr(is_agent, &agent);
                printf("%d%s\n", count, agent ? " agent" : "");
                return 7;
            }
            static char path[4096], names[600][16];
            setvbuf(stdout, NULL, _IONBF, 0);
            /* The longer, the less is left of the stack. */
            for (int len = 0; len <= 4090; len += len < 4000 ? 500 : 10) {
                memset(path, 'x', len);
                for (int at = 0; at < len; at += 200) path[at] = at ? ':' : '/';
                snprintf(path + len, sizeof path - len, ":%s", argv[1]);
                setenv("PATH", path, 1);
                for (int count = 0; count < 600; count += 50) {
                    char *variables[601] = { 0 }, *words[] = { "spawns", NULL };
                    for (int at = 0; at < count; at++) {
                        snprintf(names[at], 16, "V%d=%d", at, at);
                        variables[at] = names[at];
                    }
                    pid_t child;
                    int status = 0, error = posix_spawnp(&child, "spawns", NULL, NULL, words, variables);
                    if (error == 0) waitpid(child, &status, 0);
                    printf("%d %d: %d %x\n", len, count, error, status);
                }
            }
            return 3;
        }
    "#;
    let Some(program) = compile(&scratch, "spawns", source, &["-O1"]) else { return };
    let expected = speculation::plainly(Command::new(&program).arg(scratch.path()));
    assert_eq!(expected.1, Some(3));
    let mut command = scratch.runahead();
    command.args(["run", "--mode=observe", "--"]).arg(&program).arg(scratch.path());
    let (found, status) = speculation::plainly(&mut command);
    assert_eq!(status, Some(3), "{found}");
    assert_eq!(found.replace(" agent", ""), expected.0);
    let spawned = found.lines().filter(|line| line.ends_with(": 0 700")).count();
    assert!(spawned > 100, "{found}");
    assert_eq!(found.matches(" agent").count(), spawned, "{found}");
}

/// What a process executes that has forbidden itself the time-stamp counter may not read it,
/// either; with glibc it would end by that alone.
#[test]
fn programs_that_may_not_read_the_time_stamp_counter_go_on() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    let source = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/prctl.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            if (argc == 2) {
                if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) return 9;
                execl("/proc/self/exe", argv[0], argv[1], "executed", (char *)0);
                return 8;
            }
            int fd = open(argv[1], O_RDONLY);
            unsigned char bytes[4096];
            unsigned sum = 0;
            while (read(fd, bytes, sizeof bytes) == sizeof bytes) sum = sum * 31 + bytes[7];
            printf("%s %u\n", argv[2], sum);
            return 3;
        }
    "#;
    let Some(program) = compile(&scratch, "executes", source, &["-O1"]) else { return };
    let expected = speculation::plainly(Command::new(&program).arg(&noise));
    assert_eq!(expected.1, Some(3), "{}", expected.0);
    let command = [program.to_str().unwrap(), noise.to_str().unwrap()];
    for test in [0, EVERY_READ_STALLS] {
        let run = speculation::run(&scratch, test, &command, |_| {});
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{test}");
    }
}

/// The signal by which musl tells its threads of timers is the notices', too, and has no
/// handler any more once there is such a timer.
#[test]
fn timers_that_tell_threads_do_not_kill_beside_page_faults() {
    let scratch = Scratch::new();
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <signal.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <time.h>
        #include <unistd.h>
        #define LEN (4 << 20)
        static void on_end(union sigval value) {}
        static unsigned touched(int fd) {
            unsigned sum = 0;
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            unsigned char *map = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE, fd, 0);
            if (map == MAP_FAILED) return 1;
            for (long page = 0; page < LEN / 4096; page++) sum = sum * 31 + map[page * 389 % (LEN / 4096) * 4096];
            return sum;
        }
        int main(int argc, char **argv) {
            struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_end };
            timer_t timer;
            int fd = open(argv[1], O_RDONLY);
            printf("%u\n", touched(fd));
            if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return 9;
            printf("%u\n", touched(fd));
            return 3;
        }
    "#;
    let Some(program) = compile(&scratch, "timers", source, &["-O1"]) else { return };
    let noise = speculation::noise(&scratch, 1024);
    let expected = speculation::plainly(Command::new(&program).arg(&noise));
    assert_eq!(expected.1, Some(3));
    let command = [program.to_str().unwrap(), noise.to_str().unwrap()];
    let run = speculation::run(&scratch, EVERY_READ_STALLS, &command, |_| {});
    assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{}", run.stats);
    assert_eq!(run.count("/faults/notices"), 0, "{}", run.stats);
}

/// Of several `LD_PRELOAD`, musl's dynamic linker uses the first and glibc's the last: what
/// has several is executed plainly.
#[test]
fn an_environment_with_several_lists_is_left_alone() {
    let source = r#"
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        extern char **environ;
        int main(int argc, char **argv) {
            if (!strcmp(argv[1], "show")) {
                for (char **e = environ; *e; e++) puts(*e);
                return 0;
            }
            char *some[512] = { "LD_PRELOAD=/nonexistent.so", "LD_PRELOAD=", "B=2" };
            int count = 3;
            for (char **e = environ; *e && count < 511; e++)
                if (strncmp(*e, "LD_PRELOAD=", 11)) some[count++] = *e;
            execve(argv[1], argv + 1, some);
            return 1;
        }"#;
    let scratch = Scratch::new();
    let Some(program) = compile(&scratch, "several", source, &[]) else { return };
    let program = program.to_str().unwrap();
    let runahead = env!("CARGO_BIN_EXE_runahead");
    let shown = |mut command: Command| {
        command.env_clear().env("HOME", scratch.path()).env("XDG_RUNTIME_DIR", scratch.path());
        support::stdout_of(&mut command)
    };
    let mut plain = Command::new(program);
    plain.args([program, "show"]);
    let plain = shown(plain);
    assert_eq!(plain.matches("LD_PRELOAD=").count(), 2, "{plain}");
    // Executed by another one, then launched.
    let mut executed = scratch.runahead();
    executed.args([program, program, "show"]);
    assert_eq!(shown(executed), plain);
    let mut launched = Command::new(program);
    launched.args([runahead, program, "show"]);
    assert_eq!(shown(launched), plain);
}
