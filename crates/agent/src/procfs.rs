//! Small files of /proc and their numbers (proc(5)), without a heap.

use crate::{opening, sys};

/// What one read(2) of a file gives, into `room`; `None` where it cannot be
/// opened or read. `path` ends in NUL.
pub fn read<'a>(path: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let len = opening::with(path, |fd| sys::read(fd, room))?;
    room.get(..usize::try_from(len).ok()?)
}

/// Joins the parts of a path in `room`; `None` where they do not fit. The last
/// part ends in NUL.
pub fn path<'a>(parts: &[&[u8]], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut len = 0;
    for part in parts {
        room.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    room.get(..len)
}

/// A line of a text that comes in pieces; what is beyond its room is dropped.
pub struct Line<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> Line<MAX> {
    /// Nothing has come yet.
    pub const EMPTY: Line<MAX> = Line { bytes: [0; MAX], len: 0 };

    /// Goes on with `text`, and passes on each line that ends there.
    pub fn add(&mut self, text: &[u8], mut take: impl FnMut(&[u8])) {
        for &byte in text {
            if byte == b'\n' {
                take(self.bytes.get(..self.len).unwrap_or(&[]));
                self.len = 0;
            } else if let Some(slot) = self.bytes.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        }
    }
}

/// The digits of a number.
pub fn digits(number: usize, room: &mut [u8; 20]) -> &[u8] {
    let mut first = room.len();
    let mut rest = number;
    while first > 0 && (rest > 0 || first == room.len()) {
        first -= 1;
        if let Some(digit) = room.get_mut(first) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
    }
    room.get(first..).unwrap_or(&[])
}

/// A decimal number, and nothing else.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A hexadecimal number, and nothing else.
pub fn hexadecimal(text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0usize, |value, &digit| {
        let digit = char::from(digit).to_digit(16)? as usize;
        Some(value.checked_mul(16)? | digit)
    })
}

/// A field of `/proc/PID/stat`, by its number (proc_pid_stat(5)), from the
/// fourth on: counted behind the name, which may hold anything.
pub fn stat_field(text: &[u8], number: usize) -> Option<u64> {
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    let fields = text.get(name_end + 2..)?.trim_ascii_end();
    decimal(fields.split(|&byte| byte == b' ').nth(number.checked_sub(3)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_without_a_heap() {
        let mut room = [0; 20];
        let number = digits(4_194_304, &mut room);
        assert_eq!(number, b"4194304");
        let mut text = [0; 32];
        let parts = [b"/proc/".as_slice(), number, b"/stat\0"];
        assert_eq!(path(&parts, &mut text), Some(&b"/proc/4194304/stat\0"[..]));
        assert_eq!(path(&parts, &mut [0; 18]), None, "one byte short");
        assert_eq!(digits(0, &mut room), b"0");
        assert_eq!(digits(usize::MAX, &mut room), usize::MAX.to_string().as_bytes());
    }

    #[test]
    fn numbers_are_nothing_but_digits() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b""[..], b"18446744073709551616", b"1 ", b"-1", b"1a"] {
            assert_eq!(decimal(text), None, "{text:?}");
        }
        assert_eq!(hexadecimal(b"7fFfffffffffffff"), Some(usize::MAX >> 1));
        for text in [&b""[..], b"10000000000000000", b"0x1", b"g"] {
            assert_eq!(hexadecimal(text), None, "{text:?}");
        }
    }

    #[test]
    fn names_do_not_confuse_the_fields_behind_them() {
        let text = b"12 (a) 1 (b) S 1 2 3 4 5 6 777 8 9\n";
        assert_eq!(stat_field(text, 10), Some(777));
        assert_eq!(stat_field(text, 12), Some(9), "the last");
        assert_eq!(stat_field(text, 13), None);
        assert_eq!(stat_field(b"12 (a", 10), None);
    }

    #[test]
    fn files_are_read_and_missing_ones_are_not() {
        let mut room = [0; 16];
        assert_eq!(
            read(b"/proc/self/comm\0", &mut room).and_then(|text| text.last()),
            Some(&b'\n')
        );
        assert_eq!(read(b"/proc/self/nothing\0", &mut room), None);
    }
}
