//! The analysis of libraries: no input makes it panic or hang, and every site
//! that it finds lies in the file's code as it says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runahead_protocol::sites::{JUMP_LEN, SITE_LEN_MAX};
use runahead_sites::image::Image;
use runahead_sites::{elf, find};
use std::fs::File;
use std::io::Write;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = find::find(bytes) {
        let image = Image::parse(bytes).expect("it has been analysed");
        for site in &found.sites {
            let len = usize::from(site.len);
            assert!((JUMP_LEN..=SITE_LEN_MAX).contains(&len), "{site:?}");
            let code = image.code_at(site.address).and_then(|code| code.from(site.address));
            let there = code.and_then(|code| code.get(..len));
            assert_eq!(there, site.bytes.get(..len), "{site:?}");
            assert!(site.bytes.starts_with(&[0x0f, 0x05]), "{site:?}");
        }
        let starts = found.sites.windows(2);
        for pair in starts {
            let [a, b] = pair else { continue };
            assert!(a.address + u64::from(a.len) <= b.address, "overlap: {a:?} {b:?}");
        }
    }
    // The launcher reads a library's head from its file.
    let memory = rustix::fs::memfd_create("elf", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(memory);
    file.write_all(bytes).unwrap();
    let _ = elf::read_head(&file);
});
