//! The part of FUSE's protocol (linux/fuse.h, version 7) that a file system
//! with one file needs: requests as `/dev/fuse` gives them, replies as it
//! takes them. Numbers are the machine's own.

/// Length of `struct fuse_in_header`.
const IN_HEADER_BYTES: usize = 40;
/// Length of `struct fuse_out_header`.
const OUT_HEADER_BYTES: usize = 16;
/// Length of `struct fuse_write_in`.
const WRITE_IN_BYTES: usize = 40;
/// What a request takes beside the bytes that it writes, at most; a page is
/// also above the least buffer that the kernel reads into, with any data.
pub const REQUEST_ROOM_BYTES: usize = 8192;

/// What the kernel asks, as far as one file answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask<'a> {
    /// FUSE_LOOKUP of a name in a directory.
    Lookup(&'a [u8]),
    /// FUSE_GETATTR.
    Attributes,
    /// FUSE_OPEN or FUSE_OPENDIR.
    Open,
    /// FUSE_READ.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes at most.
        len: u32,
    },
    /// FUSE_WRITE.
    Write {
        /// First byte.
        offset: u64,
        /// What to write there.
        data: &'a [u8],
    },
    /// FUSE_FALLOCATE.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Flags of fallocate(2).
        mode: u32,
    },
    /// FUSE_STATFS.
    Statistics,
    /// FUSE_FLUSH, FUSE_FSYNC, FUSE_RELEASE, FUSE_RELEASEDIR: nothing to do.
    Nothing,
    /// FUSE_FORGET, FUSE_BATCH_FORGET: there is no answer.
    Forget,
    /// FUSE_DESTROY: the file system is unmounted.
    End,
    /// Anything else; also FUSE_GETXATTR, which the kernel then asks no more.
    Unknown,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Names the request in its reply.
    pub unique: u64,
    /// Inode that it is about.
    pub inode: u64,
    /// What is asked.
    pub ask: Ask<'a>,
}

impl<'a> Asked<'a> {
    /// Reads a request; none if it is cut short.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (opcode, unique, inode) = (u32_at(bytes, 4)?, u64_at(bytes, 8)?, u64_at(bytes, 16)?);
        let body = bytes.get(IN_HEADER_BYTES..)?;
        let ask = match opcode {
            1 => Ask::Lookup(body.strip_suffix(&[0])?),
            2 | 42 => Ask::Forget,
            3 => Ask::Attributes,
            14 | 27 => Ask::Open,
            15 => Ask::Read { offset: u64_at(body, 8)?, len: u32_at(body, 16)? },
            16 => {
                let len = u32_at(body, 16)? as usize;
                let data = body.get(WRITE_IN_BYTES..)?.get(..len)?;
                Ask::Write { offset: u64_at(body, 8)?, data }
            }
            17 => Ask::Statistics,
            18 | 20 | 25 | 29 => Ask::Nothing,
            38 => Ask::End,
            43 => Ask::Allocate {
                offset: u64_at(body, 8)?,
                len: u64_at(body, 16)?,
                mode: u32_at(body, 24)?,
            },
            _ => Ask::Unknown,
        };
        Some(Self { unique, inode, ask })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// `struct fuse_out_header` of a reply with `body_bytes` behind it; `errno` is
/// 0 or what went wrong.
pub fn out_header(unique: u64, errno: i32, body_bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    let mut header = [0; OUT_HEADER_BYTES];
    header[..4].copy_from_slice(&((OUT_HEADER_BYTES + body_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// What a file or directory looks like; the rest is zero.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// Its number.
    pub inode: u64,
    /// Bytes in it.
    pub size: u64,
    /// Kind and permissions.
    pub mode: u32,
}

/// Body of a reply, put together field by field.
#[derive(Debug, Default)]
pub struct Body(Vec<u8>);

impl Body {
    /// `struct fuse_entry_out`: a name that stays valid for `valid_s` seconds.
    pub fn entry(attributes: &Attributes, valid_s: u64) -> Self {
        Self::default()
            .u64s(&[attributes.inode, 0, valid_s, valid_s])
            .u32s(&[0, 0])
            .attributes(attributes)
    }

    /// `struct fuse_attr_out`.
    pub fn attr(attributes: &Attributes, valid_s: u64) -> Self {
        Self::default().u64s(&[valid_s]).u32s(&[0, 0]).attributes(attributes)
    }

    /// `struct fuse_open_out`: no handle, no flags.
    pub fn open() -> Self {
        Self::default().u64s(&[0]).u32s(&[0, 0])
    }

    /// `struct fuse_write_out`.
    pub fn written(len: u32) -> Self {
        Self::default().u32s(&[len, 0])
    }

    /// `struct fuse_statfs_out` of a file system that does not say.
    pub fn statistics() -> Self {
        let (block_bytes, name_bytes) = (512, 255);
        Self::default().u64s(&[0; 5]).u32s(&[block_bytes, name_bytes, 0, 0]).u32s(&[0; 6])
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// `struct fuse_attr`.
    fn attributes(self, of: &Attributes) -> Self {
        let (links, block_bytes) = (1, 4096);
        self.u64s(&[of.inode, of.size, of.size / 512, 0, 0, 0]).u32s(&[
            0,
            0,
            0,
            of.mode,
            links,
            0,
            0,
            0,
            block_bytes,
            0,
        ])
    }

    fn u64s(mut self, fields: &[u64]) -> Self {
        fields.iter().for_each(|field| self.0.extend(field.to_ne_bytes()));
        self
    }

    fn u32s(mut self, fields: &[u32]) -> Self {
        fields.iter().for_each(|field| self.0.extend(field.to_ne_bytes()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with this opcode and body, unique 7, inode 2.
    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((IN_HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(2_u64.to_ne_bytes());
        bytes.resize(IN_HEADER_BYTES, 0);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn requests_are_understood() {
        let body = Body::default().u64s(&[9, 4096]).u32s(&[3, 0]).u64s(&[0]).u32s(&[0, 0]);
        let read = request(15, body.bytes());
        let asked = Asked::parse(&read).unwrap();
        assert_eq!((asked.unique, asked.inode), (7, 2));
        assert_eq!(asked.ask, Ask::Read { offset: 4096, len: 3 });
        let write = request(16, &[body.bytes(), b"abc"].concat());
        let asked = Asked::parse(&write).unwrap();
        assert_eq!(asked.ask, Ask::Write { offset: 4096, data: b"abc" });
        let name = request(1, b"disk\0");
        assert_eq!(Asked::parse(&name).unwrap().ask, Ask::Lookup(b"disk"));
        let punch = request(43, Body::default().u64s(&[0, 8, 16]).u32s(&[3, 0]).bytes());
        let expected = Ask::Allocate { offset: 8, len: 16, mode: 3 };
        assert_eq!(Asked::parse(&punch).unwrap().ask, expected);
        assert_eq!(Asked::parse(&request(22, &[])).unwrap().ask, Ask::Unknown);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let body = Body::default().u64s(&[9, 4096]).u32s(&[3, 0]).u64s(&[0]).u32s(&[0, 0]);
        let write = request(16, &[body.bytes(), b"ab"].concat());
        assert_eq!(Asked::parse(&write), None, "one byte is missing");
        assert_eq!(Asked::parse(&request(15, &[0; 8])), None);
        assert_eq!(Asked::parse(&request(1, b"disk")), None);
        assert_eq!(Asked::parse(&[0; 8]), None);
    }

    #[test]
    fn bodies_have_the_kernel_s_sizes() {
        let attributes = Attributes { inode: 2, size: 1 << 30, mode: 0o100_600 };
        assert_eq!(Body::entry(&attributes, 1).bytes().len(), 128);
        assert_eq!(Body::attr(&attributes, 1).bytes().len(), 104);
        assert_eq!(Body::open().bytes().len(), 16);
        assert_eq!(Body::written(1).bytes().len(), 8);
        assert_eq!(Body::statistics().bytes().len(), 80);
        let header = out_header(7, libc::EIO, 0);
        assert_eq!(header[..8], [16, 0, 0, 0, 251, 255, 255, 255]);
    }
}
