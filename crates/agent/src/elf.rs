//! The loaded objects of this process, as the dynamic linker lists them.

use crate::{opening, sys};
use core::cell::Cell;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// An object in memory, ELF64.
#[derive(Clone, Debug)]
pub struct Object {
    /// Load bias: add it to a virtual address of the file.
    pub bias: usize,
    /// Address of its dynamic section.
    pub dynamic: usize,
    /// Its headers, once they are known: the program's own the kernel tells.
    headers: Cell<Option<&'static [ProgramHeader]>>,
}

#[repr(C)]
struct ElfHeader {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    program_headers: u64,
    section_headers: u64,
    flags: u32,
    len: u16,
    program_header_len: u16,
    program_header_count: u16,
    rest: [u16; 3],
}

/// `Elf64_Phdr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProgramHeader {
    /// Segment type.
    pub kind: u32,
    /// Permissions.
    pub flags: u32,
    offset: u64,
    /// Virtual address in the file.
    pub address: u64,
    physical: u64,
    file_len: u64,
    /// Length in memory.
    pub len: u64,
    align: u64,
}

/// `PT_LOAD`.
pub const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
/// `PF_X`.
pub const PF_X: u32 = 1;
/// `PF_W`.
pub const PF_W: u32 = 2;
const PF_R: u32 = 4;
/// `PT_GNU_RELRO`.
pub const PT_GNU_RELRO: u32 = 0x6474_e552;
const NT_GNU_BUILD_ID: u32 = 3;
const PROGRAM_HEADERS_MAX: usize = 64;
const OBJECTS_MAX: usize = 4096;
const DYNAMIC_MAX: usize = 512;
const AUXILIARY_MAX: usize = 64;

impl Object {
    /// With this bias, and its dynamic section at this address.
    pub const fn new(bias: usize, dynamic: usize) -> Object {
        Object { bias, dynamic, headers: Cell::new(None) }
    }

    /// Program headers; empty where there is no ELF header at the bias, or another
    /// object's.
    pub fn program_headers(&self) -> &'static [ProgramHeader] {
        if let Some(headers) = self.headers.get() {
            return headers;
        }
        let headers = headers_at(self.bias);
        let is_own = |header: &ProgramHeader| {
            let at = self.bias.wrapping_add(header.address as usize);
            header.kind == PT_DYNAMIC && at == self.dynamic
        };
        let headers = if headers.iter().any(is_own) { headers } else { &[] };
        self.headers.set(Some(headers));
        headers
    }

    /// The build-id note's descriptor.
    pub fn build_id(&self) -> Option<&'static [u8]> {
        let headers = self.program_headers();
        headers.iter().filter(|header| header.kind == PT_NOTE).find_map(|note| {
            // Notes need not be part of what is loaded (objcopy(1), `noload`).
            if !headers.iter().any(|segment| segment.loads(note)) {
                return None;
            }
            let start = self.bias.wrapping_add(note.address as usize);
            // SAFETY: in a segment that is loaded and may be read.
            let mut notes =
                unsafe { core::slice::from_raw_parts(start as *const u8, note.len as usize) };
            loop {
                let name_len = word(notes, 0)? as usize;
                let len = word(notes, 4)? as usize;
                let kind = word(notes, 8)?;
                let name_end = 12usize.checked_add(name_len)?;
                let at = name_end.checked_next_multiple_of(4)?;
                let end = at.checked_add(len)?;
                if kind == NT_GNU_BUILD_ID && notes.get(12..name_end)? == b"GNU\0" {
                    return notes.get(at..end);
                }
                notes = notes.get(end.checked_next_multiple_of(4)?..)?;
            }
        })
    }

    /// The pages of the executable segment in which `[start, start + len)`
    /// lies: the first's address, and the one after the last.
    pub fn code_pages(&self, start: usize, len: usize) -> Option<(usize, usize)> {
        let end = start.checked_add(len)?;
        self.program_headers().iter().find_map(|header| {
            let from = self.bias.wrapping_add(header.address as usize);
            let to = from.checked_add(header.len as usize)?;
            let is_it = header.kind == PT_LOAD && header.flags & PF_X != 0;
            (is_it && start >= from && end <= to)
                .then_some((from & !(sys::PAGE_SIZE - 1), to.next_multiple_of(sys::PAGE_SIZE)))
        })
    }

    /// Whether `[start, start + len)` lies in an executable segment.
    pub fn is_code(&self, start: usize, len: usize) -> bool {
        self.is_within(PF_X, start, len)
    }

    /// Whether `[start, start + len)` lies in a writable segment.
    pub fn is_data(&self, start: usize, len: usize) -> bool {
        self.is_within(PF_W, start, len)
    }

    fn is_within(&self, flag: u32, start: usize, len: usize) -> bool {
        self.program_headers().iter().any(|header| {
            let from = self.bias.wrapping_add(header.address as usize);
            header.kind == PT_LOAD
                && header.flags & flag != 0
                && start >= from
                && start.wrapping_add(len) <= from.wrapping_add(header.len as usize)
        })
    }
}

impl ProgramHeader {
    /// Whether this segment is loaded, to be read, with all of `part` in it.
    fn loads(&self, part: &ProgramHeader) -> bool {
        let end = part.address.checked_add(part.len);
        let own_end = self.address.checked_add(self.file_len);
        self.kind == PT_LOAD
            && self.flags & PF_R != 0
            && part.address >= self.address
            && end.zip(own_end).is_some_and(|(end, own_end)| end <= own_end)
    }
}

/// The program headers of what is mapped at this bias; empty where nothing is that begins
/// with an ELF header, as where a library is not linked at address 0. Outside its first
/// page, where hardly any file has them, they might not be mapped.
fn headers_at(bias: usize) -> &'static [ProgramHeader] {
    const HEADER_LEN: usize = size_of::<ProgramHeader>();
    if !bias.is_multiple_of(sys::PAGE_SIZE) || !sys::is_readable(bias) {
        return &[];
    }
    // SAFETY: the kernel has just read its page, and nothing is unloaded meanwhile.
    let header = unsafe { &*(bias as *const ElfHeader) };
    let at = header.program_headers as usize;
    let count = usize::from(header.program_header_count).min(PROGRAM_HEADERS_MAX);
    let end = at.checked_add(count * HEADER_LEN);
    let is_one = header.ident.get(..5) == Some(b"\x7fELF\x02")
        && usize::from(header.program_header_len) == HEADER_LEN
        && at.is_multiple_of(align_of::<ProgramHeader>())
        && end.is_some_and(|end| end <= sys::PAGE_SIZE);
    if !is_one {
        return &[];
    }
    // SAFETY: aligned, and in the same page.
    unsafe { core::slice::from_raw_parts((bias + at) as *const ProgramHeader, count) }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Calls `visit` for each loaded object.
pub fn for_each(mut visit: impl FnMut(Object)) {
    let Some(headers) = program_headers() else { return };
    let Some(mut entry) = link_map(headers) else { return };
    for index in 0..OBJECTS_MAX {
        if entry == 0 {
            return;
        }
        // SAFETY: a `struct link_map` of the dynamic linker: l_addr, l_name,
        // l_ld, l_next. Nothing is loaded or unloaded during a constructor.
        let [bias, _, dynamic, next] = unsafe { *(entry as *const [usize; 4]) };
        let object = Object::new(bias, dynamic);
        if index == 0 {
            object.headers.set(Some(headers));
        }
        visit(object);
        entry = next;
    }
}

/// First entry of the dynamic linker's list, found through the DT_DEBUG of the
/// program with these headers (`_r_debug.r_map`).
fn link_map(headers: &[ProgramHeader]) -> Option<usize> {
    const DT_DEBUG: usize = 21;
    let own_address = headers.as_ptr() as usize;
    const PT_PHDR: u32 = 6;
    let bias = match headers.iter().find(|header| header.kind == PT_PHDR) {
        Some(header) => own_address.wrapping_sub(header.address as usize),
        None => 0,
    };
    let dynamic = headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
    let at = bias.wrapping_add(dynamic.address as usize);
    for index in 0..DYNAMIC_MAX {
        // SAFETY: the program's dynamic section ends with DT_NULL.
        let [tag, value] = unsafe { *((at + index * 16) as *const [usize; 2]) };
        match tag {
            0 => return None,
            // SAFETY: r_debug: version, then r_map at offset 8.
            DT_DEBUG if value != 0 => return Some(unsafe { *((value + 8) as *const usize) }),
            _ => {}
        }
    }
    None
}

/// Load bias of the dynamic linker, which the kernel has loaded.
pub fn linker() -> Option<usize> {
    const AT_BASE: usize = 7;
    auxiliary([AT_BASE]).map(|[bias]| bias)
}

/// The program's own headers, from the auxiliary vector.
fn program_headers() -> Option<&'static [ProgramHeader]> {
    const AT_PHDR: usize = 3;
    const AT_PHNUM: usize = 5;
    let [address, count] = auxiliary([AT_PHDR, AT_PHNUM])?;
    if address == 0 || count > PROGRAM_HEADERS_MAX {
        return None;
    }
    // SAFETY: the kernel says that they are mapped there (getauxval(3)).
    Some(unsafe { core::slice::from_raw_parts(address as *const ProgramHeader, count) })
}

/// Address of the path that was executed: of a script its own, not its
/// interpreter's. At start; later the program may have written over it.
pub fn executed() -> Option<usize> {
    const AT_EXECFN: usize = 31;
    auxiliary([AT_EXECFN]).map(|[path]| path).filter(|&path| path != 0)
}

/// Where the kernel has left the auxiliary vector on the stack, if the
/// environment is still as it was; 0: not known.
pub static AUXILIARY: AtomicUsize = AtomicUsize::new(0);

/// Values of the auxiliary vector, 0 where absent; `None` without /proc.
fn auxiliary<const N: usize>(tags: [usize; N]) -> Option<[usize; N]> {
    let at = AUXILIARY.load(Relaxed) as *const Pair;
    if at.is_null() {
        return read_auxiliary(tags);
    }
    let pairs = (0..AUXILIARY_MAX).map(|index| {
        // SAFETY: behind the environment's last pointer on the start-up stack,
        // whose words are readable as far as AT_NULL: where a constructor has
        // moved pointers up, that is found at once.
        unsafe { *at.add(index) }
    });
    match values(pairs, tags) {
        values if values.contains(&0) => read_auxiliary(tags),
        values => Some(values),
    }
}

/// Tag and value.
type Pair = [usize; 2];

/// The same, asked of the kernel.
fn read_auxiliary<const N: usize>(tags: [usize; N]) -> Option<[usize; N]> {
    let mut bytes = [0u8; AUXILIARY_MAX * size_of::<Pair>()];
    let len = opening::undisturbed(b"/proc/self/auxv\0", |fd| sys::read(fd, &mut bytes))?;
    let (words, _) = bytes.get(..len.max(0) as usize)?.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    Some(values(pairs.iter().map(|pair| pair.map(usize::from_le_bytes)), tags))
}

/// The values of `tags` among `pairs`, which end with AT_NULL.
fn values<const N: usize>(pairs: impl Iterator<Item = Pair>, tags: [usize; N]) -> [usize; N] {
    const AT_NULL: usize = 0;
    let mut values = [0usize; N];
    for [tag, value] in pairs.take_while(|[tag, _]| *tag != AT_NULL) {
        for (slot, _) in values.iter_mut().zip(tags).filter(|(_, wanted)| *wanted == tag) {
            *slot = value;
        }
    }
    values
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    static __ehdr_start: u8;
    static __bss_start: u8;
    static _end: u8;
}

/// First address of the agent's image and the one after its last.
#[cfg(target_os = "none")]
pub fn own_image() -> (usize, usize) {
    // Only the addresses of the linker's symbols are taken.
    (&raw const __ehdr_start as usize, (&raw const _end as usize).next_multiple_of(sys::PAGE_SIZE))
}

/// The same of the zero memory in it, whole pages.
#[cfg(target_os = "none")]
pub fn own_zeroed() -> (usize, usize) {
    // As above.
    ((&raw const __bss_start as usize).next_multiple_of(sys::PAGE_SIZE), own_image().1)
}

/// On the host (unit tests) there is no image.
#[cfg(not(target_os = "none"))]
pub fn own_image() -> (usize, usize) {
    (0, 0)
}

/// Nor such memory.
#[cfg(not(target_os = "none"))]
pub fn own_zeroed() -> (usize, usize) {
    (0, 0)
}

/// Bytes of the agent's file that are loaded, from its first on.
pub fn own_file_len() -> usize {
    let segments = headers_at(own_image().0).iter().filter(|header| header.kind == PT_LOAD);
    segments.map(|header| (header.offset + header.file_len) as usize).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u32, flags: u32, address: usize, len: usize) -> ProgramHeader {
        let (address, len) = (address as u64, len as u64);
        let (physical, align) = (address, 4);
        ProgramHeader { kind, flags, offset: 0, address, physical, file_len: len, len, align }
    }

    #[test]
    fn headers_are_read_where_they_are_mapped_and_the_objects_own() {
        let (mut seen, mut others) = (0, 0);
        for_each(|object| {
            seen += usize::from(!object.program_headers().is_empty());
            let other = Object::new(object.bias, object.dynamic + 16);
            others += other.program_headers().len();
        });
        assert!(seen >= 3 && others == 0, "{seen}, {others}");
        for bias in [0, 1, sys::PAGE_SIZE, usize::MAX & !(sys::PAGE_SIZE - 1)] {
            let object = Object::new(bias, 0);
            assert!(object.program_headers().is_empty() && object.build_id().is_none());
        }
    }

    #[test]
    fn a_note_is_read_where_it_is_loaded() {
        let mut note = [0u32; 5];
        (note[0], note[1], note[2]) = (4, 4, NT_GNU_BUILD_ID);
        note[3] = u32::from_le_bytes(*b"GNU\0");
        note[4] = 0x0403_0201;
        let (bias, len) = (note.as_ptr() as usize, size_of_val(&note));
        let id = |segment: ProgramHeader, address: usize| {
            let headers: &'static [_] = std::boxed::Box::leak(std::boxed::Box::new([
                header(PT_NOTE, 0, address, len),
                segment,
            ]));
            Object { bias, dynamic: 0, headers: Cell::new(Some(headers)) }.build_id()
        };
        assert_eq!(id(header(PT_LOAD, PF_R, 0, len), 0), Some(&[1, 2, 3, 4][..]));
        assert_eq!(id(header(PT_LOAD, PF_R, 0, len - 1), 0), None);
        assert_eq!(id(header(PT_LOAD, PF_X, 0, len), 0), None);
        assert_eq!(id(header(PT_LOAD, PF_R, 16, len), 0), None);
        for away in [1 << 46, usize::MAX, 0usize.wrapping_sub(bias)] {
            assert_eq!(id(header(PT_LOAD, PF_R, 0, len), away), None);
        }
    }

    #[test]
    fn the_vector_on_the_stack_is_the_kernels() {
        const AT_PHDR: usize = 3;
        const AT_PAGESZ: usize = 6;
        let tags = [AT_PAGESZ, AT_PHDR, 0xdead];
        let [page, headers, absent] = read_auxiliary(tags).unwrap();
        assert_eq!((page, absent), (sys::PAGE_SIZE, 0));
        let vector = [[AT_PHDR, headers], [AT_PAGESZ, page], [0, 0], [AT_PHDR, 1]];
        assert_eq!(values(vector.into_iter(), tags), [page, headers, 0]);
        assert!(program_headers().is_some());
        let shifted: [Pair; 3] = [[0, AT_PHDR], [headers, 0], [0, 0]];
        for (vector, rest) in [(&vector[..], 0), (&shifted[..], 0)] {
            AUXILIARY.store(vector.as_ptr() as usize, Relaxed);
            assert_eq!(auxiliary([AT_PHDR, AT_PAGESZ]), Some([headers, page]));
            AUXILIARY.store(rest, Relaxed);
        }
    }
}
