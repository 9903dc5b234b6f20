//! fcntl and ioctl.

use crate::abi::*;
use crate::context::Context;
use crate::descriptors::Kind;
use crate::kernel::Kernel;
use crate::outcome::{Answer, errno, park};
use runahead_protocol::stats::Park;

/// Flags that `F_SETFL` can change.
const SETTABLE: u32 = (O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME) as u32;

const TCGETS: usize = 0x5401;
const TIOCGPGRP: usize = 0x540f;
const TIOCGWINSZ: usize = 0x5413;
const FIONREAD: usize = 0x541b;
const FIONBIO: usize = 0x5421;
const FIONCLEX: usize = 0x5450;
const FIOCLEX: usize = 0x5451;
const FICLONE: usize = 0x4004_9409;
const FICLONERANGE: usize = 0x4020_940d;
const FS_IOC_GETFLAGS: usize = 0x8008_6601;
const FS_IOC_FIEMAP: usize = 0xc020_660b;
const BTRFS_IOC_CLONE: usize = FICLONE;

impl<K: Kernel> Context<'_, K> {
    pub(crate) fn fcntl(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        let file = *self.e.table.file(id);
        let allowed_on_path =
            matches!(a[1], F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL);
        if file.kind == Kind::Path && !allowed_on_path {
            return errno(EBADF);
        }
        match a[1] {
            F_DUPFD | F_DUPFD_CLOEXEC => {
                let from = a[2] as u32 as usize;
                if from >= crate::descriptors::DESCRIPTORS_MAX {
                    return errno(EINVAL);
                }
                self.e.table.add(id, from, a[1] == F_DUPFD_CLOEXEC)
            }
            F_GETFD => Ok(usize::from(self.e.table.cloexec(a[0])?)),
            F_SETFD => {
                self.e.table.set_cloexec(a[0], a[2] & FD_CLOEXEC != 0)?;
                Ok(0)
            }
            F_GETFL => Ok(file.status_flags as usize),
            F_SETFL => {
                let flags = file.status_flags & !SETTABLE | a[2] as u32 & SETTABLE;
                let file = self.e.table.file_mut(id);
                file.status_flags = flags;
                file.direct = file.kind == Kind::Regular && flags as usize & O_DIRECT != 0;
                Ok(0)
            }
            // Nobody else is seen to hold a lock: struct flock, l_type first.
            F_GETLK | F_OFD_GETLK => {
                const F_UNLCK: u16 = 2;
                self.store(a[2], &F_UNLCK.to_ne_bytes())?;
                Ok(0)
            }
            F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => Ok(0),
            F_SETOWN | F_ADD_SEALS => Ok(0),
            F_SETPIPE_SZ => Ok(a[2]),
            F_GETPIPE_SZ => Ok(65536),
            F_GET_SEALS => errno(EINVAL),
            _ => park(Park::Unanswerable),
        }
    }

    pub(crate) fn ioctl(&mut self, a: [usize; 6]) -> Answer {
        let id = self.id(a[0])?;
        let file = *self.e.table.file(id);
        let terminal = file.kind == Kind::Terminal;
        if file.kind == Kind::Path {
            return errno(EBADF);
        }
        match a[1] & 0xffff_ffff {
            FIOCLEX | FIONCLEX => {
                self.e.table.set_cloexec(a[0], a[1] == FIOCLEX)?;
                Ok(0)
            }
            FIONBIO => {
                let on = self.load_u32(a[2])? != 0;
                let file = self.e.table.file_mut(id);
                let flags = file.status_flags & !(O_NONBLOCK as u32);
                file.status_flags = if on { flags | O_NONBLOCK as u32 } else { flags };
                Ok(0)
            }
            FIONREAD if file.is_file() => {
                self.placed(id)?;
                let left = self.size_now(id)?.saturating_sub(self.e.table.file(id).offset);
                self.store(a[2], &(left.min(i32::MAX as u64) as u32).to_ne_bytes())?;
                Ok(0)
            }
            TCGETS if terminal => self.terminal_attributes(a[2]),
            TIOCGWINSZ if terminal => {
                // struct winsize: rows, columns, pixels.
                const ROWS: u64 = 24;
                const COLUMNS: u64 = 80;
                self.store_words(a[2], &[ROWS | COLUMNS << 16])?;
                Ok(0)
            }
            TIOCGPGRP if terminal => {
                self.store(a[2], &(self.e.identity.pgid as u32).to_ne_bytes())?;
                Ok(0)
            }
            _ if terminal => park(Park::Unanswerable),
            TCGETS | TIOCGWINSZ | TIOCGPGRP => errno(ENOTTY),
            // Programs copy by other means then.
            BTRFS_IOC_CLONE | FICLONERANGE | FS_IOC_FIEMAP | FS_IOC_GETFLAGS => errno(EOPNOTSUPP),
            _ => park(Park::Unanswerable),
        }
    }

    /// `struct termios` of a terminal in its usual state.
    fn terminal_attributes(&mut self, address: usize) -> Answer {
        /// c_iflag ICRNL|IXON, c_oflag OPOST|ONLCR, c_cflag B38400|CS8|CREAD,
        /// c_lflag ISIG|ICANON|ECHO|ECHOE|ECHOK|ECHOCTL|ECHOKE|IEXTEN.
        const MODES: [u32; 4] = [0x500, 0x5, 0xbf, 0x8a3b];
        const TERMIOS_LEN: usize = 36;
        let mut bytes = [0u8; TERMIOS_LEN];
        for (to, mode) in bytes.chunks_exact_mut(4).zip(MODES) {
            to.copy_from_slice(&mode.to_ne_bytes());
        }
        self.store(address, &bytes)?;
        Ok(0)
    }
}
