//! The site table's file, which others could have written: what is accepted
//! can be written again and means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runahead_sites::SiteTable;

fuzz_target!(|bytes: &[u8]| {
    if let Some(table) = SiteTable::from_bytes(bytes) {
        let again = SiteTable::from_bytes(&table.to_bytes());
        assert_eq!(again.as_ref(), Some(&table));
    }
});
