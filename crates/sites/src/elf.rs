//! The first pages of an ELF file: enough to say what kind of program or
//! library it is, without decoding it. A few microseconds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use object::LittleEndian;
use object::elf;
use object::pod;
use runahead_protocol::sites::BUILD_ID_LEN_MAX;

/// Bytes read at once; headers and notes of nearly every file lie in them.
const PREFIX_LEN: usize = 4096;
/// Most program headers that are looked at.
const PROGRAM_HEADERS_MAX: usize = 256;
/// Longest interpreter path or note segment that is read, in bytes.
const PART_LEN_MAX: u64 = 64 * 1024;
/// The name of GNU's notes.
const NOTE_NAME: &[u8] = b"GNU\0";

type Endian = LittleEndian;
const LE: Endian = LittleEndian;

/// The descriptor of an `NT_GNU_BUILD_ID` note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildId {
    bytes: [u8; BUILD_ID_LEN_MAX],
    len: u8,
}

impl BuildId {
    /// A build-id from its bytes; `None` where they are none or more than
    /// [`BUILD_ID_LEN_MAX`].
    pub fn new(bytes: &[u8]) -> Option<BuildId> {
        if bytes.is_empty() || bytes.len() > BUILD_ID_LEN_MAX {
            return None;
        }
        let mut padded = [0; BUILD_ID_LEN_MAX];
        padded[..bytes.len()].copy_from_slice(bytes);
        Some(BuildId { bytes: padded, len: bytes.len() as u8 })
    }

    /// The bytes that count.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The bytes, zero-padded as they stand in the table.
    pub fn padded(&self) -> [u8; BUILD_ID_LEN_MAX] {
        self.bytes
    }
}

/// What an ELF file's headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `EI_CLASS` is `ELFCLASS64`.
    pub is_64_bit: bool,
    /// `e_machine` is `EM_X86_64`.
    pub is_x86_64: bool,
    /// `e_type` is `ET_EXEC` or `ET_DYN`.
    pub is_loadable: bool,
    /// Path in `PT_INTERP`, without the NUL; `None`: statically linked.
    pub interpreter: Option<Vec<u8>>,
    /// The GNU build-id.
    pub build_id: Option<BuildId>,
}

/// Reads the headers of an ELF file.
///
/// Returns `None` where the file is not ELF. A 32-bit or big-endian file is
/// told by its flags; nothing else of it is read. Damaged headers read as
/// absent.
///
/// # Errors
/// Those of `pread(2)`.
pub fn read_head(file: &File) -> io::Result<Option<Head>> {
    let mut prefix = [0u8; PREFIX_LEN];
    let len = read_up_to(file, &mut prefix, 0)?;
    let prefix = &prefix[..len];
    if prefix.len() < 20 || !prefix.starts_with(&elf::ELFMAG) {
        return Ok(None);
    }
    let mut head = Head {
        is_64_bit: prefix[4] == elf::ELFCLASS64 && prefix[5] == elf::ELFDATA2LSB,
        ..Head::default()
    };
    if !head.is_64_bit {
        return Ok(Some(head));
    }
    let Ok((header, _)) = pod::from_bytes::<elf::FileHeader64<Endian>>(prefix) else {
        return Ok(Some(head));
    };
    head.is_x86_64 = header.e_machine.get(LE) == elf::EM_X86_64;
    head.is_loadable = matches!(header.e_type.get(LE), elf::ET_EXEC | elf::ET_DYN);

    let count = usize::from(header.e_phnum.get(LE)).min(PROGRAM_HEADERS_MAX);
    let table_len = (count * size_of::<elf::ProgramHeader64<Endian>>()) as u64;
    let table = read_part(file, prefix, header.e_phoff.get(LE), table_len)?;
    let fit = table.len() / size_of::<elf::ProgramHeader64<Endian>>();
    let Ok((segments, _)) = pod::slice_from_bytes::<elf::ProgramHeader64<Endian>>(&table, fit)
    else {
        return Ok(Some(head));
    };
    for segment in segments {
        let (offset, len) = (segment.p_offset.get(LE), segment.p_filesz.get(LE));
        match segment.p_type.get(LE) {
            elf::PT_INTERP => {
                let mut path = read_part(file, prefix, offset, len)?;
                path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(path.len()));
                head.interpreter = Some(path);
            }
            elf::PT_NOTE if head.build_id.is_none() => {
                let notes = read_part(file, prefix, offset, len)?;
                head.build_id = find_build_id(&notes, segment.p_align.get(LE));
            }
            _ => {}
        }
    }
    Ok(Some(head))
}

/// The build-id among the notes of one segment, whose alignment (4 or 8)
/// pads names and descriptors.
fn find_build_id(mut notes: &[u8], align: u64) -> Option<BuildId> {
    let align = if align == 8 { 8 } else { 4 };
    while let Some((header, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
        let (name_len, descriptor_len) = (word(0) as usize, word(4) as usize);
        let name = rest.get(..name_len)?;
        // The descriptor starts at an aligned offset from the note's header.
        let start = (12 + name_len).next_multiple_of(align) - 12;
        let descriptor = rest.get(start..start.checked_add(descriptor_len)?)?;
        if word(8) == elf::NT_GNU_BUILD_ID && name == NOTE_NAME {
            return BuildId::new(descriptor);
        }
        let next = (12 + start + descriptor_len).next_multiple_of(align) - 12;
        notes = rest.get(next..)?;
    }
    None
}

/// Bytes `[offset, offset + len)` of the file, as far as they exist; at most
/// [`PART_LEN_MAX`].
fn read_part(file: &File, prefix: &[u8], offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let len = len.min(PART_LEN_MAX) as usize;
    if let Some(part) =
        usize::try_from(offset).ok().and_then(|start| prefix.get(start..start.checked_add(len)?))
    {
        return Ok(part.to_vec());
    }
    // Offsets past what `pread` accepts belong to damaged headers.
    if offset > i64::MAX as u64 - PART_LEN_MAX {
        return Ok(Vec::new());
    }
    let mut part = vec![0; len];
    let got = read_up_to(file, &mut part, offset)?;
    part.truncate(got);
    Ok(part)
}

/// Fills `buffer` from `offset` on, as far as the file goes.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
