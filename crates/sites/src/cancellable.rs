//! Where threads make calls that may wait, of glibc 2.41 and later: by
//! `__syscall_cancel_arch` (sysdeps/unix/sysv/linux/x86_64/syscall_cancel.S). The handler
//! that cancels a thread asks whether its program counter is between two labels there, so
//! that nothing of it may be patched, nor may another instruction make such a call. What is
//! redirected is who calls it (`__internal_syscall_cancel`).

use runahead_protocol::sites::{CANCELLABLE_MAX, JUMP_LEN, KIND_CANCELLABLE, SITE_LEN_MAX, Site};

use crate::image::{Image, Region};
use crate::sweep;

/// The function, written in assembly, as its file has it: the flags of the thread in
/// `rdi`, the call's number in `rsi`, its arguments behind that.
///
/// ```text
/// 8b 07               mov (%rdi),%eax
/// f6 07 xx            testb $TCB_CANCELED_BITMASK,(%rdi)
/// 0f 85 xx xx xx xx   jne __syscall_do_cancel
/// ```
///
/// and then `BODY`.
const HEAD: [Option<u8>; 11] = [
    Some(0x8b),
    Some(0x07),
    Some(0xf6),
    Some(0x07),
    None,
    Some(0x0f),
    Some(0x85),
    None,
    None,
    None,
    None,
];

const BODY: &[u8] = &[
    0x49, 0x89, 0xfb, // mov %rdi,%r11
    0x48, 0x89, 0xf0, // mov %rsi,%rax
    0x48, 0x89, 0xd7, // mov %rdx,%rdi
    0x48, 0x89, 0xce, // mov %rcx,%rsi
    0x4c, 0x89, 0xc2, // mov %r8,%rdx
    0x4d, 0x89, 0xca, // mov %r9,%r10
    0x4c, 0x8b, 0x44, 0x24, 0x08, // mov 8(%rsp),%r8
    0x4c, 0x8b, 0x4c, 0x24, 0x10, // mov 16(%rsp),%r9
    0x4c, 0x89, 0x5c, 0x24, 0x08, // mov %r11,8(%rsp)
    0x0f, 0x05, // syscall
    0xc3, // ret
];

/// What begins a function where control-flow enforcement is compiled in.
const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

/// Farthest that a jump with a distance of one byte leads, with its own length, in bytes.
const SHORT_REACH: u64 = 130;

/// The function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancellable {
    /// Where it begins, behind its mark if it has one.
    pub start: u64,
    /// Where it is called.
    entry: u64,
}

/// The function, if there is one such.
pub(crate) fn find(image: &Image<'_>) -> Option<Cancellable> {
    let mut starts = image.code.iter().flat_map(starts_in);
    let start = starts.next()?;
    if starts.next().is_some() {
        return None;
    }
    let before = image.code_at(start)?;
    let has_mark = before.bytes.get(..(start - before.address) as usize)?.ends_with(ENDBR64);
    let entry = start - if has_mark { ENDBR64.len() as u64 } else { 0 };
    Some(Cancellable { start, entry })
}

impl Cancellable {
    /// Every `call` and `jmp` of it, sorted; none where something else than these may lead
    /// into it.
    pub(crate) fn calls(self, image: &Image<'_>) -> Vec<Site> {
        self.collect(image).unwrap_or_default()
    }

    fn collect(self, image: &Image<'_>) -> Option<Vec<Site>> {
        let end = self.start + (HEAD.len() + BODY.len()) as u64;
        let leads_there = |target: u64| (self.entry..end).contains(&target);
        let branches = image.code.iter().flat_map(|region| near_branches(region, leads_there));
        let mut candidates: Vec<u64> = branches.collect();
        let mut sites = Vec::new();
        for span in sweep::spans(image) {
            let is_near = span.address < end + SHORT_REACH && self.entry < span.end() + SHORT_REACH;
            let has = |address: &u64| (span.address..span.end()).contains(address);
            if !is_near && !candidates.iter().any(has) {
                continue;
            }
            let mut is_sound = true;
            sweep::decode(&span, |instruction| {
                let target = instruction.near_branch_target();
                if !leads_there(target) {
                    return;
                }
                let is_whole = target == self.entry || target == self.start;
                let at = (instruction.ip() - span.address) as usize;
                match span.bytes.get(at..at + JUMP_LEN) {
                    Some(code @ [0xe8 | 0xe9, ..]) if is_whole && instruction.len() == JUMP_LEN => {
                        sites.push(site(instruction.ip(), code));
                        candidates.retain(|&candidate| candidate != instruction.ip());
                    }
                    _ => is_sound = false,
                }
            });
            if !is_sound {
                return None;
            }
        }
        // One that was not decoded may be one all the same.
        (candidates.is_empty() && sites.len() <= CANCELLABLE_MAX).then_some(sites)
    }
}

fn site(address: u64, code: &[u8]) -> Site {
    let mut bytes = [0; SITE_LEN_MAX];
    bytes[..JUMP_LEN].copy_from_slice(code);
    Site { address, number: -1, kind: KIND_CANCELLABLE, len: JUMP_LEN as u8, bytes }
}

/// Where the function begins, behind its mark if it has one.
fn starts_in(region: &Region<'_>) -> impl Iterator<Item = u64> {
    let windows = region.bytes.windows(HEAD.len() + BODY.len()).enumerate();
    let is_it = |window: &[u8]| {
        let (head, body) = window.split_at(HEAD.len());
        body == BODY
            && head.iter().zip(HEAD).all(|(&byte, known)| known.is_none_or(|it| it == byte))
    };
    let address = region.address;
    windows.filter(move |(_, window)| is_it(window)).map(move |(at, _)| address + at as u64)
}

/// Every place in the code, whatever it is, that would be a branch with a distance of four
/// bytes to a wanted target.
fn near_branches(region: &Region<'_>, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    for (at, window) in region.bytes.windows(JUMP_LEN).enumerate() {
        let is_conditional =
            window[0] & 0xf0 == 0x80 && at > 0 && region.bytes.get(at - 1) == Some(&0x0f);
        if !matches!(window[0], 0xe8 | 0xe9) && !is_conditional {
            continue;
        }
        let distance = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        let next = region.address + (at + JUMP_LEN) as u64;
        if wanted(next.wrapping_add_signed(i64::from(distance))) {
            found.push(region.address + at as u64);
        }
    }
    found
}
