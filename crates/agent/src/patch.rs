//! Tier T1: verified `syscall` sites of libc and the dynamic linker become
//! jumps into stubs (crate `sites` finds them, the launcher hands over the
//! table), and the calls of the function in which glibc 2.41 and later cancel threads
//! lead to a thunk ([`cancellable`]). A site that does not look exactly as the table
//! says is left alone.

use crate::arch::{
    STUB_ENTRY, STUB_LEN, STUBS_MAX, StubKind, jump, nr, original, put_back, stub, stubs_address,
    ticks,
};
use crate::cancellable;
use crate::config::CONFIG;
use crate::elf::{self, Object};
use crate::import::regions::is_single_threaded;
use crate::interpose;
use crate::normal;
use crate::state::State;
use crate::status::Status;
use crate::sys::{self, PAGE_SIZE, call};
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::session::{Session, TEST_REFUSE_PATCHING};
use runahead_protocol::sites::{
    self, FLAG_UNSEEN, Header, JUMP_LEN, KIND_BEFORE, KIND_CANCELLABLE, KIND_COPY, LEN_BY_PADDING,
    OBJECT_SITES_MAX, OBJECTS_MAX, SHORT_JUMP, Site,
};
use runahead_protocol::stats::{Counter, Loss};

/// Patches what the table knows; false where nothing was hooked.
pub fn all(session: &Session<'_>, state: &State, status: &Status) -> bool {
    let Some(table) = Table::map(session.sites) else {
        lose(state, Loss::UnknownLibc);
        return false;
    };
    // Only while no other thread can be at a site.
    let alone = status.threads == 1;
    if !alone || CONFIG.test.load(Relaxed) & TEST_REFUSE_PATCHING != 0 || !writable_stubs() {
        table.unmap();
        lose(state, Loss::PatchRefused);
        return false;
    }
    // The dynamic linker's sites alone would let pass for seen what the C library does.
    let mut knows_libc = false;
    elf::for_each(|object| {
        let known = table.sites_of(&object).is_some_and(|(_, sites)| !sites.is_empty());
        knows_libc |= known && interpose::is_libc(&object);
    });
    if !knows_libc {
        table.unmap();
        lose(state, Loss::UnknownLibc);
        return false;
    }
    let mut used = 0usize;
    let mut refused = 0usize;
    elf::for_each(|object| {
        if let Some((known, sites)) = table.sites_of(&object) {
            refused += patch_object(&object, sites, &mut used);
            if known.flags & FLAG_UNSEEN != 0 {
                CONFIG.unseen.store(1, Relaxed);
            }
        }
    });
    protect(stubs_address(), STUBS_MAX * STUB_LEN, sys::PROT_READ | sys::PROT_EXEC);
    state.count(Counter::SitesPatched, used as u64);
    state.count(Counter::SitesRefused, refused as u64);
    if refused > 0 {
        CONFIG.unseen.store(1, Relaxed);
    }
    table.unmap();
    if used == 0 {
        lose(state, Loss::UnknownLibc);
    }
    used > 0
}

fn lose(state: &State, loss: Loss) {
    if let Some(slot) = state.slot() {
        slot.lose(loss);
    }
}

/// Whether memory may be both written and executed for a moment. Where it
/// may not (PR_SET_MDWE, SELinux execmem), this is refused before anything
/// has been touched.
fn writable_stubs() -> bool {
    let all = sys::PROT_READ | sys::PROT_WRITE | sys::PROT_EXEC;
    protect(stubs_address(), STUBS_MAX * STUB_LEN, all)
}

fn protect(start: usize, len: usize, protection: usize) -> bool {
    // SAFETY: callers change pages of the stubs or of text that they restore.
    (unsafe { call(nr::MPROTECT, &[start, len, protection]) }) == 0
}

/// Patches one object's sites, as far as that is worth it; returns how many
/// were refused.
fn patch_object(object: &Object, sites: &[Site], used: &mut usize) -> usize {
    let wanted = || worthwhile(sites).flatten();
    let (Some(first), Some(last)) = (wanted().next(), worthwhile(sites).last()) else { return 0 };
    let last = last.last().unwrap_or(first);
    let count = wanted().count();
    let span = (last.address - first.address) as usize + usize::from(last.len);
    let at = object.bias.wrapping_add(first.address as usize);
    let Some((_, text_end)) = object.code_pages(at, span) else { return count };
    let (start, end) = pages(at, span);
    // A fork copies the page table of a mapping that has been written to, and its child's
    // exec takes it down again: of what lies before the first site and behind the last it
    // need not. It would, were that split off after the first page has been written.
    sys::set_apart(start, end);
    let text = sys::PROT_READ | sys::PROT_EXEC;
    if !protect(start, end - start, text | sys::PROT_WRITE) {
        return count;
    }
    populate(object, wanted(), count, *used, text_end);
    let mut refused = 0;
    for site in wanted() {
        if site.kind == KIND_CANCELLABLE {
            refused += usize::from(!redirect(object, site));
        } else if *used < STUBS_MAX && patch_site(object, site, *used) {
            *used += 1;
        } else {
            refused += 1;
        }
    }
    // Where this is refused (SELinux execmod) the text stays writable, as it
    // was allowed to become above, and works.
    protect(start, end - start, text);
    refused
}

/// The sites that are worth the copy of their page, which is most of what a
/// start costs: those on a page with a call that the normal side watches. The
/// others are for a speculative process alone, where the filter finds them,
/// too; most are the futex calls of locks and threads.
fn worthwhile(mut rest: &[Site]) -> impl Iterator<Item = &[Site]> {
    let page = |site: &Site| site.address & !(PAGE_SIZE as u64 - 1);
    let pages = core::iter::from_fn(move || {
        let first = rest.first()?;
        let count = rest.iter().take_while(|site| page(site) == page(first)).count();
        let (here, others) = rest.split_at_checked(count)?;
        rest = others;
        Some(here)
    });
    pages.filter(|sites| sites.iter().any(|site| stub_kind(site) != StubKind::Through))
}

/// Makes private the pages that patching is about to write, a run of them in
/// one call: a fault for each to be read and another to be written cost more
/// than the copies. Before Linux 5.14 they do. Of a library that is not in
/// memory each run would wait for the disk by itself: once one has, the rest,
/// up to `text_end`, is asked for together.
fn populate<'s>(
    object: &Object,
    sites: impl Iterator<Item = &'s Site>,
    count: usize,
    used: usize,
    text_end: usize,
) {
    let stubs = count.min(STUBS_MAX - used.min(STUBS_MAX));
    let (mut start, mut end) = pages(stubs_address() + used * STUB_LEN, stubs * STUB_LEN);
    let mut is_cold = false;
    for site in sites {
        let (first, last) =
            pages(object.bias.wrapping_add(site.address as usize), usize::from(site.len));
        if first != end && first.wrapping_add(PAGE_SIZE) != end {
            let began = ticks();
            sys::make_writable(start, end);
            if !is_cold && took_a_wait(began) {
                is_cold = true;
                sys::will_need(first, text_end);
            }
            start = first;
        }
        end = last;
    }
    sys::make_writable(start, end);
}

/// Whether something has waited for a disk since `began`. Eight pages that are
/// there are copied in 10 µs; where the time-stamp counter has no known rate,
/// nobody knows.
fn took_a_wait(began: u64) -> bool {
    const WAIT_US: u64 = 100;
    let ticks = ticks().wrapping_sub(began);
    ticks.checked_div(CONFIG.ticks_per_us.load(Relaxed)).is_some_and(|us| us > WAIT_US)
}

/// The pages of `len` bytes at `at`: the first's address, and the one after
/// the last.
fn pages(at: usize, len: usize) -> (usize, usize) {
    (at & !(PAGE_SIZE - 1), at.wrapping_add(len).next_multiple_of(PAGE_SIZE))
}

/// Where a site is; `None` where it does not look as the table says.
fn place(object: &Object, site: &Site) -> Option<usize> {
    let at = object.bias.wrapping_add(site.address as usize);
    let stands = |at: usize, expected: &[u8]| {
        // SAFETY: inside an executable segment, which is readable.
        object.is_code(at, expected.len())
            && unsafe { core::slice::from_raw_parts(at as *const u8, expected.len()) } == expected
    };
    if !stands(at, site.bytes.get(..site.len.into())?) {
        return None;
    }
    match site.padding() {
        Some((from, bytes)) => stands(at.wrapping_add_signed(from as isize), &bytes),
        None => usize::from(site.len) >= JUMP_LEN,
    }
    .then_some(at)
}

/// Redirects a call.
fn redirect(object: &Object, site: &Site) -> bool {
    let Some(at) = place(object, site) else { return false };
    let Some(&branch) = site.bytes.first_chunk() else { return false };
    // SAFETY: the site is writable, and no other thread exists.
    unsafe { cancellable::redirect(at, branch) }
}

/// Replaces one site by a jump to stub number `index`.
fn patch_site(object: &Object, site: &Site, index: usize) -> bool {
    let Some(at) = place(object, site) else { return false };
    let len = usize::from(site.len);
    let Some(expected) = site.bytes.get(..len) else { return false };
    let stub_at = stubs_address() + index * STUB_LEN;
    let Some(code) = stub(stub_at, at, expected, stub_kind(site)) else { return false };
    let jump_at = match site.padding() {
        Some((from, _)) => at.wrapping_add_signed(from as isize),
        None => at,
    };
    let Some(jump) = jump(jump_at, stub_at + STUB_ENTRY) else { return false };
    // SAFETY: stub memory `index` is ours and writable; the site is writable, and its padding,
    // which is on the same page; exactly `len` bytes are replaced by a jump and breakpoints
    // that nothing reaches, and no other thread exists that could be in between.
    unsafe {
        core::ptr::copy_nonoverlapping(code.as_ptr(), stub_at as *mut u8, STUB_LEN);
        core::ptr::copy_nonoverlapping(jump.as_ptr(), jump_at as *mut u8, JUMP_LEN);
        if let [_, _, distance, ..] = site.bytes
            && jump_at != at
        {
            *(at as *mut [u8; 2]) = [SHORT_JUMP, distance];
        } else {
            core::ptr::write_bytes((at + JUMP_LEN) as *mut u8, 0xcc, len - JUMP_LEN);
        }
    }
    true
}

/// Puts back what stood at the sites: from here on nothing leads to a stub, but who is in
/// one comes out of it behind its site as before. A site that somebody else has changed
/// since is left alone, and so is one that may not be written to any more.
#[cold]
pub fn undo() {
    let alone = is_single_threaded();
    // Nobody who handles a signal may come to a site that is being written.
    sys::undisturbed(|| {
        let mut opened = None;
        for stub_at in (0..STUBS_MAX).map(|index| stubs_address() + index * STUB_LEN) {
            // SAFETY: room of ours, which nobody writes to after the start.
            let code = unsafe { &*(stub_at as *const [u8; STUB_LEN]) };
            let Some(original) = original(stub_at, code) else { break };
            // The sites of an object are in order, some on each page.
            let here = pages(original.site, original.bytes().len());
            if opened != Some(here) {
                shut(opened);
                opened = open(here).then_some(here);
            }
            if opened.is_some() && leads_to(original.site, stub_at + STUB_ENTRY) {
                // SAFETY: opened, it jumps to its stub, and all signals are blocked.
                unsafe { put_back(&original, alone) };
            }
        }
        cancellable::undo(alone, |at, len| {
            shut(opened.take());
            let here = pages(at, len);
            opened = open(here).then_some(here);
            opened.is_some()
        });
        shut(opened);
    });
}

/// Whether the jump at `site`, or the one to which a short jump there leads, leads to
/// `target`.
fn leads_to(site: usize, target: usize) -> bool {
    // SAFETY: a site of a library that is loaded; it is text, and readable.
    let [opcode, distance] = unsafe { *(site as *const [u8; 2]) };
    let at = match opcode {
        SHORT_JUMP => {
            (site + usize::from(LEN_BY_PADDING)).wrapping_add_signed((distance as i8).into())
        }
        _ => site,
    };
    // SAFETY: the same; a site's padding is on its page.
    jump(at, target) == Some(unsafe { *(at as *const [u8; JUMP_LEN]) })
}

fn open((start, end): (usize, usize)) -> bool {
    protect(start, end - start, sys::PROT_READ | sys::PROT_WRITE | sys::PROT_EXEC)
}

fn shut(opened: Option<(usize, usize)>) {
    if let Some((start, end)) = opened {
        protect(start, end - start, sys::PROT_READ | sys::PROT_EXEC);
    }
}

/// What a site's stub decides by itself.
fn stub_kind(site: &Site) -> StubKind {
    match usize::try_from(site.number) {
        _ if site.kind == KIND_BEFORE => StubKind::Before,
        _ if site.kind == KIND_COPY => StubKind::Through,
        Ok(number) => normal::stub_kind(number),
        Err(_) => StubKind::Any,
    }
}

/// A mapped site table.
struct Table {
    bytes: &'static [u8],
    objects: &'static [sites::Object],
    sites: &'static [Site],
}

impl Table {
    /// Maps the table at `path`, or `None` where it is missing or malformed.
    fn map(path: &[u8]) -> Option<Table> {
        let mut name = [0u8; 512];
        name.get_mut(..path.len())?.copy_from_slice(path);
        if path.is_empty() || *name.last()? != 0 {
            return None;
        }
        let fd = sys::open_read(&name);
        if fd < 0 {
            return None;
        }
        let mut stat = sys::Stat::default();
        let known = sys::fstat(fd as i32, &mut stat) == 0;
        let len = stat.size.max(0) as usize;
        let mut address = -1;
        if known && len >= size_of::<Header>() {
            // SAFETY: a new read-only mapping.
            address = unsafe {
                call(nr::MMAP, &[0, len, sys::PROT_READ, sys::MAP_PRIVATE, fd as usize, 0])
            };
        }
        sys::close(fd as i32);
        if address < 0 {
            return None;
        }
        // SAFETY: `len` bytes are mapped, and the file is replaced as a whole,
        // never truncated (protocol::sites).
        let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, len) };
        Table::read(bytes)
    }

    fn read(bytes: &'static [u8]) -> Option<Table> {
        // SAFETY: mapped memory is page-aligned, and at least a header long.
        let header = unsafe { &*bytes.as_ptr().cast::<Header>() };
        if header.magic != sites::MAGIC || header.object_count > OBJECTS_MAX {
            return None;
        }
        let objects_at = size_of::<Header>();
        let objects = header.object_count as usize;
        let sites_at = objects_at + objects * size_of::<sites::Object>();
        let sites = header.site_count as usize;
        let end = sites.checked_mul(size_of::<Site>())?.checked_add(sites_at)?;
        if end > bytes.len() {
            return None;
        }
        // SAFETY: both lie inside `bytes`, aligned to eight, and hold plain
        // numbers, for which any bits are valid.
        unsafe {
            Some(Table {
                bytes,
                objects: core::slice::from_raw_parts(
                    bytes.as_ptr().add(objects_at).cast(),
                    objects,
                ),
                sites: core::slice::from_raw_parts(bytes.as_ptr().add(sites_at).cast(), sites),
            })
        }
    }

    /// Takes it out of memory: each fork would copy the mapping.
    fn unmap(self) {
        // SAFETY: mapped by `map`, and nothing of it is kept.
        unsafe { call(nr::MUNMAP, &[self.bytes.as_ptr() as usize, self.bytes.len()]) };
    }

    /// What is known of a loaded object, and its sites.
    fn sites_of(&self, object: &Object) -> Option<(&sites::Object, &[Site])> {
        let id = object.build_id()?;
        let known = self
            .objects
            .iter()
            .find(|known| known.build_id.get(..known.build_id_len as usize) == Some(id))?;
        let first = known.first_site as usize;
        let count = known.site_count.min(OBJECT_SITES_MAX) as usize;
        Some((known, self.sites.get(first..first.checked_add(count)?)?))
    }
}
