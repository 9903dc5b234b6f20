//! An ELF object taken apart for the analysis: code, data, functions, and
//! every pointer into the code that the file shows.

use gimli::{BaseAddresses, CieOrFde, EhFrame, UnwindSection};
use object::read::elf::ElfFile64;
use object::read::{Object, ObjectSection, ObjectSegment, ObjectSymbol, RelocationTarget};
use object::{LittleEndian, SectionFlags, SegmentFlags, SymbolKind, elf};
use thiserror::Error;

/// Largest file that is analysed, in bytes (libc.so.6 has 2 MB).
pub const FILE_LEN_MAX: usize = 64 << 20;

/// Why an object cannot be analysed at all.
#[derive(Debug, Error)]
pub enum ImageError {
    /// Not a readable ELF64 file.
    #[error("not a readable 64-bit ELF file: {0}")]
    Elf(#[from] object::Error),
    /// Its call frame information is damaged, so functions are unknown.
    #[error("damaged call frame information: {0}")]
    Frames(#[from] gimli::Error),
    /// Not code for x86-64.
    #[error("not an x86-64 library")]
    OtherMachine,
    /// Larger than [`FILE_LEN_MAX`], or nothing executable in it.
    #[error("no code, or more than {FILE_LEN_MAX} bytes")]
    Size,
}

/// A run of bytes with the address at which it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Region<'d> {
    /// Virtual address of the first byte in the file's own numbering.
    pub address: u64,
    /// The bytes.
    pub bytes: &'d [u8],
}

impl<'d> Region<'d> {
    /// Address after the last byte.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }

    /// The bytes from `address` on, where it lies inside.
    pub fn from(&self, address: u64) -> Option<&'d [u8]> {
        let skip = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.bytes.get(skip..).filter(|rest| !rest.is_empty())
    }
}

/// A function as the call frame information knows it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Address of its table of landing pads.
    pub landing_table: Option<u64>,
}

/// An object taken apart.
#[derive(Debug)]
pub struct Image<'d> {
    /// Executable regions, sorted by address, not overlapping.
    pub code: Vec<Region<'d>>,
    /// Loaded regions that are not executable.
    pub data: Vec<Region<'d>>,
    /// Where functions start, by symbol; unsorted.
    pub function_starts: Vec<u64>,
    /// Functions by call frame information.
    pub frames: Vec<Frame>,
    /// Addresses that symbols and relocations name; unsorted, some in data.
    pub named: Vec<u64>,
    /// Functions that must be left alone whatever they look like.
    pub forbidden: Vec<u64>,
}

/// Functions whose program counter somebody checks (cancellation: glibc 2.41
/// and musl), or that have no stack to spare.
const FORBIDDEN: &[&[u8]] = &[
    b"__syscall_cancel_arch",
    b"__syscall_cancel_arch_start",
    b"__syscall_cp_asm",
    b"__cp_begin",
    b"__restore_rt",
    b"__unmapself",
];

impl<'d> Image<'d> {
    /// Takes a whole ELF file apart.
    ///
    /// # Errors
    /// [`ImageError`]; every input is safe.
    pub fn parse(file: &'d [u8]) -> Result<Image<'d>, ImageError> {
        if file.len() > FILE_LEN_MAX {
            return Err(ImageError::Size);
        }
        let object = ElfFile64::<LittleEndian>::parse(file)?;
        if object.elf_header().e_machine.get(LittleEndian) != elf::EM_X86_64 {
            return Err(ImageError::OtherMachine);
        }
        let (mut code, data) = regions(&object)?;
        code.sort_by_key(|region| region.address);
        let overlap = code.windows(2).any(|pair| pair[0].end() > pair[1].address);
        let span = code.first().zip(code.last()).map(|(first, last)| last.end() - first.address);
        if overlap || span.is_none_or(|span| span > FILE_LEN_MAX as u64) {
            return Err(ImageError::Size);
        }
        let mut image = Image {
            code,
            data,
            function_starts: Vec::new(),
            frames: Vec::new(),
            named: vec![object.entry()],
            forbidden: Vec::new(),
        };
        image.add_symbols(&object);
        image.add_relocations(&object);
        image.frames = frames(&object)?;
        Ok(image)
    }

    /// The executable region that holds `address`.
    pub fn code_at(&self, address: u64) -> Option<&Region<'d>> {
        let after = self.code.partition_point(|region| region.address <= address);
        self.code.get(after.checked_sub(1)?).filter(|region| address < region.end())
    }

    fn add_symbols(&mut self, object: &ElfFile64<'d, LittleEndian>) {
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if symbol.is_undefined() || self.code_at(symbol.address()).is_none() {
                continue;
            }
            self.named.push(symbol.address());
            let kind = symbol.elf_symbol().st_info & 0xf;
            if symbol.kind() == SymbolKind::Text || kind == elf::STT_GNU_IFUNC {
                self.function_starts.push(symbol.address());
            }
            if symbol.name_bytes().is_ok_and(|name| FORBIDDEN.contains(&name)) {
                self.forbidden.push(symbol.address());
            }
        }
    }

    fn add_relocations(&mut self, object: &ElfFile64<'d, LittleEndian>) {
        let Some(relocations) = object.dynamic_relocations() else { return };
        let symbols: Vec<u64> = object.dynamic_symbols().map(|symbol| symbol.address()).collect();
        for (_, relocation) in relocations {
            // `symbols` leaves out the null symbol, index 0.
            let base = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    index.0.checked_sub(1).and_then(|at| symbols.get(at)).copied().unwrap_or(0)
                }
                _ => 0,
            };
            self.named.push(base.wrapping_add(relocation.addend() as u64));
        }
    }
}

/// Executable and other loaded regions: by section, or by segment where the
/// section headers were stripped.
fn regions<'d>(
    object: &ElfFile64<'d, LittleEndian>,
) -> Result<(Vec<Region<'d>>, Vec<Region<'d>>), ImageError> {
    let (mut code, mut data) = (Vec::new(), Vec::new());
    for section in object.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        if sh_flags & u64::from(elf::SHF_ALLOC) == 0 {
            continue;
        }
        let region = Region { address: section.address(), bytes: section.data()? };
        let executable = sh_flags & u64::from(elf::SHF_EXECINSTR) != 0;
        push(if executable { &mut code } else { &mut data }, region);
    }
    if code.is_empty() {
        data.clear();
        for segment in object.segments() {
            let SegmentFlags::Elf { p_flags } = segment.flags() else { continue };
            let region = Region { address: segment.address(), bytes: segment.data()? };
            push(if p_flags & elf::PF_X != 0 { &mut code } else { &mut data }, region);
        }
    }
    Ok((code, data))
}

fn push<'d>(regions: &mut Vec<Region<'d>>, region: Region<'d>) {
    if !region.bytes.is_empty() && region.address.checked_add(region.bytes.len() as u64).is_some() {
        regions.push(region);
    }
}

/// Every function that `.eh_frame` describes.
fn frames(object: &ElfFile64<'_, LittleEndian>) -> Result<Vec<Frame>, ImageError> {
    let Some(section) = object.section_by_name(".eh_frame") else { return Ok(Vec::new()) };
    let text = object.section_by_name(".text").map_or(0, |text| text.address());
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
    let table = EhFrame::new(section.data()?, gimli::LittleEndian);
    let mut frames = Vec::new();
    let mut entries = table.entries(&bases);
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let frame = partial.parse(|_, bases, offset| table.cie_from_offset(bases, offset))?;
        let start = frame.initial_address();
        frames.push(Frame {
            start,
            end: start.saturating_add(frame.len()),
            landing_table: frame.lsda().map(gimli::Pointer::pointer),
        });
    }
    Ok(frames)
}
