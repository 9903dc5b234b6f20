//! The hinting programs that are measured live, after the thesis's (section 3.4). Each is one
//! program for all sides: with `RUNAHEAD=off` in its environment its hints go nowhere.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use runahead_hint::Range;

use crate::rng::Rng;

const BLOCK: usize = 8192;
/// Blocks that the join keeps for itself, as Postgres does (section 3.4.7).
const PRIVATE_BLOCKS: usize = 100;
/// Bytes of a tuple of the outer relation.
const TUPLE: usize = 64;
/// Keys and places in a page of the index.
const FANOUT: usize = 512;

/// Runs a program by name: `passes FILE COUNT`, `slices VOLUME SIDE SLICES SEED`,
/// `join OUTER INDEX INNER`.
/// What it computed goes to standard output, what a manager counted to standard error.
///
/// # Errors
/// If a file cannot be read or an argument is not what it should be.
pub fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words == ["cost"] {
        return super::cost::program();
    }
    let sum = match words.as_slice() {
        ["passes", file, count] => passes(&File::open(file)?, count.parse()?)?,
        ["slices", volume, side, slices, seed] => {
            slices_through(&File::open(volume)?, side.parse()?, slices.parse()?, seed.parse()?)?
        }
        ["join", outer, index, inner] => {
            join(&File::open(outer)?, &File::open(index)?, &File::open(inner)?)?
        }
        _ => bail!("no such program: {words:?}"),
    };
    println!("{sum:016x}");
    if let Some(session) = runahead_hint::session() {
        eprintln!("{:?} outstanding {}", session.stats(), session.outstanding());
    }
    Ok(())
}

/// Folds bytes into a sum that depends on each and on their order.
fn fold(sum: u64, bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(sum, |sum, word| {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        (sum.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

/// Davidson's way of reading: a file from start to end, again and again (section 3.4.1).
fn passes(file: &File, count: usize) -> Result<u64> {
    let bytes = file.metadata()?.len();
    let _ = runahead_hint::disclose(file, &vec![Range { offset: 0, length: 0 }; count]);
    let mut buffer = vec![0; 8 * BLOCK];
    let mut sum = 0;
    for _ in 0..count {
        let mut offset = 0;
        while offset < bytes {
            let read = runahead_hint::read_at(file, &mut buffer, offset)?;
            ensure!(read > 0, "the file became shorter");
            sum = fold(sum, &buffer[..read]);
            offset += read as u64;
        }
    }
    Ok(sum)
}

/// `XDataSlice`: the bricks that an oblique plane crosses; the list first, then the reads
/// (section 3.4.5). The user asks for the next slice when the one before is there.
fn slices_through(volume: &File, side: u64, slices: u64, seed: u64) -> Result<u64> {
    let mut rng = Rng::new(seed, "slices");
    let mut sum = 0;
    let mut block = vec![0; BLOCK];
    for _ in 0..slices {
        let bricks = crossed(&mut rng, side);
        let ranges: Vec<Range> = bricks
            .iter()
            .map(|brick| Range { offset: brick * BLOCK as u64, length: BLOCK as u64 })
            .collect();
        let _ = runahead_hint::disclose(volume, &ranges);
        for range in &ranges {
            let read = runahead_hint::read_at(volume, &mut block, range.offset)?;
            ensure!(read == BLOCK, "a brick is missing");
            sum = fold(sum, &block);
        }
    }
    Ok(sum)
}

/// Bricks of 16 × 16 × 8 values that a random plane crosses, in ascending order.
fn crossed(rng: &mut Rng, side: u64) -> Vec<u64> {
    let size = [16.0, 16.0, 8.0];
    let counts = [side / 16, side / 16, side / 8];
    let normal = loop {
        let n = [0; 3].map(|_| 2.0 * rng.unit() - 1.0);
        let length = n.iter().map(|x| x * x).sum::<f64>().sqrt();
        if (0.1..=1.0).contains(&length) {
            break n.map(|x| x / length);
        }
    };
    let side = side as f64;
    let distance: f64 = normal.iter().map(|n| n * side * (0.2 + 0.6 * rng.unit())).sum();
    let mut bricks = Vec::new();
    for brick in 0..counts[0] * counts[1] * counts[2] {
        let at =
            [brick / (counts[1] * counts[2]), brick / counts[2] % counts[1], brick % counts[2]];
        let (mut low, mut high) = (-distance, -distance);
        for i in 0..3 {
            let (a, b) =
                (normal[i] * at[i] as f64 * size[i], normal[i] * (at[i] + 1) as f64 * size[i]);
            low += a.min(b);
            high += a.max(b);
        }
        if low <= 0.0 && high >= 0.0 {
            bricks.push(brick);
        }
    }
    bricks
}

/// Postgres, 80%: joins an outer relation, by an index, with an inner one four times the
/// memory; four in five tuples have a partner. The loop is split: first the index is asked for
/// all, then all reads of the inner relation are known (section 3.4.7).
fn join(outer: &File, index: &File, inner: &File) -> Result<u64> {
    let whole = [Range { offset: 0, length: 0 }];
    let _ = runahead_hint::disclose(outer, &whole);
    let (outer_bytes, index_bytes) = (outer.metadata()?.len(), index.metadata()?.len());
    let leaves = index_bytes / BLOCK as u64;
    let mut page = vec![0; BLOCK];
    let mut leaf = vec![0; BLOCK];
    let mut partners = Vec::new();
    let mut sum = 0;
    let mut offset = 0;
    while offset < outer_bytes {
        let read = runahead_hint::read_at(outer, &mut page, offset)?;
        ensure!(read > 0, "the outer relation became shorter");
        for tuple in page[..read].chunks_exact(TUPLE) {
            sum = fold(sum, tuple);
            let key = word(tuple, 0);
            let leaf_number = key / FANOUT as u64 % leaves;
            index.read_exact_at(&mut leaf, leaf_number * BLOCK as u64)?;
            let place = word(&leaf, (key % FANOUT as u64) as usize * 16 + 8);
            if word(&leaf, (key % FANOUT as u64) as usize * 16) == key
                && !word(tuple, 8).is_multiple_of(5)
            {
                partners.push(place);
            }
        }
        offset += read as u64;
    }
    let ranges: Vec<Range> = partners
        .iter()
        .map(|place| Range { offset: place * BLOCK as u64, length: BLOCK as u64 })
        .collect();
    let _ = runahead_hint::disclose(inner, &ranges);
    let mut private: VecDeque<u64> = VecDeque::new();
    let mut cached = std::collections::HashMap::new();
    for (place, range) in partners.iter().zip(&ranges) {
        if let Some(&part) = cached.get(place) {
            runahead_hint::cancel(1);
            sum = fold(sum, &u64::to_le_bytes(part));
            continue;
        }
        let read = runahead_hint::read_at(inner, &mut page, range.offset)?;
        ensure!(read == BLOCK, "the inner relation became shorter");
        let part = fold(0, &page);
        sum = fold(sum, &part.to_le_bytes());
        cached.insert(*place, part);
        private.push_back(*place);
        if private.len() > PRIVATE_BLOCKS
            && let Some(oldest) = private.pop_front()
        {
            cached.remove(&oldest);
        }
    }
    Ok(sum)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Makes a file of random bytes.
///
/// # Errors
/// If it cannot be written.
pub fn make_random(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "data");
    let file = File::create(path).with_context(|| format!("make {}", path.display()))?;
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    while at < bytes {
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        let part = (bytes - at).min(chunk.len() as u64);
        file.write_all_at(&chunk[..part as usize], at)?;
        at += part;
    }
    file.sync_all()?;
    Ok(())
}

/// Makes the relations of the join: `tuples` in the outer one, `blocks` in the inner one.
///
/// # Errors
/// If they cannot be written.
pub fn make_relations(directory: &Path, tuples: u64, blocks: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "relations");
    let keys = (tuples * 2).next_multiple_of(FANOUT as u64);
    let index: Vec<u8> =
        (0..keys).flat_map(|key| [key, rng.below(blocks)]).flat_map(u64::to_le_bytes).collect();
    let mut outer = Vec::new();
    for _ in 0..tuples {
        outer.extend_from_slice(&rng.below(keys).to_le_bytes());
        outer.extend((8..TUPLE / 8 + 7).flat_map(|_| rng.next_u64().to_le_bytes()));
    }
    for (name, bytes) in [("outer", outer), ("index", index)] {
        let file = File::create(directory.join(name))?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
    }
    make_random(&directory.join("inner"), blocks * BLOCK as u64, seed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn programs_read_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        make_random(&at("file"), 100_000, 1).unwrap();
        let bytes = fs::read(at("file")).unwrap();
        let once = passes(&File::open(at("file")).unwrap(), 1).unwrap();
        let by_hand = bytes.chunks(8 * BLOCK).fold(0, fold);
        assert_eq!(once, by_hand);
        make_relations(directory.path(), 600, 50, 2).unwrap();
        assert_eq!(fs::metadata(at("outer")).unwrap().len(), 600 * TUPLE as u64);
        let open = |name| File::open(at(name)).unwrap();
        let sum = join(&open("outer"), &open("index"), &open("inner")).unwrap();
        assert_eq!(sum, join(&open("outer"), &open("index"), &open("inner")).unwrap());
        make_random(&at("volume"), 64 * 64 * 64 * 4, 3).unwrap();
        let slices = slices_through(&open("volume"), 64, 3, 5).unwrap();
        assert_ne!(slices, slices_through(&open("volume"), 64, 3, 6).unwrap());
        assert!(run(&["nonsense".into()]).is_err());
    }

    #[test]
    fn a_plane_crosses_a_sheet_of_bricks() {
        let mut rng = Rng::new(1, "slices");
        for _ in 0..20 {
            let bricks = crossed(&mut rng, 256);
            assert!((100..2_000).contains(&bricks.len()), "{}", bricks.len());
            assert!(bricks.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
