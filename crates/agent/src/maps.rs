//! Lines of `/proc/self/maps` (proc_pid_maps(5)). Asked each time: no hook
//! sees a mapping that a program makes by a system call of its own.

use crate::procfs::hexadecimal;
use crate::{opening, sys};

const MAPS: &[u8] = b"/proc/self/maps\0";

/// One mapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line<'a> {
    /// First address.
    pub start: usize,
    /// Address after it.
    pub end: usize,
    /// Set of `PROT_*` bits.
    pub protection: usize,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode number; 0: no file.
    pub inode: u64,
    /// Its path, or what the kernel says in its place; may be empty.
    pub path: &'a [u8],
}

impl<'a> Line<'a> {
    /// "7f00-7f10 rw-s 00000000 00:01 42   /dev/zero (deleted)".
    pub fn parse(text: &'a [u8]) -> Option<Line<'a>> {
        let mut fields = text.splitn(6, |&byte| byte == b' ');
        let (start, end) = pair(fields.next()?, b'-')?;
        let permissions = fields.next()?;
        let bit = |at: usize, letter: u8, value: usize| {
            if permissions.get(at) == Some(&letter) { value } else { 0 }
        };
        let protection = bit(0, b'r', sys::PROT_READ)
            | bit(1, b'w', sys::PROT_WRITE)
            | bit(2, b'x', sys::PROT_EXEC);
        let offset = hexadecimal(fields.next()?)? as u64;
        let (major, minor) = pair(fields.next()?, b':')?;
        let inode = fields.next()?.iter().try_fold(0u64, |value, &digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')))
        })?;
        let rest = fields.next().unwrap_or(&[]);
        let path_at = rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len());
        Some(Line {
            start,
            end,
            protection,
            shared: bit(3, b's', 1) != 0,
            offset,
            device: (major as u32, minor as u32),
            inode,
            path: rest.get(path_at..).unwrap_or(&[]),
        })
    }

    /// Whether it is a System V segment.
    pub fn is_attached(&self) -> bool {
        self.path.starts_with(b"/SYSV")
    }

    /// Whether it is a mapping of a device, or of what else the kernel makes up
    /// (a socket's, a ring's, an event's): it may act on accesses, and is in use
    /// as long as it is mapped.
    pub fn is_device(&self) -> bool {
        const PLACES: [&[u8]; 4] = [b"/dev/", b"/sys/", b"/proc/", b"/dmabuf:"];
        const MEMORY: [&[u8]; 3] = [b"/dev/zero", b"/dev/shm/", b"/dev/hugepages/"];
        let begins = |with: &[&[u8]]| with.iter().any(|with| self.path.starts_with(with));
        // "anon_inode:[io_uring]", "socket:[4711]"; "[heap]", "[anon_shmem:name]" and
        // the like are memory.
        let is_elsewhere = self.path.first().is_some_and(|first| !b"/[".contains(first));
        is_elsewhere || begins(&PLACES) && !begins(&MEMORY)
    }
}

/// Calls `action` for every mapping, until it returns false; false where they
/// could not all be read. `scratch` must hold the longest line. What `action`
/// changes of mappings does not disturb the reading, which goes on behind the
/// last address.
pub fn for_each(scratch: &mut [u8], action: impl FnMut(&Line<'_>) -> bool) -> bool {
    opening::with(MAPS, |fd| each_of(fd, scratch, action)) == Some(true)
}

fn each_of(fd: i32, scratch: &mut [u8], mut action: impl FnMut(&Line<'_>) -> bool) -> bool {
    let mut held = 0usize;
    let mut ok = true;
    'reading: while let Some(room) = scratch.get_mut(held..) {
        let got = sys::read(fd, room);
        if got <= 0 {
            ok = got == 0 && held == 0;
            break;
        }
        let end = held + got as usize;
        let mut from = 0usize;
        while let Some(text) = scratch.get(from..end)
            && let Some(len) = text.iter().position(|&byte| byte == b'\n')
        {
            if let Some(line) = text.get(..len).and_then(Line::parse)
                && !action(&line)
            {
                break 'reading;
            }
            from += len + 1;
        }
        held = end - from;
        let bytes = scratch.as_mut_ptr();
        // SAFETY: from <= end <= the scratch's length: the rest of a line
        // moves to the front.
        unsafe { core::ptr::copy(bytes.add(from), bytes, held) };
    }
    ok
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const ENOENT: isize = 2;

/// `PROCMAP_QUERY`.
const PROCMAP_QUERY: usize = 0xc068_6611;
/// Of its flags: readable, writable and executable are the `PROT_*` bits.
const VMA_PROTECTION: u64 = 7;
const VMA_SHARED: u64 = 1 << 3;
const COVERING_OR_NEXT_VMA: u64 = 1 << 4;

/// Like [`for_each`], for the shared mappings only, by `PROCMAP_QUERY` (Linux
/// 6.11): the kernel passes over the others and writes no text. False, too,
/// where the kernel does not have it; some lines may have been given then.
pub fn for_each_shared(scratch: &mut [u8], action: impl FnMut(&Line<'_>) -> bool) -> bool {
    opening::with(MAPS, |fd| each_shared_of(fd, scratch, action)) == Some(true)
}

fn each_shared_of(fd: i32, scratch: &mut [u8], mut action: impl FnMut(&Line<'_>) -> bool) -> bool {
    let (mut at, mut ok) = (0, true);
    loop {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: VMA_SHARED | COVERING_OR_NEXT_VMA,
            query_addr: at,
            vma_name_size: scratch.len() as u32,
            vma_name_addr: scratch.as_mut_ptr() as u64,
            ..Query::default()
        };
        let query_at = core::ptr::from_mut(&mut query) as usize;
        // SAFETY: the kernel writes the struct and at most vma_name_size bytes
        // to the scratch memory.
        let result = unsafe { sys::ioctl(fd, PROCMAP_QUERY, query_at) };
        if result != 0 {
            ok = result == -ENOENT;
            break;
        }
        // The name's size counts its NUL; 0: it has none.
        let name = scratch.get(..(query.vma_name_size as usize).saturating_sub(1));
        let goes_on = action(&Line {
            start: query.vma_start as usize,
            end: query.vma_end as usize,
            protection: (query.vma_flags & VMA_PROTECTION) as usize,
            shared: query.vma_flags & VMA_SHARED != 0,
            offset: query.vma_offset,
            device: (query.dev_major, query.dev_minor),
            inode: query.inode,
            path: name.unwrap_or(&[]),
        });
        at = query.vma_end;
        if !goes_on {
            break;
        }
    }
    ok
}

/// Whether an address lies in a private mapping; false where nobody says.
pub fn is_private(scratch: &mut [u8], at: usize) -> bool {
    let size = size_of::<Query>() as u64;
    let mut query = Query { size, query_addr: at as u64, ..Query::default() };
    let query_at = core::ptr::from_mut(&mut query) as usize;
    // SAFETY: the kernel writes the struct.
    let ask = |fd| unsafe { sys::ioctl(fd, PROCMAP_QUERY, query_at) };
    match opening::with(MAPS, ask) {
        Some(0) => return query.vma_flags & VMA_SHARED == 0,
        Some(result) if result != -ENOENT => {} // Before Linux 6.11.
        _ => return false,
    }
    let mut private = false;
    for_each(scratch, |line| {
        let holds = line.start <= at && at < line.end;
        private |= holds && !line.shared;
        !holds
    });
    private
}

fn pair(text: &[u8], separator: u8) -> Option<(usize, usize)> {
    let mut halves = text.splitn(2, |&byte| byte == separator);
    Some((hexadecimal(halves.next()?)?, hexadecimal(halves.next()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::nr;
    use crate::sys::call;
    use std::sync::Mutex;

    /// One test makes mappings, the other counts them.
    static MAPPINGS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_line_is_taken_apart() {
        let text = b"7f00-7f10 rw-s 0001f000 08:1a 42                 /a b/c (deleted)";
        let line = Line::parse(text).unwrap();
        assert_eq!((line.start, line.end, line.offset), (0x7f00, 0x7f10, 0x1f000));
        assert_eq!(line.protection, sys::PROT_READ | sys::PROT_WRITE);
        assert!(line.shared);
        assert_eq!((line.device, line.inode), ((8, 0x1a), 42));
        assert_eq!(line.path, b"/a b/c (deleted)");
        let anonymous = Line::parse(b"7f00-7f10 ---p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.inode, anonymous.protection), (0, 0));
        assert!(anonymous.path.is_empty());
    }

    #[test]
    fn devices_are_told_from_memory() {
        let of = |path: &'static [u8]| Line { path, inode: 7, ..Line::default() }.is_device();
        for device in [
            b"/dev/snd/pcmC0D0p".as_slice(),
            b"/sys/devices/pci0000:00/0000:00:02.0/resource0",
            b"/proc/bus/pci/00/02.0",
            b"/dmabuf:",
            b"anon_inode:[io_uring]",
            b"socket:[4711]",
        ] {
            assert!(of(device), "{}", device.escape_ascii());
        }
        for memory in [
            b"".as_slice(),
            b"/dev/zero (deleted)",
            b"/dev/shm/x",
            b"/dev/hugepages/x",
            b"/memfd:x (deleted)",
            b"/[aio] (deleted)",
            b"/devices/x",
            b"[heap]",
            b"[anon_shmem:x]",
        ] {
            assert!(!of(memory), "{}", memory.escape_ascii());
        }
    }

    #[test]
    fn the_shared_ones_are_those_of_the_list() {
        let _alone = MAPPINGS.lock();
        let path = std::env::temp_dir().join(std::format!("maps shared {}", std::process::id()));
        std::fs::write(&path, [1u8; 3 * 4096]).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
        let kinds = [
            (sys::PROT_READ, sys::MAP_SHARED, fd, 4096),
            (sys::PROT_READ | sys::PROT_WRITE, sys::MAP_SHARED, fd, 0),
            (sys::PROT_READ | sys::PROT_WRITE, sys::MAP_PRIVATE, fd, 0),
            (0, sys::MAP_SHARED | sys::MAP_ANONYMOUS, usize::MAX, 0),
        ];
        let mapped = kinds.map(|(protection, flags, fd, offset)| {
            // SAFETY: new mappings, never touched.
            let at = unsafe { call(nr::MMAP, &[0, 8192, protection, flags, fd, offset]) };
            assert!(at > 0);
            at as usize
        });
        std::fs::remove_file(&path).unwrap();
        let ours = |line: &Line<'_>| mapped.contains(&line.start);
        let told = |line: &Line<'_>| std::format!("{line:?}");
        let (mut listed, mut asked) = (std::vec::Vec::new(), std::vec::Vec::new());
        let mut scratch = vec![0; 8192];
        assert!(for_each(&mut scratch, |line| {
            if line.shared && ours(line) {
                listed.push(told(line));
            }
            true
        }));
        let supported = for_each_shared(&mut scratch, |line| {
            assert!(line.shared);
            if ours(line) {
                asked.push(told(line));
            }
            true
        });
        for start in mapped {
            // SAFETY: mapped above, and nothing refers to it.
            unsafe { call(nr::MUNMAP, &[start, 8192]) };
        }
        assert!(listed.len() >= 2, "{listed:?}");
        // Before Linux 6.11 it is refused, and the list serves.
        assert!(!supported || listed == asked, "{listed:?}, {asked:?}");
    }

    #[test]
    fn all_mappings_are_seen_whatever_the_buffer_cuts() {
        let _alone = MAPPINGS.lock();
        // Of what is loaded: other tests' threads and buffers come and go.
        let listed = std::fs::read_to_string("/proc/self/maps").unwrap();
        let loaded = listed.lines().filter(|line| line.contains(".so") || line.contains("r-xp"));
        let start = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
        let expected: std::vec::Vec<usize> = loaded.filter_map(start).collect();
        assert!(expected.len() > 8, "{listed}");
        for len in [512, 4096, 65536] {
            let mut seen = std::vec::Vec::new();
            let mut scratch = vec![0; len];
            assert!(for_each(&mut scratch, |line| {
                seen.push(line.start);
                line.start < line.end
            }));
            seen.retain(|start| expected.contains(start));
            assert_eq!(seen, expected, "{len}");
        }
    }
}
