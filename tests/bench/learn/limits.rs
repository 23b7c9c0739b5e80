//! What is promised of the rows, and whether it was kept.

mod days;
mod fits;
mod kept;
mod line;
mod promise;
mod ruin;

use std::fmt::Write as _;

pub use self::promise::{Promise, Results};

pub fn promises(results: Results<'_>) -> Vec<Promise> {
    let mut promises = fits::of_default(results, "default");
    promises.extend(fits::of_other_wishes(results));
    promises.extend(fits::of_agents_apart(results));
    promises.extend(fits::of_adversary(results));
    promises.extend(days::of_quiet(results));
    promises.extend(kept::of_wishes(results));
    promises.extend(kept::of_consolidation(results));
    promises.extend(ruin::seen(results));
    promises.extend(line::of_served(results));
    promises.extend(fits::of_default(results, "hybrid-gated"));
    promises
}

/// They in lines, and whether none is missed; of the `whole` bench each has to be measured.
pub fn summary(promises: &[Promise], whole: bool) -> (String, bool) {
    let mut text = String::new();
    for promise in promises {
        let is = match promise.found {
            None => "not measured",
            Some(_) if promise.is_kept => "kept",
            Some(_) => "MISSED",
        };
        let found = promise
            .found
            .map_or_else(String::new, |it| format!(": {it:.2}"));
        let _ = writeln!(
            text,
            "  {is:<12}  {}{found}, {}",
            promise.what, promise.limit
        );
    }
    let missed = |it: &Promise| !it.is_kept && (whole || it.found.is_some());
    (text, !promises.iter().any(missed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_missed_in_the_whole_bench_alone() {
        let found = [
            Promise::at_least("a".into(), 0.8, None),
            Promise::at_most("b".into(), 0.8, Some(0.5)),
        ];
        let (text, kept) = summary(&found, false);
        assert!(!summary(&found, true).1);
        assert!(
            kept && text.contains("not measured  a, at least 0.80"),
            "{text}"
        );
        let (text, kept) = summary(&[Promise::at_least("c".into(), 0.8, Some(0.5))], false);
        assert!(!kept && text.contains("MISSED        c: 0.50"), "{text}");
    }
}
