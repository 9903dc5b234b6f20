//! Text of bounded length, for what runs before there is a heap.

use std::ffi::CStr;

/// A C string of at most `MAX - 1` bytes. What would be longer is refused.
#[derive(Debug)]
pub struct Text<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> Default for Text<MAX> {
    fn default() -> Text<MAX> {
        Text::new()
    }
}

impl<const MAX: usize> Text<MAX> {
    /// An empty one.
    pub const fn new() -> Text<MAX> {
        Text { bytes: [0; MAX], len: 0 }
    }

    /// Appends `parts`; `None`, and part of them appended, where they do not
    /// fit or hold a NUL.
    pub fn add(&mut self, parts: &[&[u8]]) -> Option<()> {
        for part in parts {
            let end = self.len.checked_add(part.len()).filter(|end| *end < MAX)?;
            if contains(part, 0) {
                return None;
            }
            self.bytes[self.len..end].copy_from_slice(part);
            self.len = end;
        }
        self.bytes[self.len] = 0;
        Some(())
    }

    /// Appends a number in decimal.
    pub fn add_number(&mut self, number: u64) -> Option<()> {
        let mut digits = [0; 20];
        let (mut rest, mut first) = (number, digits.len());
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.add(&[&digits[first..]]);
            }
        }
    }

    /// Leaves the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.bytes[self.len] = 0;
    }

    /// The bytes, without the NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// As a C string.
    pub fn as_c_str(&self) -> &CStr {
        // SAFETY: `add` refuses NULs and puts one behind the last byte.
        unsafe { CStr::from_bytes_with_nul_unchecked(&self.bytes[..=self.len]) }
    }
}

/// Whether a byte is in a text: the slices' own is not inlined.
#[expect(clippy::manual_contains, reason = "core's function would be another page")]
pub fn contains(text: &[u8], byte: u8) -> bool {
    text.iter().any(|at| *at == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut text = Text::<8>::new();
        assert_eq!(text.as_c_str(), c"");
        text.add(&[b"abc", b"defg"]).unwrap();
        assert_eq!(text.as_c_str(), c"abcdefg");
        assert_eq!(text.add(&[b"h"]), None);
        text.truncate(2);
        assert_eq!(text.as_c_str(), c"ab");
        assert_eq!(text.add(&[b"\0"]), None);
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 18_446_744_073_709_551_615] {
            let mut text = Text::<21>::new();
            text.add_number(number).unwrap();
            assert_eq!(text.as_bytes(), number.to_string().as_bytes());
        }
    }
}
