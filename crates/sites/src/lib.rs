//! Finds the `syscall` instructions of a C library or dynamic linker that are
//! safe to replace by a jump, and the calls of the function by which threads of
//! glibc 2.41 and later wait, and keeps the table of them
//! ([`runahead_protocol::sites`]) that the agent patches from.
//!
//! The launcher does this once for each build of a library, outside the
//! program, so that nothing is decoded in the program itself. The rule is to
//! fail open: a site that cannot be proven safe is left alone, which costs a
//! prefetch and never a result.
//!
//! | module | idea |
//! |---|---|
//! | [`elf`] | what the first page of an ELF file tells: class, interpreter, build-id |
//! | [`image`] | code, data, functions and pointers of a whole object |
//! | [`targets`] | every address that a branch may land on, over-approximated |
//! | [`find`] | which sites can be patched, and why the others cannot |
//! | [`calls`] | which system calls are worth a hook |
//! | `cancellable` | who calls the function in which glibc 2.41 and later cancel threads |
//! | [`table`] | the file in the cache directory |
//! | [`replace`] | how files there are replaced |

pub mod calls;
mod cancellable;
mod constant;
pub mod elf;
pub mod find;
pub mod image;
pub mod replace;
mod sweep;
pub mod table;
pub mod targets;

pub use elf::{BuildId, Head};
pub use table::{SiteTable, Update};

/// Version of the analysis. Part of the name of the table's file, so that a
/// table made by other rules is never used.
pub const ANALYSIS_VERSION: u32 = 10;

/// Name of the table's file in the cache directory.
pub fn file_name() -> String {
    format!("sites-{}", ANALYSIS_VERSION)
}
