//! Huge pages that the program has to itself (hugetlb): a pool of the machine's, of which
//! each page is counted. While a copy shares them, what the program writes takes others
//! from the pool, and what it, or anybody, maps next may find none.

use super::areas::MAP_TYPE;
use super::{delicate, is_delicate};
use crate::arch::Frame;
use crate::opening;
use crate::procfs::Line;
use crate::state::State;
use crate::status;
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;

const MAP_HUGETLB: usize = 0x4_0000;
const MAP_NORESERVE: usize = 0x4000;
/// The sizes of huge pages, in bytes.
const PAGE_LENS: [usize; 2] = [PAGE_LEN, 1 << 30];
/// The smallest, of which an offset in a file of them is a multiple.
const PAGE_LEN: usize = 2 << 20;
/// File system of what memfd_create(2) makes with `MFD_HUGETLB`, too.
const HUGETLBFS: u64 = 0x9584_58f6;

/// Whether an mmap(2) with these arguments may be of such pages. Those that are shared
/// are never copied; but where none are set aside for a mapping, a copy that touches it
/// first takes one.
#[inline]
pub fn may_be(&[_, _, protection, flags, _, offset]: &[usize; 6]) -> bool {
    let private = flags & MAP_TYPE == sys::MAP_PRIVATE;
    if flags & sys::MAP_ANONYMOUS != 0 {
        return flags & MAP_HUGETLB != 0 && (private || flags & MAP_NORESERVE != 0);
    }
    private && protection & sys::PROT_WRITE != 0 && offset.is_multiple_of(PAGE_LEN)
}

/// After such an mmap(2) that came to `result`. A copy that another thread has made since
/// shares the pages, and is gone before the program can write to them.
#[cold]
pub fn mapped(state: &'static State, frame: &Frame, result: isize) {
    let [_, _, _, flags, fd, _] = frame.args;
    if result > 0 && (flags & sys::MAP_ANONYMOUS != 0 || is_of_huge_pages(fd)) {
        delicate(state);
    }
}

/// By the size of its blocks first: the second question may be a server's to answer.
fn is_of_huge_pages(fd: usize) -> bool {
    let mut stat = sys::Stat::default();
    let known = sys::known_fstat(fd as i32, &mut stat);
    if !known || !PAGE_LENS.contains(&(stat.block_len as usize)) {
        return false;
    }
    sys::file_system(fd as i32) == Some(HUGETLBFS)
}

/// What was mapped before anybody looked, at the first copy; whether there is any.
pub fn are_there(state: &State, status: &status::Status) -> bool {
    let found = status.huge_kib != 0 && are_private();
    if found {
        is_delicate(state);
    }
    found
}

/// The same at a later one, where mmap(2) is not seen. What is shared counts, too: to tell
/// it apart takes too long each time.
pub fn came_unseen(state: &State) -> bool {
    let unseen = crate::config::CONFIG.unseen.load(Relaxed) != 0;
    let found =
        unseen && status::read::<{ status::AT_STALL }>().is_some_and(|status| status.huge_kib != 0);
    if found {
        is_delicate(state);
    }
    found
}

/// Whether a private mapping is of huge pages (proc_pid_smaps(5)): asked only where there
/// are any. Where nobody says, it is.
#[cold]
fn are_private() -> bool {
    opening::with(b"/proc/self/smaps\0", are_private_in).unwrap_or(true)
}

fn are_private_in(fd: i32) -> bool {
    let mut mappings = Mappings::default();
    let mut line = Line::<LINE_LEN>::EMPTY;
    let mut chunk = [0u8; status::AT_STALL];
    opening::read_all(fd, &mut chunk, |text| {
        line.add(text, |line| mappings.take(line));
        !mappings.found
    });
    mappings.found
}

/// Bytes of a line that are looked at: as many flags as there are.
const LINE_LEN: usize = 128;

#[derive(Default)]
struct Mappings {
    /// Whether the one that is being told of is private.
    private: bool,
    found: bool,
}

impl Mappings {
    /// "7f00-7f10 rw-p ...", "Rss:  4 kB" and so on, "VmFlags: rd wr mr mw me ac ht sd".
    fn take(&mut self, line: &[u8]) {
        let mut words = line.split(|&byte| byte == b' ');
        let begins = words.next();
        if begins == Some(b"VmFlags:") {
            self.found |= self.private && words.any(|flag| flag == b"ht");
        } else if !line.first().is_some_and(u8::is_ascii_uppercase) {
            self.private = words.next().and_then(|rights| rights.get(3)) == Some(&b'p');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_told_apart() {
        const PRIVATE: usize = sys::MAP_PRIVATE;
        const SHARED: usize = sys::MAP_SHARED;
        const ANONYMOUS: usize = sys::MAP_ANONYMOUS;
        let may = |flags, offset| may_be(&[0, PAGE_LEN, sys::PROT_WRITE, flags, 3, offset]);
        assert!(may(PRIVATE | ANONYMOUS | MAP_HUGETLB, 0));
        assert!(!may(PRIVATE | ANONYMOUS, 0));
        assert!(!may(SHARED | ANONYMOUS | MAP_HUGETLB, 0));
        assert!(may(SHARED | ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, 0));
        assert!(may(PRIVATE, 2 * PAGE_LEN), "a file's, perhaps");
        assert!(!may(PRIVATE, sys::PAGE_SIZE));
        assert!(!may(SHARED, 0));
        assert!(!may_be(&[0, PAGE_LEN, sys::PROT_READ, PRIVATE, 3, 0]), "a library's");
    }

    #[test]
    fn private_huge_pages_are_found_among_all_mappings() {
        let found = |text: &str| {
            let mut mappings = Mappings::default();
            let mut line = Line::<LINE_LEN>::EMPTY;
            line.add(text.as_bytes(), |line| mappings.take(line));
            mappings.found
        };
        let mapping = |rights: &str, flags: &str| {
            format!(
                "7f8a00000000-7f8a00800000 {rights} 00000000 00:0f 7   /anon_hugepage (deleted)\n\
                 Size:               8192 kB\nVmFlags: {flags}\n"
            )
        };
        let (huge, small) = ("rd wr mr mw me ac de ht sd ", "rd wr mr mw me ac sd ");
        assert!(found(&mapping("rw-p", huge)));
        assert!(!found(&mapping("rw-s", huge)));
        assert!(!found(&mapping("rw-p", small)));
        assert!(!found(&(mapping("rw-p", small) + &mapping("rw-s", huge))));
        assert!(found(&(mapping("rw-s", huge) + &mapping("rw-p", huge))));
        assert!(!are_private(), "these tests map none");
    }
}
