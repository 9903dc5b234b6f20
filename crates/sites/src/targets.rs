//! Every address that a branch may land on, as far as the file shows, and
//! some more: what is marked in error costs a site, what is missed could cost
//! a result.

use gimli::{EndianSlice, LittleEndian, Reader};
use iced_x86::{Code, Instruction, OpKind};

use crate::constant::is_jump;
use crate::image::{Frame, Image, Region};
use crate::sweep;

/// Most entries of a jump table that are followed.
const JUMP_TABLE_LEN_MAX: usize = 4096;

/// Branch targets of an object.
#[derive(Debug)]
pub struct Targets {
    marked: Addresses,
    /// Those of them that something else than a jump of the same span may come
    /// to.
    elsewhere: Addresses,
    /// Jumps and calls that the sweep has decoded.
    branches: Addresses,
    /// Code addresses that the code itself takes, sorted.
    taken: Vec<u64>,
    /// Functions whose landing pads could not be read, sorted.
    unreadable: Vec<u64>,
}

impl Targets {
    /// Collects the targets of an object.
    pub fn collect(image: &Image<'_>) -> Targets {
        let none = Addresses::none(image);
        let mut targets = Targets {
            marked: none.clone(),
            elsewhere: none.clone(),
            branches: none,
            taken: Vec::new(),
            unreadable: Vec::new(),
        };
        for &address in image.named.iter().chain(&image.function_starts) {
            targets.mark(address);
        }
        for span in sweep::spans(image) {
            targets.mark(span.address);
            sweep::decode(&span, |instruction| {
                targets.mark_instruction(image, &span, instruction);
            });
        }
        for region in &image.code {
            targets.mark_wherever_decoded(region);
        }
        for region in &image.data {
            targets.mark_pointers(region);
        }
        for frame in &image.frames {
            targets.mark(frame.start);
            if targets.mark_landing_pads(image, frame).is_none() {
                targets.unreadable.push(frame.start);
            }
        }
        targets.taken.sort_unstable();
        targets.unreadable.sort_unstable();
        targets
    }

    /// Whether a branch may land on `address`.
    pub fn contains(&self, address: u64) -> bool {
        self.marked.contains(address)
    }

    /// Whether something else may than the jumps of the span that it lies in.
    pub(crate) fn comes_from_elsewhere(&self, address: u64) -> bool {
        self.elsewhere.contains(address)
    }

    /// Addresses strictly inside `(start, end)` that the code takes, sorted.
    pub fn labels_inside(&self, start: u64, end: u64) -> &[u64] {
        let first = self.taken.partition_point(|&label| label <= start);
        let last = self.taken.partition_point(|&label| label < end);
        self.taken.get(first..last).unwrap_or(&[])
    }

    /// Whether the landing pads of the function at `start` are unknown.
    pub fn are_unreadable(&self, start: u64) -> bool {
        self.unreadable.binary_search(&start).is_ok()
    }

    fn mark(&mut self, address: u64) {
        self.marked.insert(address);
        self.elsewhere.insert(address);
    }

    fn mark_instruction(
        &mut self,
        image: &Image<'_>,
        span: &Region<'_>,
        instruction: &Instruction,
    ) {
        if (0..instruction.op_count())
            .any(|operand| matches!(instruction.op_kind(operand), OpKind::NearBranch64))
        {
            let target = instruction.near_branch_target();
            self.branches.insert(instruction.ip());
            self.marked.insert(target);
            if !is_jump(instruction) || !(span.address..span.end()).contains(&target) {
                self.elsewhere.insert(target);
            }
        }
        if instruction.code() == Code::Endbr64 {
            self.mark(instruction.ip());
        }
        if !instruction.is_ip_rel_memory_operand() {
            return;
        }
        let address = instruction.ip_rel_memory_address();
        if image.code_at(address).is_some() {
            self.mark(address);
            self.taken.push(address);
        } else if instruction.code() == Code::Lea_r64_m {
            self.mark_jump_table(image, address);
        }
    }

    /// A table of 32-bit distances from its own start, as compilers emit
    /// them for `switch`; reading on until an entry leaves the code takes
    /// neighbours for entries, which is harmless.
    fn mark_jump_table(&mut self, image: &Image<'_>, address: u64) {
        let Some(bytes) = image.data.iter().find_map(|region| region.from(address)) else {
            return;
        };
        for entry in bytes.as_chunks::<4>().0.iter().take(JUMP_TABLE_LEN_MAX) {
            let target = address.wrapping_add_signed(i64::from(i32::from_le_bytes(*entry)));
            if image.code_at(target).is_none() {
                return;
            }
            self.mark(target);
        }
    }

    /// 32-bit branches at every byte, whatever the sweep made of them.
    /// (Doing so for 8-bit ones would mark a tenth of all bytes.)
    fn mark_wherever_decoded(&mut self, region: &Region<'_>) {
        for (at, window) in region.bytes.windows(5).enumerate() {
            let call_or_jump = matches!(window[0], 0xe8 | 0xe9);
            let conditional = window[0] & 0xf0 == 0x80 && at > 0 && region.bytes[at - 1] == 0x0f;
            let start = region.address + at as u64 - u64::from(conditional);
            if (call_or_jump || conditional) && !self.branches.contains(start) {
                let distance = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
                let next = region.address + at as u64 + 5;
                self.mark(next.wrapping_add_signed(i64::from(distance)));
            }
        }
    }

    /// Words of data that could be pointers into the code. This covers
    /// `DT_RELR`, whose addends stand in place.
    fn mark_pointers(&mut self, region: &Region<'_>) {
        let skip = (region.address.next_multiple_of(8) - region.address) as usize;
        for word in region.bytes.get(skip..).unwrap_or(&[]).as_chunks::<8>().0 {
            self.mark(u64::from_le_bytes(*word));
        }
    }

    /// Marks the landing pads of a function (Itanium C++ ABI, exception
    /// handling tables, level II). `None`: the table could not be read.
    fn mark_landing_pads(&mut self, image: &Image<'_>, frame: &Frame) -> Option<()> {
        let Some(address) = frame.landing_table else { return Some(()) };
        let bytes = image.data.iter().find_map(|region| region.from(address))?;
        let mut table = EndianSlice::new(bytes, LittleEndian);
        const OMITTED: u8 = 0xff;
        if table.read_u8().ok()? != OMITTED {
            // Pads relative to something else than the function: never seen.
            return None;
        }
        if table.read_u8().ok()? != OMITTED {
            table.read_uleb128().ok()?;
        }
        let encoding = table.read_u8().ok()?;
        let len = usize::try_from(table.read_uleb128().ok()?).ok()?;
        let mut calls = table.split(len).ok()?;
        while !calls.is_empty() {
            let _start = read_encoded(&mut calls, encoding)?;
            let _len = read_encoded(&mut calls, encoding)?;
            let pad = read_encoded(&mut calls, encoding)?;
            calls.read_uleb128().ok()?;
            if pad != 0 {
                self.mark(frame.start.wrapping_add(pad));
            }
        }
        Some(())
    }
}

/// A set of addresses in the code, one bit each.
#[derive(Clone, Debug)]
struct Addresses {
    base: u64,
    bits: Vec<u64>,
}

impl Addresses {
    fn none(image: &Image<'_>) -> Addresses {
        let base = image.code.first().map_or(0, |region| region.address);
        let end = image.code.last().map_or(0, Region::end);
        // `Image::parse` bounds the span.
        let words = ((end - base) as usize).div_ceil(64);
        Addresses { base, bits: vec![0; words] }
    }

    fn insert(&mut self, address: u64) {
        if let Some(at) = address.checked_sub(self.base)
            && let Some(word) = self.bits.get_mut((at / 64) as usize)
        {
            *word |= 1 << (at % 64);
        }
    }

    fn contains(&self, address: u64) -> bool {
        let Some(at) = address.checked_sub(self.base) else { return false };
        self.bits.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }
}

/// A `DW_EH_PE_*` value without base.
fn read_encoded(from: &mut EndianSlice<'_, LittleEndian>, encoding: u8) -> Option<u64> {
    match encoding {
        0x01 => from.read_uleb128().ok(),
        0x02 => from.read_u16().ok().map(u64::from),
        0x03 => from.read_u32().ok().map(u64::from),
        0x04 => from.read_u64().ok(),
        _ => None,
    }
}
