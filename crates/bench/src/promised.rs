//! What `bench explicit` promises of programs that wait for storage
//! (docs/SPECIFICATION, "As fast as the device allows"), and whether it is kept.

use crate::apps::Metadata;
use crate::results::{CaseResult, Results};
use crate::table::{Mix, times};

/// How many times faster an application is at least.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// Where, as results name it.
    place: &'static str,
    app: &'static str,
    /// What of it.
    of: Of,
    /// State of the metadata; none: either.
    metadata: Option<Metadata>,
    /// Plain elapsed time / elapsed time under Runahead, at least.
    times: f64,
}

/// Of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Each case of this name; where there is but one, it has none.
    Case(&'static str),
    /// So many cases together.
    Mix(usize),
}

const ONLY: Of = Of::Case("");
const WARM: Option<Metadata> = Some(Metadata::Warm);
const COLD: Option<Metadata> = Some(Metadata::Cold);
const OBJECT: &str = "object";
const OBJECT_RAISED: &str = "object fuse-limit 1024";
const OVERLAY: &str = "cloud overlay";
/// So much of what is promised for the mount itself is promised through overlayfs.
const OVERLAY_SHARE: f64 = 0.75;
/// The machine's own disk.
const LOCAL: &str = "nvme";

/// Elapsed time falls by so much, as the paper says it.
const fn falls_by(share: f64) -> f64 {
    1.0 / (1.0 - share)
}

const fn promise(
    place: &'static str,
    app: &'static str,
    of: Of,
    metadata: Option<Metadata>,
    times: f64,
) -> Promise {
    Promise { place, app, of, metadata, times }
}

const PROMISES: &[Promise] = &[
    promise("array-2003", "agrep", ONLY, None, falls_by(0.60)),
    promise("array-2003", "xdataslice", ONLY, None, falls_by(0.50)),
    promise("array-2003", "gnuld", ONLY, None, falls_by(0.35)),
    promise("array-2003", "postgresql", Of::Mix(8), None, falls_by(0.40)),
    promise("cloud", "grep2000", ONLY, WARM, 18.0),
    promise("cloud", "grep2000", ONLY, COLD, 7.0),
    promise("cloud", "sha256sum", ONLY, None, 10.0),
    promise("cloud", "tar", ONLY, None, 5.0),
    promise("cloud", "xdataslice", ONLY, None, 8.0),
    promise("cloud", "postgresql", Of::Case("select-1pct-unclustered"), None, 4.0),
    promise("cloud", "postgresql", Of::Case("select-10pct-unclustered"), None, 4.0),
    promise(OBJECT, "grep2000", ONLY, WARM, 8.0),
    promise(OBJECT, "sha256sum", ONLY, WARM, 8.0),
    promise(OBJECT_RAISED, "grep2000", ONLY, WARM, 15.0),
    promise(OBJECT_RAISED, "sha256sum", ONLY, WARM, 15.0),
    promise(OVERLAY, "grep2000", ONLY, WARM, 18.0 * OVERLAY_SHARE),
    promise(OVERLAY, "grep2000", ONLY, COLD, 7.0 * OVERLAY_SHARE),
    promise(OVERLAY, "sha256sum", ONLY, None, 10.0 * OVERLAY_SHARE),
    promise(LOCAL, "agrep", ONLY, WARM, 1.6),
    promise(LOCAL, "grep2000", ONLY, WARM, 1.6),
];

/// A promise, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Promised {
    /// Of what.
    pub title: String,
    /// At least so many times faster.
    pub promised: f64,
    /// So many times.
    pub measured: f64,
}

impl Promised {
    /// Whether it is kept.
    pub fn is_kept(&self) -> bool {
        self.measured >= self.promised
    }

    /// One line for the reader.
    pub fn line(&self) -> String {
        let Self { title, promised, measured } = self;
        let verdict = if self.is_kept() { "kept" } else { "MISSED" };
        format!("Promised: {title} {}: {}, {verdict}", times(*promised), times(*measured))
    }
}

/// The cases that break the promise that nothing is noticeably slower, which is made of
/// local flash and of processors that others keep busy, with the whole data or more.
pub fn slowed(results: &Results) -> Vec<&CaseResult> {
    if results.scale < 1.0 || !(results.busy || results.profile == LOCAL) {
        return Vec::new();
    }
    results.cases.iter().filter(|case| case.is_certainly_slower()).collect()
}

/// The promises that `results` are about: of programs that have the processors,
/// and the whole data or more, to themselves.
pub fn of(results: &Results) -> Vec<Promised> {
    if results.busy || results.scale < 1.0 {
        return Vec::new();
    }
    let here = PROMISES.iter().filter(|promise| promise.place == results.profile);
    here.flat_map(|promise| promise.measured(results)).collect()
}

impl Promise {
    fn measured(&self, results: &Results) -> Vec<Promised> {
        let promised = |title, measured| Promised { title, promised: self.times, measured };
        match self.of {
            Of::Case(name) => {
                let found = results.cases.iter().filter(|case| self.is_about(case, name));
                let ratio = |case: &CaseResult| {
                    case.speedup().map(|ratio| promised(case.title(), ratio.value))
                };
                found.filter_map(ratio).collect()
            }
            Of::Mix(cases) => {
                let mix = Mix::of(results, self.app).filter(|mix| mix.cases == cases);
                let title = format!("{}, its {cases} cases together,", self.app);
                mix.map(|mix| promised(title, mix.speedup())).into_iter().collect()
            }
        }
    }

    fn is_about(&self, case: &CaseResult, name: &str) -> bool {
        case.app == self.app
            && case.case == name
            && self.metadata.is_none_or(|metadata| metadata == case.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps;
    use crate::results::tests::example;

    fn results(place: &str, cases: Vec<CaseResult>) -> Results {
        Results { cases, ..Results::begin("explicit", place, 1.0, 1) }
    }

    fn case(app: &str, name: &str, metadata: Metadata, times: f64) -> CaseResult {
        CaseResult { app: app.into(), case: name.into(), metadata, ..example(times, 1.0) }
    }

    #[test]
    fn a_promise_is_kept_or_missed() {
        let cases = vec![
            case("grep2000", "", Metadata::Warm, 17.5),
            case("grep2000", "", Metadata::Cold, 17.5),
            case("diff", "", Metadata::Cold, 17.5),
        ];
        let lines = |place| of(&results(place, cases.clone())).iter().map(Promised::line).collect();
        let found: Vec<String> = lines("cloud");
        assert_eq!(
            found,
            [
                "Promised: grep2000 (metadata warm) 18.0×: 17.5×, MISSED",
                "Promised: grep2000 7.00×: 17.5×, kept"
            ]
        );
        let overlay = [
            "Promised: grep2000 (metadata warm) 13.5×: 17.5×, kept",
            "Promised: grep2000 5.25×: 17.5×, kept",
        ];
        assert_eq!(lines("cloud overlay"), overlay);
        let elsewhere: Vec<String> = lines("hdd");
        assert!(elsewhere.is_empty());
    }

    #[test]
    fn nothing_is_slower_on_flash_or_beside_others() {
        let titles = |place: &str, busy, scale, times| {
            let cases = vec![case("tar", "", Metadata::Cold, times)];
            let results = Results { busy, scale, ..results(place, cases) };
            slowed(&results).iter().map(|case| case.title()).collect::<Vec<_>>()
        };
        assert_eq!(titles("nvme", false, 1.0, 0.85), ["tar"]);
        assert_eq!(titles("cloud", true, 4.0, 0.85), ["tar"]);
        let none: [&str; 0] = [];
        assert_eq!(titles("nvme", false, 1.0, 0.95), none, "it may be chance");
        assert_eq!(titles("cloud", false, 1.0, 0.85), none, "not promised there");
        assert_eq!(titles("nvme", false, 0.5, 0.85), none, "nor of a part of the data");
    }

    #[test]
    fn a_mix_is_judged_when_it_is_whole() {
        let queries = |count: usize| -> Vec<CaseResult> {
            let query = |index: usize| case("postgresql", &index.to_string(), Metadata::Cold, 1.5);
            (0..count).map(query).collect()
        };
        let judged = of(&results("array-2003", queries(8)));
        assert!(matches!(judged.as_slice(), [mix] if mix.measured == 1.5 && !mix.is_kept()));
        assert!(of(&results("array-2003", queries(7))).is_empty());
    }

    #[test]
    fn nothing_is_promised_of_less_data_or_busy_processors() {
        let mut results = results("nvme", vec![case("agrep", "", Metadata::Warm, 2.0)]);
        assert_eq!(of(&results).len(), 1);
        results.busy = true;
        assert!(of(&results).is_empty());
        (results.busy, results.scale) = (false, 0.5);
        assert!(of(&results).is_empty());
    }

    #[test]
    fn promises_are_of_applications_and_places_that_there_are() {
        for promise in PROMISES {
            assert!(apps::all().iter().any(|app| app.name() == promise.app), "{promise:?}");
            let profile = promise.place.split(' ').next().unwrap_or_default();
            assert!(runahead_slowdisk::profile::Profile::by_name(profile).is_ok(), "{promise:?}");
            assert!(promise.times > 1.0, "{promise:?}");
        }
    }
}
