//! Programs as files of JSON lines: a header, then one step per line.
//!
//! ```text
//! {"name":"grep","files":[{"bytes":81920,"directory":0}]}
//! {"compute":350}
//! {"hint":[{"file":0,"offset":0,"length":0}]}
//! {"read":{"file":0,"offset":0,"length":8192}}
//! ```

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::filesystem::{BLOCK_BYTES, FileSpec};
use crate::program::{Op, Program, Range};

#[derive(Serialize, Deserialize)]
struct Header {
    name: String,
    files: Vec<FileSpec>,
}

/// Reads a trace.
///
/// # Errors
///
/// The reader's; `InvalidData`, with the line's number, if a line is not a step, names a file
/// that the header has not, or writes behind a file's end.
pub fn read_trace(reader: impl BufRead) -> io::Result<Program> {
    let mut lines = reader.lines().enumerate();
    let (_, first) = lines.next().ok_or_else(|| invalid(1, "the trace is empty"))?;
    let header: Header = serde_json::from_str(&first?).map_err(|error| invalid(1, error))?;
    let mut program = Program { name: header.name, files: header.files, ops: Vec::new() };
    for (i, line) in lines {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let op: Op = serde_json::from_str(&line).map_err(|error| invalid(i + 1, error))?;
        let named = match &op {
            Op::Hint(segments) => segments.iter().map(|range| range.file).max(),
            Op::Read(range) | Op::Write(range) => Some(range.file),
            Op::Compute(_) | Op::Cancel => None,
        };
        if named.is_some_and(|file| file as usize >= program.files.len()) {
            return Err(invalid(i + 1, "the header has no such file"));
        }
        if let Op::Write(range) = &op
            && !is_within(range, program.files[range.file as usize].bytes)
        {
            return Err(invalid(i + 1, "in the header the file ends before that"));
        }
        program.ops.push(match op {
            // As a hint it would mean all that follows: it reads nothing, as at the end.
            Op::Read(Range { file, length: 0, .. }) => {
                let offset = program.files[file as usize].bytes;
                Op::Read(Range { file, offset, length: 1 })
            }
            op => op,
        });
    }
    Ok(program)
}

/// Whether a write is to blocks that a file has: files do not grow in the simulator.
fn is_within(range: &Range, file_bytes: u64) -> bool {
    let end = range.offset.checked_add(range.length.max(1));
    end.is_some_and(|end| end.div_ceil(BLOCK_BYTES) <= file_bytes.div_ceil(BLOCK_BYTES))
}

/// Writes a program as a trace.
///
/// # Errors
///
/// The writer's.
pub fn write_trace(program: &Program, mut writer: impl Write) -> io::Result<()> {
    let header = Header { name: program.name.clone(), files: program.files.clone() };
    writeln!(writer, "{}", serde_json::to_string(&header)?)?;
    for op in &program.ops {
        writeln!(writer, "{}", serde_json::to_string(op)?)?;
    }
    Ok(())
}

/// The same program disclosing everything that it will read, at its start: what perfect hints
/// would do for a program that gives none. Its own hints are left out.
pub fn with_full_disclosure(program: &Program) -> Program {
    let reads: Vec<Range> = program
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Read(range) if program.clip(*range).0 < program.clip(*range).1 => Some(*range),
            _ => None,
        })
        .collect();
    let mut disclosing = Program { ops: Vec::new(), ..program.clone() };
    disclosing.hint(reads);
    let others = program.ops.iter().filter(|op| !matches!(op, Op::Hint(_) | Op::Cancel));
    disclosing.ops.extend(others.cloned());
    disclosing
}

fn invalid(line: usize, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {line}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::App;

    #[test]
    fn a_program_survives_being_written_and_read() {
        for app in App::ALL {
            let program = app.program(3, 0);
            let mut bytes = Vec::new();
            write_trace(&program, &mut bytes).unwrap();
            let back = read_trace(&bytes[..]).unwrap();
            assert_eq!((back.files, back.ops), (program.files, program.ops));
        }
    }

    #[test]
    fn errors_name_the_line() {
        let trace = b"{\"name\":\"x\",\"files\":[]}\n{\"compute\":1}\n{\"read\":{\"file\":0,\"offset\":0,\"length\":1}}\n";
        assert!(read_trace(&trace[..]).unwrap_err().to_string().starts_with("line 3:"));
        assert!(read_trace(&b"{}\n"[..]).unwrap_err().to_string().starts_with("line 1:"));
    }

    #[test]
    fn writes_stay_within_the_file() {
        let read = |offset: u64, length: u64| {
            let header = r#"{"name":"x","files":[{"bytes":9000,"directory":0}]}"#;
            let write = format!(r#"{{"write":{{"file":0,"offset":{offset},"length":{length}}}}}"#);
            read_trace(format!("{header}\n{write}\n").as_bytes())
        };
        for (offset, length) in [(0, 9000), (8192, 8192), (16383, 0), (0, 0)] {
            read(offset, length).unwrap();
        }
        for (offset, length) in [(16384, 0), (0, 16385), (8192, u64::MAX), (u64::MAX, 0)] {
            let error = read(offset, length).unwrap_err().to_string();
            assert!(error.starts_with("line 2: in the header the file ends"), "{error}");
        }
    }

    #[test]
    fn a_read_of_nothing_reads_nothing() {
        let trace = concat!(
            r#"{"name":"x","files":[{"bytes":90000,"directory":0}]}"#,
            "\n",
            r#"{"read":{"file":0,"offset":8192,"length":0}}"#
        );
        let program = read_trace(trace.as_bytes()).unwrap();
        assert_eq!((program.totals().read_calls, program.totals().read_blocks), (1, 0));
        assert_eq!(with_full_disclosure(&program).totals().hint_blocks, 0);
    }

    #[test]
    fn full_disclosure_hints_every_read_in_order() {
        let program = with_full_disclosure(&App::Gnuld.program(1, 0));
        let totals = program.totals();
        assert_eq!(totals.hint_calls, 1);
        assert_eq!(totals.hint_blocks, totals.read_blocks);
    }
}
