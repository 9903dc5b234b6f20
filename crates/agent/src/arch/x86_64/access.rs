//! Which memory an instruction accesses (Intel's Software Developer's Manual,
//! volume 2, chapter 2). A hint: where it is not known, nobody is misled.

use super::redirect::{Bytes, Registers};

const RSI: u8 = 6;
const RDI: u8 = 7;

/// What the opcode's prefixes extend.
#[derive(Clone, Copy, Default)]
struct Extensions {
    index: u8,
    base: u8,
    /// What a displacement of one byte is multiplied by (EVEX).
    scale: isize,
}

/// Addresses that the instruction at `instruction` accesses with these
/// registers; 0: none, or not known. Two where it moves from memory to memory.
pub fn accessed(instruction: usize, bytes: &Bytes, registers: &Registers) -> [usize; 2] {
    let code = bytes.bytes.get(..bytes.len).unwrap_or(&[]);
    let mut reader = Reader { code, at: 0, instruction, registers };
    reader.instruction().unwrap_or([0; 2])
}

struct Reader<'c> {
    code: &'c [u8],
    at: usize,
    instruction: usize,
    registers: &'c Registers,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.code.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn register(&self, number: u8) -> Option<usize> {
        self.registers.get(usize::from(number)).copied()
    }

    fn instruction(&mut self) -> Option<[usize; 2]> {
        let mut extensions = Extensions { scale: 1, ..Extensions::default() };
        let mut opcode = self.byte()?;
        loop {
            match opcode {
                // fs and gs: relative to the thread's own block.
                0x64 | 0x65 => return None,
                0x26 | 0x2e | 0x36 | 0x3e | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 => {
                    opcode = self.byte()?;
                }
                _ => break,
            }
        }
        if opcode & 0xf0 == 0x40 {
            extensions.index = opcode << 2 & 8;
            extensions.base = opcode << 3 & 8;
            opcode = self.byte()?;
        }
        let has_operand = match opcode {
            0x0f => {
                let second = self.byte()?;
                match second {
                    0x38 | 0x3a => self.byte().is_some(),
                    0x05..=0x0c | 0x0e | 0x30..=0x37 | 0x77 | 0x80..=0x8f | 0xa2 | 0xc8..=0xcf => {
                        false
                    }
                    _ => true,
                }
            }
            0xc5 => {
                self.byte()?;
                self.byte().is_some()
            }
            0xc4 => {
                let first = self.byte()?;
                extensions.index = !first >> 3 & 8;
                extensions.base = !first >> 2 & 8;
                self.byte()?;
                // Gathers have an address for each element.
                let opcode = self.byte()?;
                !(first & 31 == 2 && (0x90..=0x93).contains(&opcode))
            }
            0x62 => {
                let first = self.byte()?;
                extensions.index = !first >> 3 & 8;
                extensions.base = !first >> 2 & 8;
                self.byte()?;
                extensions.scale = 16 << (self.byte()? >> 5 & 3).min(2);
                let opcode = self.byte()?;
                !(first & 7 == 2
                    && ((0x90..=0x93).contains(&opcode) || (0xa0..=0xa3).contains(&opcode)))
            }
            // Strings.
            0xa4..=0xa7 => return Some([self.register(RSI)?, self.register(RDI)?]),
            0xaa | 0xab | 0xae | 0xaf => return Some([self.register(RDI)?, 0]),
            0xac | 0xad => return Some([self.register(RSI)?, 0]),
            0x00..=0x3f => opcode & 7 < 4,
            0x63 | 0x69 | 0x6b | 0x80..=0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 => true,
            0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff => true,
            _ => false,
        };
        if !has_operand {
            return None;
        }
        self.operand(extensions).map(|address| [address, 0])
    }

    /// ModR/M, SIB and displacement.
    fn operand(&mut self, extensions: Extensions) -> Option<usize> {
        let operand = self.byte()?;
        let (mode, low) = (operand >> 6, operand & 7);
        let mut address = 0usize;
        match (mode, low) {
            (3, _) => return None,
            (_, 4) => {
                let sib = self.byte()?;
                let (index, base) = (sib >> 3 & 7 | extensions.index, sib & 7);
                if index != 4 {
                    address = self.register(index)? << (sib >> 6);
                }
                if mode == 0 && base == 5 {
                    return Some(address.wrapping_add_signed(self.displacement(4)?));
                }
                address = address.wrapping_add(self.register(base | extensions.base)?);
            }
            (0, 5) => {
                // Relative to what follows, but for an operand in there.
                let displacement = self.displacement(4)?;
                return Some((self.instruction + self.at).wrapping_add_signed(displacement));
            }
            _ => address = self.register(low | extensions.base)?,
        }
        let displacement = match mode {
            1 => self.displacement(1)?.wrapping_mul(extensions.scale),
            2 => self.displacement(4)?,
            _ => 0,
        };
        Some(address.wrapping_add_signed(displacement))
    }

    fn displacement(&mut self, len: usize) -> Option<isize> {
        let mut bytes = [0; 4];
        for byte in bytes.iter_mut().take(len) {
            *byte = self.byte()?;
        }
        let value = i32::from_le_bytes(bytes);
        Some(if len == 1 { isize::from(value as i8) } else { value as isize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &[u8], registers: &Registers) -> [usize; 2] {
        let mut bytes = [0; 16];
        bytes[..code.len()].copy_from_slice(code);
        accessed(0x40_0000, &Bytes { bytes, len: code.len() }, registers)
    }

    #[test]
    fn the_address_of_an_operand_is_worked_out() {
        let registers: Registers = core::array::from_fn(|number| 0x1000 * (number + 1));
        let cases: [(&[u8], [usize; 2]); 15] = [
            (&[0x0f, 0xb6, 0x07], [0x8000, 0]), // movzx eax, byte [rdi]
            (&[0x48, 0x8b, 0x44, 0x91, 0x08], [0x2000 + 0x3000 * 4 + 8, 0]), // mov rax,[rcx+rdx*4+8]
            (&[0x4b, 0x8b, 0x04, 0x27], [0x10000 + 0xd000, 0]),              // mov rax,[r15+r12]
            (&[0x8b, 0x45, 0xf8], [0x6000 - 8, 0]),                          // mov eax,[rbp-8]
            (&[0x8b, 0x05, 0x10, 0, 0, 0], [0x40_0016, 0]),                  // mov eax,[rip+16]
            (&[0x8b, 0x04, 0x25, 0x34, 0x12, 0, 0], [0x1234, 0]),            // mov eax,[0x1234]
            (&[0xf3, 0xa4], [0x7000, 0x8000]),                               // rep movsb
            (&[0xf3, 0xab], [0x8000, 0]),                                    // rep stosd
            (&[0xc5, 0xfe, 0x6f, 0x46, 0x20], [0x7020, 0]), // vmovdqu ymm0,[rsi+32]
            (&[0xc4, 0xc1, 0x7e, 0x6f, 0x07], [0x10000, 0]), // vmovdqu ymm0,[r15]
            (&[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x46, 0x01], [0x7040, 0]), // vmovdqu64 zmm0,[rsi+64]
            (&[0xc4, 0xe2, 0xed, 0x92, 0x04, 0x08], [0, 0]), // vgatherdpd
            (&[0x48, 0x89, 0xc3], [0, 0]),                  // mov rbx, rax
            (&[0x64, 0x8b, 0x04, 0x25, 0, 0, 0, 0], [0, 0]), // mov eax, fs:[0]
            (&[0x8b], [0, 0]),                              // cut off
        ];
        for (code, expected) in cases {
            assert_eq!(of(code, &registers), expected, "{code:x?}");
        }
    }
}
