//! Programs that must be loaded first: AddressSanitizer's run time, a library that the
//! executable needs, ends the program where the dynamic linker's list has another before
//! it (`AsanCheckDynamicRTPrereqs` in compiler-rt), as the agent would be. And whose
//! dynamic linker would load it at all. Asked by launcher and agent before a program is
//! executed.

/// What the names of that run time have in them (`IsDynamicRTName` in compiler-rt): gcc's
/// and clang's.
const NAMES: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];

/// Most program headers that are looked at.
const HEADERS_MAX: u64 = 64;
/// Length of a program header, in bytes.
const HEADER_LEN: usize = 56;
/// Program headers, or entries of the dynamic section, are read so many bytes at a time.
const CHUNK_LEN: usize = 4 * HEADER_LEN;
/// Length of an entry of the dynamic section, in bytes.
const ENTRY_LEN: usize = 16;
/// Most such entries that are looked at.
const ENTRIES_MAX: u64 = 256;
/// Most of a library's name that is looked at, in bytes.
const NAME_LEN: usize = 64;

/// Whether a text, a library's name or a list of them, has such a name in it.
pub fn names_one(text: &[u8]) -> bool {
    NAMES.iter().any(|name| text.windows(name.len()).any(|part| part == *name))
}

/// Names of the dynamic linkers that load what `LD_PRELOAD` names, glibc's and musl's.
/// Others, as that of klibc, may not know it.
const LINKERS: [&[u8]; 2] = [b"ld-linux-x86-64.so.2", b"ld-musl-x86_64.so.1"];

/// Whether a program whose interpreter (`PT_INTERP`) is the one at this path loads what is
/// preloaded. It may lie anywhere.
pub fn loads_preloaded(interpreter: &[u8]) -> bool {
    let name = interpreter.rsplit(|&byte| byte == b'/').next();
    name.is_some_and(|name| LINKERS.contains(&name))
}

/// Whether the first library that an ELF64 program needs is one. `read` reads at an
/// offset of its file and gives the number of bytes. False where anything is not as the
/// dynamic linker would want it.
pub fn is_needed(read: impl FnMut(u64, &mut [u8]) -> Option<usize>) -> bool {
    needed(read).is_some_and(|(name, len)| name.get(..len).is_some_and(names_one))
}

/// The first name in the dynamic section, as far as there is room for it.
fn needed(
    mut read: impl FnMut(u64, &mut [u8]) -> Option<usize>,
) -> Option<([u8; NAME_LEN], usize)> {
    const PT_LOAD: u64 = 1;
    const PT_DYNAMIC: u64 = 2;
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    let mut head = [0; 64];
    if read(0, &mut head)? < head.len() {
        return None;
    }
    let (first, count) = (number(&head, 32, 8)?, number(&head, 56, 2)?.min(HEADERS_MAX));
    let (mut at, mut len) = (0, 0);
    each(&mut read, first, count, HEADER_LEN, |header| {
        let is_it = number(header, 0, 4)? == PT_DYNAMIC;
        if is_it {
            (at, len) = (number(header, 8, 8)?, number(header, 32, 8)?);
        }
        Some(is_it)
    })?;
    let (mut name, mut names) = (None, None);
    let entries = (len / ENTRY_LEN as u64).min(ENTRIES_MAX);
    each(&mut read, at, entries, ENTRY_LEN, |entry| {
        let value = number(entry, 8, 8)?;
        match number(entry, 0, 8)? {
            DT_NULL => return Some(true),
            DT_NEEDED => name = name.or(Some(value)),
            DT_STRTAB => names = Some(value),
            _ => {}
        }
        Some(name.is_some() && names.is_some())
    })?;
    let (name, names) = (name?, names?);
    // Where in the file that address comes from.
    let mut offset = None;
    each(&mut read, first, count, HEADER_LEN, |header| {
        let (from, address) = (number(header, 8, 8)?, number(header, 16, 8)?);
        let inside = names
            .checked_sub(address)
            .filter(|&inside| number(header, 32, 8).is_some_and(|len| inside < len));
        if number(header, 0, 4)? == PT_LOAD {
            offset = inside.and_then(|inside| from.checked_add(inside)).or(offset);
        }
        Some(offset.is_some())
    })?;
    let mut text = [0; NAME_LEN];
    let len = read(offset?.checked_add(name)?, &mut text)?;
    let len = text.iter().take(len).position(|&byte| byte == 0).unwrap_or(len);
    Some((text, len))
}

/// Shows `look` one by one `count` parts of `part_len` bytes, beginning at `first`, until
/// it has seen what it wants; `None`: there are not so many.
fn each(
    read: &mut impl FnMut(u64, &mut [u8]) -> Option<usize>,
    first: u64,
    count: u64,
    part_len: usize,
    mut look: impl FnMut(&[u8]) -> Option<bool>,
) -> Option<()> {
    let mut chunk = [0; CHUNK_LEN];
    let (mut at, mut left) = (first, count);
    while left > 0 {
        let wanted = left.min((CHUNK_LEN / part_len) as u64) as usize;
        let room = chunk.get_mut(..wanted * part_len)?;
        if read(at, room)? < room.len() {
            return None;
        }
        for part in room.chunks_exact(part_len) {
            if look(part)? {
                return Some(());
            }
        }
        at = at.checked_add(room.len() as u64)?;
        left -= wanted as u64;
    }
    Some(())
}

/// A little-endian number of `len` bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::vec::Vec;

    /// A program: two program headers, a dynamic section and two names.
    fn program(name: &[u8]) -> Vec<u8> {
        let mut file = [0; 512].to_vec();
        let mut put = |at: usize, value: u64, len: usize| {
            file[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(32, 64, 8);
        put(56, 2, 2);
        // PT_LOAD: all of the file, at 0x1000. PT_DYNAMIC: four entries at 200.
        for (at, kind, offset, address, len) in [(64, 1, 0, 0x1000, 512), (120, 2, 200, 0, 64)] {
            put(at, kind, 4);
            put(at + 8, offset, 8);
            put(at + 16, address, 8);
            put(at + 32, len, 8);
        }
        // DT_SONAME (which is nothing to us), DT_NEEDED, DT_NEEDED, DT_STRTAB.
        for (nth, kind, value) in [(0, 14, 0), (1, 1, 10), (2, 1, 100), (3, 5, 0x1000 + 300)] {
            put(200 + nth * 16, kind, 8);
            put(208 + nth * 16, value, 8);
        }
        file[310..310 + name.len()].copy_from_slice(name);
        file[400..412].copy_from_slice(b"libasan.so.8");
        file
    }

    fn is_needed_by(file: &[u8]) -> bool {
        is_needed(|offset, part| {
            let rest = file.get(offset as usize..).unwrap_or(&[]);
            let len = rest.len().min(part.len());
            part[..len].copy_from_slice(&rest[..len]);
            Some(len)
        })
    }

    #[test]
    fn the_first_name_decides() {
        for name in [&b"libasan.so.8"[..], b"libasan.so", b"libclang_rt.asan-x86_64.so"] {
            assert!(is_needed_by(&program(name)));
        }
        for name in [&b"libc.so.6"[..], b"libtsan.so.2", b""] {
            assert!(!is_needed_by(&program(name)));
        }
    }

    #[test]
    fn what_is_cut_short_needs_nothing() {
        let whole = program(b"libasan.so.8");
        for len in 0..310 {
            assert!(!is_needed_by(&whole[..len]), "{len}");
        }
        // Any byte may be wrong: it ends, and reads nowhere else.
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                is_needed_by(&damaged);
            }
        }
    }
}
