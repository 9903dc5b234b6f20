//! How many embedded managers share one memory: each takes its part of it.
//!
//! Each binds a socket with a name without a file ("abstract"), so that nothing is left
//! behind however a process ends, and counts which names are taken.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names that are tried: more managers than these count as so many.
const SLOTS: u32 = 16;

/// This manager's place among those of one memory.
#[derive(Debug)]
pub(crate) struct Sharers {
    domain: String,
    _own: Option<UnixDatagram>,
}

impl Sharers {
    pub(crate) fn register(domain: &str) -> Self {
        let own = (0..SLOTS).find_map(|slot| UnixDatagram::bind_addr(&address(domain, slot)?).ok());
        Self { domain: domain.to_owned(), _own: own }
    }

    /// Managers that share the memory, this one included; at least 1.
    pub(crate) fn count(&mut self) -> u64 {
        let Ok(probe) = UnixDatagram::unbound() else { return 1 };
        let taken = (0..SLOTS)
            .filter_map(|slot| address(&self.domain, slot))
            .filter(|address| probe.connect_addr(address).is_ok());
        (taken.count() as u64).max(1)
    }
}

fn address(domain: &str, slot: u32) -> Option<SocketAddr> {
    SocketAddr::from_abstract_name(format!("runahead-hint/{domain}/{slot}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_of_one_memory_count_each_other() {
        let domain = format!("test-{}", std::process::id());
        let mut first = Sharers::register(&domain);
        assert_eq!(first.count(), 1);
        let mut second = Sharers::register(&domain);
        assert_eq!((first.count(), second.count()), (2, 2));
        drop(second);
        assert_eq!(first.count(), 1);
    }
}
