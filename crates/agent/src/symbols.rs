//! Dynamic symbols and relocations of loaded objects (gABI, chapter 5; the
//! GNU hash table as binutils and glibc have it).

use crate::elf::Object;

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;

const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// A version that is not the default one of its symbol.
const VERSION_HIDDEN: u16 = 0x8000;

/// Longest name that is compared, in bytes.
const NAME_LEN_MAX: usize = 64;
/// Entries of a dynamic section that are looked at.
const DYNAMIC_MAX: usize = 512;
/// Longer than any object, in bytes.
const IMAGE_LEN_MAX: usize = 1 << 40;

/// The tables of one object; absent ones are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tables {
    bias: usize,
    strings: usize,
    symbols: usize,
    versions: usize,
    hash: usize,
    relocations: [(usize, usize); 2],
}

/// `Elf64_Sym`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    len: u64,
}

/// `Elf64_Rela`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// A word of the dynamic linker's tables.
///
/// # Safety
/// `at + index * size_of::<T>()` must lie in one of an object's tables.
unsafe fn entry<T: Copy>(at: usize, index: usize) -> T {
    // SAFETY: the caller promises it; the tables hold plain numbers.
    unsafe { ((at + index * size_of::<T>()) as *const T).read_unaligned() }
}

/// What an entry of the dynamic section refers to: glibc adds the bias in place, musl does
/// not.
fn address(object: &Object, value: usize) -> usize {
    // Where an object lies below the address at which it is linked the bias wraps around,
    // and all addresses are less.
    let wraps = object.bias > isize::MAX as usize;
    let is_elsewhere = value.abs_diff(object.dynamic) > IMAGE_LEN_MAX;
    if is_elsewhere || value < object.bias && !wraps {
        value.wrapping_add(object.bias)
    } else {
        value
    }
}

impl Tables {
    /// Of a loaded object.
    pub fn of(object: &Object) -> Tables {
        let mut tables = Tables { bias: object.bias, ..Tables::default() };
        for index in 0..if object.dynamic == 0 { 0 } else { DYNAMIC_MAX } {
            // SAFETY: the dynamic section ends with DT_NULL.
            let [tag, value]: [usize; 2] = unsafe { entry(object.dynamic, index) };
            let address = address(object, value);
            let [plain, jumps] = &mut tables.relocations;
            match tag {
                0 => break,
                DT_STRTAB => tables.strings = address,
                DT_SYMTAB => tables.symbols = address,
                DT_VERSYM => tables.versions = address,
                DT_GNU_HASH => tables.hash = address,
                DT_RELA => plain.0 = address,
                DT_RELASZ => plain.1 = value,
                DT_JMPREL => jumps.0 = address,
                DT_PLTRELSZ => jumps.1 = value,
                _ => {}
            }
        }
        tables
    }

    /// Address of the function `name` (without NUL) that this object defines.
    pub fn function(&self, name: &[u8]) -> Option<usize> {
        self.find(name, STT_FUNC)
    }

    /// Address of the variable `name` (without NUL) that this object defines: the
    /// program does, too, where it has one of a library's in itself (`R_X86_64_COPY`).
    pub fn variable(&self, name: &[u8]) -> Option<usize> {
        self.find(name, STT_OBJECT)
    }

    fn find(&self, name: &[u8], kind: u8) -> Option<usize> {
        if self.hash == 0 || self.symbols == 0 || self.strings == 0 {
            return None;
        }
        let hash = gnu_hash(name);
        // SAFETY: the table's header: buckets, first hashed symbol, words of
        // the Bloom filter, its shift.
        let [buckets, first, bloom, shift]: [u32; 4] = unsafe { entry(self.hash, 0) };
        if buckets == 0 || bloom == 0 {
            return None;
        }
        let bloom_at = self.hash + 16;
        // SAFETY: the filter has `bloom` words.
        let word: u64 = unsafe { entry(bloom_at, (hash / 64 % bloom) as usize) };
        let bits = 1u64 << (hash % 64) | 1u64 << (hash.wrapping_shr(shift) % 64);
        if word & bits != bits {
            return None;
        }
        let buckets_at = bloom_at + bloom as usize * 8;
        let chains_at = buckets_at + buckets as usize * 4;
        // SAFETY: one of `buckets` words.
        let mut index: u32 = unsafe { entry(buckets_at, (hash % buckets) as usize) };
        while index >= first && index != 0 {
            // SAFETY: each hashed symbol has a word; the last of a chain has
            // its lowest bit set.
            let found: u32 = unsafe { entry(chains_at, (index - first) as usize) };
            if found | 1 == hash | 1
                && let Some(address) = self.defined(index as usize, name, kind)
            {
                return Some(address);
            }
            if found & 1 != 0 {
                return None;
            }
            index += 1;
        }
        None
    }

    fn defined(&self, index: usize, name: &[u8], kind: u8) -> Option<usize> {
        // SAFETY: a symbol that the hash table names.
        let symbol: Symbol = unsafe { entry(self.symbols, index) };
        let hidden = self.versions != 0
            // SAFETY: one half word for each symbol.
            && unsafe { entry::<u16>(self.versions, index) } & VERSION_HIDDEN != 0;
        let defined = symbol.info & 0xf == kind && symbol.section != 0;
        (defined && !hidden && self.is_named(&symbol, name))
            .then(|| self.bias.wrapping_add(symbol.value as usize))
    }

    fn is_named(&self, symbol: &Symbol, name: &[u8]) -> bool {
        let at = self.strings + symbol.name as usize;
        (0..name.len() + 1).all(|index| {
            // SAFETY: `all` stops at the first difference, thus at the NUL.
            let byte: u8 = unsafe { entry(at, index) };
            byte == name.get(index).copied().unwrap_or(0)
        })
    }

    /// Calls `visit` with each slot that the dynamic linker fills with the
    /// address of a function, and the function's name.
    pub fn for_each_slot(&self, mut visit: impl FnMut(usize, &[u8])) {
        if self.symbols == 0 || self.strings == 0 {
            return;
        }
        for (at, len) in self.relocations {
            for index in 0..if at == 0 { 0 } else { len / size_of::<Relocation>() } {
                // SAFETY: inside the table, whose length the object states.
                let relocation: Relocation = unsafe { entry(at, index) };
                if !matches!(relocation.info & 0xffff_ffff, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
                {
                    continue;
                }
                // SAFETY: a symbol that a relocation names.
                let symbol: Symbol =
                    unsafe { entry(self.symbols, (relocation.info >> 32) as usize) };
                let mut name = [0u8; NAME_LEN_MAX];
                let mut len = 0;
                for slot in &mut name {
                    // SAFETY: up to the NUL of a name in the string table.
                    *slot = unsafe { entry(self.strings + symbol.name as usize, len) };
                    if *slot == 0 {
                        break;
                    }
                    len += 1;
                }
                if let Some(name) = name.get(..len) {
                    visit(self.bias.wrapping_add(relocation.offset as usize), name);
                }
            }
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

const _: () = assert!(size_of::<Symbol>() == 24);
const _: () = assert!(size_of::<Relocation>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_where_the_dynamic_linker_finds_them() {
        let mut seen = 0;
        crate::elf::for_each(|object| {
            let tables = Tables::of(&object);
            for (name, expected) in [
                (&b"read"[..], libc::read as *const () as usize),
                (b"__errno_location", libc::__errno_location as *const () as usize),
                (b"execveat", 0),
            ] {
                if let Some(found) = tables.function(name) {
                    assert!(expected == 0 || found == expected);
                    seen += 1;
                }
            }
            assert_eq!(tables.function(b"no such function"), None);
        });
        assert!(seen >= 3, "{seen}");
    }

    #[test]
    fn tables_are_found_wherever_an_object_is_linked_and_lies() {
        const LIES: usize = 0x7f12_3456_7000;
        for linked in [0usize, 0x1000, 0x40_0000, 0x5555_5555_4000, 0x7fff_ff00_0000] {
            let bias = LIES.wrapping_sub(linked);
            let object = Object::new(bias, LIES + 0x3000);
            assert_eq!(address(&object, LIES + 0x300), LIES + 0x300, "glibc: {linked:#x}");
        }
        // As musl, or the vDSO, has them.
        for linked in [0, 0x40_0000, 0x5555_5555_4000] {
            let object = Object::new(LIES - linked, LIES + 0x3000);
            assert_eq!(address(&object, linked + 0x300), LIES + 0x300, "musl: {linked:#x}");
        }
        let fixed = Object::new(0, 0x40_3000);
        assert_eq!(address(&fixed, 0x40_0300), 0x40_0300);
    }

    #[test]
    fn the_environment_of_the_library_is_the_first_that_is_defined() {
        let mut found = None;
        crate::elf::for_each(|object| {
            let tables = Tables::of(&object);
            assert_eq!(tables.function(b"environ"), None, "a variable");
            found = found.or_else(|| tables.variable(b"environ"));
        });
        assert_eq!(found, Some(&raw const libc::environ as usize));
    }

    #[test]
    fn the_slots_of_this_program_are_seen() {
        let mut names = 0;
        crate::elf::for_each(|object| {
            Tables::of(&object).for_each_slot(|slot, name| {
                assert!(slot != 0);
                names += usize::from(name == b"read" || name == b"__errno_location");
            });
        });
        assert!(names > 0);
    }
}
