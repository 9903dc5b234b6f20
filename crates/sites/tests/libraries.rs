//! The analysis on the libraries of this machine: what is found, and that
//! patching it changes nothing but the sites.

use std::collections::BTreeSet;
use std::path::Path;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use runahead_protocol::sites::{
    JUMP_LEN, KIND_BEFORE, KIND_CANCELLABLE, KIND_COPY, KIND_HOOK, SHORT_JUMP, Site,
};
use runahead_sites::find::{Found, Refusal, find};
use runahead_sites::image::{Image, Region};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const LD_SO: &str = "/lib64/ld-linux-x86-64.so.2";
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
/// What `scripts/newer-libc fetch` has put beside them.
const NEWER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/newer-libc/usr/lib/x86_64-linux-gnu/libc.so.6"
);
/// What Debian 12's builds say of themselves; their census is known.
const BANNER_2_36: &[u8] = b"GNU C Library (Debian GLIBC 2.36-9+deb12u";

/// Every library of this machine that a table would hold.
fn libraries() -> Vec<(&'static str, Vec<u8>)> {
    let present: Vec<_> = [LIBC, "/lib64/libc.so.6", "/usr/lib/libc.so.6", LD_SO, MUSL, NEWER]
        .into_iter()
        .filter_map(|path| Some((path, std::fs::read(path).ok()?)))
        .collect();
    assert!(!present.is_empty(), "no C library found");
    present
}

fn count(found: &Found, numbers: &[i64]) -> usize {
    found.sites.iter().filter(|site| numbers.contains(&i64::from(site.number))).count()
}

#[test]
fn every_libc_yields_the_calls_that_read_and_open() {
    for (path, file) in libraries() {
        let found = find(&file).unwrap();
        for number in [libc::SYS_read, libc::SYS_close, libc::SYS_mmap, libc::SYS_fstat] {
            // Where the number is computed (musl, glibc 2.41) it counts as -1.
            let sites = count(&found, &[number, -1, libc::SYS_newfstatat]);
            assert!(sites > 0, "{path}: no site for call {number}");
        }
    }
}

#[test]
fn census_of_glibc_2_36() {
    let file = std::fs::read(LIBC).unwrap_or_default();
    if !file.windows(BANNER_2_36.len()).any(|window| window == BANNER_2_36) {
        eprintln!("another libc: nothing to compare with");
        return;
    }
    let found = find(&file).unwrap();
    assert_eq!(found.sites.len() + found.refused.len(), 526, "syscall instructions");
    let reads =
        [libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv, libc::SYS_preadv2];
    assert_eq!(count(&found, &reads), 12);
    let family = [
        reads.as_slice(),
        &[libc::SYS_open, libc::SYS_openat, libc::SYS_close, libc::SYS_lseek],
        &[libc::SYS_dup, libc::SYS_dup2, libc::SYS_dup3, libc::SYS_fcntl],
        &[libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap],
        &[libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_getdents64],
        &[libc::SYS_clone, libc::SYS_clone3, libc::SYS_vfork],
        &[libc::SYS_execve, libc::SYS_execveat],
    ]
    .concat();
    assert_eq!(count(&found, &family), 49);
    // The restorer of signal handlers is found and left alone.
    let restorer = found.refused.iter().find(|(address, _)| *address == 0x3c057);
    assert!(matches!(restorer, Some((_, Refusal::SignalReturn | Refusal::ProgramCounterChecked))));
}

#[test]
fn calls_that_make_processes_run_in_the_stub() {
    for (path, file) in libraries() {
        for site in find(&file).unwrap().sites {
            let makes = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_fork, libc::SYS_vfork]
                .contains(&i64::from(site.number));
            assert_eq!(site.kind == KIND_BEFORE, makes, "{path}: {:x}", site.address);
            assert_ne!(i64::from(site.number), libc::SYS_rt_sigreturn);
        }
    }
}

/// The signal mask is worth a look of the normal side's where a thread begins; where that is
/// not among the sites, wherever it is changed.
#[test]
fn a_thread_that_begins_is_seen_by_its_signal_mask() {
    for (path, file) in libraries() {
        let sites = find(&file).unwrap().sites;
        let is_mask = |site: &&Site| i64::from(site.number) == libc::SYS_rt_sigprocmask;
        assert!(sites.iter().all(|site| site.kind != KIND_COPY || is_mask(&site)), "{path}");
        let (hooks, copies): (Vec<&Site>, Vec<&Site>) =
            sites.iter().filter(is_mask).partition(|site| site.kind == KIND_HOOK);
        assert!(copies.iter().all(|site| site.kind == KIND_COPY), "{path}");
        assert!(copies.is_empty() || !hooks.is_empty(), "{path}: nowhere");
        // In one function; glibc 2.43 has one before, where the first thread ends.
        let own = &hooks[hooks.len().saturating_sub(2)..];
        let span = own.last().map_or(0, |last| last.address - own[0].address);
        let is_one = span < 0x400 && hooks.len() <= 3;
        assert!(copies.is_empty() || is_one, "{path}: in one function");
        let is_known = file.windows(BANNER_2_36.len()).any(|window| window == BANNER_2_36);
        assert!(!is_known || copies.len() == 12, "{path}: {}", copies.len());
    }
}

/// Of a call that stands in a loop, behind branches or behind another call the
/// number is known, too.
#[test]
fn few_numbers_of_glibc_2_36_are_unknown() {
    let file = std::fs::read(LIBC).unwrap_or_default();
    if !file.windows(BANNER_2_36.len()).any(|window| window == BANNER_2_36) {
        eprintln!("another libc: nothing to compare with");
        return;
    }
    let found = find(&file).unwrap();
    let unknown: Vec<u64> =
        found.sites.iter().filter(|site| site.number == -1).map(|site| site.address).collect();
    // `syscall` itself, and what changes the rights of all threads.
    assert!(unknown.contains(&0x10_1827) && unknown.contains(&0x8_6ac9), "{unknown:x?}");
    assert!(unknown.len() <= 6, "{unknown:x?}");
}

/// musl's `__unmapself` gives its own stack back and ends: neither of its
/// two calls may need a stack.
#[test]
fn calls_without_a_stack_are_left_alone() {
    let Ok(file) = std::fs::read(MUSL) else {
        eprintln!("musl is not installed: nothing to look at");
        return;
    };
    // mov $11,%eax; syscall; xor %rdi,%rdi; mov $60,%eax; syscall
    let code = [0xb8, 11, 0, 0, 0, 0x0f, 5, 0x48, 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 5];
    let image = Image::parse(&file).unwrap();
    let start = image
        .code
        .iter()
        .find_map(|region| {
            let at = region.bytes.windows(code.len()).position(|window| window == code)?;
            Some(region.address + at as u64)
        })
        .expect("__unmapself");
    let found = find(&file).unwrap();
    let inside = |address: &u64| (start..start + code.len() as u64).contains(address);
    assert!(!found.sites.iter().any(|site| inside(&site.address)));
}

/// Applies the patches to a copy of the code and decodes it again.
#[test]
fn patched_code_is_a_jump_at_each_site_and_untouched_elsewhere() {
    for (path, file) in libraries() {
        check_patched(path, &file);
    }
    check_patched("by padding", &by_padding(BRANCH_BEHIND));
}

fn check_patched(path: &str, file: &[u8]) {
    let image = Image::parse(file).unwrap();
    let sites = find(file).unwrap().sites;
    assert!(!sites.is_empty(), "{path}");
    for region in &image.code {
        let before = decode_all(region.bytes, region.address);
        let mut patched = region.bytes.to_vec();
        let mut changed = BTreeSet::new();
        for site in sites.iter().filter(|site| region.from(site.address).is_some()) {
            for (address, code) in changes(site, &before) {
                let start = (address - region.address) as usize;
                patched[start..start + code.len()].copy_from_slice(&code);
                for byte in address..address + code.len() as u64 {
                    assert!(changed.insert(byte), "{path}: sites overlap");
                }
            }
        }
        check_region(path, region, &before, &patched, &changed);
    }
}

/// What a site becomes: the code at one or two addresses, whole instructions long.
fn changes(site: &Site, before: &[Instruction]) -> Vec<(u64, Vec<u8>)> {
    let at = before.binary_search_by_key(&site.address, Instruction::ip).expect("an instruction");
    if site.kind == KIND_CANCELLABLE {
        let is_branch = |code: Code| matches!(code, Code::Call_rel32_64 | Code::Jmp_rel32_64);
        assert!(is_branch(before[at].code()) && before[at].len() == JUMP_LEN);
        return vec![(site.address, [&site.bytes[..1], &far()].concat())];
    }
    assert_eq!(before[at].code(), Code::Syscall);
    let jump = [&[0xe9], &far()[..]].concat();
    let Some((from, _)) = site.padding() else {
        check_moved(site);
        let filled = [jump, vec![0x90; usize::from(site.len) - JUMP_LEN]].concat();
        return vec![(site.address, filled)];
    };
    let padding = site.address.wrapping_add_signed(from);
    let first = before.binary_search_by_key(&padding, Instruction::ip).expect("an instruction");
    // Nobody comes to it from what is before, and all of it is padding.
    assert_ne!(before[first - 1].flow_control(), iced_x86::FlowControl::Next);
    let run = before[first..].iter().take_while(|one| one.ip() < padding + JUMP_LEN as u64);
    let len: usize =
        run.inspect(|one| assert_eq!(one.mnemonic(), Mnemonic::Nop)).map(Instruction::len).sum();
    let short = vec![SHORT_JUMP, site.bytes[2]];
    let filled = [jump, vec![0x90; len - JUMP_LEN]].concat();
    vec![(site.address, short), (padding, filled)]
}

/// A distance.
fn far() -> [u8; 4] {
    0x1000_0000i32.to_le_bytes()
}

/// What moves into the stub does the same there.
fn check_moved(site: &Site) {
    let moved = &site.bytes[..usize::from(site.len)];
    let mut moved = Decoder::with_ip(64, moved, site.address, DecoderOptions::NONE);
    assert_eq!(moved.decode().code(), Code::Syscall);
    let mut has_returned = false;
    while moved.can_decode() {
        let instruction = moved.decode();
        assert!(!instruction.is_invalid() && !instruction.is_ip_rel_memory_operand());
        if has_returned {
            let fills = [Mnemonic::Nop, Mnemonic::Int3].contains(&instruction.mnemonic());
            assert!(fills, "{:x}", site.address);
        } else if instruction.code() == Code::Retnq {
            has_returned = true;
        } else {
            assert_eq!(instruction.flow_control(), iced_x86::FlowControl::Next);
        }
    }
}

/// Every instruction outside of what has changed is as before, none straddles its ends, and
/// no branch anywhere lands inside a change.
fn check_region(
    path: &str,
    region: &Region<'_>,
    before: &[Instruction],
    patched: &[u8],
    changed: &BTreeSet<u64>,
) {
    let after = decode_all(patched, region.address);
    let begins = |address: u64| !changed.contains(&(address - 1)) || !changed.contains(&address);
    for instruction in before {
        if matches!(instruction.op0_kind(), OpKind::NearBranch64) {
            let target = instruction.near_branch_target();
            let is_between = after.binary_search_by_key(&target, Instruction::ip).is_ok();
            let lands = begins(target) || is_between && !changed.contains(&target);
            assert!(lands, "{path}: {:x} jumps into a site", instruction.ip());
        }
    }
    let outside = |instruction: &&Instruction| !changed.contains(&instruction.ip());
    assert!(
        before.iter().filter(outside).eq(after.iter().filter(outside)),
        "{path}: code outside the sites decodes differently"
    );
}

fn decode_all(bytes: &[u8], address: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).iter().collect()
}

#[test]
fn libraries_are_told_by_their_build_id() {
    let file = std::fs::File::open(Path::new(LD_SO)).unwrap();
    let head = runahead_sites::elf::read_head(&file).unwrap().unwrap();
    assert!(head.is_64_bit && head.is_x86_64 && head.is_loadable);
    let note = object::read::elf::ElfFile64::<object::LittleEndian>::parse(
        &*std::fs::read(LD_SO).unwrap(),
    )
    .ok()
    .and_then(|elf| object::Object::build_id(&elf).ok().flatten().map(<[u8]>::to_vec));
    assert_eq!(head.build_id.map(|id| id.as_bytes().to_vec()), note);
}

/// Functions whose calls a return follows too closely for a jump.
const RETURNS: &str = r#"
    .macro function name
    .globl \name
    .type \name, @function
    .p2align 4
    \name:
    .cfi_startproc
    .endm
    .macro ends name
    .cfi_endproc
    .size \name, . - \name
    .endm
    .text
    function padded
    test %edi, %edi
    jnz 1f
    mov %rsi, %rax
    syscall
    pop %rbx
    ret
    nopl 0(%rax)
    1: mov %rdi, %rax
    ret
    ends padded
    function code_follows
    test %edi, %edi
    jnz 1f
    mov %rsi, %rax
    syscall
    ret
    1: mov %rdi, %rax
    ret
    ends code_follows
    function compared
    lea 2f(%rip), %rdx
    mov %rsi, %rax
    syscall
    2: ret
    nopl 0(%rax)
    nop
    ends compared
    function at_the_end
    mov %rsi, %rax
    syscall
    ret
    ends at_the_end
"#;

/// A library of this assembly.
fn assembled(name: &str, code: &str) -> Vec<u8> {
    let directory = std::env::temp_dir().join(format!("sites-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let [source, library] = ["code.s", "library.so"].map(|name| directory.join(name));
    std::fs::write(&source, code).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    let made = gcc.args(["-shared", "-nostdlib", "-o"]).args([&library, &source]).status();
    assert!(made.unwrap().success());
    let file = std::fs::read(&library).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    file
}

/// `__syscall_cancel_arch` of glibc 2.41 and later, marked or not, with a version of its
/// symbols, and what leads to it.
fn cancellable(marks: bool, leads: &str) -> Vec<u8> {
    let mark = if marks { "endbr64" } else { "" };
    assembled(
        &format!("cancellable-{marks}-{}", leads.len()),
        &format!(
            r#"
            .section .rodata
            .byte 0
            .asciz "GLIBC_2.2.5"
            .asciz "GLIBC_2.41"
            .asciz "__libc_start_main"
            .text
            .p2align 4
            arch: .cfi_startproc
            {mark}
            mov (%rdi), %eax
            testb $8, (%rdi)
            jne cancel
            mov %rdi, %r11
            mov %rsi, %rax
            mov %rdx, %rdi
            mov %rcx, %rsi
            mov %r8, %rdx
            mov %r9, %r10
            mov 8(%rsp), %r8
            mov 16(%rsp), %r9
            mov %r11, 8(%rsp)
            syscall
            ret
            .cfi_endproc
            .globl others
            .type others, @function
            others:
            {leads}
            .p2align 8
            cancel: hlt
            "#
        ),
    )
}

#[test]
fn calls_of_the_function_that_cancels_threads_are_found() {
    for marks in [false, true] {
        let found = find(&cancellable(marks, "call arch; ret; .p2align 8; jmp arch")).unwrap();
        assert!(!found.unseen, "{found:?}");
        let opcodes: Vec<u8> = found.sites.iter().map(|site| site.bytes[0]).collect();
        assert_eq!(opcodes, [0xe8, 0xe9], "{found:?}");
        let is_call = |site: &Site| site.kind == KIND_CANCELLABLE && site.len == JUMP_LEN as u8;
        assert!(found.sites.iter().all(is_call), "{found:?}");
    }
}

/// Nobody calls it, somebody comes to it in another way, what calls it is not decoded, or
/// there are too many calls: all is left alone, and whoever has threads is told.
#[test]
fn where_not_all_of_its_calls_are_known_none_is_redirected() {
    let many = "call arch; ".repeat(5);
    for leads in [
        "ret",
        "call arch; jne arch",
        "call arch; ret; .p2align 8; jne arch",
        "call arch; ret; .byte 0x48, 0xb8; call arch; nop; nop; nop; ret",
        "call arch; ret; .p2align 4; call arch + 2",
        &many,
    ] {
        let found = find(&cancellable(false, leads)).unwrap();
        let calls = found.sites.iter().filter(|site| site.kind == KIND_CANCELLABLE).count();
        assert_eq!((calls, found.unseen), (0, true), "{leads}: {found:?}");
    }
}

/// The way that glibc 2.43 makes calls that may wait: to what is behind the `syscall` another
/// instruction jumps.
const BRANCH_BEHIND: &str = "1: add $0x18, %rsp; ret; .p2align 4";

/// `__internal_syscall_cancel` in short, with this behind its `syscall`.
fn by_padding(behind: &str) -> Vec<u8> {
    cancellable(
        false,
        &format!(
            r#"
            .p2align 8
            .globl waits
            .type waits, @function
            waits: .cfi_startproc
            sub $0x18, %rsp
            test %rdi, %rdi
            jne 2f
            call arch
            cmp $-4, %rax
            jne 1f
            hlt
            2: mov 0x20(%rsp), %rax
            syscall
            {behind}
            .cfi_endproc
            .size waits, . - waits
            .globl next
            .type next, @function
            next: ret
            "#
        ),
    )
}

#[test]
fn where_something_jumps_behind_the_call_the_jump_stands_in_padding() {
    let found = find(&by_padding(BRANCH_BEHIND)).unwrap();
    assert!(!found.unseen, "{found:?}");
    let [call, wait] = &found.sites[..] else { panic!("{found:?}") };
    assert_eq!((call.kind, wait.kind), (KIND_CANCELLABLE, KIND_HOOK));
    let (from, bytes) = wait.padding().unwrap();
    // Behind syscall, add and ret.
    assert_eq!((from, &bytes[..1]), (7, &[0x66][..]), "{found:?}");
}

/// No padding, too little, some that is come to or jumped to, and somebody who knows where
/// the call ends: the call is left alone, and it is said that not all is seen.
#[test]
fn where_nothing_can_stand_for_the_call_it_is_said_so() {
    for behind in [
        "1: add $0x18, %rsp; ret",
        "1: add $0x18, %rsp; ret; nopl (%rax)",
        "1: add $0x18, %rsp; nopw 0x0(%rax,%rax,1); ret",
        "1: add $0x18, %rsp; je 3f; ret; nop; nop; nop; 3: nop; nop; nop; nop; ret",
        "1: add $0x18, %rsp; lea 1b(%rip), %rdx; ret; .p2align 6",
        "1: add $0x18, %rsp; ret; .skip 200, 0xc3; .p2align 4",
    ] {
        let found = find(&by_padding(behind)).unwrap();
        let kinds: Vec<u8> = found.sites.iter().map(|site| site.kind).collect();
        assert_eq!(
            (&kinds[..], found.unseen),
            (&[KIND_CANCELLABLE][..], true),
            "{behind}: {found:?}"
        );
    }
}

/// A call that ends the program, to what is behind which another instruction jumps.
#[test]
fn a_call_that_must_not_pass_unseen_is_a_site_or_it_is_said_so() {
    let exit = |behind: &str| {
        cancellable(false, &format!("call arch; ret; mov $231, %eax; syscall; 1: jmp 1b; {behind}"))
    };
    let found = find(&exit(".p2align 5; ret")).unwrap();
    let [call, ends] = &found.sites[..] else { panic!("{found:?}") };
    assert_eq!((call.kind, i64::from(ends.number)), (KIND_CANCELLABLE, libc::SYS_exit_group));
    assert!(ends.padding().is_some() && !found.unseen, "{found:?}");
    let found = find(&exit("ret; .skip 200, 0xc3")).unwrap();
    assert_eq!((found.sites.len(), found.unseen), (1, true), "{found:?}");
}

/// The way that glibc 2.41 makes calls that may wait: what is behind a return, and
/// reached by nobody, makes room for the jump.
#[test]
fn padding_behind_a_return_makes_room() {
    let found = find(&assembled("returns", RETURNS)).unwrap();
    // syscall, pop, ret, and the three bytes of the padding.
    let lens: Vec<u8> = found.sites.iter().map(|site| site.len).collect();
    assert_eq!(lens, [7], "{found:?}");
    assert_eq!(found.refused.len(), 3, "{found:?}");
    let of =
        |wanted: &[Refusal]| found.refused.iter().filter(|one| wanted.contains(&one.1)).count();
    assert_eq!(of(&[Refusal::NoRoom]), 2, "{found:?}");
    assert_eq!(of(&[Refusal::ProgramCounterChecked, Refusal::BranchTarget]), 1, "{found:?}");
    assert!(!found.unseen);
}
