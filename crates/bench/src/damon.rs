//! Whether the machine pages out what nobody lacks memory for: a DAMON scheme
//! (`Documentation/admin-guide/mm/damon/usage.rst`, Linux 5.18). What a
//! benchmark has warmed is then gone after a while.

use std::fs;
use std::path::{Path, PathBuf};

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// The schemes at work on this machine that page out; none where the kernel
/// has no DAMON or sysfs may not be read.
pub fn paging_out() -> Vec<PathBuf> {
    paging_out_under(Path::new(KDAMONDS))
}

fn paging_out_under(kdamonds: &Path) -> Vec<PathBuf> {
    let is =
        |path: PathBuf, word: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == word);
    numbered(kdamonds)
        .into_iter()
        .filter(|kdamond| is(kdamond.join("state"), "on"))
        .flat_map(|kdamond| numbered(&kdamond.join("contexts")))
        .flat_map(|context| numbered(&context.join("schemes")))
        .filter(|scheme| is(scheme.join("action"), "pageout"))
        .collect()
}

/// The directories named by numbers, in order.
fn numbered(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_at_work_that_page_out_are_found() {
        let root = tempfile::tempdir().unwrap();
        for (kdamond, state, scheme, action) in [
            ("0", "on", "1", "pageout"),
            ("0", "on", "0", "lru_deprio"),
            ("1", "off", "0", "pageout"),
            ("10", "on", "0", "pageout"),
        ] {
            let kdamond = root.path().join(kdamond);
            let scheme = kdamond.join("contexts/0/schemes").join(scheme);
            fs::create_dir_all(&scheme).unwrap();
            fs::write(scheme.join("action"), format!("{action}\n")).unwrap();
            fs::write(kdamond.join("state"), format!("{state}\n")).unwrap();
        }
        fs::write(root.path().join("nr_kdamonds"), "2\n").unwrap();
        let found = paging_out_under(root.path());
        let expected = ["0/contexts/0/schemes/1", "10/contexts/0/schemes/0"];
        assert_eq!(found, expected.map(|name| root.path().join(name)));
        assert!(paging_out_under(&root.path().join("missing")).is_empty());
    }
}
