//! A name for the agent library's bytes: of the embedded one it is taken when
//! the command is built (build.rs shares this file), because a launch that
//! reads half a megabyte first starts a tenth of a millisecond later.

/// Two agents that share it cannot both be used at once, which nothing but a
/// deliberate collision brings about.
pub fn of(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(PRIME);
        hash ^ hash >> 29
    };
    // Four lanes, because one multiplication has to wait for the last.
    let mut lanes = [1, 2, 3, 4];
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    let tail = rest.iter().map(|byte| u64::from(*byte));
    lanes.into_iter().chain(tail).fold(bytes.len() as u64, mix)
}
