//! What the tests of the shared library have in common.

use std::path::{Path, PathBuf};

/// The project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shared library that was built with this test.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    let places = [deps.to_owned(), deps.parent().unwrap().to_owned()];
    let found = places.iter().map(|place| place.join("librunahead_hint.so")).find(|p| p.exists());
    found.expect("librunahead_hint.so beside the tests")
}
