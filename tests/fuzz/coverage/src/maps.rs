//! The agent's parser of `/proc/self/maps`, over its own reader: the text
//! comes in pieces of any size, with a scratch of any size.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// What the parser reads from.
mod sys {
    use std::cell::RefCell;
    pub const PROT_READ: usize = 1;
    pub const PROT_WRITE: usize = 2;
    pub const PROT_EXEC: usize = 4;

    thread_local! {
        pub static TEXT: RefCell<(Vec<u8>, usize)> = const { RefCell::new((Vec::new(), 1)) };
    }

    pub fn read(_fd: i32, buffer: &mut [u8]) -> isize {
        TEXT.with_borrow_mut(|(text, piece)| {
            let len = text.len().min(buffer.len()).min(*piece);
            buffer[..len].copy_from_slice(&text[..len]);
            text.drain(..len);
            len as isize
        })
    }

    pub unsafe fn ioctl(_fd: i32, _request: usize, _argument: usize) -> isize {
        -25
    }
}

/// What opens it.
mod opening {
    pub fn with<R>(_path: &[u8], action: impl FnOnce(i32) -> R) -> Option<R> {
        Some(action(7))
    }
}

#[path = "../../../../crates/agent/src/maps.rs"]
#[allow(dead_code)]
mod maps;
#[path = "../../../../crates/agent/src/procfs.rs"]
#[allow(dead_code)]
mod procfs;

fuzz_target!(|input: &[u8]| {
    // The first bytes: longest piece, and length of the scratch in 16 bytes.
    let [piece, scratch_len, given @ ..] = input else { return };
    sys::TEXT.set((given.to_vec(), usize::from(*piece) + 1));
    let mut scratch = vec![0; (usize::from(*scratch_len) + 1) * 16];
    let mut seen = 0;
    let whole = maps::for_each(&mut scratch, |line| {
        seen += 1;
        // Asked of every line.
        let _ = (line.is_attached(), line.is_device());
        true
    });
    let lines = given.iter().filter(|&&byte| byte == b'\n').count();
    assert!(seen <= lines);
    // In pieces as in one: a line is never taken for two.
    if whole && given.ends_with(b"\n") {
        let parsed = given.split(|&byte| byte == b'\n').filter(|text| !text.is_empty());
        assert_eq!(seen, parsed.filter(|text| maps::Line::parse(text).is_some()).count());
    }
});
