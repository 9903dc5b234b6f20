//! Writes the session text that [`runahead_protocol::session`] reads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use runahead_protocol::session::{SESSION_LEN_MAX, Session, VERSION};

/// The text of a session; `None` where a path holds a `;` or a NUL, or the
/// text would be longer than an agent accepts.
pub fn format(session: &Session<'_>) -> Option<OsString> {
    let mut text = format!("v={VERSION};mode={}", session.mode.name()).into_bytes();
    for (key, path) in [
        ("agent", session.agent),
        ("sites", session.sites),
        ("stats", session.stats),
        ("reads", session.reads),
        ("learnt", session.learnt),
        ("devices", session.devices),
    ] {
        if path.iter().any(|byte| matches!(byte, b';' | 0)) {
            return None;
        }
        if !path.is_empty() {
            text.extend(format!(";{key}=").into_bytes());
            text.extend(path);
        }
    }
    for (key, number) in [
        ("tsc", session.tsc_per_us),
        ("horizon", session.horizon),
        ("depth", session.depth),
        ("filters", session.filters),
        ("test", session.test),
    ] {
        if number != 0 {
            text.extend(format!(";{key}={number}").into_bytes());
        }
    }
    (text.len() <= SESSION_LEN_MAX).then(|| OsString::from_vec(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_protocol::session::{Mode, parse};
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn an_agent_reads_what_the_launcher_wrote() {
        for mode in [Mode::Speculate, Mode::Observe, Mode::Off] {
            for number in [0, 1, 4096, u64::MAX] {
                for path in [&b""[..], b"/a b/agent=1.so", b"/proc/7/fd/3", b"/\xff\xfe"] {
                    let session = Session {
                        mode,
                        agent: path,
                        sites: b"/s",
                        stats: path,
                        reads: path,
                        tsc_per_us: number,
                        horizon: number / 2,
                        depth: number / 3,
                        filters: number / 5,
                        learnt: path,
                        devices: b"7:1:2:3:4:5:6",
                        test: number,
                    };
                    let text = format(&session).unwrap();
                    assert_eq!(parse(text.as_bytes()), Some(session));
                }
            }
        }
    }

    #[test]
    fn what_would_be_read_otherwise_is_refused() {
        assert_eq!(format(&Session { agent: b"/a;b", ..Session::default() }), None);
        assert_eq!(format(&Session { sites: b"/a\0b", ..Session::default() }), None);
        let long = [b'x'; SESSION_LEN_MAX];
        assert_eq!(format(&Session { stats: &long, ..Session::default() }), None);
    }
}
