//! Decoding: a linear sweep that starts anew wherever a function is known to
//! start, so that padding or data in the text misleads it for one function
//! at most.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::image::{Image, Region};

/// Cuts the code at every known function start. The spans are sorted, do not
/// overlap and cover all code.
pub(crate) fn spans<'d>(image: &Image<'d>) -> Vec<Region<'d>> {
    let mut starts: Vec<u64> = image.function_starts.clone();
    starts.extend(image.frames.iter().map(|frame| frame.start));
    starts.sort_unstable();
    starts.dedup();
    let mut spans = Vec::with_capacity(starts.len() + image.code.len());
    for region in &image.code {
        let first = starts.partition_point(|&start| start <= region.address);
        let last = starts.partition_point(|&start| start < region.end());
        let mut rest = *region;
        for &start in starts.get(first..last).unwrap_or(&[]) {
            let (head, tail) = rest.bytes.split_at((start - rest.address) as usize);
            spans.push(Region { address: rest.address, bytes: head });
            rest = Region { address: start, bytes: tail };
        }
        spans.push(rest);
    }
    spans
}

/// Decodes a span. Returns whether all of it was valid instructions; after an
/// invalid one it goes on a byte later.
pub(crate) fn decode(span: &Region<'_>, mut each: impl FnMut(&Instruction)) -> bool {
    let mut decoder = Decoder::with_ip(64, span.bytes, span.address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut clean = true;
    while decoder.can_decode() {
        let position = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            clean = false;
            let next = position + 1;
            if decoder.set_position(next).is_err() {
                break;
            }
            decoder.set_ip(span.address + next as u64);
            continue;
        }
        each(&instruction);
    }
    clean
}
