//! What a program was seen to read (`runahead --mode observe --record FILE`), as a file, and
//! as programs to simulate.
//!
//! The file: [`MAGIC`], whose last byte is the version; then numbers in LEB128 (seven bits a
//! byte, the lowest first, the eighth bit: more follow); then the FNV-1a hash of everything
//! before it, eight bytes, little-endian. The numbers, in order:
//!
//! ```text
//! length of the name, its bytes             what was run
//! lost                                      reads that were made and are not in here
//! files, then for each                      device, inode, bytes (the largest size seen)
//! streams, then for each                    process, thread
//! reads, then for each, in order of time    stream, file, zigzag of the offset less the end of
//!                                           the stream's last read of that file, length, µs since
//!                                           the read before began, µs that it took, µs of
//!                                           processor time of the thread since its last read, and
//!                                           within this one
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;

use crate::filesystem::FileSpec;
use crate::program::{Op, Program, Range};

/// First eight bytes of the file: "RATRACE" and the version.
pub const MAGIC: [u8; 8] = *b"RATRACE\x01";

/// Most files, streams or reads that a file may claim to hold: more than a recorder keeps.
const COUNT_MAX: u64 = 1 << 26;

/// Most programs that a recording becomes.
pub const PROGRAMS_MAX: usize = 1024;

/// Inodes that are taken to be of one directory.
const INODES_TOGETHER: u64 = 1024;

/// Longest name, in bytes.
const NAME_LEN_MAX: u64 = 4096;

/// Recorded reads of a program and its children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// What was run.
    pub name: String,
    /// Reads that were made and are not in here.
    pub lost: u64,
    /// The files that were read.
    pub files: Vec<RecordedFile>,
    /// The threads that read, in the order of their first reads.
    pub streams: Vec<Stream>,
    /// The reads, in the order in which they began.
    pub reads: Vec<RecordedRead>,
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedFile {
    /// Device, as stat(2) gives it.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Its largest size while it was read, in bytes.
    pub bytes: u64,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Process id.
    pub process: u32,
    /// Thread id.
    pub thread: u32,
}

/// A read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRead {
    /// Index of the thread.
    pub stream: u32,
    /// Index of the file.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes read; 0 at the end of the file.
    pub length: u64,
    /// When it began, in µs since the first one.
    pub start_us: u64,
    /// How long it took, in µs.
    pub took_us: u64,
    /// Processor time of the thread since its last read ended, in µs.
    pub cpu_us: u64,
    /// Processor time within the read, in µs.
    pub cpu_in_us: u64,
}

impl Recording {
    /// The recording as a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let mut put = |mut number: u64| {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        };
        put(self.name.len() as u64);
        self.name.bytes().for_each(|byte| put(u64::from(byte)));
        put(self.lost);
        put(self.files.len() as u64);
        for file in &self.files {
            [file.device, file.inode, file.bytes].into_iter().for_each(&mut put);
        }
        put(self.streams.len() as u64);
        for stream in &self.streams {
            [stream.process, stream.thread].map(u64::from).into_iter().for_each(&mut put);
        }
        put(self.reads.len() as u64);
        let mut ends = HashMap::new();
        let mut last_us = 0;
        for read in &self.reads {
            let end = ends.entry((read.stream, read.file)).or_insert(0);
            let apart = read.offset.wrapping_sub(*end) as i64;
            *end = read.offset.wrapping_add(read.length);
            let since_us = read.start_us.saturating_sub(last_us);
            last_us = read.start_us;
            let numbers = [
                u64::from(read.stream),
                u64::from(read.file),
                ((apart << 1) ^ (apart >> 63)) as u64,
                read.length,
                since_us,
                read.took_us,
                read.cpu_us,
                read.cpu_in_us,
            ];
            numbers.into_iter().for_each(&mut put);
        }
        let hash = fnv1a(&bytes);
        bytes.extend(hash.to_le_bytes());
        bytes
    }

    /// Reads what [`Recording::encode`] wrote.
    ///
    /// # Errors
    /// `InvalidData`, with what is wrong: no trace, another version, cut off or changed.
    pub fn decode(bytes: &[u8]) -> io::Result<Recording> {
        let (magic, _) = bytes.split_first_chunk::<8>().ok_or_else(|| wrong("it is too short"))?;
        if magic[..7] != MAGIC[..7] {
            return Err(wrong("it does not begin as a recorded trace does"));
        }
        if *magic != MAGIC {
            let (theirs, ours) = (magic[7], MAGIC[7]);
            return Err(wrong(&format!("it has version {theirs}, this runahead reads {ours}")));
        }
        let Some((content, hash)) = bytes.split_last_chunk::<8>() else {
            return Err(wrong("it is too short"));
        };
        if content.len() < MAGIC.len() || fnv1a(content).to_le_bytes() != *hash {
            return Err(wrong("it was cut off or changed"));
        }
        let mut numbers = Numbers(&content[MAGIC.len()..]);
        let recording = Recording::parse(&mut numbers)?;
        if !numbers.0.is_empty() {
            return Err(wrong("something follows its last read"));
        }
        Ok(recording)
    }

    fn parse(numbers: &mut Numbers<'_>) -> io::Result<Recording> {
        let name: Vec<u8> = (0..numbers.below(NAME_LEN_MAX + 1)?)
            .map(|_| numbers.below(256).map(|byte| byte as u8))
            .collect::<io::Result<_>>()?;
        let mut recording = Recording {
            name: String::from_utf8_lossy(&name).into_owned(),
            lost: numbers.next()?,
            ..Recording::default()
        };
        for _ in 0..numbers.below(COUNT_MAX)? {
            let [device, inode, bytes] = [numbers.next()?, numbers.next()?, numbers.next()?];
            recording.files.push(RecordedFile { device, inode, bytes });
        }
        for _ in 0..numbers.below(COUNT_MAX)? {
            let [process, thread] = [numbers.below(1 << 32)?, numbers.below(1 << 32)?];
            recording.streams.push(Stream { process: process as u32, thread: thread as u32 });
        }
        let (files, streams) = (recording.files.len() as u64, recording.streams.len() as u64);
        let mut ends = HashMap::new();
        let mut start_us = 0u64;
        for _ in 0..numbers.below(COUNT_MAX)? {
            let stream = numbers.below(streams)? as u32;
            let file = numbers.below(files)? as u32;
            let zigzag = numbers.next()?;
            let apart = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
            let end = ends.entry((stream, file)).or_insert(0u64);
            let offset = end.wrapping_add(apart);
            let length = numbers.next()?;
            *end = offset.checked_add(length).ok_or_else(|| wrong("a read ends beyond 2^64"))?;
            start_us = start_us.saturating_add(numbers.next()?);
            let [took_us, cpu_us, cpu_in_us] = [numbers.next()?, numbers.next()?, numbers.next()?];
            recording.reads.push(RecordedRead {
                stream,
                file,
                offset,
                length,
                start_us,
                took_us,
                cpu_us,
                cpu_in_us,
            });
        }
        Ok(recording)
    }

    /// The files as the simulator has them. The recorder knows no directories: files of
    /// neighbouring inodes are taken to lie together, since file systems put a directory's
    /// inodes into one group.
    pub fn files(&self) -> Vec<FileSpec> {
        let mut known: HashMap<(u64, u64), u32> = HashMap::new();
        let mut spec = |file: &RecordedFile| {
            let next = known.len() as u32;
            let place = (file.device, file.inode / INODES_TOGETHER);
            FileSpec { bytes: file.bytes, directory: *known.entry(place).or_insert(next) }
        };
        self.files.iter().map(&mut spec).collect()
    }

    /// The programs to simulate, which share one list of files; the first one holds it. Threads
    /// of which one began when another had ended are one program, since one may have waited for
    /// the other, as the commands of a shell do; those that read at the same time are several.
    /// Each program computes for as long as its threads did; that they waited for anything but
    /// their reads is left out. It discloses its reads at its start, for policies that take
    /// hints.
    ///
    /// # Errors
    /// `InvalidData` if more than [`PROGRAMS_MAX`] threads read at the same time.
    pub fn programs(&self) -> io::Result<Vec<Program>> {
        let lanes = self.lanes()?;
        let count = lanes.iter().max().map_or(0, |last| last + 1);
        let files = self.files();
        let mut programs: Vec<Program> = (0..count)
            .map(|lane| match lane {
                0 => Program::new(&self.name),
                _ => Program::new(&format!("{}#{}", self.name, lane + 1)),
            })
            .collect();
        let mut hints: Vec<Vec<Range>> = vec![Vec::new(); count];
        for read in &self.reads {
            let lane = lanes[read.stream as usize];
            if read.cpu_us > 0 {
                let us = u32::try_from(read.cpu_us).unwrap_or(u32::MAX);
                programs[lane].ops.push(Op::Compute(us));
            }
            let range = Range { file: read.file, offset: read.offset, length: read.length };
            let bytes = files[read.file as usize].bytes;
            if range.length > 0 && range.offset < bytes {
                hints[lane].push(range);
                programs[lane].read(range);
            } else {
                // In the simulator a length of nothing means to the end of the file: a byte
                // beyond it is as little.
                programs[lane].read(Range { file: read.file, offset: bytes, length: 1 });
            }
        }
        for (program, hints) in programs.iter_mut().zip(hints) {
            if !hints.is_empty() {
                program.ops.insert(0, Op::Hint(hints));
            }
        }
        if let Some(first) = programs.first_mut() {
            first.files = files;
        }
        Ok(programs)
    }

    /// For each stream the program that it belongs to: that whose streams ended first, if they
    /// all have.
    fn lanes(&self) -> io::Result<Vec<usize>> {
        let mut spans: Vec<Option<(u64, u64)>> = vec![None; self.streams.len()];
        for read in &self.reads {
            let end_us = read.start_us.saturating_add(read.took_us);
            let span = spans[read.stream as usize].get_or_insert((read.start_us, end_us));
            span.1 = span.1.max(end_us);
        }
        // In the order of their first reads.
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&stream| spans[stream]);
        let mut free_us: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut lanes = vec![0; spans.len()];
        for stream in order {
            let Some((start_us, end_us)) = spans[stream] else { continue };
            let lane = match free_us.peek() {
                Some(&Reverse((free_us, lane))) if free_us <= start_us => Some(lane),
                _ => None,
            };
            match lane {
                Some(_) => drop(free_us.pop()),
                None if free_us.len() == PROGRAMS_MAX => {
                    return Err(wrong(&format!("more than {PROGRAMS_MAX} threads at a time")));
                }
                None => {}
            }
            lanes[stream] = lane.unwrap_or(free_us.len());
            free_us.push(Reverse((end_us, lanes[stream])));
        }
        Ok(lanes)
    }
}

struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> io::Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or_else(|| wrong("it ends too early"))?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(wrong("a number in it is too large"))
    }

    /// The next number, which must be below `limit`.
    fn below(&mut self, limit: u64) -> io::Result<u64> {
        let number = self.next()?;
        if number < limit { Ok(number) } else { Err(wrong("a number in it is too large")) }
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn some() -> Recording {
        let mut random = Random::new(7);
        let file = |inode| RecordedFile { device: 66305, inode, bytes: 1 << 20 };
        let streams = (0..3).map(|i| Stream { process: 100 + i, thread: 100 + i }).collect();
        let mut start_us = 0;
        let reads = (0..500).map(|_| {
            start_us += random.below(300);
            RecordedRead {
                stream: random.below(3) as u32,
                file: random.below(4) as u32,
                offset: random.below(1 << 20),
                length: random.below(65_536),
                start_us,
                took_us: random.below(9000),
                cpu_us: random.below(100),
                cpu_in_us: random.below(20),
            }
        });
        Recording {
            name: "grep".into(),
            lost: 5,
            reads: reads.collect(),
            files: [11, 12, 5000, 5001].map(file).to_vec(),
            streams,
        }
    }

    #[test]
    fn a_recording_survives_being_written_and_read() {
        for recording in [Recording::default(), some()] {
            assert_eq!(Recording::decode(&recording.encode()).unwrap(), recording);
        }
    }

    #[test]
    fn what_is_no_recording_is_told_and_nothing_makes_it_panic() {
        let whole = some().encode();
        let said = |bytes: &[u8]| Recording::decode(bytes).unwrap_err().to_string();
        assert!(said(b"").contains("short"));
        assert!(said(&whole[..7]).contains("short"));
        assert!(said(&whole[..8]).contains("cut off"));
        assert!(said(b"{\"name\":\"x\"}").contains("begin"));
        for end in 8..whole.len() {
            assert!(said(&whole[..end]).contains("cut off"), "{end}");
        }
        let mut newer = whole.clone();
        newer[7] = 2;
        assert!(said(&newer).contains("version 2"), "{}", said(&newer));
        // Noise with a right hash, as no accident makes it.
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let mut noise = whole[..whole.len() - 8].to_vec();
            for _ in 0..=random.below(3) {
                let at = 8 + random.below(noise.len() as u64 - 8) as usize;
                noise[at] = random.below(256) as u8;
            }
            noise.truncate(8 + random.below(noise.len() as u64 - 7) as usize);
            let hash = fnv1a(&noise);
            noise.extend(hash.to_le_bytes());
            if let Ok(read) = Recording::decode(&noise) {
                let _ = read.programs();
            }
        }
    }

    #[test]
    fn what_ran_one_after_the_other_is_one_program() {
        let read = |stream, start_us| RecordedRead {
            stream,
            file: 0,
            offset: 8192 * u64::from(stream),
            length: 4096,
            start_us,
            took_us: 10,
            cpu_us: 7,
            cpu_in_us: 1,
        };
        let mut recording = some();
        // The shell reads its script all the time, two commands one after the other.
        recording.reads = vec![read(0, 0), read(1, 20), read(1, 40), read(2, 60), read(0, 90)];
        let programs = recording.programs().unwrap();
        assert_eq!(programs.len(), 2);
        assert_eq!(programs[1].name, "grep#2");
        let reads =
            |program: &Program| program.ops.iter().filter(|op| matches!(op, Op::Read(_))).count();
        assert_eq!((reads(&programs[0]), reads(&programs[1])), (2, 3));
        assert_eq!(programs[0].totals().compute_us, 14);
        assert_eq!(programs[1].files, []);
        assert!(matches!(&programs[1].ops[0], Op::Hint(hints) if hints.len() == 3));
        assert_eq!(programs[0].files[1].directory, programs[0].files[0].directory);
        assert_ne!(programs[0].files[2].directory, programs[0].files[0].directory);
    }
}
