//! What the environment says. It is asked once, in the thread of the program's that hints
//! first: one of ours would read it while a program that believes itself alone changes it.

use std::ffi::{OsStr, OsString};

use runahead_manager::geometry::Given;
use runahead_manager::wire::Socket;

use crate::backend::HintMode;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub mode: HintMode,
    pub socket: Socket,
    pub disks: Given,
}

impl Environment {
    /// What is said now; none: hints are switched off.
    pub(crate) fn read() -> Option<Self> {
        let mode = mode(variable("RUNAHEAD").as_deref(), variable("RUNAHEAD_HINT").as_deref())?;
        if is_secure() {
            // Whoever starts it has fewer rights than it: their paths are not for it.
            return Some(Self { mode, ..Self::default() });
        }
        let socket =
            Socket { given: variable("RUNAHEAD_MANAGER"), of_user: variable("XDG_RUNTIME_DIR") };
        let disks = Given {
            array: variable("RUNAHEAD_ARRAY").as_deref().and_then(Given::parse_array),
            profiles: runahead_manager::geometry::profiles(),
        };
        Some(Self { mode, socket, disks })
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The mode that the two variables ask for; none: off.
fn mode(runahead: Option<&OsStr>, hint: Option<&OsStr>) -> Option<HintMode> {
    let is_off = |value: &OsStr| value == "off" || value == "0";
    if runahead.is_some_and(is_off) {
        return None;
    }
    match hint {
        Some(value) if is_off(value) => None,
        Some(value) if value == "prefetch" => Some(HintMode::PrefetchOnly),
        Some(value) if value == "nohints" => Some(HintMode::NoHints),
        _ => Some(HintMode::Full),
    }
}

/// Whether this program has more rights than whoever started it.
fn is_secure() -> bool {
    // SAFETY: plain call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_switched_off_by_either_variable() {
        let mode = |runahead: &str, hint: &str| mode(Some(runahead.as_ref()), Some(hint.as_ref()));
        for (runahead, hint) in [("off", ""), ("0", "prefetch"), ("", "off"), ("on", "0")] {
            assert_eq!(mode(runahead, hint), None, "{runahead} {hint}");
        }
        assert_eq!(mode("on", "prefetch"), Some(HintMode::PrefetchOnly));
        assert_eq!(mode("", "nohints"), Some(HintMode::NoHints));
        assert_eq!(mode("", "what"), Some(HintMode::Full));
        assert!(!is_secure());
    }
}
