//! What the agent's image must be, whatever the compiler made of it: no
//! needs, nothing undefined, no vector register, no panic that can be reached.

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

/// Aligned, as the parser wants its input.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

static AGENT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/agent.so")));

fn image() -> object::File<'static> {
    object::File::parse(&AGENT.0).unwrap()
}

#[test]
fn it_needs_no_library_and_no_symbol() {
    let image = image();
    assert!(image.imports().unwrap().is_empty());
    assert_eq!(image.dynamic_symbols().filter(|symbol| symbol.is_undefined()).count(), 0);
    assert!(image.exports().unwrap().is_empty(), "it must not interpose on anybody's symbols");
    let dynamic = image.section_by_name(".dynamic").unwrap().data().unwrap();
    let needed = dynamic.chunks_exact(16).filter(|entry| entry[..8] == 1u64.to_le_bytes()).count();
    assert_eq!(needed, 0, "DT_NEEDED");
    assert!(image.section_by_name(".tdata").is_none() && image.section_by_name(".tbss").is_none());
}

#[test]
fn it_uses_no_vector_or_floating_point_register() {
    let mut info = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let mut seen = 0;
    for section in image().sections().filter(|section| section.kind() == SectionKind::Text) {
        let code = section.data().unwrap();
        let mut decoder = Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            seen += 1;
            for used in info.info(&instruction).used_registers() {
                let register = used.register();
                assert!(
                    !(register.is_vector_register() || register.is_st() || register.is_mm()),
                    "{register:?} at {:#x}",
                    instruction.ip()
                );
            }
        }
    }
    assert!(seen > 1000);
}

#[test]
fn it_cannot_panic() {
    let image = image();
    let names: Vec<&str> = image.symbols().filter_map(|symbol| symbol.name().ok()).collect();
    assert!(names.contains(&"ra_hook_entry"), "the symbol table is there to be looked at");
    let panics: Vec<_> = names
        .iter()
        .filter(|name| name.contains("panicking") || name.contains("slice_index_fail"))
        .collect();
    assert!(panics.is_empty(), "reachable: {panics:?}");
}

/// What the image may write to a collector of garbage reads, and every copy has (regions
/// from 2 MiB on are brought into it later).
#[test]
fn it_writes_to_little_of_itself() {
    const PT_LOAD: u32 = 1;
    const PF_W: u32 = 2;
    const REGION_MIN: u64 = 2 << 20;
    let header = object::elf::FileHeader64::<object::Endianness>::parse(&AGENT.0[..]).unwrap();
    let end = object::Endianness::Little;
    let segments = header.program_headers(end, &AGENT.0[..]).unwrap();
    let writable = |segment: &&object::elf::ProgramHeader64<object::Endianness>| {
        segment.p_type(end) == PT_LOAD && segment.p_flags(end) & PF_W != 0
    };
    let bytes: Vec<u64> =
        segments.iter().filter(writable).map(|segment| segment.p_memsz(end)).collect();
    assert!(bytes.len() == 1 && bytes[0] < REGION_MIN, "{bytes:?}");
}
