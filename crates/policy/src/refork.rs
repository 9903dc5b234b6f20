//! Which kind of copy a synchronisation makes (Fraser and Chang, section 5.1:
//! a full copy delays programs with large page tables; their fast refork is
//! Runahead's importing copy).
//!
//! A full copy costs the normal process its page tables, and a fault for each
//! page that it writes later. An importing copy costs it neither, but it runs
//! slower, because it asks for every page that it touches, and what the
//! program changes meanwhile, it sees: it predicts less. So the full copy is
//! made where it is cheap beside a stall, which also hides a part of its cost
//! (a linker on disks of 12 ms waited for 2800 reads with full copies, for 3500
//! with importing ones, each 5 ms cheaper).

/// Cost of a full copy by resident anonymous memory before one has been
/// measured, in ns per MiB.
const FULL_NS_PER_MIB: u64 = 17_000;

/// Cost of an importing copy before one has been measured, in ns.
const IMPORT_NS: u64 = 150_000;

/// The least by which a full copy must be dearer, in ns, however short the
/// stalls.
const WORTH_NS: u64 = 150_000;

/// What it takes to hand a copy over before that has been measured, in ns.
const HANDED_NS: u64 = 400_000;

/// Kind of copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All memory, copy on write.
    Full,
    /// Without the large anonymous regions.
    Importing,
}

/// What is known of both. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refork {
    /// Smoothed cost of a full copy (weight 1/4), in ns per MiB; 0: not known.
    full_ns_per_mib: u64,
    /// Smoothed cost of an importing copy (weight 1/4), in ns; 0: not known.
    import_ns: u64,
    /// Smoothed cost of the copy-on-write faults after a full copy (weight
    /// 1/4), in ns; 0: not known.
    copy_on_write_ns: u64,
    /// Smoothed time from the question for a copy until it is made, where
    /// somebody else makes it (weight 1/4), in ns; 0: not known.
    handed_ns: u64,
}

impl Refork {
    /// Whether an importing copy is to be made by somebody else, while the
    /// normal process waits for its data (section 5.1: preemptible). Where
    /// stalls are not much longer than that takes, most would be given up. What
    /// was measured is believed less each time that it is not done because of it.
    pub fn hands_over(&mut self, stall_ns: u64) -> bool {
        let handed_ns = if self.handed_ns == 0 { HANDED_NS } else { self.handed_ns };
        let long = stall_ns >= handed_ns.saturating_mul(2);
        if !long {
            self.handed_ns -= self.handed_ns / 64;
        }
        long
    }

    /// It took `ns`; 0: nothing is known.
    pub fn handed_over(&mut self, ns: u64) {
        if ns != 0 {
            self.handed_ns = smooth(self.handed_ns, ns);
        }
    }

    /// The kind to make of a process with `resident_bytes` of anonymous
    /// memory, whose stalls take `stall_ns`; `swapped`: some of it may be on a
    /// swap device, which only an importing copy can prefetch from.
    pub fn choose(&self, resident_bytes: u64, stall_ns: u64, swapped: bool) -> Kind {
        let full_ns = self.full_ns(resident_bytes);
        if swapped || full_ns > self.import_ns().saturating_add(stall_ns.max(WORTH_NS)) {
            Kind::Importing
        } else {
            Kind::Full
        }
    }

    /// What a copy of a process with so much anonymous memory costs it, in ns.
    pub fn cost_ns(&self, kind: Kind, resident_bytes: u64) -> u64 {
        match kind {
            Kind::Full => self.full_ns(resident_bytes),
            Kind::Importing => self.import_ns(),
        }
    }

    fn import_ns(&self) -> u64 {
        if self.import_ns == 0 { IMPORT_NS } else { self.import_ns }
    }

    fn full_ns(&self, resident_bytes: u64) -> u64 {
        let per_mib =
            if self.full_ns_per_mib == 0 { FULL_NS_PER_MIB } else { self.full_ns_per_mib };
        (resident_bytes >> 20).saturating_mul(per_mib).saturating_add(self.copy_on_write_ns)
    }

    /// Faults of the normal process since its last full copy took `ns`, for
    /// pages that both had (section 5.2).
    pub fn copied_on_write(&mut self, ns: u64) {
        self.copy_on_write_ns = smooth(self.copy_on_write_ns, ns);
    }

    /// A copy of `kind` of a process with `resident_bytes` took `ns` of the
    /// normal process's time, without what both kinds cost alike.
    pub fn took(&mut self, kind: Kind, resident_bytes: u64, ns: u64) {
        match kind {
            Kind::Importing => self.import_ns = smooth(self.import_ns, ns),
            // Of small processes the fixed part would be taken for page tables.
            Kind::Full if resident_bytes >= 64 << 20 => {
                let per_mib = ns / (resident_bytes >> 20);
                self.full_ns_per_mib = smooth(self.full_ns_per_mib, per_mib);
            }
            Kind::Full => {}
        }
    }
}

/// What is known after `new`; 0: nothing was.
fn smooth(old: u64, new: u64) -> u64 {
    match old {
        0 => new.max(1),
        old => (old - old / 4 + new / 4).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL_NS: u64 = 100_000;

    #[test]
    fn long_stalls_are_worth_what_a_full_copy_predicts_more() {
        let mut refork = Refork::default();
        refork.copied_on_write(6_000_000);
        assert_eq!(refork.choose(100 << 20, STALL_NS, false), Kind::Importing);
        assert_eq!(refork.choose(100 << 20, 12_000_000, false), Kind::Full);
        assert_eq!(refork.choose(1 << 30, 12_000_000, false), Kind::Importing);
    }

    #[test]
    fn small_programs_are_copied_whole_and_large_ones_are_not() {
        let refork = Refork::default();
        assert_eq!(refork.choose(4 << 20, STALL_NS, false), Kind::Full);
        assert_eq!(refork.choose(1 << 30, STALL_NS, false), Kind::Importing);
        assert_eq!(
            refork.choose(4 << 20, STALL_NS, true),
            Kind::Importing,
            "only it prefetches from swap"
        );
    }

    #[test]
    fn faults_for_shared_pages_are_part_of_the_cost() {
        let mut refork = Refork::default();
        refork.copied_on_write(500_000);
        assert_eq!(refork.choose(4 << 20, STALL_NS, false), Kind::Importing);
    }

    #[test]
    fn short_stalls_are_over_before_a_copy_is_handed_over() {
        let mut refork = Refork::default();
        assert!(!refork.hands_over(STALL_NS));
        assert!(refork.hands_over(1_000_000));
        refork.handed_over(0);
        assert!(refork.hands_over(1_000_000), "nothing new is known");
        (0..20).for_each(|_| refork.handed_over(900_000));
        assert!(!refork.hands_over(1_000_000));
        assert!((0..100).any(|_| refork.hands_over(1_000_000)), "it is tried again");
        (0..20).for_each(|_| refork.handed_over(40_000));
        assert!(refork.hands_over(STALL_NS));
    }

    #[test]
    fn measured_cost_decides() {
        let mut cheap = Refork::default();
        // Huge pages: 1 ms per GiB.
        cheap.took(Kind::Full, 128 << 20, 128_000);
        assert_eq!(cheap.choose(256 << 20, STALL_NS, false), Kind::Full);
        let mut dear = Refork::default();
        for _ in 0..20 {
            dear.took(Kind::Importing, 1 << 30, 30_000_000);
        }
        assert_eq!(dear.choose(1 << 30, STALL_NS, false), Kind::Full);
    }
}
