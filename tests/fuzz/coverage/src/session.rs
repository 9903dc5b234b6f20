//! The launcher's words in the environment, which a program may have changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runahead_protocol::session;

fuzz_target!(|bytes: &[u8]| {
    let _ = session::parse(bytes);
    let _ = session::Mode::from_name(bytes);
    assert!(session::devices(bytes).count() <= bytes.len() + 1);
});
