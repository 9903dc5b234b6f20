//! Damaged and hostile files: an error, an empty answer, never a panic.

use std::fs;
use std::path::PathBuf;

use runahead_sites::{SiteTable, elf, find};

/// A small xorshift generator: the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A directory of this test's own, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("sites-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn small_library() -> Vec<u8> {
    fs::read("/lib64/ld-linux-x86-64.so.2").unwrap()
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let mut bytes: Vec<u8> = (0..random.below(4096)).map(|_| random.next() as u8).collect();
        if round % 2 == 0 && bytes.len() > 64 {
            bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
        }
        assert!(find::find(&bytes).is_err());
        assert!(SiteTable::from_bytes(&bytes).is_none());
    }
}

#[test]
fn truncated_and_altered_libraries_do_no_harm() {
    let scratch = Scratch::new("altered");
    let whole = small_library();
    let path = scratch.0.join("library");
    let mut random = Random(0x1234_5678_9abc_def1);
    for round in 0..150 {
        let mut bytes = whole.clone();
        if round % 3 == 0 {
            bytes.truncate(random.below(whole.len()));
        } else {
            // Headers at the start, section headers at the end.
            for _ in 0..1 + random.below(16) {
                let span = 4096.min(bytes.len());
                let at = if random.next().is_multiple_of(2) {
                    random.below(span)
                } else {
                    bytes.len() - 1 - random.below(span)
                };
                bytes[at] = random.next() as u8;
            }
        }
        let _ = find::find(&bytes);
        fs::write(&path, &bytes).unwrap();
        let _ = elf::read_head(&fs::File::open(&path).unwrap()).unwrap();
    }
}

#[test]
fn a_damaged_table_is_made_anew() {
    let scratch = Scratch::new("table");
    let cache = scratch.0.join(runahead_sites::file_name());
    let libraries = ["/lib64/ld-linux-x86-64.so.2"];
    let first = SiteTable::load_or_update(&cache, &libraries).unwrap();
    assert_eq!(first.added, 1);
    let bytes = fs::read(&cache).unwrap();
    assert_eq!(SiteTable::from_bytes(&bytes).as_ref(), Some(&first.table));

    let again = SiteTable::load_or_update(&cache, &libraries).unwrap();
    assert_eq!((again.added, &again.table), (0, &first.table));

    for len in [0, 1, 15, 16, 40, bytes.len() - 1] {
        fs::write(&cache, &bytes[..len]).unwrap();
        let update = SiteTable::load_or_update(&cache, &libraries).unwrap();
        assert_eq!((update.added, &update.table), (1, &first.table), "cut to {len} bytes");
        assert_eq!(fs::read(&cache).unwrap(), bytes);
    }
    let mut random = Random(77);
    for _ in 0..2000 {
        let mut altered = bytes.clone();
        let at = random.below(altered.len());
        altered[at] = random.next() as u8;
        let _ = SiteTable::from_bytes(&altered);
    }
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1, "nothing is left beside the table");
}

/// Of a cache directory that could not be written each launch analysed the C library.
#[test]
fn for_a_table_that_cannot_be_written_nothing_is_read() {
    let scratch = Scratch::new("unwritable");
    let libraries = ["/lib64/ld-linux-x86-64.so.2"];
    let len = fs::metadata(libraries[0]).unwrap().len();
    // What this thread has read so far, in bytes.
    let read = || {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let before = read();
    let missing = scratch.0.join("missing").join("table");
    assert!(SiteTable::load_or_update(&missing, &libraries).is_err());
    assert!(read() - before < len / 2);
    SiteTable::load_or_update(&scratch.0.join("table"), &libraries).unwrap();
    assert!(read() - before > len);
}

#[test]
fn what_is_no_library_is_skipped_and_named() {
    let scratch = Scratch::new("skipped");
    let cache = scratch.0.join("table");
    let update = SiteTable::load_or_update(&cache, &["/etc/passwd", "/nonexistent"]).unwrap();
    assert_eq!(update.skipped.len(), 2);
    assert_eq!(SiteTable::load(&cache), Some(SiteTable::default()));
}

#[test]
fn a_full_table_drops_its_oldest_library() {
    let scratch = Scratch::new("full");
    let library = scratch.0.join("library");
    let whole = small_library();
    let head = elf::read_head(&fs::File::open("/lib64/ld-linux-x86-64.so.2").unwrap()).unwrap();
    let build_id = head.unwrap().build_id.unwrap();
    let at = whole
        .windows(build_id.as_bytes().len())
        .position(|window| window == build_id.as_bytes())
        .unwrap();
    let mut table = SiteTable::default();
    let count = runahead_protocol::sites::OBJECTS_MAX as usize + 3;
    for nth in 0..count {
        let mut bytes = whole.clone();
        bytes[at] = nth as u8;
        // Analysing each would take a minute: all but the first lack code.
        bytes[0x28..0x30].fill(0xff);
        fs::write(&library, &bytes).unwrap();
        assert!(table.add(&library).unwrap());
    }
    assert_eq!(table.libraries().len(), count - 3);
    assert_eq!(table.libraries()[0].build_id.as_bytes()[0], 3);
    assert_eq!(SiteTable::from_bytes(&table.to_bytes()), Some(table));
}

#[test]
fn a_library_that_calls_unseen_says_so() {
    let scratch = Scratch::new("unseen");
    let library = scratch.0.join("library");
    let mut table = SiteTable::default();
    let mut bytes = small_library();
    bytes.extend(b"\0GLIBC_2.41\0");
    fs::write(&library, &bytes).unwrap();
    assert!(table.add(&library).unwrap());
    assert!(table.libraries()[0].unseen);
    assert_eq!(SiteTable::from_bytes(&table.to_bytes()), Some(table));
}
