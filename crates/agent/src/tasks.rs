//! The tasks of a process, which are its threads (proc_pid_task(5)).

use crate::arch::nr;
use crate::{opening, procfs, sys};
use runahead_emulate::frontier::Entries;

/// Calls `each` for the threads of a process, by their ids;
/// some may be left out where they come or go meanwhile. Whether they could be looked at.
pub fn for_each(process: usize, mut each: impl FnMut(usize)) -> bool {
    let (mut room, mut name) = ([0u8; 20], [0u8; 40]);
    let number = procfs::digits(process, &mut room);
    let Some(name) = procfs::path(&[b"/proc/", number, b"/task\0"], &mut name) else {
        return false;
    };
    opening::with(name, |fd| {
        let mut entries = [0u8; 512];
        loop {
            let at = entries.as_mut_ptr() as usize;
            // SAFETY: the kernel writes at most as many bytes as there are.
            let len = unsafe { sys::call(nr::GETDENTS64, &[fd as usize, at, entries.len()]) };
            let Some(entries) = entries.get(..len.max(0) as usize).filter(|text| !text.is_empty())
            else {
                break;
            };
            for entry in Entries::of(entries) {
                if let Some(id) = procfs::decimal(entry.name) {
                    each(id as usize);
                }
            }
        }
    })
    .is_some()
}
