//! What is disclosed, and why hints are not taken.

use runahead_manager::engine::FILES_MAX;

/// Most outstanding segments of a process, at most 22 bytes each ([`Piece`]).
pub const SEGMENTS_MAX: usize = 4 << 20;

/// A range of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes; 0: to the end of the file.
    pub length: u64,
}

/// Why hints were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// [`SEGMENTS_MAX`] segments are outstanding: so many of the given ones were taken. Read
    /// what was disclosed, or cancel it, first.
    TooMany(usize),
    /// More files were named than are kept apart.
    TooManyFiles,
    /// The descriptor is not open, or not of a file with a page cache; the path is empty, or
    /// relative where the working directory is gone.
    NotAFile,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany(taken) => write!(
                f,
                "{SEGMENTS_MAX} hinted segments are outstanding, {taken} of these were taken: \
                 read or cancel some first"
            ),
            Self::TooManyFiles => write!(f, "more than {FILES_MAX} files were hinted"),
            Self::NotAFile => write!(f, "not an open file with a page cache, nor a path of one"),
        }
    }
}

impl std::error::Error for Error {}
